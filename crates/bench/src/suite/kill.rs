//! `kill -9` of huepage's processes at random moments while pages move: the target must
//! finish with the right answer and its own exit status, coloured or not.
//!
//! Half of the targets are started by `huepage run`, half are attached to while they run.
//! The benchmark adopts orphans, so that it can wait for a target whose parent it killed.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use clap::Args;

use crate::harness::{Bench, Suite, SuiteFigures};
use crate::launch::{End, Huepage, RIGHT, answering, kill_tree};
use crate::mix::Rng;
use crate::observe;
use crate::sys::{self, ChildEnd};
use crate::verdict::SuiteVerdict;

/// Longest wait for a target to appear or to finish.
const LONGEST: Duration = Duration::from_secs(60);

/// Targets, as promised.
const TIMES: u32 = 200;

/// What is run.
#[derive(Args, Clone, Debug)]
pub struct Kill {
    /// Targets
    #[arg(long, default_value_t = TIMES)]
    times: u32,
    /// Seed of the moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Suite for Kill {
    const FIGURES: SuiteFigures = &[("P15", &[""])];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let options = [bench.options, &["--share", "50%"]].concat();
        let mut rng = Rng::with_seed(self.seed);
        sys::adopt_orphans()?;
        let (mut survived, mut killed) = (0, 0);
        for time in 0..self.times {
            let way = if time % 2 == 0 { Way::Run } else { Way::Attach };
            match one(bench.huepage, &options, way, &mut rng) {
                Ok(Fate { victims, trouble: None }) => {
                    survived += 1;
                    killed += victims;
                }
                Ok(Fate { trouble: Some(trouble), .. }) => {
                    verdict.miss(format!("{way:?} {time}: {trouble}"));
                }
                Err(error) => verdict.miss(format!("{way:?} {time}: {error}")),
            }
        }
        verdict.total("targets", self.times);
        verdict.total("right", survived);
        if self.times == TIMES {
            verdict.figure("P15", "", &[f64::from(survived)]);
        }
        verdict.total("processes killed", killed);
        let any = killed > 0 || self.times == 0;
        verdict.require(any, || "no huepage process was killed".to_owned());
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Run,
    Attach,
}

/// What became of one target.
struct Fate {
    victims: usize,
    trouble: Option<String>,
}

fn one(huepage: &Huepage, options: &[&str], way: Way, rng: &mut Rng) -> io::Result<Fate> {
    let dir = tempfile::tempdir()?;
    let mut plain = answering(16, 1.5)?;
    plain.stdout(File::create(dir.path().join("out"))?);
    let log = File::create(dir.path().join("err"))?;
    let (supervisor, target) = match way {
        Way::Run => start_run(huepage, options, &plain, dir.path(), log)?,
        Way::Attach => start_attach(huepage, options, plain, log)?,
    };
    std::thread::sleep(Duration::from_micros(rng.usize(..1_500_000) as u64));
    let victims = strike(&supervisor, target, huepage, rng);
    let ended = wait_for(target);
    let supervised = end_supervisor(supervisor, target);
    let status = if way == Way::Run && matches!(ended, Ok(None)) { supervised } else { ended? };
    let read = |name| fs::read_to_string(dir.path().join(name)).unwrap_or_default();
    let (out, said) = (read("out"), read("err"));
    let answer = End { status: RIGHT, out: out.clone().into(), ..End::default() };
    let right = status == Some(ChildEnd::Status(RIGHT)) && answer.wrong_answer().is_none();
    let trouble = (!right)
        .then(|| format!("the target ended as {status:?} and said {out:?}; huepage: {said:?}"));
    Ok(Fate { victims, trouble })
}

fn start_run(
    huepage: &Huepage,
    options: &[&str],
    plain: &Command,
    dir: &Path,
    log: File,
) -> io::Result<(Child, u32)> {
    let mut command = huepage.run(["--storm"].iter().chain(options), plain);
    let supervisor = command.stdout(File::create(dir.join("out"))?).stderr(log).spawn()?;
    let (own, started) = (supervisor.id(), Instant::now());
    while started.elapsed() < LONGEST {
        if let Some(target) = observe::programs_below(own, &huepage.path).first() {
            return Ok((supervisor, *target));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    kill_tree(own);
    Err(io::Error::other("the target never started"))
}

fn start_attach(
    huepage: &Huepage,
    options: &[&str],
    mut plain: Command,
    log: File,
) -> io::Result<(Child, u32)> {
    let target = plain.spawn()?.id();
    let mut command = huepage.command(["attach", "--quiet", "--foreground", "--storm"]);
    command.args(options).arg(target.to_string()).stderr(log);
    Ok((command.spawn()?, target))
}

/// Kills the supervisor, another of huepage's processes, or all at once; how many.
fn strike(supervisor: &Child, target: u32, huepage: &Huepage, rng: &mut Rng) -> usize {
    let mut all = vec![supervisor.id()];
    let programs = observe::programs_below(supervisor.id(), &huepage.path);
    let below = observe::descendants(supervisor.id());
    all.extend(below.into_iter().filter(|pid| !programs.contains(pid)));
    all.extend(programs.into_iter().filter(|pid| *pid != target && is_agent(*pid)));
    let victims = match rng.usize(..3) {
        0 => all,
        1 => vec![all[0]],
        _ => vec![all[rng.usize(..all.len())]],
    };
    victims.iter().filter(|pid| sys::kill(**pid, libc::SIGKILL).is_ok()).count()
}

/// Whether a process is huepage's agent, which shows the target as its program.
fn is_agent(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|c| c.trim() == "huepage-agent")
}

/// Waits for a target that is, or becomes, a child of this process. `None` when another
/// process was its parent to the end.
fn wait_for(target: u32) -> io::Result<Option<ChildEnd>> {
    let started = Instant::now();
    while started.elapsed() < LONGEST {
        match sys::try_wait(target) {
            Ok(Some(ended)) => return Ok(Some(ended)),
            Ok(None) => {}
            Err(_) if sys::kill(target, 0).is_err() => return Ok(None),
            Err(_) => {}
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_tree(target);
    Err(io::Error::other("the target did not finish"))
}

/// Ends what is left of the supervisor; how it ended, if by itself.
fn end_supervisor(mut supervisor: Child, target: u32) -> Option<ChildEnd> {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(10) {
        if let Ok(Some(status)) = supervisor.try_wait() {
            return status.code().map(ChildEnd::Status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_tree(supervisor.id());
    let _ = supervisor.wait();
    let _ = sys::kill(target, libc::SIGKILL);
    None
}
