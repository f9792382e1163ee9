//! Programs of unusual shape: small stacks, fork bombs, many mappings, many threads, much address space.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use super::{LONGEST, Scene, Stage, nothing_wrong, torture};
use crate::launch::answering;

/// The kernel's limit of mappings.
const MOST_MAPPINGS: &str = "/proc/sys/vm/max_map_count";
/// Longest answer of a command about a process that is busy.
const PROMPT: Duration = Duration::from_secs(5);

/// Confined and released again and again while threads run on small stacks, count by restartable sequences
/// and have the kernel write into fixed buffers: nothing beside or below a stack may change.
pub(super) fn small_stacks(stage: &Stage<'_>, scene: &mut Scene) -> io::Result<()> {
    let mut program = stage.start(torture()?.args(["runtimes", "--mib", "4"]))?;
    let (pid, mut refused) = (program.id(), Vec::new());
    for _ in 0..stage.setting.attaches {
        refused.extend(stage.attach(pid, &[])?.err());
        scene.moved += stage.moved(pid);
        refused.extend(stage.detach(pid)?.err());
        if !program.alive() {
            break;
        }
    }
    crate::sys::kill(pid, libc::SIGTERM)?;
    let end = program.end(LONGEST)?;
    let found: serde_json::Value = end.json().unwrap_or_default();
    let checks = &found["checks"];
    scene.facts.push(format!("{} attaches, {checks} checks", stage.setting.attaches));
    scene.require(refused.is_empty(), || format!("refused: {:?}", refused.first()));
    scene.require(end.status == 0 && found["wrong"] == 0, || end.to_string());
    scene.require(checks.as_u64() > Some(0), || "nothing was checked".to_owned());
    Ok(())
}

/// Ten thousand children as fast as they come, of a process that is being confined, beside one that is.
pub(super) fn fork_bomb(stage: &Stage<'_>, scene: &mut Scene) -> io::Result<()> {
    let beside_place = Stage::new(stage.huepage, stage.with, stage.setting)?;
    let beside = beside_place.start(&mut answering(16, 30.0)?)?;
    let neighbour = beside.id();
    let taken = stage.attach(neighbour, &["--storm"])?;
    scene.require(taken.is_ok(), || format!("the neighbour: {taken:?}"));
    let mut program = stage.start(&mut stage.shape("bomb", 0.0, stage.setting.processes))?;
    let pid = program.id();
    let refused = stage.attach(pid, &[])?;
    scene.require(refused.is_ok(), || format!("refused: {refused:?}"));
    let mut longest = Duration::ZERO;
    while program.alive() {
        let asked = Instant::now();
        scene.moved = scene.moved.max(stage.moved(neighbour));
        longest = longest.max(asked.elapsed());
        std::thread::sleep(Duration::from_millis(200));
    }
    let end = program.end(LONGEST)?;
    scene.facts.push(format!("{}, longest answer {longest:?}", end.text().trim_end()));
    scene.require(longest < PROMPT, || format!("an answer took {longest:?}"));
    scene.troubles.extend(nothing_wrong(&end));
    scene.require(scene.moved > 0, || "no page of the neighbour was moved".to_owned());
    scene.troubles.extend(beside.end(LONGEST)?.wrong_answer());
    Ok(())
}

/// The machine's limit of mappings, raised until dropped.
struct Raised(String);

impl Raised {
    fn to(least: u32) -> io::Result<Raised> {
        let before = fs::read_to_string(MOST_MAPPINGS)?;
        if before.trim().parse::<u32>().is_ok_and(|now| now < least) {
            fs::write(MOST_MAPPINGS, least.to_string())?;
        }
        Ok(Raised(before))
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        let _ = fs::write(MOST_MAPPINGS, &self.0);
    }
}

/// A hundred thousand mappings of a page each.
pub(super) fn mappings(stage: &Stage<'_>, scene: &mut Scene) -> io::Result<()> {
    const MAPPINGS: u32 = 100_000;
    let _raised = Raised::to(4 * MAPPINGS)?;
    odd(stage, scene, "mappings", MAPPINGS)
}

/// Two thousand threads.
pub(super) fn threads(stage: &Stage<'_>, scene: &mut Scene) -> io::Result<()> {
    odd(stage, scene, "threads", 2_000)
}

/// An address space of a terabyte.
pub(super) fn terabyte(stage: &Stage<'_>, scene: &mut Scene) -> io::Result<()> {
    odd(stage, scene, "terabyte", 0)
}

/// Confines an odd program for long enough to see its pages in their colours, releases it, and looks at what
/// it says in the end.
fn odd(stage: &Stage<'_>, scene: &mut Scene, kind: &str, number: u32) -> io::Result<()> {
    let program = stage.start(&mut stage.shape(kind, LONGEST.as_secs_f64(), number))?;
    let pid = program.id();
    std::thread::sleep(Duration::from_millis(1500));
    let asked = Instant::now();
    let taken = stage.attach(pid, &[])?;
    scene.facts.push(format!("attached in {:.2} s", asked.elapsed().as_secs_f64()));
    scene.require(taken.is_ok(), || format!("refused: {taken:?}"));
    let (mut share, limit) = (None, LONGEST / 2);
    while share < Some(0.99) && asked.elapsed() < limit {
        let found = stage.huepage.inspect(pid).unwrap_or_default();
        share = found["compliance"]["share"].as_f64().or(share);
        scene.moved = found["engine"]["recolored"].as_u64().unwrap_or(scene.moved);
    }
    scene.facts.push(format!("compliance {share:?} after {:.2} s", asked.elapsed().as_secs_f64()));
    scene.require(share >= Some(0.99), || format!("compliance {share:?}"));
    let left = stage.detach(pid)?;
    scene.require(left.is_ok(), || format!("it cannot be released: {left:?}"));
    crate::sys::kill(pid, libc::SIGTERM)?;
    scene.troubles.extend(nothing_wrong(&program.end(LONGEST)?));
    Ok(())
}
