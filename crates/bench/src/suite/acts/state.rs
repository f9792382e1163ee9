//! A full disk below what huepage keeps: its commands do without or refuse in one line, and programs are right.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{LONGEST, Scene, Stage, one_line, right_answer};
use crate::harness::tool;
use crate::launch::bounded;

/// A file system of its own, unmounted when dropped.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    fn mount(at: &'a Path) -> io::Result<Disk<'a>> {
        fs::create_dir(at)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k,mode=700", "none"]).arg(at);
        let output = bounded(&mut mount, LONGEST)?;
        one_line(&output).map_err(io::Error::other)?;
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
    let program = stage.start(&mut stage.answer(stage.setting.seconds + 4.0)?)?;
    let pid = program.child.id();
    daemon_goes_on(stage, scene, &disk, pid)?;
    let mut attach = stage.huepage.command(["attach", "--quiet", "--share", "50%"]);
    attach.args(stage.with).arg(pid.to_string()).env("HUEPAGE_RUNTIME_DIR", &at);
    let said = one_line(&bounded(&mut attach, LONGEST)?);
    scene.facts.push(format!("attach: {said:?}"));
    scene.require(said.as_ref().err().is_none_or(|why| !why.contains("other than")), || {
        format!("attach refuses {said:?}")
    });
    let torture = tool("huepage-torture")?;
    let mut run = stage.huepage.command(["run", "--quiet", "--share", "50%"]);
    run.args(stage.with).arg("--").arg(torture).args(["answer", "--mib", "4", "--right", "42"]);
    run.args(["--seconds", "1"]).env("HUEPAGE_RUNTIME_DIR", &at);
    let output = bounded(&mut run, LONGEST)?;
    let fine = output.status.code() == Some(42);
    let said = one_line(&output);
    scene.facts.push(format!("run: {}", if fine { "right" } else { "refused" }));
    let in_one = said.is_err_and(|why| why.starts_with("huepage: "));
    scene.require(fine || in_one, || {
        format!("run says {:?}", String::from_utf8_lossy(&output.stderr))
    });
    scene.troubles.extend(right_answer(&program.end(LONGEST)?));
    Ok(())
}

/// The daemon cannot write its state any more, and goes on.
fn daemon_goes_on(
    stage: &Stage<'_>,
    scene: &mut Scene,
    disk: &Disk<'_>,
    pid: u32,
) -> io::Result<()> {
    let (config, log) = (stage.path("huepage.toml"), stage.path("daemon.log"));
    let state = disk.0.join("state.json");
    let group = format!("[[group]]\nname = \"one\"\npid = {pid}\nshare = 4\n");
    let daemon = format!(
        "[daemon]\ncolors_from = \"declared\"\nmetric_user = \"root\"\nstate_file = \"{}\"\nlook = 0.1\n",
        state.display()
    );
    fs::write(&config, daemon + &group)?;
    let mut command = stage.huepage.command(["daemon", "--config"]);
    command.arg(&config).env("HUEPAGE_RUNTIME_DIR", disk.0).stdout(std::process::Stdio::null());
    let mut child = command.stderr(fs::File::create(&log)?).spawn()?;
    std::thread::sleep(Duration::from_secs(2));
    disk.fill();
    for colors in [3, 5, 4] {
        let text = fs::read_to_string(&config)?;
        let (before, _) = text.rsplit_once("share").unwrap_or_default();
        fs::write(&config, format!("{before}share = {colors}\n"))?;
        crate::sys::kill(child.id(), libc::SIGHUP)?;
        std::thread::sleep(Duration::from_millis(700));
    }
    let lives = child.try_wait()?.is_none();
    crate::sys::kill(child.id(), libc::SIGTERM)?;
    let status = child.wait()?;
    let said = fs::read_to_string(&log)?;
    let told = said.lines().find(|line| line.contains("state.json") || line.contains("No space"));
    scene.facts.push(format!("daemon: {:?}", told.unwrap_or_default()));
    scene.require(lives && status.success(), || format!("the daemon ended with {status}: {said}"));
    scene.require(told.is_some(), || format!("the daemon says nothing of its full disk: {said}"));
    Ok(())
}
