//! Adversaries under one supervisor, `huepage run` or a daemon: it lives, what runs beside them is right and confined, and no
//! adversary gains a right.
//!
//! The adversaries say what they gained; everything else is seen from outside: the credentials of
//! every thread, the directory that only root may enter, the supervisor's end and what it said.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::daemon::World;
use crate::harness::{Bench, Guard, Suite, SuiteFigures, tool, word};
use crate::hostile::Plant;
use crate::hostile::attack::AttackKind;
use crate::hostile::nest::{self, NestLine, NestedEnd};
use crate::launch::{Huepage, kill_tree};
use crate::verdict::SuiteVerdict;
use crate::{observe, rights};

/// Nothing ends for so long: somebody hangs.
const STILL: Duration = Duration::from_secs(20);
/// Threads are looked at so often.
const LOOK: Duration = Duration::from_millis(15);
/// What a foreign thread has for longer than this it was left with; before that it may be on its way
/// to give it up, while its program is held.
const ON_ITS_WAY: Duration = Duration::from_millis(60);
/// Longest wait for compliance, an answer or an end.
const LONGEST: Duration = Duration::from_secs(15);
/// Least share of the honest program's pages in its colours.
const COMPLIANT: f64 = 0.99;

/// What to do.
#[derive(Args, Clone, Debug)]
pub struct Hostile {
    /// Adversaries
    #[arg(long, default_value_t = 1000)]
    pub rounds: u64,
    /// Seed of the attacks
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Adversaries at a time
    #[arg(long, default_value_t = 4)]
    pub parallel: usize,
    /// Only this attack
    #[arg(long)]
    pub only: Option<AttackKind>,
    /// Who confines the adversaries
    #[arg(long, value_enum, default_value_t = Confiner::Run, conflicts_with = "self_test")]
    pub by: Confiner,
    /// Violate each promise on purpose: every checker must see its own
    #[arg(long)]
    pub self_test: bool,
}

/// Who confines the adversaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Confiner {
    /// `huepage run`, of which they are children
    Run,
    /// `huepage daemon`, which finds them by the file that they execute
    Daemon,
}

impl Suite for Hostile {
    const FIGURES: SuiteFigures = &[("P25", &["run", "daemon"])];
    const TOOLS: &'static [&'static str] = &["huepage-hostile", "huepage-torture"];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        if self.self_test {
            return self_test(bench, self, verdict);
        }
        Campaign::start(bench, self, None)?.attend(verdict)?;
        verdict.is_part = self.only.is_some();
        verdict.figure_of_missed("P25", &word(self.by));
        Ok(())
    }
}

/// Each planted violation must be missed, by the words of its own checker.
fn self_test(bench: Bench<'_>, setting: &Hostile, verdict: &mut SuiteVerdict) -> io::Result<()> {
    for plant in Plant::value_variants() {
        let brief = Hostile { rounds: 12, only: Some(AttackKind::Race), ..setting.clone() };
        let mut found = SuiteVerdict::new("hostile");
        Campaign::start(bench, &brief, Some(*plant))?.attend(&mut found)?;
        let words = expected(*plant);
        let seen = found.missed.iter().find(|what| what.contains(words)).cloned();
        verdict.row([
            ("planted", format!("{plant:?}").into()),
            ("seen", seen.clone().map_or(Value::Null, Value::from)),
        ]);
        verdict.require(seen.is_some(), || {
            format!("{plant:?}: nobody says {words:?}, only {:?}", found.missed)
        });
    }
    Ok(())
}

fn expected(plant: Plant) -> &'static str {
    match plant {
        Plant::File => "only root may enter",
        Plant::Rights => "its program has not",
        Plant::Descriptor => "/dev/kmsg",
        Plant::Answer => "the supervisor ended with 1",
        Plant::Supervisor => "the supervisor ended with 134",
        Plant::Hang => "does not end",
    }
}

/// One supervisor, its nest and what is seen of them.
struct Campaign<'a> {
    huepage: &'a Huepage,
    /// `huepage run`, or the nest itself where a daemon confines it.
    supervisor: Guard,
    daemon: Option<(World, Guard)>,
    lines: Receiver<NestLine>,
    place: tempfile::TempDir,
    rounds: u64,
    honest: Option<u32>,
    seen: Seen,
}

#[derive(Default)]
struct Seen {
    threads: u64,
    told: Vec<NestedEnd>,
    /// What foreign threads had more than their program, when it was first seen.
    excess: Vec<(u32, String, Instant)>,
}

impl<'a> Campaign<'a> {
    fn start(
        bench: Bench<'a>,
        setting: &Hostile,
        plant: Option<Plant>,
    ) -> io::Result<Campaign<'a>> {
        let (place, huepage) = (prepare()?, bench.huepage);
        let daemon = match setting.by {
            Confiner::Run => None,
            Confiner::Daemon => Some(daemon(huepage, place.path())?),
        };
        let mut command = match setting.by {
            Confiner::Run => supervised(bench, place.path()),
            Confiner::Daemon => Command::new(place.path().join("huepage-hostile")),
        };
        nest_in(&mut command, place.path())?;
        let argument = |name: &str, value: &dyn ToString| [name.to_owned(), value.to_string()];
        command.args(argument("--rounds", &setting.rounds));
        command.args(argument("--seed", &setting.seed));
        command.args(argument("--parallel", &setting.parallel));
        command.args(setting.only.map(|kind| format!("--only={}", word(kind))));
        command.args(plant.map(|plant| format!("--plant={}", word(plant))));
        let mut supervisor = Guard(command.spawn()?);
        let lines = reader(&mut supervisor.0)?;
        let (rounds, seen) = (setting.rounds, Seen::default());
        Ok(Campaign { huepage, supervisor, daemon, lines, place, rounds, honest: None, seen })
    }

    /// From the first line to the supervisor's end.
    fn attend(mut self, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let mut last = Instant::now();
        loop {
            match self.lines.recv_timeout(LOOK) {
                Ok(NestLine::Honest(pid)) => self.honest = Some(pid),
                Ok(NestLine::Ended(told)) => self.note(told),
                Ok(NestLine::Done) => break self.look_at_honest(verdict),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let count = self.seen.told.len() as u64;
            if self.look(verdict, count) {
                last = Instant::now();
            }
            if last.elapsed() > STILL {
                verdict.miss(format!("nothing ended for {STILL:?} after {count} adversaries"));
                let _ = crate::sys::kill(self.supervisor.id(), libc::SIGCONT);
                kill_tree(self.supervisor.id());
                break;
            }
        }
        self.end(verdict)
    }

    fn note(&mut self, told: NestedEnd) {
        if self.seen.told.len() % 200 == 199 {
            eprintln!("hostile: {} adversaries have ended", self.seen.told.len() + 1);
        }
        self.seen.told.push(told);
    }

    /// Looks at all threads below the supervisor; whether a child has ended since the last look.
    fn look(&mut self, verdict: &mut SuiteVerdict, count: u64) -> bool {
        for pid in observe::programs_below(self.supervisor.id(), &self.huepage.path) {
            let Ok(threads) = rights::of(Path::new("/proc"), pid) else { continue };
            self.seen.threads += threads.iter().filter(|t| t.is_foreign()).count() as u64;
            if let Some(what) = rights::excess(&threads) {
                self.suspect(verdict, pid, what);
            }
        }
        let before = verdict.totals.get("ended").and_then(Value::as_u64).unwrap_or(0);
        verdict.total("ended", count);
        count != before
    }

    /// The same thread with the same excess, seen twice.
    fn suspect(&mut self, verdict: &mut SuiteVerdict, pid: u32, what: String) {
        let known = self.seen.excess.iter().find(|(p, w, _)| *p == pid && *w == what);
        match known.map(|(_, _, first)| first.elapsed()) {
            Some(age) if age > ON_ITS_WAY => {
                if !verdict.missed.iter().any(|missed| missed.contains(&what)) {
                    verdict.miss(format!("process {pid}: {what}"));
                }
            }
            Some(_) => {}
            None => self.seen.excess.push((pid, what, Instant::now())),
        }
    }

    /// The honest program is confined, whatever ran beside it; then it may end.
    fn look_at_honest(&mut self, verdict: &mut SuiteVerdict) {
        let huepage = self.daemon.as_ref().map_or(self.huepage, |(world, _)| &world.huepage);
        let (started, mut found) = (Instant::now(), Value::Null);
        while started.elapsed() < LONGEST {
            found = huepage.inspect(self.honest.unwrap_or(0)).unwrap_or_default();
            if found["compliance"]["share"].as_f64() >= Some(COMPLIANT) {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let share = found["compliance"]["share"].clone();
        verdict.total("compliance of the honest program", share.clone());
        verdict.require(share.as_f64() >= Some(COMPLIANT), || {
            format!("the honest program's compliance is {share} after {LONGEST:?}")
        });
        if let Some(mut input) = self.supervisor.0.stdin.take() {
            let _ = input.write_all(b"\n");
        }
    }

    /// The daemon lives, ends when it is asked to, and said nothing of a panic.
    fn end_daemon(&mut self, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let Some((world, daemon)) = &mut self.daemon else { return Ok(()) };
        verdict.require(daemon.alive(), || "the daemon ended".to_owned());
        crate::sys::kill(daemon.id(), libc::SIGTERM)?;
        let status = daemon.0.wait()?;
        let log = world.log();
        let panicked = log.lines().find(|line| line.contains("panicked")).unwrap_or_default();
        verdict.require(status.success() && panicked.is_empty(), || {
            format!("the daemon ended with {status} and said {panicked:?}")
        });
        Ok(())
    }

    fn end(mut self, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let ends = self.supervisor.ends_within(2 * LONGEST);
        verdict.require(ends, || "the supervisor does not end".to_owned());
        let status = self.supervisor.end(Duration::ZERO)?;
        let said = fs::read_to_string(self.place.path().join("err")).unwrap_or_default();
        verdict.require(status == i32::from(nest::RIGHT), || {
            let last: Vec<&str> = said.lines().rev().take(3).collect();
            format!("the supervisor ended with {status}: {}", last.join(" | "))
        });
        let panicked = said.lines().find(|line| line.contains("panicked"));
        verdict
            .require(panicked.is_none(), || format!("it said: {}", panicked.unwrap_or_default()));
        self.judge(verdict);
        self.end_daemon(verdict)
    }

    fn judge(&self, verdict: &mut SuiteVerdict) {
        let secret = fs::read_dir(self.place.path().join("secret")).into_iter().flatten().flatten();
        for file in secret {
            let name = file.file_name();
            verdict.miss(format!("{name:?} was made where only root may enter"));
        }
        for told in &self.seen.told {
            for what in &told.gained {
                verdict.miss(format!("{:?} {} gained {what}", told.kind, told.round));
            }
            if let Some(trouble) = &told.trouble {
                verdict.miss(format!("round {}: {trouble}", told.round));
            }
        }
        for kind in AttackKind::value_variants() {
            self.row(verdict, *kind);
        }
        let ended = self.seen.told.len() as u64;
        verdict.total("ended", ended);
        verdict.total("looks at foreign threads", self.seen.threads);
        verdict.require(ended == self.rounds, || format!("{ended} of {} ended", self.rounds));
        verdict.require(self.seen.threads > 0, || "no thread of an agent was seen".to_owned());
    }

    fn row(&self, verdict: &mut SuiteVerdict, kind: AttackKind) {
        let all: Vec<&NestedEnd> = self.seen.told.iter().filter(|t| t.kind == Some(kind)).collect();
        if all.is_empty() {
            return;
        }
        let count = |of: &dyn Fn(&NestedEnd) -> bool| all.iter().filter(|told| of(told)).count();
        let confined = count(&|told| told.confined);
        verdict.row([
            ("attack", format!("{kind:?}").into()),
            ("adversaries", all.len().into()),
            ("confined", confined.into()),
            ("ended by itself", count(&|told| told.status == 0).into()),
            ("by a signal", count(&|told| told.status > 128 && !told.killed).into()),
            ("killed for hanging", count(&|told| told.killed).into()),
            ("gained", count(&|told| !told.gained.is_empty()).into()),
        ]);
        verdict.require(confined > 0 || all.len() < 10, || {
            format!("{kind:?}: none of {} was confined, so nothing was attacked", all.len())
        });
    }
}

/// A directory that all may enter, with the programs and one that only root may enter.
fn prepare() -> io::Result<tempfile::TempDir> {
    let place = tempfile::tempdir()?;
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755))?;
    let secret = place.path().join("secret");
    fs::create_dir(&secret)?;
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o700))?;
    fs::create_dir(place.path().join("files"))?;
    for name in ["huepage-hostile", "huepage-torture"] {
        fs::copy(tool(name)?, place.path().join(name))?;
    }
    Ok(place)
}

/// A daemon that takes adversaries and honest programs as soon as it sees them.
fn daemon(huepage: &Huepage, place: &Path) -> io::Result<(World, Guard)> {
    let world = World::new(huepage)?;
    let group = |name: &str, program: &str| {
        let file = place.join(program);
        format!("[[group]]\nname = \"{name}\"\nexe = \"{}\"\nshare = 8\n", file.display())
    };
    let groups = group("adversaries", "huepage-hostile") + &group("honest", "huepage-torture");
    world.write("declared", &format!("look = 0.05\n{groups}"))?;
    let mut daemon = world.start()?;
    while world.huepage.json::<Value>(&["ctl", "status", "--json"]).is_err() {
        if !daemon.alive() {
            return Err(io::Error::other(format!("the daemon does not start: {}", world.log())));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok((world, daemon))
}

fn supervised(bench: Bench<'_>, place: &Path) -> Command {
    let options = [&["--share", "50%", "--child-delay", "1"], &bench.declared()[..]].concat();
    bench.huepage.run(options, &Command::new(place.join("huepage-hostile")))
}

fn nest_in(command: &mut Command, place: &Path) -> io::Result<()> {
    command.arg("nest").arg("--secret").arg(place.join("secret"));
    command.arg("--dir").arg(place.join("files"));
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(File::create(place.join("err"))?);
    Ok(())
}

fn reader(supervisor: &mut Child) -> io::Result<Receiver<NestLine>> {
    let out = supervisor.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let (send, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if let Ok(line) = serde_json::from_str(&line)
                && send.send(line).is_err()
            {
                return;
            }
        }
    });
    Ok(lines)
}
