//! The part of `huepage lab` inside the guest: starts the programs of the plan, waits until they have
//! settled, says to the emulator what counts and whose turn it is, and tells the host what came of it.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use huepage_linux::color::partition_registry::Registry;
use huepage_linux::engine::MemberStatus;
use huepage_linux::kernel::lab_guest::{TurnTeller, become_owner, mark};
use huepage_linux::kernel::pmu::file::PMU_VARIABLE;
use huepage_model::lab::{LabMark, OWNERS};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::Deserialize;

use super::args::LabSettle;
use super::plan::{
    ANSWERS, DAEMON, GuestPlan, GuestProgram, GuestReport, HUEPAGE, PMU, ProgramEnd,
};
use crate::cmd::claim::told;
use crate::exit::{CmdError, ExitCode, bad_file};
use crate::json::{line, parsed};

/// The number of huepage's supervisors: the last.
pub const SUPERVISORS: u32 = 15;
const _: () = assert!(SUPERVISORS as usize == OWNERS - 1);

/// Seconds that programs without huepage get to begin, and all get to fill the caches when accesses are
/// told already.
const BEGIN: f64 = 1.0;
const WARM: f64 = 0.25;
/// Looks in a row at supervisors that find nothing to do after which they are idle.
const CALM: u32 = 4;
const LOOK: Duration = Duration::from_millis(500);
/// Seconds after which programs that do not settle are counted all the same.
const PATIENCE: f64 = 60.0;
/// What keeps programs from being settled, besides what supervisors have to do.
const MOVED: &str = "pages were moved";
/// Bytes of what a program said that are kept.
const SAID: usize = 2000;

/// Does what the plan says.
pub fn run(plan: &Path) -> Result<u8, CmdError> {
    let text = fs::read(plan).map_err(|e| bad_file(plan, e))?;
    let plan: GuestPlan = parsed(&text).map_err(|e| bad_file(plan, e))?;
    let teller = TurnTeller::start(plan.pmu, plan.tlbs);
    let teller = teller.map_err(|e| CmdError::new(ExitCode::Kernel, e))?;
    let report = if plan.whole { whole(&plan, &teller)? } else { settled(&plan, &teller)? };
    let json = line(&report).map_err(CmdError::internal)?;
    fs::write(ANSWERS, json + "\n").map_err(|e| bad_file(Path::new(ANSWERS), e))?;
    Ok(0)
}

/// Counts for a time once all programs have settled.
fn settled(plan: &GuestPlan, teller: &TurnTeller) -> Result<GuestReport, CmdError> {
    let governed = plan.daemon || plan.programs.iter().any(|program| program.with.is_some());
    if plan.pmu && governed {
        // What the PMU sees are accesses that are told.
        begin(teller);
    }
    let mut programs = Vec::new();
    for (number, program) in (1..).zip(&plan.programs) {
        programs.push(Started::new(number, program, plan.pmu)?);
    }
    if plan.daemon {
        programs.push(Started::daemon(plan.pmu)?);
    }
    let started = Instant::now();
    let mut unsettled = settle(plan, &programs);
    let settle_seconds = started.elapsed().as_secs_f64();
    let before = Work::of(&programs).moved;
    count(plan, teller)?;
    if plan.settle == LabSettle::Idle && unsettled.is_none() && Work::of(&programs).moved != before
    {
        unsettled = Some(format!("{MOVED} while accesses were counted"));
    }
    let programs = programs.into_iter().map(Started::end).collect();
    Ok(GuestReport { kernel: kernel(), settle_seconds, unsettled, programs })
}

/// Counts all of the first program.
fn whole(plan: &GuestPlan, teller: &TurnTeller) -> Result<GuestReport, CmdError> {
    begin(teller);
    mark(LabMark::Begin);
    let mut program = Started::new(1, &plan.programs[0], plan.pmu)?;
    // What it ended with is asked for again below.
    let _ = program.child.wait();
    mark(LabMark::End);
    let programs = vec![program.end()];
    Ok(GuestReport { kernel: kernel(), settle_seconds: 0.0, unsettled: None, programs })
}

/// The kernel's release.
fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Becomes a program with a number, on a processor.
pub fn become_program(owner: u32, cpu: Option<usize>, command: &[std::ffi::OsString]) -> CmdError {
    if owner as usize >= OWNERS {
        return CmdError::new(ExitCode::Usage, format!("number {owner}; give 0 to {}", OWNERS - 1));
    }
    let placed = become_owner(owner).and_then(|()| cpu.map_or(Ok(()), |cpu| Ok(pin(cpu)?)));
    if let Err(error) = placed {
        return CmdError::new(ExitCode::Usage, format!("{error}; is there such a processor?"));
    }
    let error = Command::new(&command[0]).args(&command[1..]).exec();
    CmdError::new(ExitCode::NotFound, format!("{}: {error}", command[0].display()))
}

fn pin(cpu: usize) -> rustix::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
}

/// Has accesses told from now on.
fn begin(teller: &TurnTeller) {
    mark(LabMark::Start);
    // The emulator translates anew now.
    sleep(Duration::from_millis(10));
    teller.introduce();
}

/// Tells the emulator, while programs run, what counts.
fn count(plan: &GuestPlan, teller: &TurnTeller) -> Result<(), CmdError> {
    begin(teller);
    // Programs that are alone on their processors are told when they are switched to again.
    for cpu in 0..plan.cpus {
        pin(cpu).map_err(|e| CmdError::internal(format!("processor {cpu}: {e}")))?;
        sleep(Duration::from_millis(10));
    }
    sleep(Duration::from_secs_f64(WARM));
    mark(LabMark::Begin);
    sleep(Duration::from_secs_f64(plan.count));
    mark(LabMark::End);
    Ok(())
}

/// The words that begin a command of huepage's, on any processor: confined to its program's, it would take more of
/// the program's time.
fn supervisor(command: &[&str]) -> Vec<String> {
    let number = SUPERVISORS.to_string();
    let before = [HUEPAGE, "lab", "as", &number, "--", HUEPAGE];
    before.iter().chain(command).map(|word| (*word).to_owned()).collect()
}

/// A program, or a daemon, and where it writes.
struct Started {
    child: Child,
    governed: bool,
    said: PathBuf,
    report: PathBuf,
}

impl Started {
    fn new(number: u32, program: &GuestProgram, pmu: bool) -> Result<Started, CmdError> {
        let report = PathBuf::from(format!("/tmp/report.{number}"));
        let (own, cpu) = (number.to_string(), program.cpu.to_string());
        let own = [HUEPAGE, "lab", "as", &own, "--cpu", &cpu, "--"];
        let mut words: Vec<String> = Vec::new();
        if let Some(options) = &program.with {
            words.extend(supervisor(&["run", "--report", &report.display().to_string()]));
            words.extend(options.iter().cloned());
            words.push("--".to_owned());
        }
        words.extend(own.map(str::to_owned));
        words.extend(program.words.iter().cloned());
        Started::spawn(number, &words, (program.with.is_some(), pmu), report)
    }

    /// A daemon that governs what runs.
    fn daemon(pmu: bool) -> Result<Started, CmdError> {
        let words = supervisor(&["daemon", "--config", DAEMON]);
        Started::spawn(SUPERVISORS, &words, (true, pmu), PathBuf::new())
    }

    fn spawn(
        number: u32,
        words: &[String],
        (governed, pmu): (bool, bool),
        report: PathBuf,
    ) -> Result<Started, CmdError> {
        let said = PathBuf::from(format!("/tmp/said.{number}"));
        let file = File::create(&said).map_err(|e| bad_file(&said, e))?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        if pmu {
            command.env(PMU_VARIABLE, PMU);
        }
        let child = command.spawn().map_err(|e| bad_file(Path::new(&words[0]), e))?;
        Ok(Started { child, governed, said, report })
    }

    /// Ends it if it has not ended yet; what came of it.
    fn end(mut self) -> ProgramEnd {
        let ended = self.child.try_wait().ok().flatten();
        let status = ended.and_then(|status| u8::try_from(status.code()?).ok());
        let ended_early = ended.map(|status| status.to_string());
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
        let said = fs::read(&self.said).unwrap_or_default();
        let said = String::from_utf8_lossy(&said[said.len().saturating_sub(SAID)..]).into_owned();
        let report = fs::read(&self.report).ok();
        let report = report.and_then(|json| parsed(&json).ok());
        ProgramEnd { ended_early, status, said, report }
    }
}

/// Waits until all have settled; what there was still to do when the time was over.
fn settle(plan: &GuestPlan, programs: &[Started]) -> Option<String> {
    let seconds = match plan.settle {
        LabSettle::Seconds(seconds) => seconds,
        LabSettle::Idle => BEGIN,
    };
    sleep(Duration::from_secs_f64(seconds));
    if plan.settle != LabSettle::Idle {
        return None;
    }
    let (start, mut calm, mut before) = (Instant::now(), 0, None);
    loop {
        let work = Work::of(programs);
        let moved = before.is_some_and(|before| before != work.moved);
        let open = work.open.or_else(|| moved.then(|| MOVED.to_owned()));
        calm = if open.is_none() { calm + 1 } else { 0 };
        if calm > CALM {
            return None;
        }
        if let Some(open) = open.filter(|_| start.elapsed().as_secs_f64() >= PATIENCE) {
            return Some(format!("after {PATIENCE} s {open}"));
        }
        before = Some(work.moved);
        sleep(LOOK);
    }
}

/// What supervisors have to do, by what they say themselves.
#[derive(Default)]
struct Work {
    /// Something that is not done yet.
    open: Option<String>,
    /// What they have placed and moved so far.
    moved: Vec<u64>,
}

impl Work {
    /// Of all programs; those without a supervisor have nothing to do.
    fn of(programs: &[Started]) -> Work {
        let mut work = Work::default();
        if programs.iter().any(|program| program.governed) {
            let entries = Registry::open().and_then(|registry| registry.list()).unwrap_or_default();
            for program in programs.iter().filter(|program| program.governed) {
                let supervisor = program.child.id().cast_signed();
                let own = entries.iter().filter(|entry| entry.pid == supervisor);
                let members: Vec<i32> = own.flat_map(|entry| entry.members.clone()).collect();
                if members.is_empty() {
                    work.open = Some("a program was not in its partition".to_owned());
                }
                members.into_iter().for_each(|pid| work.add(pid));
            }
        }
        work
    }

    /// Adds a process.
    fn add(&mut self, pid: i32) {
        let answer = told(pid).ok().and_then(|told| serde_json::from_value::<Answer>(told).ok());
        let Some(status) = answer.and_then(|answer| answer.status) else {
            self.open = Some("a supervisor did not answer".to_owned());
            return;
        };
        if !status.resting {
            self.open = Some(busy(&status));
        }
        self.moved.extend([status.faults_served, status.placed, status.recolored]);
    }
}

/// Why a member does not rest.
fn busy(status: &MemberStatus) -> String {
    let outside = status.census.as_ref().map(|census| census.total().outside);
    let what = match outside {
        None => "had not been looked at".to_owned(),
        Some(0) => format!("was still looked after, with {} pages in stock", status.stock),
        Some(pages) => format!("had {pages} pages outside its colours"),
    };
    format!("{} {what}", status.name)
}

/// The part of a supervisor's answer that says whether it works.
#[derive(Deserialize)]
struct Answer {
    status: Option<MemberStatus>,
}
