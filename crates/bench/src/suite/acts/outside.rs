//! What others do to a program: stop it, freeze it, starve it, debug it, kill it.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{LONGEST, Scene, Stage, nothing_wrong, torture};
use crate::cgroup::{ControlGroup, Controller};
use crate::harness::bounded;
use crate::launch::{Captured, End, answering};
use crate::mix::Rng;
use crate::sys;

const PAGE: usize = 4096;

fn pause(ms: usize) {
    std::thread::sleep(Duration::from_millis(ms as u64));
}

/// Leaves a program to the moving of its pages for a moment.
fn idle(_: u32) -> io::Result<()> {
    pause(50);
    Ok(())
}

/// Stopped and continued at odd moments.
pub(super) fn stops(stage: &Stage<'_>, scene: &mut Scene) -> io::Result<()> {
    let program = stage.answering()?;
    let (mut rng, mut times) = (Rng::with_seed(7), 0);
    let act = |pid| {
        sys::kill(pid, libc::SIGSTOP)?;
        pause(1 + rng.usize(..30));
        sys::kill(pid, libc::SIGCONT)?;
        pause(1 + rng.usize(..30));
        times += 1;
        Ok(())
    };
    stage.torment(scene, program, act, End::wrong_answer)?;
    scene.facts.push(format!("{times} stops"));
    Ok(())
}

/// A group, or why there is none, which a scene then says.
fn group(scene: &mut Scene, controller: Controller, name: &str) -> Option<ControlGroup> {
    ControlGroup::make(controller, name).map_err(|e| scene.skipped = Some(e.to_string())).ok()
}

/// Frozen and thawed at odd moments.
pub(super) fn freezer(stage: &Stage<'_>, scene: &mut Scene) -> io::Result<()> {
    let Some(group) = group(scene, Controller::Freezer, "freezer") else { return Ok(()) };
    let program = stage.answering()?;
    group.take(program.id())?;
    let (mut rng, mut times) = (Rng::with_seed(8), 0);
    let act = |_| {
        group.freeze(true)?;
        pause(1 + rng.usize(..40));
        group.freeze(false)?;
        pause(1 + rng.usize(..40));
        times += 1;
        Ok(())
    };
    stage.torment(scene, program, act, End::wrong_answer)?;
    scene.facts.push(format!("{times} times frozen"));
    Ok(())
}

/// A tenth of a processor, for its agent's threads as well.
pub(super) fn time_limit(stage: &Stage<'_>, scene: &mut Scene) -> io::Result<()> {
    let Some(group) = group(scene, Controller::Cpu, "time") else { return Ok(()) };
    let program = stage.answering()?;
    group.limit_time(10)?;
    group.take(program.id())?;
    stage.torment(scene, program, idle, End::wrong_answer)?;
    scene.facts.push("10 % of one CPU".to_owned());
    Ok(())
}

/// A debugger that comes and goes while pages are moved; and one that is there first.
pub(super) fn debugger(stage: &Stage<'_>, scene: &mut Scene) -> io::Result<()> {
    let tracer = Path::new("/usr/bin/strace");
    if !tracer.exists() {
        scene.skipped = Some("strace is not installed; run scripts/setup-programs.sh".to_owned());
        return Ok(());
    }
    let strace = |pid: u32| {
        let mut command = Command::new("timeout");
        command.args(["-s", "INT", "0.3", "/usr/bin/strace", "-f", "-o", "/dev/null", "-p"]);
        command.arg(pid.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let program = stage.answering()?;
    let mut times = 0;
    let act = |pid| {
        bounded(&mut strace(pid), LONGEST)?;
        times += 1;
        Ok(())
    };
    stage.torment(scene, program, act, End::wrong_answer)?;
    scene.facts.push(format!("{times} times traced"));
    let program = stage.start(&mut answering(16, 3.0)?)?;
    let pid = program.id();
    let mut first = strace(pid).spawn()?;
    pause(100);
    let refused = stage.attach(pid, &[])?;
    first.wait()?;
    scene.require(refused.is_err(), || "it was taken from its debugger".to_owned());
    scene.facts.push(format!("refused while traced: {}", refused.err().unwrap_or_default()));
    scene.troubles.extend(program.end(LONGEST)?.wrong_answer());
    Ok(())
}

/// Parents and children in hardly more memory than they need. Their supervisor is elsewhere, and nobody is killed.
pub(super) fn memory_limit(stage: &Stage<'_>, scene: &mut Scene) -> io::Result<()> {
    let Some(group) = group(scene, Controller::Memory, "memory") else { return Ok(()) };
    group.limit_memory(64)?;
    let mut program = torture()?;
    let mut program = group.inside(program.args(["forkers", "--mib", "8", "--threads", "1"]));
    let program = stage.start(&mut program)?;
    let mut checks = 0;
    let judge = |end: &End| {
        let found: serde_json::Value = end.json().unwrap_or_default();
        checks = found["checks"].as_u64().unwrap_or(0);
        let right = end.status == 0 && found["wrong"] == 0 && checks > 0;
        (!right).then(|| end.to_string())
    };
    stage.torment(scene, program, idle, judge)?;
    scene.facts.push(format!("{checks} checks"));
    let kills = group.kills()?;
    scene.require(kills == 0, || format!("{kills} processes were killed for want of memory"));
    Ok(())
}

/// Swap space of compressed memory, gone when dropped.
struct Swap(PathBuf);

impl Swap {
    fn make() -> Result<Swap, String> {
        let (device, size) = (Path::new("/dev/zram0"), "/sys/block/zram0/disksize");
        let used = fs::read_to_string(size).map_err(|_| "no /dev/zram0 here")?;
        if used.trim() != "0" {
            return Err("/dev/zram0 is in use".to_owned());
        }
        fs::write(size, "512M").map_err(|e| format!("{size}: {e}"))?;
        let swap = Swap(device.to_owned());
        for tool in ["mkswap", "swapon"] {
            let done = Command::new(tool).arg(device).stdout(Stdio::null()).status();
            if !done.is_ok_and(|status| status.success()) {
                return Err(format!("{tool} /dev/zram0 fails"));
            }
        }
        Ok(swap)
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = Command::new("swapoff").arg(&self.0).status();
        let _ = fs::write("/sys/block/zram0/reset", "1");
    }
}

/// A program that has its pages taken out to swap, and finds them as they were.
pub(super) fn swap(stage: &Stage<'_>, scene: &mut Scene) -> io::Result<()> {
    let _swap = match Swap::make() {
        Ok(swap) => swap,
        Err(why) => {
            scene.skipped = Some(why);
            return Ok(());
        }
    };
    let before = swapped()?;
    let program = stage.start(&mut stage.shape("swap", LONGEST.as_secs_f64(), 2048))?;
    stage.torment(scene, program, idle, nothing_wrong)?;
    let pages = swapped()? - before;
    scene.facts.push(format!("{pages} pages swapped out"));
    scene.require(pages > 0, || "nothing was swapped out".to_owned());
    Ok(())
}

/// Pages that the machine has swapped out so far.
fn swapped() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/vmstat")?;
    let count = |line: &str| line.strip_prefix("pswpout ")?.trim().parse().ok();
    text.lines().find_map(count).ok_or_else(|| io::Error::other("no pswpout in /proc/vmstat"))
}

/// One program of a group eats all memory and is killed for it; the other is right.
pub(super) fn out_of_memory(stage: &Stage<'_>, scene: &mut Scene) -> io::Result<()> {
    let Some(group) = group(scene, Controller::Memory, "oom") else { return Ok(()) };
    group.limit_memory(192)?;
    let program = stage.answering()?;
    let mut eater = group.inside(&stage.shape("eater", 1.5, 0));
    let eater = Captured::start(eater.stdin(Stdio::null()))?;
    pause(300);
    let refused = stage.attach(eater.id(), &["--storm"])?;
    stage.torment(scene, program, idle, End::wrong_answer)?;
    let status = eater.wait()?.status;
    scene.facts.push(format!("the eater ended with {status}, attach: {refused:?}"));
    scene.require(status == 137, || format!("the eater was not killed: {status}"));
    scene.require(group.kills()? > 0, || "nobody was killed for want of memory".to_owned());
    Ok(())
}

/// Core dumps while pages are moved: each page of a dump holds what the program wrote there, or huepage says
/// that it may not.
pub(super) fn core_dump(stage: &Stage<'_>, scene: &mut Scene) -> io::Result<()> {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern")?;
    if pattern.starts_with(['|', '/', '@']) {
        scene.skipped = Some(format!("core_pattern {:?} leaves no file here", pattern.trim()));
        return Ok(());
    }
    let (mut short, mut told) = (0, 0);
    for number in 0..stage.setting.dumps {
        let lost = one_dump(stage, scene, 0.9 + f64::from(number % 10) * 0.03)?;
        short += u32::from(lost.0 > 0);
        told += u32::from(lost.1);
    }
    scene.facts.push(format!("{} dumps, {short} lack pages, {told} told", stage.setting.dumps));
    scene.require(short <= told, || format!("{short} dumps lack pages, {told} were told"));
    Ok(())
}

/// Pages that one dump lacks, and whether huepage said so.
fn one_dump(stage: &Stage<'_>, scene: &mut Scene, seconds: f64) -> io::Result<(usize, bool)> {
    const PAGES: u32 = 2048;
    let shape = stage.shape("dump", seconds, PAGES);
    let report = stage.path("report");
    let mut run = stage.huepage.command(["run", "--share", "50%", "--storm", "--report"]);
    run.arg(&report).args(stage.with).args(["--", "sh", "-c", "ulimit -c unlimited; exec \"$@\""]);
    run.arg("sh").arg(shape.get_program()).args(shape.get_args());
    let end = stage.start(&mut run)?.end(LONGEST)?;
    scene.require(end.status == 134, || format!("no core: {end}"));
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&report)?).unwrap_or_default();
    scene.moved += report["recolored"].as_u64().unwrap_or(0);
    let Ok(address) = end.text().trim().parse() else {
        return Err(io::Error::other(format!("no address: {end}")));
    };
    let core = newest_core(stage.place.path())?;
    let lost = missing_pages(&core, address, PAGES as usize)?;
    fs::remove_file(core)?;
    Ok((lost, end.err.contains("core dump")))
}

fn newest_core(dir: &Path) -> io::Result<PathBuf> {
    let entries = fs::read_dir(dir)?.flatten().map(|entry| entry.path());
    let named = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("core"))
    };
    entries.filter(named).max().ok_or_else(|| io::Error::other("no core file was written"))
}

/// Pages from `address` on that do not hold the pattern of `shapes.py dump` in a core file.
fn missing_pages(core: &Path, address: u64, pages: usize) -> io::Result<usize> {
    let file = fs::File::open(core)?;
    let number = |at: u64, bytes: usize| {
        let mut word = [0; 8];
        file.read_exact_at(&mut word[..bytes], at).map(|()| u64::from_le_bytes(word))
    };
    let (table, count) = (number(32, 8)?, number(56, 2)?);
    let mut segments = Vec::new();
    for header in (0..count).map(|n| table + n * 56) {
        if number(header, 4)? == 1 {
            let (offset, start) = (number(header + 8, 8)?, number(header + 16, 8)?);
            segments.push((start, number(header + 32, 8)?, offset));
        }
    }
    let holds = |page: u64| {
        let at = address + page * PAGE as u64;
        let expected = page.wrapping_mul(2_654_435_761).wrapping_add(12_345);
        let inside = |s: &&(u64, u64, u64)| (s.0..s.0 + s.1).contains(&at);
        let word = segments.iter().find(inside).and_then(|s| number(s.2 + at - s.0 + 8, 8).ok());
        word == Some(expected)
    };
    Ok((0..pages as u64).filter(|&page| !holds(page)).count())
}
