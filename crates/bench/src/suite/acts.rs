//! What befalls a program from outside while huepage moves every page of it again and again: limits of
//! memory and time, stops, a freezer, a debugger, a core dump, odd shapes, a full disk. The program's answer
//! must be right each time, and huepage must have moved pages meanwhile, or have refused in one line.

mod outside;
mod shapes;
mod state;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;

use crate::figures::round;
use crate::harness::{Bench, Suite, tool, wanted};
use crate::launch::{Huepage, bounded, kill_tree, shell_status};
use crate::verdict::SuiteVerdict;

/// Longest wait for one command or one end.
const LONGEST: Duration = Duration::from_secs(90);
/// The status of a program that got its answer right: nobody else ends so.
const RIGHT: i32 = 42;

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
    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let Bench { huepage, options: with, .. } = bench;
        let mut options = with.to_vec();
        if !with.iter().any(|option| option.starts_with("--colors-from")) {
            options.extend(["--colors-from", "declared"]);
        }
        for (name, act) in ACTS.into_iter().filter(|(name, _)| wanted(&self.only, name)) {
            let (mut scene, started) = (Scene::default(), Instant::now());
            let played =
                Stage::new(huepage, &options, self).and_then(|stage| act(&stage, &mut scene));
            if let Err(error) = played {
                scene.troubles.push(format!("cannot be played: {error}"));
            }
            note(verdict, name, &scene, started.elapsed());
        }
        let played = verdict.rows.iter().filter(|row| row["holds"] == true).count();
        verdict.figure("P26", "", &[played as f64]);
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
    fn answer(&self, seconds: f64) -> io::Result<Command> {
        let mut command = torture()?;
        command.args(["answer", "--mib", "16", "--right", "42", "--seconds"]);
        command.arg(seconds.to_string());
        Ok(command)
    }

    /// A program of unusual shape.
    fn shape(&self, kind: &str, seconds: f64, number: u32) -> Command {
        let mut command = Command::new("/usr/bin/python3");
        command.arg(self.path("shapes.py")).arg(kind);
        command.args([seconds.to_string(), number.to_string()]);
        command
    }

    /// Starts a program by itself; it has its memory when this returns.
    fn start(&self, command: &mut Command) -> io::Result<Program> {
        let (out, err) = (self.path("out"), self.path("err"));
        command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&err)?);
        let child = command.current_dir(self.place.path()).spawn()?;
        std::thread::sleep(Duration::from_millis(400));
        Ok(Program { child, out, err })
    }

    /// Has a process confined, its pages moved again and again; the line in which that is refused.
    fn attach(&self, pid: u32, options: &[&str]) -> io::Result<Result<(), String>> {
        let mut attach = self.huepage.command(["attach", "--quiet", "--share", "50%"]);
        attach.args(self.with).args(options).arg(pid.to_string());
        Ok(one_line(&bounded(&mut attach, LONGEST)?))
    }

    fn detach(&self, pid: u32) -> io::Result<Result<(), String>> {
        let mut detach = self.huepage.command(["detach"]);
        Ok(one_line(&bounded(detach.arg(pid.to_string()), LONGEST)?))
    }

    /// What huepage says of a process.
    fn inspect(&self, pid: u32) -> io::Result<Value> {
        let mut inspect = self.huepage.command(["inspect", "--json", &pid.to_string()]);
        let output = bounded(&mut inspect, LONGEST)?;
        Ok(serde_json::from_slice(&output.stdout).unwrap_or_default())
    }

    /// Pages of a process that were moved so far.
    fn moved(&self, pid: u32) -> io::Result<u64> {
        Ok(self.inspect(pid)?["engine"]["recolored"].as_u64().unwrap_or(0))
    }

    /// Confines a program with its pages moved all the time, torments it by `act` for as long as the setting
    /// says, ends it by SIGTERM, and judges how it ended: as `judge` expects.
    fn torment(
        &self,
        scene: &mut Scene,
        mut program: Program,
        mut act: impl FnMut(u32) -> io::Result<()>,
        judge: impl FnOnce(&End) -> Option<String>,
    ) -> io::Result<()> {
        let pid = program.child.id();
        if let Err(refused) = self.attach(pid, &["--storm"])? {
            scene.troubles.push(format!("refused: {refused}"));
        }
        let (started, mut moved) = (Instant::now(), 0);
        // On a loaded machine the first move may take longer than that.
        while program.lives()?
            && (started.elapsed().as_secs_f64() < self.setting.seconds
                || moved == 0 && started.elapsed() < LONGEST / 3)
        {
            act(pid)?;
            moved = self.moved(pid)?.max(moved);
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

/// Whether a command did it; else what it said, which must be one line.
fn one_line(output: &std::process::Output) -> Result<(), String> {
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    let one = said.lines().count() == 1;
    Err(if one { said } else { format!("in other than one line: {said:?}") })
}

/// A program that was started by itself.
struct Program {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

/// How it ended and what it said.
struct End {
    status: i32,
    out: String,
    err: String,
}

impl Program {
    fn lives(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Waits for its end; kills it after `limit`.
    fn end(mut self, limit: Duration) -> io::Result<End> {
        let started = Instant::now();
        while self.lives()? {
            if started.elapsed() > limit {
                kill_tree(self.child.id());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let status = shell_status(self.child.wait()?);
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        Ok(End { status, out: read(&self.out), err: read(&self.err) })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The number of one that has ended may be another's.
        if matches!(self.lives(), Ok(true)) {
            kill_tree(self.child.id());
            let _ = self.child.wait();
        }
    }
}

/// What is wrong with the end of a program with a known answer.
fn right_answer(end: &End) -> Option<String> {
    let value: Value = serde_json::from_str(&end.out).unwrap_or_default();
    let right = value["answer"].is_string() && value["answer"] == value["expected"];
    (end.status != RIGHT || !right).then(|| end.to_string())
}

/// What is wrong with the end of a program that counts what was wrong itself.
fn nothing_wrong(end: &End) -> Option<String> {
    let right = end.status == 0 && end.out.trim_end().ends_with("wrong 0");
    (!right).then(|| end.to_string())
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let last = self.err.lines().last().unwrap_or_default();
        write!(f, "it ended with {} and said {:?} {last:?}", self.status, self.out.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(status: i32, out: &str) -> End {
        End { status, out: out.to_owned(), err: String::new() }
    }

    #[test]
    fn ends_are_judged() {
        let right = r#"{"answer":"ab","expected":"ab"}"#;
        assert_eq!(right_answer(&end(42, right)), None);
        assert!(right_answer(&end(0, right)).is_some() && right_answer(&end(42, "{}")).is_some());
        assert!(right_answer(&end(42, r#"{"answer":"ab","expected":"ac"}"#)).is_some());
        assert_eq!(nothing_wrong(&end(0, "threads 2 wrong 0\n")), None);
        assert!(nothing_wrong(&end(0, "threads 2 wrong 10\n")).is_some());
        assert!(
            nothing_wrong(&end(0, "")).is_some() && nothing_wrong(&end(1, "wrong 0")).is_some()
        );
    }
}
