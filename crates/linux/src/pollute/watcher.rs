//! The thread that watches one process for polluting pages: looks, counts, asks the policy and writes
//! its wishes on the board. What it sees with is `sight`'s business. Ends with the process, or when told.

use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use huepage_color::PAGE_BYTES;

use super::Settings;
use super::board::{Board, Wish};
use super::driver::{Driver, Wants};
use super::sight::{Eyes, SensorKind, Sight, SightError};
use crate::procfs::ProcRoot;
use crate::superpages::hands::thread_time;

struct Watcher<'a> {
    board: &'a Board,
    sight: Box<dyn Sight>,
    driver: Driver,
    began: Instant,
    /// What it executes.
    program: Option<(u64, u64)>,
    /// A profile is being made.
    profiling: bool,
    /// CPU time at the last estimate.
    counted: Duration,
    /// A wish is being carried out.
    waiting: bool,
}

/// Watches until the process ends or `board` says so; whether it goes on as another program.
pub(super) fn run(pid: i32, settings: &Settings, eyes: &Eyes, board: &Board) -> bool {
    let name = ProcRoot::default().status(pid).map(|s| s.name).unwrap_or_default();
    board.change(|report| report.name = name);
    if let Some(ranges) = &settings.fixed {
        hold(ranges, board);
        return false;
    }
    let program = program_of(pid);
    let result = eyes.sight(pid, settings).and_then(|(sight, because)| {
        board.change(|report| {
            sight.kind().text().clone_into(&mut report.sensor);
            (report.sensor_detail, report.sensor_because) = (sight.detail(), because);
        });
        Watcher::new(board, sight, settings, program).care(pid)
    });
    let replaced = !board.is_stopped() && program.is_some() && is_another(pid, program);
    if let Err(error) = &result {
        let gone = error.is_gone() || !ProcRoot::default().process_exists(pid);
        let what = if gone { "it ended".to_owned() } else { error.to_string() };
        board.change(|report| report.stage = if gone { "ended".to_owned() } else { what.clone() });
        board.note(0.0, what);
    }
    replaced && ProcRoot::default().process_exists(pid)
}

/// Which file the process executes, for as long as it has any.
pub(crate) fn program_of(pid: i32) -> Option<(u64, u64)> {
    let file = std::fs::metadata(ProcRoot::default().pid_path(pid, "exe")).ok()?;
    Some((file.dev(), file.ino()))
}

/// Whether the process executes another program than that; one that ends executes none.
fn is_another(pid: i32, program: Option<(u64, u64)>) -> bool {
    program_of(pid).is_some_and(|now| Some(now) != program)
}

/// What is confined is said, not found.
fn hold(ranges: &[(u64, u64)], board: &Board) {
    board.change(|report| "confined as asked".clone_into(&mut report.stage));
    board.wish(Wish { ranges: ranges.to_vec() });
    while !board.is_stopped() {
        if let Some(Err(why)) = board.take_answer() {
            board.change(|report| report.stage = why);
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl<'a> Watcher<'a> {
    fn new(
        board: &'a Board,
        sight: Box<dyn Sight>,
        settings: &Settings,
        program: Option<(u64, u64)>,
    ) -> Watcher<'a> {
        let driver = match sight.kind() {
            SensorKind::Pmu => Driver::with_counters(settings),
            SensorKind::Residency => Driver::new(settings),
        };
        let (began, counted) = (Instant::now(), Duration::ZERO);
        let (profiling, waiting) = (false, false);
        Watcher { board, sight, driver, began, program, profiling, counted, waiting }
    }

    fn care(&mut self, pid: i32) -> Result<(), SightError> {
        while !self.board.is_stopped() {
            self.sight.look()?;
            if self.waiting {
                self.hear()?;
            } else if self.profiling {
                self.profile()?;
            } else if self.sight.ran().saturating_sub(self.counted) >= self.sight.stretch() {
                if is_another(pid, self.program) {
                    // Nothing that is known is of this program.
                    self.board.change(|r| "executes another program".clone_into(&mut r.stage));
                    return Ok(());
                }
                self.count()?;
            }
        }
        Ok(())
    }

    /// A stretch of time is over: what it was like goes to the policy.
    fn count(&mut self) -> Result<(), SightError> {
        self.counted = self.sight.ran();
        let wants = self.sight.count(&mut self.driver)?;
        self.tell();
        self.follow(wants)
    }

    fn follow(&mut self, wants: Wants) -> Result<(), SightError> {
        if wants.moves {
            self.waiting = true;
            let ranges = self.driver.ranges();
            let pages: u64 = ranges.iter().map(|(start, end)| (end - start) / PAGE_BYTES).sum();
            self.note(format!("{pages} pages are to be in the buffer: {}", self.driver.stage()));
            self.board.wish(Wish { ranges });
        }
        if wants.profile {
            self.sight.begin_profile()?;
            self.profiling = true;
        }
        Ok(())
    }

    /// Whether the engine has moved pages by now.
    fn hear(&mut self) -> Result<(), SightError> {
        let Some(answer) = self.board.take_answer() else { return Ok(()) };
        self.waiting = false;
        if let Err(why) = &answer {
            self.note(format!("pages cannot be moved: {why}"));
        }
        let wants = self.driver.answered(answer.is_ok());
        self.sight.forget()?;
        self.counted = self.sight.ran();
        self.follow(wants)?;
        self.tell_areas();
        Ok(())
    }

    /// Goes on with a profile, until it is over.
    fn profile(&mut self) -> Result<(), SightError> {
        let Some(made) = self.sight.profile(&mut self.driver)? else { return Ok(()) };
        self.profiling = false;
        self.counted = self.sight.ran();
        self.note(format!("a profile of {}: {}", made.of, self.driver.stage()));
        self.follow(made.wants)?;
        self.tell_areas();
        self.tell();
        Ok(())
    }

    fn note(&self, what: String) {
        self.board.note(self.began.elapsed().as_secs_f64(), what);
    }

    /// What is known goes into the report.
    fn tell(&self) {
        let (rocs, seconds) = (self.driver.rocs(), self.began.elapsed().as_secs_f64());
        let figures = self.sight.figures();
        let placed = rocs.stage() == huepage_policy::rocs::Stage::Steady && rocs.confined() > 0;
        self.board.change(|report| {
            self.driver.stage().clone_into(&mut report.stage);
            report.fills_per_second = figures.fills_per_second;
            report.miss_rate = figures.miss_rate.map(|(rate, _)| rate);
            report.miss_rate_margin = figures.miss_rate.map(|(_, margin)| margin);
            report.instructions_per_second = figures.instructions_per_second;
            report.instructions_per_cycle = figures.instructions_per_cycle;
            [report.samples, report.samples_lost] = figures.samples;
            report.interrupt_seconds = figures.interrupts.as_secs_f64();
            if self.driver.ranges().is_empty() && !self.waiting {
                report.miss_rate_before = report.miss_rate;
            }
            (report.profiles, report.trials) = (rocs.profiles(), rocs.trials());
            if placed {
                report.placed_after.get_or_insert(seconds);
            }
            (report.seconds, report.cpu_seconds) = (seconds, thread_time().as_secs_f64());
        });
    }

    /// Which areas are confined, for the report.
    fn tell_areas(&self) {
        let found = self.sight.areas(&self.driver);
        if !found.is_empty() {
            self.board.change(|report| report.areas = found);
        }
    }
}
