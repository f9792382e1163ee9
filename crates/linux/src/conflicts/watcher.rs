//! The thread that watches one process for conflicts: looks at its lines, finds the pages that it uses
//! again and again with their colours, asks the policy and writes its wishes on the board. Ends with the
//! process, or when told.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use huepage_color::{Color, NumberHash, Pfn, Vpn};

use super::Settings;
use super::board::{Answer, Board};
use super::driver::{Driver, Wants};
use super::in_use::InUse;
use crate::pollute::program_of;
use crate::procfs::{Pagemap, ProcRoot};
use crate::residency::{FrameColors, ResidencyError, Watch};
use crate::superpages::hands::thread_time;

/// CPU time of the process between two turns.
const CHUNK: Duration = Duration::from_millis(100);
/// How long pages in use are taken to stay so while nobody asks, at first; twice as long each time that
/// there is nothing to be done about them, this often at most.
const REFRESH: Duration = Duration::from_secs(2);
const MOST_DOUBLINGS: u32 = 4;
/// How long the colour of a frame is remembered.
const MEMORY: Duration = Duration::from_secs(30);

struct Watcher<'a> {
    board: &'a Board,
    ways: u16,
    pagemap: Pagemap,
    watch: Watch,
    in_use: InUse,
    colors: FrameColors,
    driver: Driver,
    began: Instant,
    /// What it executes.
    program: Option<(u64, u64)>,
    /// CPU time at the last turn.
    counted: Duration,
    /// A wish is being carried out.
    waiting: bool,
    /// When pages in use were last looked for.
    looked: Option<Instant>,
    /// CPU time that finding them took, and the share of it that may be spent.
    cost: Duration,
    budget: f64,
    /// How often in turn there was nothing to be done about them.
    idle: u32,
    /// Colours of frames, and since when nothing older is among them.
    known: HashMap<Pfn, Color, NumberHash>,
    known_since: Instant,
}

/// Watches until the process ends or `board` says so; whether it goes on as another program.
pub(super) fn run(pid: i32, settings: &Settings, board: &Board) -> bool {
    let name = ProcRoot::default().status(pid).map(|s| s.name).unwrap_or_default();
    board.change(|report| report.name = name);
    let program = program_of(pid);
    let result = open(pid, settings, board, program).and_then(|mut watcher| watcher.care(pid));
    let replaced = !board.is_stopped() && program.is_some() && program_of(pid) != program;
    if let Err(error) = &result {
        let gone =
            matches!(error, ResidencyError::Gone(_)) || !ProcRoot::default().process_exists(pid);
        let what = if gone { "ended".to_owned() } else { error.to_string() };
        board.change(|report| report.stage.clone_from(&what));
        board.note(0.0, what);
    }
    replaced && ProcRoot::default().process_exists(pid)
}

fn open<'a>(
    pid: i32,
    settings: &Settings,
    board: &'a Board,
    program: Option<(u64, u64)>,
) -> Result<Watcher<'a>, ResidencyError> {
    let colors = FrameColors::open(settings.sight.clone())?;
    let in_use = InUse::of(pid)?;
    let mut watch = Watch::of(pid, settings.cache_bytes, settings.cpu)?;
    // Nothing is known to be in use yet.
    watch.look_only_at(&[])?;
    Ok(Watcher {
        board,
        ways: settings.ways,
        pagemap: ProcRoot::default().pagemap(pid)?,
        watch,
        in_use,
        colors,
        driver: Driver::new(settings),
        began: Instant::now(),
        program,
        counted: Duration::ZERO,
        waiting: false,
        looked: None,
        cost: Duration::ZERO,
        budget: settings.cpu.max(1e-4),
        idle: 0,
        known: HashMap::default(),
        known_since: Instant::now(),
    })
}

impl Watcher<'_> {
    fn care(&mut self, pid: i32) -> Result<(), ResidencyError> {
        while !self.board.is_stopped() {
            for (seat, found) in self.watch.look()? {
                self.driver.looked(self.watch.seats()[seat].page, found);
            }
            if self.waiting {
                self.hear()?;
            } else if self.watch.ran().saturating_sub(self.counted) >= CHUNK {
                if program_of(pid) != self.program {
                    // Nothing that is known is of this program.
                    self.board.change(|r| "executes another program".clone_into(&mut r.stage));
                    return Ok(());
                }
                self.turn()?;
            }
        }
        Ok(())
    }

    /// A stretch of time is over: what was seen goes to the policy.
    fn turn(&mut self) -> Result<(), ResidencyError> {
        self.counted = self.watch.ran();
        let due = (REFRESH * (1 << self.idle)).max(self.cost.div_f64(self.budget));
        if self.looked.is_none_or(|at| at.elapsed() >= due) {
            self.look_around(false)?;
            let crowded = !self.driver.spread().crowds(self.ways).is_empty();
            self.idle = if crowded { 0 } else { (self.idle + 1).min(MOST_DOUBLINGS) };
        }
        let wants = self.driver.passed(self.seconds(), self.watch.errors());
        if wants.snapshot {
            self.look_around(true)?;
        }
        self.follow(&wants);
        self.tell();
        Ok(())
    }

    fn follow(&mut self, wants: &Wants) {
        if wants.moves.is_empty() {
            return;
        }
        let (n, crowds) = (wants.moves.len(), self.driver.spread().crowds(self.ways));
        let pages: u64 = crowds.iter().map(|crowd| crowd.pages).sum();
        self.note(format!(
            "{pages} pages in use of {} colours do not fit there; {n} are to be moved",
            crowds.len()
        ));
        self.board.change(|report| {
            if report.crowds.is_empty() {
                report.crowds = crowds;
            }
        });
        (self.waiting, self.idle) = (true, 0);
        self.board.wish(wants.moves.clone());
    }

    /// Whether the engine has moved pages by now.
    fn hear(&mut self) -> Result<(), ResidencyError> {
        let Some(answer) = self.board.take_answer() else { return Ok(()) };
        self.waiting = false;
        match &answer {
            Answer::Ok(placed) => {
                let moved = placed.iter().filter(|(_, there)| *there).count();
                self.note(format!("{moved} of {} pages were moved", placed.len()));
            }
            Answer::Err(why) => self.note(format!("pages cannot be moved: {why}")),
        }
        self.driver.answered(&answer.unwrap_or_default());
        self.counted = self.watch.ran();
        // They have other frames now.
        let pages: Vec<Vpn> = self.watch.seats().iter().map(|seat| seat.page).collect();
        self.watch.look_only_at(&pages)?;
        self.looked = None;
        self.tell();
        Ok(())
    }

    /// Finds the pages in use and their colours; looks are at these from now on.
    fn look_around(&mut self, asked: bool) -> Result<(), ResidencyError> {
        let began = thread_time();
        let found = self.in_use.find()?;
        self.cost = thread_time().saturating_sub(began);
        self.looked = Some(Instant::now());
        self.board.change(|report| report.snapshots += 1);
        let Some(pages) = found else {
            self.note("left alone: it has more than 2 GiB of memory".to_owned());
            self.idle = MOST_DOUBLINGS;
            return Ok(());
        };
        let mut told: Vec<(Vpn, Option<Color>)> = pages.iter().map(|&page| (page, None)).collect();
        // Of a program that is too large for the cache no colours are wanted.
        if self.driver.fits(told.len()) {
            self.color(&mut told)?;
        }
        self.driver.in_use(&told, asked);
        let worth = if self.driver.is_too_large() { &[][..] } else { &pages[..] };
        if self.watch.seats().iter().map(|seat| seat.page).ne(worth.iter().copied()) {
            self.watch.look_only_at(worth)?;
        }
        Ok(())
    }

    /// Looks colours up, and measures those that are not known.
    fn color(&mut self, pages: &mut [(Vpn, Option<Color>)]) -> Result<(), ResidencyError> {
        if self.known_since.elapsed() >= MEMORY {
            (self.known, self.known_since) = (HashMap::default(), Instant::now());
        }
        let mut frames = Vec::with_capacity(pages.len());
        for (page, _) in pages.iter() {
            frames.push(self.pagemap.entry(*page)?.pfn().filter(|frame| frame.0 != 0));
        }
        let unknown = frames.iter().flatten().filter(|frame| !self.known.contains_key(frame));
        let unknown: Vec<Pfn> = unknown.copied().collect();
        let colors = self.colors.of(&unknown)?;
        let found = unknown.into_iter().zip(colors);
        self.known.extend(found.filter_map(|(frame, color)| Some((frame, color?))));
        for (page, frame) in pages.iter_mut().zip(frames) {
            page.1 = frame.and_then(|frame| self.known.get(&frame).copied());
        }
        Ok(())
    }

    fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn note(&self, what: String) {
        self.board.note(self.seconds(), what);
    }

    /// What is known goes into the report.
    fn tell(&self) {
        let (driver, errors) = (&self.driver, self.watch.errors());
        let spread = driver.spread();
        self.board.change(|report| {
            report.stage = driver.stage();
            report.pages_in_use = spread.pages;
            report.most_of_a_color = spread.most();
            report.colors_in_use = spread.colors();
            if report.colors_in_use_before == 0 {
                report.colors_in_use_before = spread.colors();
            }
            report.residency = driver.residency(errors);
            report.residency_before = driver.residency_at_first().or(report.residency);
            report.conflicts = driver.conflicts();
            (report.seconds, report.cpu_seconds) = (self.seconds(), thread_time().as_secs_f64());
        });
    }
}
