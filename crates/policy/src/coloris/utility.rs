//! A page colour manager that measures what sizes are worth, beyond COLORIS (2014), whose
//! section 5.3 names utility curves as too dear to have. It learns a miss-rate [`Curve`] of each
//! program once, divides the cache exactly by these ([`best`]): first so that bounds hold, then
//! for the fewest misses; and changes a division only for one that breaks fewer bounds or saves a
//! good part of the misses, so that divisions settle. A program is measured again when it misses
//! otherwise than foretold for some periods.
//!
//! Programs of one core share a partition: they do not run at the same time, and nobody else has
//! its colours. Feedback: as [`Manager`](super::Manager), and while a program is being learned the
//! lines it requests of the last cache. Cost: those requests, as [`Curve`] says; a decision
//! partitions times the square of the units.

use huepage_color::ColorSet;
use huepage_frames::Sections;

use super::curve::{Curve, CurveSettings};
use super::monitor::{AppId, Assignment};
use super::sizes::{Demand, Sized, best, price};

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UtilitySettings {
    /// How curves are measured.
    pub curve: CurveSettings,
    /// Colours by which partitions differ; every one has at least so many.
    pub unit: u16,
    /// Counted requests of followed lines that make a curve.
    pub enough: u64,
    /// Periods after which fewer must do; a program with next to none has no curve then, and
    /// every size counts as the same to it.
    pub patience: u32,
    /// Requests of a period below which a program counts as not using the cache.
    pub least_requests: u64,
    /// Share of all misses that another division has to save.
    pub margin: f64,
    /// How far below its bound a program should be, where that can be had.
    pub caution: f64,
    /// How far a miss rate may be from what was foretold.
    pub surprise: f64,
}

impl UtilitySettings {
    /// Ours. 2048 requests put a rate within 0.03 with 99 % certainty.
    pub const fn new(curve: CurveSettings) -> UtilitySettings {
        UtilitySettings {
            curve,
            unit: 4,
            enough: 2048,
            patience: 8,
            least_requests: 1000,
            margin: 0.05,
            caution: 0.03,
            surprise: 0.15,
        }
    }
}

/// Surprises in a row that make a curve be measured again, twice as many each time: what a curve
/// cannot foretell, such as what others evict between turns, is not worth measuring for ever.
const IN_A_ROW: u32 = 3;
/// Most of them.
const MOST_IN_A_ROW: u32 = 96;
/// Counted requests below which there is no curve.
const FEWEST: u64 = 128;

#[derive(Clone, Debug)]
struct App {
    core: u16,
    bound: Option<f64>,
    curve: Curve,
    /// Periods that its curve has been measured; none: it is known, or was given up.
    learning: Option<u32>,
    rates: Option<Vec<f64>>,
    /// Miss rate and requests of late periods.
    rate: f64,
    requests: f64,
    /// What its miss rate was more than foretold.
    bias: f64,
    surprises: u32,
    /// Surprises in a row until it is measured again.
    patience: u32,
}

/// The manager; see the [module](self).
#[derive(Clone, Debug)]
pub struct UtilityManager {
    settings: UtilitySettings,
    /// The colours of each core.
    partitions: Vec<ColorSet>,
    apps: Vec<App>,
    /// Periods since the last change.
    quiet: u32,
    changes: u32,
}

impl UtilityManager {
    /// No programs yet; every core has its section.
    pub fn new(sections: Sections, settings: UtilitySettings) -> UtilityManager {
        let partitions = (0..sections.cores()).map(|core| sections.section(core)).collect();
        UtilityManager { settings, partitions, apps: Vec::new(), quiet: 0, changes: 0 }
    }

    /// A program begins on a core that is there; `bound` is the miss rate it must not exceed.
    pub fn admit_on(&mut self, core: u16, bound: Option<f64>) -> AppId {
        self.apps.push(App {
            core,
            bound,
            curve: Curve::new(self.settings.curve),
            learning: Some(0),
            rates: None,
            rate: 0.0,
            requests: 0.0,
            bias: 0.0,
            surprises: 0,
            patience: IN_A_ROW,
        });
        AppId(self.apps.len() - 1)
    }

    /// The colours of a program.
    pub fn colors(&self, app: AppId) -> Option<&ColorSet> {
        self.partitions.get(usize::from(self.apps.get(app.0)?.core))
    }

    /// How often the division was changed.
    pub const fn changes(&self) -> u32 {
        self.changes
    }

    /// Whether the lines that a program requests are wanted.
    pub fn wants_requests(&self, app: AppId) -> bool {
        self.apps.get(app.0).is_some_and(|app| app.learning.is_some())
    }

    /// The miss rates that were measured of a program, by the number of colours.
    pub fn rates(&self, app: AppId) -> Option<&[f64]> {
        self.apps.get(app.0)?.rates.as_deref()
    }

    /// A program requested a line of the last cache.
    pub fn request(&mut self, app: AppId, line: u64) {
        if let Some(app) = self.apps.get_mut(app.0).filter(|app| app.learning.is_some()) {
            app.curve.request(line);
        }
    }

    /// What the last cache counted for a program in a period.
    pub fn observe(&mut self, id: AppId, misses: u64, requests: u64) {
        let (settings, quiet) = (self.settings, self.quiet);
        let colors = self.colors(id).map_or(0, ColorSet::len);
        let Some(app) = self.apps.get_mut(id.0) else { return };
        app.requests = if app.requests == 0.0 {
            requests as f64
        } else {
            0.5 * (app.requests + requests as f64)
        };
        app.rate = if requests == 0 { 0.0 } else { misses as f64 / requests as f64 };
        if requests < settings.least_requests {
            // Whatever it was, it uses the cache too little to be measured.
            return;
        }
        app.learn(&settings);
        // Pages are still on their way in the period of a change.
        if quiet > 1 {
            app.compare(colors, &settings);
        }
    }

    /// Divides the cache anew if that is worth it; once per period, after all programs were
    /// observed. Gives all programs whose colours change.
    pub fn decide(&mut self) -> Vec<Assignment> {
        self.quiet = self.quiet.saturating_add(1);
        let waits = |app: &App| app.learning.is_some() && !app.is_idle(&self.settings);
        if self.apps.iter().any(waits) {
            return Vec::new();
        }
        let sizes: Vec<u16> = self.partitions.iter().map(ColorSet::len).collect();
        let Some(better) = self.better(&sizes) else { return Vec::new() };
        self.quiet = 0;
        self.changes += 1;
        self.divide(&better.colors)
    }

    /// A division that is worth the change.
    fn better(&self, sizes: &[u16]) -> Option<Sized> {
        let caution = self.settings.caution;
        let colors = self.settings.curve.colors;
        let (mut demands, unit) = (self.demands(caution), self.settings.unit);
        let mut found = best(&demands, colors, unit)?;
        if found.price.broken > 0 {
            demands = self.demands(0.0);
            found = best(&demands, colors, unit)?;
        }
        // What holds is not given up for want of caution.
        let (now, strict) = (price(&demands, sizes), price(&self.demands(0.0), sizes));
        let saves = found.price.misses < now.misses * (1.0 - self.settings.margin);
        let mends = found.price.broken < strict.broken;
        (mends || saves && found.price.broken <= strict.broken).then_some(found)
    }

    /// What is known of the programs of each core.
    fn demands(&self, caution: f64) -> Vec<Vec<Demand>> {
        let of = |core: usize| {
            let own = self.apps.iter().filter(|app| usize::from(app.core) == core);
            own.map(|app| app.demand(&self.settings, caution)).collect()
        };
        (0..self.partitions.len()).map(of).collect()
    }

    /// Gives each core so many colours, most of them those it has.
    fn divide(&mut self, sizes: &[u16]) -> Vec<Assignment> {
        let universe = self.settings.curve.colors;
        let before = self.partitions.clone();
        let mut free = ColorSet::all(universe);
        for (partition, &size) in self.partitions.iter_mut().zip(sizes) {
            while partition.len() > size {
                let last = partition.iter().last();
                last.map(|color| partition.remove(color));
            }
            free = free.difference(partition);
        }
        for (partition, &size) in self.partitions.iter_mut().zip(sizes) {
            while partition.len() < size
                && let Some(color) = free.first_color()
            {
                free.remove(color);
                partition.insert(color);
            }
        }
        self.changed(&before)
    }

    fn changed(&self, before: &[ColorSet]) -> Vec<Assignment> {
        let ids = (0..).map(AppId).zip(&self.apps);
        let changed = ids.filter(|(_, app)| {
            let core = usize::from(app.core);
            before.get(core) != self.partitions.get(core)
        });
        changed
            .filter_map(|(app, _)| Some(Assignment { app, colors: self.colors(app)?.clone() }))
            .collect()
    }
}

impl App {
    fn is_idle(&self, settings: &UtilitySettings) -> bool {
        self.requests < settings.least_requests as f64
    }

    /// A period of learning has passed.
    fn learn(&mut self, settings: &UtilitySettings) {
        let Some(periods) = &mut self.learning else { return };
        *periods += 1;
        let counted = self.curve.counted();
        if counted >= settings.enough || *periods >= settings.patience {
            self.learning = None;
            self.rates = (counted >= FEWEST).then(|| self.curve.miss_rates()).flatten();
            (self.bias, self.surprises) = (0.0, 0);
            self.curve.clear();
        }
    }

    /// Holds what was foretold against what came.
    fn compare(&mut self, colors: u16, settings: &UtilitySettings) {
        let Some(rates) = self.rates.as_ref().filter(|_| self.learning.is_none()) else { return };
        let foretold = rates.get(usize::from(colors)).copied().unwrap_or(self.rate);
        let off = self.rate - foretold;
        self.bias += 0.5 * (off - self.bias);
        if off.abs() <= settings.surprise {
            self.surprises = 0;
            self.patience = (self.patience - 1).max(IN_A_ROW);
            return;
        }
        self.surprises += 1;
        if self.surprises >= self.patience {
            (self.learning, self.surprises) = (Some(0), 0);
            self.patience = (2 * self.patience).min(MOST_IN_A_ROW);
        }
    }

    fn demand(&self, settings: &UtilitySettings, caution: f64) -> Demand {
        let bound = self.bound.map(|bound| bound - caution);
        let rates = match &self.rates {
            _ if self.is_idle(settings) => vec![0.0],
            Some(rates) => rates.iter().map(|rate| (rate + self.bias).clamp(0.0, 1.0)).collect(),
            None => vec![self.rate],
        };
        Demand { rates, requests: self.requests, bound }
    }
}
