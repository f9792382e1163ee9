//! The page colour manager (COLORIS 2014, section 3.2): which colours each program has, how it is doing, and
//! which colours change hands. Sections of the colours are local to the programs that begin with them, and
//! remote to all others. Colours are chosen by hotness, the number of programs that have them: of all programs
//! for remote colours, of those of other sections for local ones, since programs of one section, that is of
//! one core, do not run at the same time. Who gives and who takes is decided in `signals`, `priority` and
//! `utility`.
//!
//! What the paper leaves open: a program keeps at least a floor of colours (in its table 5 the least is
//! UNIT), and one that has nothing to give does not answer the call, so that the next can. Where colours are
//! not shared, only those change hands that nobody of another section has.

use huepage_color::{Color, ColorSet};
use huepage_frames::Sections;

use super::history::History;
use super::learn::Forecast;
use super::{AppId, Bucket, By, Decision, Gauge, Reading, Settings, Spec, Want, sections};

/// A program.
#[derive(Clone, Debug)]
pub(super) struct App {
    pub spec: Spec,
    pub section: usize,
    pub colors: ColorSet,
    pub gauge: Gauge,
    /// When its colours changed last.
    pub changed: Option<f64>,
    pub history: History,
    pub forecast: Forecast,
    left: bool,
}

/// The manager; see the [module](super).
#[derive(Clone, Debug)]
pub struct Manager {
    /// The parameters.
    pub settings: Settings,
    /// All that may be had.
    pub(super) pool: ColorSet,
    /// What is local to each section.
    sections: Vec<ColorSet>,
    pub(super) apps: Vec<App>,
    pub(super) bucket: Bucket,
    pub(super) now: f64,
    /// Whether a program waits for colours (`isHot`), and whether some wait for a program (`isCold`).
    pub(super) signals: [bool; 2],
    /// Programs that were read since the last decision, in this order.
    pub(super) fresh: Vec<usize>,
    /// By utility: decisions in a row that wanted another division, and decisions since the last change.
    pub(super) rounds: [u32; 2],
    pub(super) decisions: Vec<Decision>,
}

impl Manager {
    /// No programs yet. `sections` are the colours that they begin with.
    pub fn new(settings: Settings, pool: ColorSet, sections: Vec<ColorSet>) -> Manager {
        let settings = Settings { unit: settings.unit.max(1), ..settings };
        let (rate, size) = match settings.per_second {
            rate if rate > 0.0 => (rate, 2.0 * f64::from(settings.unit)),
            _ => (f64::MAX, f64::MAX),
        };
        Manager {
            settings,
            pool,
            sections,
            apps: Vec::new(),
            bucket: Bucket::new(rate, size),
            now: 0.0,
            signals: [false; 2],
            fresh: Vec::new(),
            rounds: [0; 2],
            decisions: Vec::new(),
        }
    }

    /// No programs yet, a section for each of so many cores; none if there are more of them than colours.
    pub fn on_cores(settings: Settings, colors: u16, cores: u16) -> Option<Manager> {
        let cores = if settings.sections > 0 { settings.sections } else { cores };
        let pool = ColorSet::all(colors);
        let sections = sections::equal(&pool, Sections::new(cores, colors)?);
        Some(Manager::new(settings, pool, sections))
    }

    /// With programs that share the colours of `pool`, with those that each had `before` where that is known.
    /// Each has a section of its own, as large as its limits want it; or those that may be changed go to
    /// [`Settings::sections`] of equal size, which they share. None if their floors do not fit.
    pub fn of_groups(
        settings: Settings,
        pool: ColorSet,
        specs: Vec<Spec>,
        before: &[Option<ColorSet>],
    ) -> Option<Manager> {
        let count = if settings.shared { settings.sections } else { 0 };
        let (sections, own, all) = sections::of_groups(&pool, &specs, before, count)?;
        let mut manager = Manager::new(settings, pool, sections);
        for ((spec, section), colors) in specs.into_iter().zip(own).zip(all) {
            manager.begin(spec, section, colors);
        }
        Some(manager)
    }

    /// A program begins, in the section with the fewest programs, the first of several, with all of it.
    pub fn admit(&mut self, spec: Spec) -> AppId {
        let load = |at: &usize| self.apps.iter().filter(|a| !a.left && a.section == *at).count();
        let lightest = (0..self.sections.len()).min_by_key(load).unwrap_or(0);
        self.admit_to(u16::try_from(lightest).unwrap_or(0), spec)
    }

    /// A program begins in a section, or with the colours of those there if these are one partition. Where
    /// nothing is shared it has of them what is free, and at least its floor, which the richest give.
    pub fn admit_to(&mut self, section: u16, spec: Spec) -> AppId {
        let section = usize::from(section) % self.sections.len().max(1);
        let local = self.sections.get(section).unwrap_or(&self.pool).clone();
        let mate = self.apps.iter().find(|app| app.section == section && !app.left);
        let colors =
            mate.filter(|_| self.settings.by == By::Utility).map(|mate| mate.colors.clone());
        let floor = spec.floor;
        let id = self.begin(spec, section, ColorSet::empty(self.pool.universe()));
        let of_section = local.intersection(&self.open_to(id.0));
        self.apps[id.0].colors = colors.unwrap_or(of_section);
        while self.apps[id.0].colors.len() < floor
            && let Some(giver) = self.richest(section)
        {
            self.give(giver, 1, None, "makes room for a program that begins");
            let free = self.open_to(id.0).difference(&self.apps[id.0].colors).first_color();
            let Some(color) = free else { break };
            self.apps[id.0].colors.insert(color);
        }
        id
    }

    fn begin(&mut self, spec: Spec, section: usize, colors: ColorSet) -> AppId {
        let (history, forecast) = (History::new(&self.settings), Forecast::new(&self.settings));
        let (gauge, changed, left) = (Gauge::default(), None, false);
        self.apps.push(App { spec, section, colors, gauge, changed, history, forecast, left });
        AppId(self.apps.len() - 1)
    }

    /// Who has most above its floor, of other sections.
    fn richest(&self, but: usize) -> Option<usize> {
        let rich = |&at: &usize| self.apps[at].section != but && self.spare(at) > 0;
        (0..self.apps.len()).filter(rich).max_by_key(|&at| self.spare(at))
    }

    /// A program has ended; its colours are not its own any more.
    pub fn leave(&mut self, app: AppId) {
        if let Some(app) = self.apps.get_mut(app.0) {
            (app.left, app.spec.bounds) = (true, None);
            app.colors = ColorSet::empty(self.pool.universe());
        }
    }

    /// The colours of a program; none if it has ended or never was.
    pub fn colors(&self, app: AppId) -> Option<&ColorSet> {
        self.apps.get(app.0).filter(|app| !app.left).map(|app| &app.colors)
    }

    /// Colours of the pool that no program has.
    pub fn free(&self) -> ColorSet {
        self.apps.iter().fold(self.pool.clone(), |free, app| free.difference(&app.colors))
    }

    /// What a program wants as far as is known.
    pub fn want(&self, app: AppId) -> Want {
        let patience = self.settings.patience;
        self.apps.get(app.0).map_or(Want::Same, |app| app.gauge.want(patience))
    }

    /// Whether a program waits for colours (`isHot`), and whether some wait for a program (`isCold`).
    pub const fn signals(&self) -> (bool, bool) {
        (self.signals[0], self.signals[1])
    }

    /// How a program is doing at `now`; none while it has nobody. A reading while its pages are still on
    /// their way to other colours does not count.
    pub fn observe(&mut self, app: AppId, reading: Option<Reading>, now: f64) {
        let rest = self.settings.rest;
        let Some(known) = self.apps.get_mut(app.0) else { return };
        let Some(bounds) = known.spec.bounds else { return };
        if !known.rests(now, rest) {
            known.gauge.note(reading, bounds);
            self.fresh.push(app.0);
        }
    }

    /// The same by what the last cache counted in a period.
    pub fn observe_counts(&mut self, id: AppId, misses: u64, requests: u64, now: f64) {
        let settings = self.settings;
        let value = settings.miss_rate(misses, requests);
        if let Some(app) = self.apps.get_mut(id.0) {
            let size = app.colors.len();
            app.forecast.observe([misses, requests], size, self.rounds[1], &settings);
        }
        self.observe(id, Some(Reading { value, margin: 0.0 }), now);
    }

    /// Miss rates of a program by the number of colours, from 0 to all, as they are foretold now; see
    /// [`forecast`](super::forecast). Without them a program keeps its size by utility.
    pub fn foretell(&mut self, app: AppId, rates: Vec<f64>, now: f64) {
        let rest = self.settings.rest;
        if let Some(app) = self.apps.get_mut(app.0).filter(|app| !app.rests(now, rest)) {
            app.forecast.foretell(rates);
        }
    }

    /// Whether the lines that a program requests are wanted.
    pub fn wants_requests(&self, app: AppId) -> bool {
        self.apps.get(app.0).is_some_and(|app| app.forecast.wants_requests())
    }

    /// A program requested a line of the last cache.
    pub fn request(&mut self, app: AppId, line: u64) {
        if let Some(app) = self.apps.get_mut(app.0) {
            app.forecast.request(line);
        }
    }

    /// What changes now, and what remarkable does not. Call it once after every round of readings.
    pub fn decide(&mut self, now: f64) -> Vec<Decision> {
        self.now = now;
        self.bucket.pass(now);
        let fresh = std::mem::take(&mut self.fresh);
        match self.settings.by {
            By::Signals => fresh.into_iter().for_each(|at| self.monitor(at)),
            By::Priority => self.exchange(),
            By::Utility => self.divide(),
        }
        std::mem::take(&mut self.decisions)
    }

    /// A program has no memory left in its colours: it gets more at once (section 3.2, the first
    /// of two causes); how many.
    pub fn out_of_memory(&mut self, app: AppId) -> u16 {
        let there = app.0 < self.apps.len();
        if there { self.take(app.0, self.settings.unit, None, "out of memory") } else { 0 }
    }

    /// Programs that have a colour, of all sections or of those other than one.
    fn hotness(&self, color: Color, but: Option<usize>) -> usize {
        let counts = |app: &&App| app.colors.contains(color) && Some(app.section) != but;
        self.apps.iter().filter(counts).count()
    }

    /// Programs whose colours change with those of one: by utility a section is one partition.
    pub(super) fn mates(&self, at: usize) -> Vec<usize> {
        let whole = self.settings.by == By::Utility;
        let is_mate = |&other: &usize| {
            let app = &self.apps[other];
            other == at || whole && !app.left && app.section == self.apps[at].section
        };
        (0..self.apps.len()).filter(is_mate).collect()
    }

    /// Colours that a program may have: those that nobody keeps to himself.
    fn open_to(&self, at: usize) -> ColorSet {
        let (own, shared) = (self.apps[at].section, self.settings.shared);
        let closed = |app: &&App| {
            if shared { app.spec.bounds.is_none() } else { app.section != own }
        };
        let closed = self.apps.iter().filter(closed);
        closed.fold(self.pool.clone(), |open, app| open.difference(&app.colors))
    }

    /// Colours that others could have if a program gave them.
    fn givable(&self, at: usize) -> ColorSet {
        let own = &self.apps[at].colors;
        if self.settings.shared {
            return own.clone();
        }
        let mates = self.mates(at);
        let others = self.apps.iter().enumerate().filter(|(other, _)| !mates.contains(other));
        others.fold(own.clone(), |own, (_, app)| own.difference(&app.colors))
    }

    /// How many colours a program could give.
    pub(super) fn spare(&self, at: usize) -> u16 {
        let app = &self.apps[at];
        let above = app.colors.len().saturating_sub(app.spec.floor.max(1));
        if app.spec.bounds.is_none() { 0 } else { above.min(self.givable(at).len()) }
    }

    /// How many colours a program could take by its ceiling.
    pub(super) fn room(&self, at: usize) -> u16 {
        self.apps[at].spec.ceiling.saturating_sub(self.apps[at].colors.len())
    }

    /// `PICK_VICTIMS`: a program loses `n` colours, remote ones first, the hottest of them; how many.
    pub(super) fn give(&mut self, at: usize, n: u16, taker: Option<usize>, why: &str) -> u16 {
        let (section, mut left) = (self.apps[at].section, self.givable(at));
        let mut to = self.apps[at].colors.clone();
        for _ in 0..n {
            let remote = left.difference(&self.sections[section]);
            let but = remote.is_empty().then_some(section);
            let from = if remote.is_empty() { &left } else { &remote };
            // Of several the last, as growing takes the first: sections stay contiguous.
            let hottest = from.iter().max_by_key(|&color| self.hotness(color, but));
            let Some(color) = hottest else { break };
            left.remove(color);
            to.remove(color);
        }
        self.change(at, &to, taker, why)
    }

    /// `ALLOC_COLORS`: a program gets `n` colours, local ones first, the coldest of them; how many.
    pub(super) fn take(&mut self, at: usize, n: u16, giver: Option<usize>, why: &str) -> u16 {
        let section = self.apps[at].section;
        let mut to = self.apps[at].colors.clone();
        let mut left = self.open_to(at).difference(&to);
        for _ in 0..n {
            let missing = left.intersection(&self.sections[section]);
            let but = (!missing.is_empty()).then_some(section);
            let from = if missing.is_empty() { &left } else { &missing };
            let coldest = from.iter().min_by_key(|&color| self.hotness(color, but));
            let Some(color) = coldest else { break };
            left.remove(color);
            to.insert(color);
        }
        let taken = self.change(at, &to, giver, why);
        self.bucket.take(taken);
        taken
    }

    /// Gives a program and its mates these colours; how many came or went.
    fn change(&mut self, at: usize, to: &ColorSet, partner: Option<usize>, why: &str) -> u16 {
        let moved = self.apps[at].colors.len().abs_diff(to.len());
        for mate in self.mates(at) {
            if self.apps[mate].colors != *to {
                let from = self.apps[mate].change(to, partner, self.now);
                let (app, to, reason) = (AppId(mate), to.clone(), why.to_owned());
                self.decisions.push(Decision { app, from, to, reason });
            }
        }
        moved
    }

    /// Says why a program keeps what it has.
    pub(super) fn stays(&mut self, at: usize, reason: String) {
        let from = self.apps[at].colors.clone();
        self.decisions.push(Decision { app: AppId(at), to: from.clone(), from, reason });
    }
}

impl App {
    /// Whether its pages may still be on their way.
    pub fn rests(&self, now: f64, rest: f64) -> bool {
        self.changed.is_some_and(|at| now >= at && now - at < rest)
    }

    /// Changes its colours; those before.
    fn change(&mut self, to: &ColorSet, partner: Option<usize>, now: f64) -> ColorSet {
        let grows = to.len() > self.colors.len();
        self.history.begin_trial(grows, self.colors.len(), self.gauge.last, partner);
        self.changed = Some(now);
        self.gauge.forget();
        self.forecast.forget();
        std::mem::replace(&mut self.colors, to.clone())
    }

    /// Its last reading, for a reason.
    pub fn shown(&self) -> String {
        let what = self.spec.measure;
        match self.gauge.last {
            Some(last) => format!("{what} {:.3} +- {:.3}", last.value, last.margin),
            None => "nobody there".to_owned(),
        }
    }
}

impl Settings {
    /// The miss rate that counts.
    fn miss_rate(&self, misses: u64, requests: u64) -> f64 {
        let idle = requests < self.least_requests.max(1);
        if idle { 0.0 } else { misses as f64 / requests as f64 }
    }
}
