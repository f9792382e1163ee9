//! The page colour manager of COLORIS (2014, section 3.2) with its cache utilization monitor
//! (algorithm 1): who has which colours, and who gives some to whom. Programs are told apart by
//! an [`AppId`]; cores have sections of the cache, and a program begins with that of its core.
//!
//! A program that misses too often says so (`hot`); the next one that misses little gives colours
//! (`cold`); the next one that misses too often takes them. Colours are chosen by hotness, the
//! number of programs that have them: on all cores for remote colours, on other cores for local
//! ones, since programs of one core do not run at the same time.
//!
//! Feedback: misses and requests of the last cache, per program and period. Cost: an observation
//! takes constant time, a change of colours programs times colours. What the paper leaves open:
//! a program keeps at least a floor of colours (in its table 5 the least is UNIT), and one that
//! has nothing to give does not answer the call, so that the next can.

use huepage_color::{Color, ColorSet};
use huepage_frames::Sections;

/// A program, as the manager numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppId(pub usize);

/// Between which miss rates of the last cache, 0 to 1, a program is left alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// Below it colours are given away.
    pub low: f64,
    /// Above it colours are asked for.
    pub high: f64,
}

impl Thresholds {
    /// No recolouring at all (table 2, C3; section 4.4 for a program that thrashes).
    pub const OFF: Thresholds = Thresholds { low: 0.0, high: 1.0 };
}

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ManagerSettings {
    /// For programs without thresholds of their own.
    pub thresholds: Thresholds,
    /// Colours that change hands at a time.
    pub unit: u16,
    /// Colours that every program keeps.
    pub floor: u16,
    /// Requests of a period below which a program counts as not using the cache: its miss rate
    /// is taken to be zero. The paper gives no number.
    pub least_requests: u64,
}

impl Default for ManagerSettings {
    /// C2 of table 2, UNIT of section 4.3.
    fn default() -> ManagerSettings {
        let thresholds = Thresholds { low: 0.30, high: 0.75 };
        ManagerSettings { thresholds, unit: 4, floor: 4, least_requests: 1000 }
    }
}

/// A change: the colours of a program from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The program.
    pub app: AppId,
    /// All its colours.
    pub colors: ColorSet,
}

#[derive(Clone, Debug)]
struct App {
    core: u16,
    colors: ColorSet,
    thresholds: Option<Thresholds>,
}

/// The manager; see the [module](self).
#[derive(Clone, Debug)]
pub struct Manager {
    sections: Sections,
    settings: ManagerSettings,
    /// None: it has ended.
    apps: Vec<Option<App>>,
    hot: bool,
    cold: bool,
}

impl Manager {
    /// No programs yet.
    pub const fn new(sections: Sections, settings: ManagerSettings) -> Manager {
        Manager { sections, settings, apps: Vec::new(), hot: false, cold: false }
    }

    /// A program begins: on the core with the fewest programs, the first of several, with the
    /// whole section of that core. Gives its number and the core.
    pub fn admit(&mut self, thresholds: Option<Thresholds>) -> (AppId, u16) {
        let load = |core: &u16| self.live().filter(|(_, app)| app.core == *core).count();
        let core = (0..self.sections.cores()).min_by_key(load).unwrap_or(0);
        (self.admit_on(core, thresholds), core)
    }

    /// A program begins on a core, with the section of that core.
    pub fn admit_on(&mut self, core: u16, thresholds: Option<Thresholds>) -> AppId {
        let colors = self.sections.section(core);
        self.apps.push(Some(App { core, colors, thresholds }));
        AppId(self.apps.len() - 1)
    }

    /// A program has ended; its colours are not its own any more.
    pub fn leave(&mut self, app: AppId) {
        if let Some(place) = self.apps.get_mut(app.0) {
            *place = None;
        }
    }

    /// The colours of a program; none if it has ended or never was.
    pub fn colors(&self, app: AppId) -> Option<&ColorSet> {
        Some(&self.app(app)?.colors)
    }

    /// Whether a program waits for colours (`isHot`), and whether some wait for a program
    /// (`isCold`).
    pub const fn signals(&self) -> (bool, bool) {
        (self.hot, self.cold)
    }

    /// What the last cache counted for a program in a period; its new colours if they change
    /// (algorithm 1).
    pub fn observe(&mut self, app: AppId, misses: u64, requests: u64) -> Option<Assignment> {
        let thresholds = self.app(app)?.thresholds.unwrap_or(self.settings.thresholds);
        let rate = self.rate(misses, requests);
        if rate > thresholds.high {
            if !self.cold {
                self.hot = true;
                return None;
            }
            let taken = self.grow(app);
            self.cold &= taken.is_none();
            return taken;
        }
        if rate < thresholds.low && self.hot {
            let given = self.shrink(app);
            if given.is_some() {
                (self.hot, self.cold) = (false, true);
            }
            return given;
        }
        None
    }

    /// A program has no memory left in its colours: it gets more at once (section 3.2, the first
    /// of two causes). None if it has all.
    pub fn out_of_memory(&mut self, app: AppId) -> Option<Assignment> {
        self.grow(app)
    }

    /// The miss rate that counts.
    fn rate(&self, misses: u64, requests: u64) -> f64 {
        let idle = requests < self.settings.least_requests.max(1);
        if idle { 0.0 } else { misses as f64 / requests as f64 }
    }

    fn app(&self, app: AppId) -> Option<&App> {
        self.apps.get(app.0)?.as_ref()
    }

    fn live(&self) -> impl Iterator<Item = (AppId, &App)> {
        (0..).map(AppId).zip(&self.apps).filter_map(|(id, app)| Some((id, app.as_ref()?)))
    }

    /// Programs that have a colour, on all cores or on those other than one.
    fn hotness(&self, color: Color, but: Option<u16>) -> usize {
        let counts = |app: &App| app.colors.contains(color) && Some(app.core) != but;
        self.live().filter(|(_, app)| counts(app)).count()
    }

    /// `ALLOC_COLORS`: local colours first, the coldest of them.
    fn grow(&mut self, id: AppId) -> Option<Assignment> {
        let app = self.app(id)?;
        let (core, mut colors) = (app.core, app.colors.clone());
        let before = colors.len();
        let local = self.sections.section(core);
        for _ in 0..self.settings.unit {
            let missing = local.difference(&colors);
            let remote = missing.is_empty();
            let from = if remote { colors.complement() } else { missing };
            let but = (!remote).then_some(core);
            let coldest = from.iter().min_by_key(|&color| self.hotness(color, but));
            let Some(color) = coldest else { break };
            colors.insert(color);
        }
        (colors.len() > before).then(|| self.assign(id, colors))
    }

    /// `PICK_VICTIMS`: remote colours first, the hottest of them. Nothing if fewer than UNIT
    /// would be above the floor.
    fn shrink(&mut self, id: AppId) -> Option<Assignment> {
        let app = self.app(id)?;
        let (core, mut colors) = (app.core, app.colors.clone());
        if colors.len() < self.settings.floor.max(1) + self.settings.unit {
            return None;
        }
        let local = self.sections.section(core);
        for _ in 0..self.settings.unit {
            let remote = colors.difference(&local);
            let has_remote = !remote.is_empty();
            let from = if has_remote { remote } else { colors.clone() };
            let but = (!has_remote).then_some(core);
            // Of several the last, as growing takes the first: sections stay contiguous.
            let hottest = from.iter().max_by_key(|&color| self.hotness(color, but));
            colors.remove(hottest?);
        }
        Some(self.assign(id, colors))
    }

    fn assign(&mut self, app: AppId, colors: ColorSet) -> Assignment {
        if let Some(Some(known)) = self.apps.get_mut(app.0) {
            known.colors.clone_from(&colors);
        }
        Assignment { app, colors }
    }
}
