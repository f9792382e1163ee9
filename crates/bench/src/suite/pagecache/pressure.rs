//! A control group whose limit is slightly above what a program in it holds, with `huepage warm`
//! of a large file in the same group: nothing may be killed for want of memory, the program
//! lives on, and warm ends in good order. Both versions of control groups.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;

use super::{Bench, Guard, Verdict, progress, tool};
use crate::launch::{bounded, shell_status};
use crate::pagecache::files;

/// A warm that takes longer hangs: the file is no larger than what a disk reads in seconds.
const LONGEST: Duration = Duration::from_secs(60);
/// Where control groups are.
const MOUNT: &str = "/sys/fs/cgroup";

/// What to do.
#[derive(Args, Clone, Debug)]
pub struct Setting {
    /// MiB that the program holds
    #[arg(long, default_value_t = 96)]
    pub hold_mib: usize,
    /// MiB that the limit is above it; huepage itself needs some of them
    #[arg(long, value_delimiter = ',', default_value = "48,32,24")]
    pub room_mib: Vec<usize>,
    /// Size of the file, in MiB
    #[arg(long, default_value_t = 256)]
    pub file_mib: u64,
    /// How colours are known
    #[arg(long, default_value = "pfn")]
    pub colors_from: String,
}

/// A control group of one's own, gone when dropped.
#[derive(Debug)]
struct Group {
    dir: PathBuf,
    limit: &'static str,
    kills: &'static str,
}

impl Group {
    /// Makes one, of whichever version has the memory controller.
    fn make(room: usize) -> io::Result<Group> {
        let name = format!("huepage-bench-{}-{room}", std::process::id());
        let (root, old) = (Path::new(MOUNT), Path::new(MOUNT).join("memory"));
        if old.join("memory.limit_in_bytes").is_file() {
            let dir = old.join(name);
            fs::create_dir(&dir)?;
            let (limit, kills) = ("memory.limit_in_bytes", "memory.oom_control");
            return Ok(Group { dir, limit, kills });
        }
        let controllers = fs::read_to_string(root.join("cgroup.controllers"))?;
        if !controllers.split_ascii_whitespace().any(|name| name == "memory") {
            return Err(io::Error::other("no memory controller; mount one"));
        }
        fs::write(root.join("cgroup.subtree_control"), "+memory")?;
        let dir = root.join(name);
        fs::create_dir(&dir)?;
        Ok(Group { dir, limit: "memory.max", kills: "memory.events" })
    }

    fn limit(&self, mib: usize) -> io::Result<()> {
        fs::write(self.dir.join(self.limit), (mib << 20).to_string())
    }

    /// Processes of it that were killed for want of memory.
    fn kills(&self) -> io::Result<u64> {
        let text = fs::read_to_string(self.dir.join(self.kills))?;
        let count = |line: &str| line.strip_prefix("oom_kill ")?.trim().parse().ok();
        text.lines().find_map(count).ok_or_else(|| io::Error::other("kills are not counted here"))
    }

    /// Puts a command into it.
    fn inside(&self, command: &Command) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]);
        shell.arg(self.dir.join("cgroup.procs")).arg(command.get_program());
        shell.args(command.get_args());
        shell
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes may take a moment to go.
        for _ in 0..100 {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Runs the suite.
pub fn run(bench: Bench<'_>, setting: &Setting) -> Verdict {
    let mut verdict = Verdict::new("warm-pressure");
    for room in &setting.room_mib {
        progress(&format!("{room} MiB of room"));
        match Group::make(*room) {
            Err(error) => {
                verdict.skip(format!("no control group: {error}"));
                break;
            }
            Ok(group) => {
                if let Err(error) = one(&mut verdict, bench, setting, &group, *room) {
                    verdict.miss(format!("{room} MiB of room: {error}"));
                }
            }
        }
    }
    progress("");
    verdict
}

/// The program that needs its memory.
fn holder(mib: usize) -> io::Result<Command> {
    let mut hold = Command::new(tool()?);
    hold.args(["hold", "--mib", &mib.to_string()]);
    Ok(hold)
}

/// A file of which nothing is cached.
fn cold_file(dir: &Path, mib: u64) -> io::Result<PathBuf> {
    let file = dir.join("file");
    files::fill(&file, mib << 20, 8)?;
    files::drop_cached(std::slice::from_ref(&file))?;
    Ok(file)
}

fn one(
    verdict: &mut Verdict,
    bench: Bench<'_>,
    setting: &Setting,
    group: &Group,
    room: usize,
) -> io::Result<()> {
    let scratch = bench.scratch()?;
    let file = cold_file(scratch.path(), setting.file_mib)?;
    group.limit(setting.hold_mib + room)?;
    let (mut program, _out) = Guard::ready(&mut group.inside(&holder(setting.hold_mib)?))?;
    let before = group.kills()?;
    let args = ["--policy", "srm", "--colors-from", &setting.colors_from];
    let args = args.iter().map(Into::into).chain([file.as_os_str().to_owned()]);
    let started = Instant::now();
    let output = bounded(&mut group.inside(&bench.warm_command(args)), LONGEST)?;
    let (status, kills) = (shell_status(output.status), group.kills()? - before);
    let warmed: super::Warmed = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let said = String::from_utf8_lossy(&output.stderr);
    verdict.row([
        ("room MiB", room.into()),
        ("status", status.into()),
        ("killed", kills.into()),
        ("program lives", program.alive().into()),
        ("placed share", crate::suite::round(warmed.share())),
        ("zone pages", warmed.zone.peak_pages.into()),
        ("seconds", crate::suite::round(started.elapsed().as_secs_f64())),
        ("said", said.lines().last().unwrap_or_default().into()),
    ]);
    let name = format!("{room} MiB of room");
    let mut require = |holds, what: String| verdict.require(holds, || format!("{name}: {what}"));
    require(kills == 0, format!("{kills} processes were killed"));
    require(program.alive(), "the program is gone".to_owned());
    require(started.elapsed() < LONGEST, format!("warm did not end within {LONGEST:?}"));
    // What warm cannot do in so little room it must say, in one line and with a status.
    let in_order = status == 0 || (100..=127).contains(&status) && said.lines().count() == 1;
    require(in_order, format!("warm ended with {status}: {said}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_read_from_both_versions() {
        let dir = tempfile::tempdir().unwrap();
        let group = |kills| Group { dir: dir.path().join("x"), limit: "l", kills };
        fs::create_dir(dir.path().join("x")).unwrap();
        let write = |name: &str, text| fs::write(dir.path().join("x").join(name), text).unwrap();
        write("one", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
        write("two", "low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n");
        write("none", "oom_kill_disable 0\nunder_oom 0\n");
        let read = |name| {
            let group = group(name);
            let kills = group.kills();
            std::mem::forget(group);
            kills
        };
        assert_eq!((read("one").unwrap(), read("two").unwrap()), (3, 1));
        assert!(read("none").is_err());
    }
}
