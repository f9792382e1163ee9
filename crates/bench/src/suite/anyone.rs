//! Programs of any user, in any namespace, of any runtime: each is confined by each way there is, or
//! refused in one line that leaves it as it was.
//!
//! A cell of the matrix is a kind of program and a way: `run`, `attach`, `daemon`. It holds when the
//! program's output and status are those of a native run, its pages are in the colours of the
//! partition, and no thread of the supervisor's in it has a right that the program has not.

pub mod everywhere;
pub mod served;
mod services;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Map, Value};

use super::daemon::World;
use crate::figures::round;
use crate::harness::{Bench, Guard, Suite, SuiteFigures, bounded, tool, wanted};
use crate::launch::{Captured, End, Huepage};
use crate::programs::{BenchProgram, PROGRAMS};
use crate::verdict::SuiteVerdict;
use crate::{observe, rights, state};

/// Least share of pages in the partition's colours, as promised.
const COMPLIANT: f64 = 0.99;
/// Seconds that a program runs at least, however fast the machine is: it must still be there when a
/// daemon has looked at it.
const LONG_ENOUGH: &str = "7";
/// Longest wait for compliance or an end.
const LONGEST: Duration = Duration::from_secs(300);

/// What to do.
#[derive(Args, Clone, Debug)]
pub struct Anyone {
    /// Only this kind of program; may be repeated
    #[arg(long)]
    pub only: Vec<String>,
    /// Only this way: run, attach or daemon; may be repeated
    #[arg(long)]
    pub way: Vec<String>,
}

/// Some bytes in memory and a sum of them, for at least two seconds.
const PYTHON: &str = "import time\nm=[i*7%1000003 for i in range(400000)]\nt=time.time()+3\n\
while time.time()<t: m=[(x*5+1)%1000003 for x in m[:200000]]+m[200000:]\nprint(len(m), sum(m[200000:]))";
/// The same by root, with three threads, that becomes nobody in mid-life.
const BECOMES_NOBODY: &str = "import os,threading,time\nm=[i*7%1000003 for i in range(300000)]\n\
s=[threading.Thread(target=time.sleep,args=(60,),daemon=True) for _ in range(3)]\n\
[t.start() for t in s]\ntime.sleep(1)\nos.setgroups([])\nos.setresgid(65534,65534,65534)\n\
os.setresuid(65534,65534,65534)\nt=time.time()+3\n\
while time.time()<t: m=[(x*5+1)%1000003 for x in m[:200000]]+m[200000:]\nprint(len(m),os.getuid(),sum(m[200000:]))";
const PERL: &str = "my @m=map {$_*7%1000003} 0..300000; my $t=time+4; \
while(time<$t){$_=($_*5+1)%1000003 for @m[0..1000]} my $s=0; $s+=$_ for @m[1001..300000]; print \"$s\\n\"";
/// The same, after making itself one that nobody may look at.
const UNDUMPABLE: &str = "syscall(157,4,0,0,0,0)==0 or die; ";
const NODE: &str = "const m=[];for(let i=0;i<400000;i++)m.push({v:i*7%1000003});\
const t=Date.now()+3000;let n=0;while(Date.now()<t){m[n++%1000]={v:1};}\
let s=0;for(let i=1000;i<m.length;i++)s+=m[i].v;console.log(s)";
/// Loads a filter from pairs of code and value, then becomes the program of its arguments.
const FILTER: &str = "my @f=map {[split /:/]} split /,/, shift; \
my $p=join '', map {pack 'SCCL', @$_} @f; my $prog=pack 'SxxxxxxP', scalar @f, $p; \
syscall(157,38,1,0,0,0)==0 or die; syscall(157,22,2,$prog,0,0)==0 or die; exec @ARGV or die";
/// Allows all calls.
const ALLOW_ALL: &str = "6:0:0:2147418112";
/// Refuses `userfaultfd` with EPERM, as containers do.
const NO_USERFAULTFD: &str = "32:0:0:0,21:0:1:323,6:0:0:327681,6:0:0:2147418112";
/// Refuses `clone3` with ENOSYS.
const NO_CLONE3: &str = "32:0:0:0,21:0:1:435,6:0:0:327718,6:0:0:2147418112";

/// A kind of program.
struct Kind {
    name: &'static str,
    argv: Vec<String>,
}

impl Kind {
    /// Starts it without huepage.
    fn start(&self) -> io::Result<Captured> {
        start(Command::new(&self.argv[0]).args(&self.argv[1..]))
    }
}

fn start(command: &mut Command) -> io::Result<Captured> {
    Captured::start(command.stdin(Stdio::null()).current_dir("/"))
}

fn kind(name: &'static str, argv: &[&str]) -> Kind {
    Kind { name, argv: argv.iter().map(|a| (*a).to_owned()).collect() }
}

/// The kinds; `answer` is a program that computes a known answer.
fn kinds(answer: &Path) -> Vec<Kind> {
    let own = answer.to_string_lossy();
    let answer = [&*own, "answer", "--mib", "16", "--rounds", "300", "--seconds", LONG_ENOUGH];
    let behind = |name, before: &[&str]| kind(name, &[before, &answer].concat());
    let user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let filter = |name, filter| behind(name, &["perl", "-e", FILTER, filter]);
    let spaces = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount", "--net"];
    vec![
        behind("root", &[]),
        behind("nobody", &user),
        behind("user", &["setpriv", "--reuid", "1001", "--regid", "1001", "--clear-groups"]),
        behind("namespaces", &spaces),
        behind("namespaces of nobody", &[&user[..], &spaces].concat()),
        behind("no new privileges", &[&user[..], &["--no-new-privs"]].concat()),
        behind("no capabilities", &["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"]),
        filter("filter allows all", ALLOW_ALL),
        filter("filter without userfaultfd", NO_USERFAULTFD),
        filter("filter without clone3", NO_CLONE3),
        kind("undumpable", &["perl", "-e", &format!("{UNDUMPABLE}{PERL}")]),
        kind("becomes nobody", &["/usr/bin/python3", "-c", BECOMES_NOBODY]),
        kind("python3", &["/usr/bin/python3", "-c", PYTHON]),
        kind("perl", &["perl", "-e", PERL]),
        kind("node", &["node", "-e", NODE]),
    ]
}

/// Programs that have to be built first, as nobody's.
const BUILT: [&str; 2] = ["go", "java"];

/// Those of them that can be built here; `dir` keeps them.
fn built_kinds(verdict: &mut SuiteVerdict, dir: &Path, setting: &Anyone) -> Vec<Kind> {
    let wanted = |program: &&BenchProgram| {
        BUILT.contains(&program.name) && wanted(&setting.only, program.name)
    };
    let mut kinds = Vec::new();
    for program in PROGRAMS.iter().filter(wanted) {
        match program.prepare(dir) {
            Ok(ready) => {
                let words = ready.argv.iter().map(|word| word.to_string_lossy().into_owned());
                let user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
                let words = words.chain([LONG_ENOUGH.to_owned()]);
                let argv = user.map(str::to_owned).into_iter().chain(words).collect();
                kinds.push(Kind { name: program.name, argv });
            }
            Err(error) => verdict.skip(format!("{}: {error}", program.name)),
        }
    }
    kinds
}

impl Suite for Anyone {
    const FIGURES: SuiteFigures = &[("P17", CELLS_AND_INSIDE)];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        Matrix { huepage: bench.huepage, with: &bench.declared() }.matrix(verdict, self)?;
        let whole = self.only.is_empty() && self.way.is_empty();
        figures(verdict, "P17", whole, |_| true);
        Ok(())
    }
}

/// What the figures of a matrix are of.
const CELLS_AND_INSIDE: &[&str] = &["cells", "inside"];

/// The figures of a whole matrix in which no program lacks: cells that hold and are as `counts`, and the worst share of
/// pages inside, in percent, of processes that were not refused.
fn figures(
    verdict: &mut SuiteVerdict,
    id: &'static str,
    whole: bool,
    counts: fn(&Map<String, Value>) -> bool,
) {
    if !whole || !verdict.skipped.is_empty() {
        return;
    }
    let held = verdict.rows.iter().filter(|row| row["holds"] == true && counts(row)).count();
    let confined = verdict.rows.iter().filter(|row| row["refused"].is_null());
    let shares = confined.filter_map(|row| row["compliance"].as_f64()).map(|share| 100.0 * share);
    let shares: Vec<f64> = shares.collect();
    verdict.figure(id, "cells", &[held as f64]);
    verdict.extreme(id, "inside", |spread| spread.min, &shares);
}

/// The ways by which a program is confined.
const WAYS: [&str; 3] = ["run", "attach", "daemon"];
/// The name of the cell of three services under one daemon.
const THREE_USERS: &str = "three users";

struct Matrix<'a> {
    huepage: &'a Huepage,
    with: &'a [&'a str],
}

/// What came of a cell.
#[derive(Default)]
struct Cell {
    /// The share of pages in their colours.
    compliance: Option<f64>,
    /// Threads of the supervisor's that were looked at.
    threads: usize,
    /// The line in which the program was refused.
    refused: Option<String>,
    /// Names of its processes that were there for long and were never confined.
    left_out: Vec<String>,
    /// What huepage itself says of processes that it left out.
    excused: Vec<String>,
    /// What must not be.
    troubles: Vec<String>,
}

impl Cell {
    /// That of something that could not be run.
    fn failed(error: io::Error) -> Cell {
        Cell { troubles: vec![format!("cannot be run: {error}")], ..Cell::default() }
    }

    /// Looks at the rights of all threads of a process; the start of an agent is over when it has two.
    fn look(&mut self, pid: u32) {
        let Ok(threads) = rights::of(Path::new("/proc"), pid) else { return };
        self.threads += threads.iter().filter(|thread| thread.is_foreign()).count();
        let excess = rights::lasting_excess(Path::new("/proc"), pid);
        self.troubles.extend(excess.ok().flatten());
    }

    /// Looks also at what huepage says of its pages.
    fn look_inside(&mut self, huepage: &Huepage, pid: u32) {
        let found = huepage.inspect(pid).unwrap_or_default();
        self.compliance = found["compliance"]["share"].as_f64().or(self.compliance);
        self.look(pid);
    }

    /// A daemon ends in good order when it is asked to.
    fn end_daemon(&mut self, world: &World, mut daemon: Guard) -> io::Result<()> {
        crate::sys::kill(daemon.id(), libc::SIGTERM)?;
        let ended = daemon.end(LONGEST)?;
        if ended != 0 {
            self.troubles.push(format!("the daemon ended with {ended}: {:?}", world.log()));
        }
        Ok(())
    }
}

impl Matrix<'_> {
    fn matrix(&self, verdict: &mut SuiteVerdict, setting: &Anyone) -> io::Result<()> {
        let place = tempfile::tempdir()?;
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755))?;
        let answer = place.path().join("huepage-torture");
        fs::copy(tool("huepage-torture")?, &answer)?;
        let built = place.path().join("built");
        fs::create_dir(&built)?;
        let mut kinds = kinds(&answer);
        kinds.extend(built_kinds(verdict, &built, setting));
        for kind in kinds.iter().filter(|kind| wanted(&setting.only, kind.name)) {
            let native = match kind.start() {
                Ok(run) => run.end(LONGEST)?,
                Err(error) => {
                    verdict.skip(format!("{}: {} cannot be run: {error}", kind.name, kind.argv[0]));
                    continue;
                }
            };
            for way in WAYS.into_iter().filter(|way| wanted(&setting.way, way)) {
                let cell = match way {
                    "run" => self.by_run(kind, &native),
                    _ => self.begun_elsewhere(kind, &native, way == "daemon"),
                };
                note(verdict, kind.name, way, cell?);
            }
        }
        self.services(verdict, setting)
    }

    /// The cells of services and containers.
    fn services(&self, verdict: &mut SuiteVerdict, setting: &Anyone) -> io::Result<()> {
        for service in services::SERVICES.iter().filter(|s| wanted(&setting.only, s.name)) {
            let Some(native) = self.native_service(service)? else {
                let name = service.name;
                verdict.skip(format!("{name} is not installed; run scripts/setup-programs.sh"));
                continue;
            };
            for way in WAYS.into_iter().filter(|way| wanted(&setting.way, way)) {
                let cell = self.service(service, way, &native);
                note(verdict, service.name, way, cell.unwrap_or_else(Cell::failed));
            }
        }
        if wanted(&setting.only, THREE_USERS) && wanted(&setting.way, "daemon") {
            match self.three_users()? {
                Some(cell) => note(verdict, THREE_USERS, "daemon", cell),
                None => verdict.skip(format!("{THREE_USERS}: not all are installed")),
            }
        }
        Ok(())
    }

    fn by_run(&self, kind: &Kind, native: &End) -> io::Result<Cell> {
        let report = tempfile::NamedTempFile::new()?;
        let mut command = self.huepage.command(["run", "--quiet", "--share", "50%", "--report"]);
        command.arg(report.path()).args(self.with).arg("--").args(&kind.argv);
        let (mut cell, mut run) = (Cell::default(), start(&mut command)?);
        while run.alive() && run.running_for() < LONGEST {
            for pid in observe::programs_below(run.id(), &self.huepage.path) {
                cell.look(pid);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let end = run.end(LONGEST)?;
        let report: Value = serde_json::from_slice(&fs::read(report.path())?).unwrap_or_default();
        cell.compliance = report["compliance"]["share"].as_f64();
        let missed = report["missed"].as_array().filter(|all| !all.is_empty());
        if let Some(missed) = missed.filter(|_| cell.threads == 0) {
            cell.refused = Some(format!("{}", missed[0]));
        }
        cell.troubles.extend(end.difference(native));
        Ok(cell)
    }

    /// The process that was there before huepage came: by `attach` or by a daemon.
    fn begun_elsewhere(&self, kind: &Kind, native: &End, daemon: bool) -> io::Result<Cell> {
        let run = kind.start()?;
        std::thread::sleep(Duration::from_millis(700));
        let pid = observe::descendants(run.id()).last().copied().unwrap_or(run.id());
        let mut cell = Cell::default();
        let before = state::of(Path::new("/proc"), pid)?;
        if daemon {
            self.by_daemon(&mut cell, pid)?;
        } else {
            self.by_attach(&mut cell, pid)?;
        }
        if cell.refused.is_some() {
            let after = state::of(Path::new("/proc"), pid)?;
            let changed = state::difference(&before, &after);
            // A program at work maps and unmaps by itself: what counts is what it cannot do.
            let changed: Vec<_> = changed.into_iter().filter(|name| name != "maps").collect();
            if !changed.is_empty() {
                cell.troubles.push(format!("refused, and changed: {changed:?}"));
            }
        }
        cell.troubles.extend(run.end(LONGEST)?.difference(native));
        Ok(cell)
    }

    fn by_attach(&self, cell: &mut Cell, pid: u32) -> io::Result<()> {
        let mut attach = self.huepage.command(["attach", "--quiet", "--share", "50%"]);
        if let Err(said) = bounded(attach.args(self.with).arg(pid.to_string()), LONGEST)?.done() {
            let trouble = said.starts_with("in other than one line").then(|| said.clone());
            cell.troubles.extend(trouble.map(|said| format!("refused {said}")));
            cell.refused = Some(said);
            return Ok(());
        }
        let started = Instant::now();
        while cell.compliance < Some(COMPLIANT) && started.elapsed() < Duration::from_secs(5) {
            cell.look_inside(self.huepage, pid);
        }
        let detach = bounded(self.huepage.command(["detach"]).arg(pid.to_string()), LONGEST)?;
        // Who has ended cannot be released.
        if detach.status != 0 && fs::exists(format!("/proc/{pid}/maps"))? {
            cell.troubles.push(format!("cannot be released: {}", detach.err.trim_end()));
        }
        Ok(())
    }

    fn by_daemon(&self, cell: &mut Cell, pid: u32) -> io::Result<()> {
        let world = World::new(self.huepage)?;
        let group = format!("look = 0.1\n[[group]]\nname = \"one\"\npid = {pid}\nshare = 4\n");
        world.write("declared", &group)?;
        let daemon = world.start()?;
        let started = Instant::now();
        while cell.compliance < Some(COMPLIANT) && started.elapsed() < Duration::from_secs(6) {
            if cell.threads == 0 && refusal(&world.log(), pid).is_some() {
                break;
            }
            cell.look_inside(&world.huepage, pid);
            std::thread::sleep(Duration::from_millis(20));
        }
        cell.end_daemon(&world, daemon)?;
        if cell.threads == 0 {
            cell.refused = refusal(&world.log(), pid);
        }
        Ok(())
    }
}

/// The line in which a daemon says that it leaves a process alone.
fn refusal(log: &str, pid: u32) -> Option<String> {
    let about = |line: &&str| line.contains("left alone") && line.contains(&pid.to_string());
    log.lines().find(about).map(str::to_owned)
}

fn note(verdict: &mut SuiteVerdict, program: &str, way: &str, cell: Cell) {
    let what = format!("{program} by {way}");
    let all = cell.left_out.len() <= cell.excused.len();
    let full = cell.compliance >= Some(COMPLIANT) && cell.threads > 0 && all;
    let Cell { compliance, refused, left_out, excused, .. } = &cell;
    eprintln!("{what}: {compliance:?} {refused:?} left out {left_out:?} {excused:?}");
    verdict.row([
        ("program", program.into()),
        ("way", way.into()),
        ("compliance", cell.compliance.map_or(Value::Null, round)),
        ("threads looked at", cell.threads.into()),
        ("refused", cell.refused.clone().map_or(Value::Null, Value::from)),
        ("left out", cell.left_out.join(", ").into()),
        ("holds", (cell.troubles.is_empty() && (full || cell.refused.is_some())).into()),
    ]);
    for trouble in &cell.troubles {
        verdict.miss(format!("{what}: {trouble}"));
    }
    verdict.require(full || cell.refused.is_some(), || {
        let Cell { compliance, threads, left_out, .. } = &cell;
        format!("{what}: compliance {compliance:?}, {threads} threads, left out {left_out:?}")
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matrix of a confined cell and of a refused one.
    fn matrix(compliance: f64) -> SuiteVerdict {
        let mut verdict = SuiteVerdict::new("anyone");
        let confined = Cell { compliance: Some(compliance), threads: 1, ..Cell::default() };
        let refused = Some("a line".to_owned());
        note(&mut verdict, "root", "run", confined);
        note(
            &mut verdict,
            "sshd",
            "run",
            Cell { compliance: Some(0.1), refused, ..Cell::default() },
        );
        verdict
    }

    #[test]
    fn cells_that_hold_are_counted_and_the_worst_confined_one_told() {
        let mut verdict = matrix(0.995);
        assert!(verdict.missed.is_empty(), "{:?}", verdict.missed);
        figures(&mut verdict, "P17", true, |_| true);
        let given: Vec<_> = verdict.figures.iter().map(|own| (&*own.of, own.figure)).collect();
        assert_eq!(given, [("cells", 2.0), ("inside", 99.5)]);
        let mut verdict = matrix(0.5);
        figures(&mut verdict, "P29", true, |row| row["refused"].is_null());
        assert_eq!(verdict.figures[0].figure, 0.0, "one is outside and one refused");
    }

    #[test]
    fn a_part_of_the_matrix_gives_no_figure() {
        let mut part = matrix(1.0);
        figures(&mut part, "P17", false, |_| true);
        part.skip("node is not installed");
        figures(&mut part, "P17", true, |_| true);
        assert!(part.figures.is_empty());
    }
}
