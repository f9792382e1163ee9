//! A full disk below what huepage keeps: its commands do without or refuse in one line, and programs are right.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{LONGEST, Scene, Stage};
use crate::harness::bounded;
use crate::launch::{Captured, RIGHT, answering};

/// A file system of its own, unmounted when dropped.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    fn mount(at: &'a Path) -> io::Result<Disk<'a>> {
        fs::create_dir(at)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k,mode=700", "none"]).arg(at);
        bounded(&mut mount, LONGEST)?.done().map_err(io::Error::other)?;
        Ok(Disk(at))
    }

    /// Fills what is left of it.
    fn fill(&self) {
        let (mut size, mut number) = (32 << 10, 0);
        while size > 0 {
            number += 1;
            if fs::write(self.0.join(format!("filler{number}")), vec![1; size]).is_err() {
                size /= 2;
            }
        }
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// Commands whose directory is full, and a daemon whose disk fills while it works.
pub(super) fn full_disk(stage: &Stage<'_>, scene: &mut Scene) -> io::Result<()> {
    let at = stage.path("run");
    let disk = match Disk::mount(&at) {
        Ok(disk) => disk,
        Err(error) => {
            scene.skipped = Some(error.to_string());
            return Ok(());
        }
    };
    let program = stage.start(&mut answering(16, stage.setting.seconds + 4.0)?)?;
    let (pid, huepage) = (program.id(), stage.huepage.within(at.clone()));
    daemon_goes_on(stage, scene, &disk, pid)?;
    let mut attach = huepage.command(["attach", "--quiet", "--share", "50%"]);
    let said = bounded(attach.args(stage.with).arg(pid.to_string()), LONGEST)?.done();
    scene.facts.push(format!("attach: {said:?}"));
    scene.require(said.as_ref().err().is_none_or(|why| !why.contains("other than")), || {
        format!("attach refuses {said:?}")
    });
    let options = ["--share", "50%"].iter().chain(stage.with);
    let end = bounded(&mut huepage.run(options, &answering(4, 1.0)?), LONGEST)?;
    let fine = end.status == RIGHT;
    scene.facts.push(format!("run: {}", if fine { "right" } else { "refused" }));
    let in_one = end.done().is_err_and(|why| why.starts_with("huepage: "));
    scene.require(fine || in_one, || format!("run says {:?}", end.err));
    scene.troubles.extend(program.end(LONGEST)?.wrong_answer());
    Ok(())
}

/// The daemon cannot write its state any more, and goes on.
fn daemon_goes_on(
    stage: &Stage<'_>,
    scene: &mut Scene,
    disk: &Disk<'_>,
    pid: u32,
) -> io::Result<()> {
    let config = stage.path("huepage.toml");
    let state = disk.0.join("state.json");
    let group = format!("[[group]]\nname = \"one\"\npid = {pid}\nshare = 4\n");
    let daemon = format!(
        "[daemon]\ncolors_from = \"declared\"\nmetric_user = \"root\"\nstate_file = \"{}\"\nlook = 0.1\n",
        state.display()
    );
    fs::write(&config, daemon + &group)?;
    let mut command = stage.huepage.within(disk.0.to_owned()).command(["daemon", "--config"]);
    let mut daemon = Captured::start(command.arg(&config))?;
    std::thread::sleep(Duration::from_secs(2));
    disk.fill();
    for colors in [3, 5, 4] {
        let text = fs::read_to_string(&config)?;
        let (before, _) = text.rsplit_once("share").unwrap_or_default();
        fs::write(&config, format!("{before}share = {colors}\n"))?;
        crate::sys::kill(daemon.id(), libc::SIGHUP)?;
        std::thread::sleep(Duration::from_millis(700));
    }
    let lives = daemon.alive();
    crate::sys::kill(daemon.id(), libc::SIGTERM)?;
    let end = daemon.wait()?;
    let (status, said) = (end.status, end.err);
    let told = said.lines().find(|line| line.contains("state.json") || line.contains("No space"));
    scene.facts.push(format!("daemon: {:?}", told.unwrap_or_default()));
    scene.require(lives && status == 0, || format!("the daemon ended with {status}: {said}"));
    scene.require(told.is_some(), || format!("the daemon says nothing of its full disk: {said}"));
    Ok(())
}
