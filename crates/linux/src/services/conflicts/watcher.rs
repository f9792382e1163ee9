//! The thread that watches one process for conflicts: looks at its lines, finds the pages that it uses
//! again and again with their colours, asks the policy and puts its requests into the slot. Ends with the
//! process, or when told.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use huepage_color::{Color, NumberHash, Pfn, Vpn};
use huepage_policy::Policy;
use huepage_policy::conflict::in_use::{self, InUseMoves};
use huepage_policy::pace::{Gap, GapSettings};

use super::Settings;
use super::looks::Looks;
use super::request::{Answer, MoveRequest, RequestSlot};
use crate::color::frame_colors::FrameColors;
use crate::color::line_timer::ResidencyError;
use crate::kernel::process_memory::thread_time;
use crate::kernel::procfs::{Pagemap, ProcRoot, program_of};
use crate::sensors::in_use::InUse;

/// CPU time of the process between two turns.
const TURN_CPU_TIME: Duration = Duration::from_millis(100);
/// How long the colour of a frame is remembered.
const COLOR_VALID_FOR: Duration = Duration::from_secs(30);

struct Watcher<'a> {
    slot: &'a RequestSlot,
    ways: u16,
    pagemap: Pagemap,
    looks: Looks,
    in_use: InUse,
    colors: FrameColors,
    policy: in_use::InUse<Box<dyn Policy + Send>>,
    began: Instant,
    /// What it executes.
    program: Option<(u64, u64)>,
    /// CPU time at the last turn.
    counted: Duration,
    /// A request is being carried out.
    waiting: bool,
    /// When pages in use were last looked for.
    looked: Option<Instant>,
    /// CPU time that finding them took, and the share of it that may be spent.
    cost: Duration,
    budget: f64,
    /// How long pages in use are taken to stay so while nobody asks: longer while there is nothing to be done about
    /// them.
    refresh: Gap,
    /// Colours of frames, and since when nothing older is among them.
    known: HashMap<Pfn, Color, NumberHash>,
    known_since: Instant,
}

/// Watches until the process ends or `slot` says so; whether it goes on as another program.
pub(super) fn run(pid: i32, settings: &Settings, slot: &RequestSlot) -> bool {
    let name = ProcRoot::default().status(pid).map(|s| s.name).unwrap_or_default();
    slot.change(|report| report.name = name);
    let program = program_of(pid);
    let result = open(pid, settings, slot, program).and_then(|mut watcher| watcher.care(pid));
    let replaced = !slot.is_stopped() && program.is_some() && program_of(pid) != program;
    if let Err(error) = &result {
        let gone =
            matches!(error, ResidencyError::Gone(_)) || !ProcRoot::default().process_exists(pid);
        let what = if gone { "ended".to_owned() } else { error.to_string() };
        slot.change(|report| report.stage.clone_from(&what));
        slot.log_decision(0.0, what);
    }
    replaced && ProcRoot::default().process_exists(pid)
}

fn open<'a>(
    pid: i32,
    settings: &Settings,
    slot: &'a RequestSlot,
    program: Option<(u64, u64)>,
) -> Result<Watcher<'a>, ResidencyError> {
    let policy = settings.policy().map_err(|e| ResidencyError::NotSupported(e.to_string()))?;
    let colors = FrameColors::open(settings.method.clone())?;
    let in_use = InUse::open(pid)?;
    // Nothing is known to be in use yet.
    let looks = Looks::open(pid, settings)?;
    Ok(Watcher {
        slot,
        ways: settings.ways,
        pagemap: ProcRoot::default().pagemap(pid)?,
        looks,
        in_use,
        colors,
        policy,
        began: Instant::now(),
        program,
        counted: Duration::ZERO,
        waiting: false,
        looked: None,
        cost: Duration::ZERO,
        budget: settings.cpu.max(1e-4),
        refresh: Gap::new(GapSettings::IN_USE),
        known: HashMap::default(),
        known_since: Instant::now(),
    })
}

impl Watcher<'_> {
    fn care(&mut self, pid: i32) -> Result<(), ResidencyError> {
        while !self.slot.is_stopped() {
            for (page, found) in self.looks.look()? {
                self.policy.looked(page, found);
            }
            if self.waiting {
                self.hear()?;
            } else if self.looks.ran().saturating_sub(self.counted) >= TURN_CPU_TIME {
                if program_of(pid) != self.program {
                    // Nothing that is known is of this program.
                    self.slot.change(|r| "executes another program".clone_into(&mut r.stage));
                    return Ok(());
                }
                self.turn()?;
            }
        }
        Ok(())
    }

    /// A stretch of time is over: what was seen goes to the policy.
    fn turn(&mut self) -> Result<(), ResidencyError> {
        self.counted = self.looks.ran();
        let due = self.refresh.now().max(self.cost.div_f64(self.budget));
        if self.looked.is_none_or(|at| at.elapsed() >= due) {
            let _ = self.look_around(false)?;
            let crowded = !self.policy.spread.crowds(self.ways).is_empty();
            let _ = self.refresh.after(self.cost, crowded);
        }
        let wants = self.policy.passed(self.seconds(), self.looks.errors());
        let mut moves = wants.moves;
        if wants.snapshot {
            moves.extend(self.look_around(true)?.moves);
        }
        self.follow(moves);
        self.tell();
        Ok(())
    }

    fn follow(&mut self, moves: MoveRequest) {
        if moves.is_empty() {
            return;
        }
        let (n, crowds) = (moves.len(), self.policy.spread.crowds(self.ways));
        let pages: u64 = crowds.iter().map(|crowd| crowd.pages).sum();
        self.note(format!(
            "{pages} pages in use of {} colours do not fit there; {n} are to be moved",
            crowds.len()
        ));
        self.slot.change(|report| {
            if report.crowds.is_empty() {
                report.crowds = crowds;
            }
        });
        self.waiting = true;
        self.refresh.reset();
        self.slot.post(moves);
    }

    /// Whether the engine has moved pages by now.
    fn hear(&mut self) -> Result<(), ResidencyError> {
        let Some(answer) = self.slot.take_answer() else { return Ok(()) };
        self.waiting = false;
        match &answer {
            Answer::Ok(placed) => {
                let moved = placed.iter().filter(|(_, there)| *there).count();
                self.note(format!("{moved} of {} pages were moved", placed.len()));
            }
            Answer::Err(why) => self.note(format!("pages cannot be moved: {why}")),
        }
        self.policy.answered(&answer.unwrap_or_default());
        self.counted = self.looks.ran();
        // They have other frames now.
        self.looks.look_anew()?;
        self.looked = None;
        self.tell();
        Ok(())
    }

    /// Finds the pages in use and their colours; looks are at these from now on. What the policy makes of them.
    fn look_around(&mut self, asked: bool) -> Result<InUseMoves, ResidencyError> {
        let began = thread_time();
        let found = self.in_use.find()?;
        self.cost = thread_time().saturating_sub(began);
        self.looked = Some(Instant::now());
        self.slot.change(|report| report.snapshots += 1);
        let Some(pages) = found else {
            self.note("left alone: it has more than 2 GiB of memory".to_owned());
            self.refresh.stretch();
            return Ok(InUseMoves::default());
        };
        let mut told: Vec<(Vpn, Option<Color>)> = pages.iter().map(|&page| (page, None)).collect();
        // Of a program that is too large for the cache no colours are wanted.
        if self.policy.fits(told.len()) {
            self.color(&mut told)?;
        }
        let wants = self.policy.in_use(&told, asked);
        let worth = if self.policy.is_too_large() { &[][..] } else { &pages[..] };
        self.looks.look_only_at(worth)?;
        Ok(wants)
    }

    /// Looks colours up, and measures those that are not known.
    fn color(&mut self, pages: &mut [(Vpn, Option<Color>)]) -> Result<(), ResidencyError> {
        if self.known_since.elapsed() >= COLOR_VALID_FOR {
            (self.known, self.known_since) = (HashMap::default(), Instant::now());
        }
        let mut frames = Vec::with_capacity(pages.len());
        for (page, _) in pages.iter() {
            frames.push(self.pagemap.entry(*page)?.pfn().filter(|frame| frame.0 != 0));
        }
        let unknown = frames.iter().flatten().filter(|frame| !self.known.contains_key(frame));
        let unknown: Vec<Pfn> = unknown.copied().collect();
        let colors = self.colors.colors_of(&unknown)?;
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
        self.slot.log_decision(self.seconds(), what);
    }

    /// What is known goes into the report.
    fn tell(&self) {
        let (policy, errors) = (&self.policy, self.looks.errors());
        let spread = &policy.spread;
        self.slot.change(|report| {
            report.stage = policy.stage();
            report.pages_in_use = spread.pages;
            report.most_of_a_color = spread.most();
            report.colors_in_use = spread.colors();
            if report.colors_in_use_before == 0 {
                report.colors_in_use_before = spread.colors();
            }
            report.residency = policy.residency(errors);
            report.residency_before = policy.residency_at_first.or(report.residency);
            report.conflicts = policy.conflicts;
            (report.seconds, report.cpu_seconds) = (self.seconds(), thread_time().as_secs_f64());
        });
    }
}
