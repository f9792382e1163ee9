//! What befalls a program from outside while huepage moves every page of it again and again: limits of
//! memory and time, stops, a freezer, a debugger, a core dump, odd shapes, a full disk. The program's answer
//! must be right each time, and huepage must have moved pages meanwhile, or have refused in one line.

mod outside;
mod shapes;
mod state;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;

use crate::figures::round;
use crate::harness::{Bench, Suite, SuiteFigures, bounded, tool, wanted};
use crate::launch::{Captured, End, Huepage, answering};
use crate::verdict::SuiteVerdict;

/// Longest wait for one command or one end.
const LONGEST: Duration = Duration::from_secs(90);

/// What to do.
#[derive(Args, Clone, Debug)]
pub struct Acts {
    /// Only this act; may be repeated
    #[arg(long)]
    pub only: Vec<String>,
    /// Seconds that a program is tormented
    #[arg(long, default_value_t = 6.0)]
    pub seconds: f64,
    /// Processes of the fork bomb
    #[arg(long, default_value_t = 10_000)]
    pub processes: u32,
    /// Times that a program on small stacks is confined and released
    #[arg(long, default_value_t = 1_000)]
    pub attaches: u32,
    /// Core dumps
    #[arg(long, default_value_t = 20)]
    pub dumps: u32,
}

/// What came of an act.
#[derive(Default)]
pub(super) struct Scene {
    /// Pages moved, as far as it was asked.
    moved: u64,
    /// Figures of the act's own, in words.
    facts: Vec<String>,
    /// What must not be.
    troubles: Vec<String>,
    /// Why the act cannot be played here.
    skipped: Option<String>,
}

impl Scene {
    fn require(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.troubles.push(what());
        }
    }
}

/// An act by name.
type Act = fn(&Stage<'_>, &mut Scene) -> io::Result<()>;

const ACTS: [(&str, Act); 14] = [
    ("stops", outside::stops),
    ("freezer", outside::freezer),
    ("time limit", outside::time_limit),
    ("debugger", outside::debugger),
    ("memory limit", outside::memory_limit),
    ("swap", outside::swap),
    ("out of memory", outside::out_of_memory),
    ("core dump", outside::core_dump),
    ("small stacks", shapes::small_stacks),
    ("fork bomb", shapes::fork_bomb),
    ("mappings", shapes::mappings),
    ("threads", shapes::threads),
    ("terabyte", shapes::terabyte),
    ("full disk", state::full_disk),
];

impl Suite for Acts {
    const FIGURES: SuiteFigures = &[("P26", &[""])];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let with = bench.declared();
        for (name, act) in ACTS.into_iter().filter(|(name, _)| wanted(&self.only, name)) {
            let (mut scene, started) = (Scene::default(), Instant::now());
            let stage = Stage::new(bench.huepage, &with, self);
            let played = stage.and_then(|stage| act(&stage, &mut scene));
            if let Err(error) = played {
                scene.troubles.push(format!("cannot be played: {error}"));
            }
            note(verdict, name, &scene, started.elapsed());
        }
        let played = verdict.rows.iter().filter(|row| row["holds"] == true).count();
        if self.only.is_empty() && verdict.skipped.is_empty() {
            verdict.figure("P26", "", &[played as f64]);
        }
        Ok(())
    }
}

fn note(verdict: &mut SuiteVerdict, name: &str, scene: &Scene, took: Duration) {
    eprintln!("{name}: {} pages moved, {:?} {:?}", scene.moved, scene.facts, scene.troubles);
    if let Some(why) = &scene.skipped {
        verdict.skip(format!("{name}: {why}"));
    }
    verdict.row([
        ("act", name.into()),
        ("seconds", round(took.as_secs_f64())),
        ("pages moved", scene.moved.into()),
        ("what was seen", scene.facts.join(", ").into()),
        ("holds", scene.troubles.is_empty().into()),
    ]);
    scene.troubles.iter().for_each(|what| verdict.miss(format!("{name}: {what}")));
}

/// Where an act is played.
pub(super) struct Stage<'a> {
    huepage: &'a Huepage,
    with: &'a [&'a str],
    setting: &'a Acts,
    place: tempfile::TempDir,
}

impl<'a> Stage<'a> {
    fn new(huepage: &'a Huepage, with: &'a [&'a str], setting: &'a Acts) -> io::Result<Self> {
        let place = tempfile::tempdir()?;
        fs::write(place.path().join("shapes.py"), include_str!("../../programs/acts/shapes.py"))?;
        Ok(Stage { huepage, with, setting, place })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// A long computation with a known answer.
    fn answering(&self) -> io::Result<Captured> {
        self.start(&mut answering(16, LONGEST.as_secs_f64())?)
    }

    /// A program of unusual shape.
    fn shape(&self, kind: &str, seconds: f64, number: u32) -> Command {
        let mut command = Command::new("/usr/bin/python3");
        command.arg(self.path("shapes.py")).arg(kind);
        command.args([seconds.to_string(), number.to_string()]);
        command
    }

    /// Starts a program by itself; it has its memory when this returns.
    fn start(&self, command: &mut Command) -> io::Result<Captured> {
        let program = command.stdin(Stdio::null()).current_dir(self.place.path());
        let program = Captured::start(program)?;
        std::thread::sleep(Duration::from_millis(400));
        Ok(program)
    }

    /// Has a process confined, its pages moved again and again; the line in which that is refused.
    fn attach(&self, pid: u32, options: &[&str]) -> io::Result<Result<(), String>> {
        let mut attach = self.huepage.command(["attach", "--quiet", "--share", "50%"]);
        attach.args(self.with).args(options).arg(pid.to_string());
        Ok(bounded(&mut attach, LONGEST)?.done())
    }

    fn detach(&self, pid: u32) -> io::Result<Result<(), String>> {
        let mut detach = self.huepage.command(["detach"]);
        Ok(bounded(detach.arg(pid.to_string()), LONGEST)?.done())
    }

    /// Pages of a process that were moved so far.
    fn moved(&self, pid: u32) -> u64 {
        let found = self.huepage.inspect(pid).unwrap_or_default();
        found["engine"]["recolored"].as_u64().unwrap_or(0)
    }

    /// Confines a program with its pages moved all the time, torments it by `act` for as long as the setting
    /// says, ends it by SIGTERM, and judges how it ended: as `judge` expects.
    fn torment(
        &self,
        scene: &mut Scene,
        mut program: Captured,
        mut act: impl FnMut(u32) -> io::Result<()>,
        judge: impl FnOnce(&End) -> Option<String>,
    ) -> io::Result<()> {
        let pid = program.id();
        if let Err(refused) = self.attach(pid, &["--storm"])? {
            scene.troubles.push(format!("refused: {refused}"));
        }
        let (started, mut moved) = (Instant::now(), 0);
        // On a loaded machine the first move may take longer than that.
        while program.alive()
            && (started.elapsed().as_secs_f64() < self.setting.seconds
                || moved == 0 && started.elapsed() < LONGEST / 3)
        {
            act(pid)?;
            moved = self.moved(pid).max(moved);
        }
        scene.moved += moved;
        crate::sys::kill(pid, libc::SIGTERM)?;
        let end = program.end(LONGEST)?;
        scene.troubles.extend(judge(&end));
        scene.require(scene.moved > 0, || "no page was moved".to_owned());
        Ok(())
    }
}

/// The self-checking program.
fn torture() -> io::Result<Command> {
    Ok(Command::new(tool("huepage-torture")?))
}

/// What is wrong with the end of a program that counts what was wrong itself.
fn nothing_wrong(end: &End) -> Option<String> {
    let right = end.status == 0 && end.text().trim_end().ends_with("wrong 0");
    (!right).then(|| end.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_judged() {
        let end = |status, out: &str| End { status, out: out.into(), ..End::default() };
        assert_eq!(nothing_wrong(&end(0, "threads 2 wrong 0\n")), None);
        assert!(nothing_wrong(&end(0, "threads 2 wrong 10\n")).is_some());
        assert!(
            nothing_wrong(&end(0, "")).is_some() && nothing_wrong(&end(1, "wrong 0")).is_some()
        );
    }
}
