//! From settings and what is known of the machine to a policy. Values that are not given are the usual
//! ones of the table; those that follow from the machine are worked out here.

use huepage_color::ColorSet;

use super::table::Family;
use super::{Error, Host, Settings};
use crate::Prices;
use crate::coloris::{self, By, CurveSettings, Growth, Manager};
use crate::combined::{Combined, CombinedSettings};
use crate::conflict::in_use::{InUse, InUseSettings};
use crate::conflict::{
    Active, ActiveSettings, BudgetSettings, CacheShape, CmlPolicy, CmlSettings, FitSettings,
    PeriodClock, Periodic, Pick, SnapshotFit, SnapshotMiss, SnapshotSettings, TargetChoice,
};
use crate::event::{Action, Event, Policy};
use crate::rocs::{Rocs, RocsSettings, SearchMethod};
use crate::srm::{Rescan, SrmBuffer, SrmSettings};
use crate::static_partition::{Backoff, StaticPartition};
use crate::superpage::{
    ApproxOnline, Asap, Fixed, Hybrid, Offline, Online, PageSizes, RestBounds,
    Settings as Superpages, Throttle,
};

/// Cycles of the books of superpages at each TLB miss (Romer 1998, table 3-3).
const BOOKKEEPING: u64 = 100;

/// Does nothing.
struct Nothing;

impl Policy for Nothing {
    fn handle(&mut self, _: Event, _: &mut Vec<Action>) {}
}

type Made = Result<Box<dyn Policy + Send>, Error>;

pub(super) fn policy(settings: &Settings, host: &Host) -> Made {
    let shape = || settings.shape(host);
    Ok(match settings.entry.family {
        // Who divides the cache moves no page.
        Family::Nothing | Family::Division => Box::new(Nothing),
        Family::Partition => {
            let colors = host.partition.clone().ok_or_else(|| settings.lacks(NO_COLORS))?;
            Box::new(StaticPartition::with_backoff(colors, settings.backoff()))
        }
        Family::Pollute => Box::new(Rocs::new(settings.rocs(shape()?))),
        Family::Files => Box::new(SrmBuffer::new(settings.srm(shape()?))),
        Family::ActiveConflicts => Box::new(Active::new(shape()?, settings.active())),
        Family::PeriodicConflicts => Box::new(settings.periodic(shape()?)),
        Family::Snapshots if settings.name() == "snapshot-fit" => {
            Box::new(SnapshotFit::new(shape()?, settings.fit()))
        }
        Family::Snapshots => {
            let shape = shape()?;
            let snapshot = SnapshotMiss::new(shape, settings.snapshot(shape));
            Box::new(match &host.keep_off {
                Some(colors) => snapshot.keeping_off(colors.clone()),
                None => snapshot,
            })
        }
        Family::Cml => {
            let shape = shape()?;
            Box::new(CmlPolicy::new(shape, settings.cml(shape)))
        }
        Family::Superpages => return settings.superpages(host),
        Family::Combined => settings.combined(shape()?),
    })
}

pub(super) fn division(settings: &Settings, host: &Host) -> Result<Option<Manager>, Error> {
    if settings.entry.family != Family::Division {
        return Ok(None);
    }
    let shape = settings.shape(host)?;
    let made = Manager::on_cores(settings.coloris(host)?, shape.colors, host.cores);
    made.map(Some)
        .ok_or_else(|| settings.lacks("as many colours as sections; choose another --level"))
}

const NO_COLORS: &str = "the colours to keep to; give them with --colors";
const NO_CACHE: &str = "a cache with more than one colour; choose another machine or --level";
const NO_PLAN: &str = "the whole stream of accesses beforehand, which only `huepage sim` has";

/// Shorthands for what the table promises: a key of the policy, of this kind.
impl Settings {
    fn lacks(&self, what: &'static str) -> Error {
        Error::Lacks { policy: self.name(), what }
    }

    fn shape(&self, host: &Host) -> Result<CacheShape, Error> {
        host.cache.ok_or_else(|| self.lacks(NO_CACHE))
    }

    fn n(&self, key: &str) -> u64 {
        self.count(key).unwrap_or_default()
    }

    fn n16(&self, key: &str) -> u16 {
        u16::try_from(self.n(key)).unwrap_or(u16::MAX)
    }

    fn n32(&self, key: &str) -> u32 {
        u32::try_from(self.n(key)).unwrap_or(u32::MAX)
    }

    fn size(&self, key: &str) -> usize {
        usize::try_from(self.n(key)).unwrap_or(usize::MAX)
    }

    fn r(&self, key: &str) -> f64 {
        self.ratio(key).unwrap_or_default()
    }

    fn is_on(&self, key: &str) -> bool {
        self.word(key) == Some("on")
    }

    fn target(&self) -> TargetChoice {
        self.word("target").and_then(TargetChoice::named).unwrap_or_default()
    }
}

/// The policies' own settings.
impl Settings {
    fn backoff(&self) -> Backoff {
        Backoff { longest: self.n32("longest"), attempts: self.n32("attempts") }
    }

    fn rocs(&self, shape: CacheShape) -> RocsSettings {
        let colors = f64::from(shape.colors);
        let most = f64::from(shape.colors.saturating_sub(1).max(1));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let buffer = (self.r("buffer") * colors).round().clamp(1.0, most) as u16;
        let review = Some(self.n32("review")).filter(|n| *n > 0);
        let paper = RocsSettings::paper(ColorSet::first(buffer, shape.colors));
        self.rocs_over(RocsSettings { method: self.method(shape.ways), review, ..paper })
    }

    /// How ROCS finds the number of pages, in a cache of so many ways.
    pub fn method(&self, ways: u16) -> SearchMethod {
        if self.word("method") == Some("model") {
            SearchMethod::Model { ways }
        } else {
            SearchMethod::Search
        }
    }

    /// ROCS's settings with the keys that were given: `usual` has the values of the others.
    #[must_use]
    pub fn rocs_over(&self, usual: RocsSettings) -> RocsSettings {
        let n = |key, usual| if self.is_given(key) { self.n(key) } else { usual };
        let r = |key, usual| if self.is_given(key) { self.r(key) } else { usual };
        let review = Some(self.n32("review")).filter(|n| *n > 0);
        let prefetch_off = self.word("prefetch") != Some("on");
        RocsSettings {
            start: n("start", usual.start),
            interval: n("interval", usual.interval),
            samples: n("samples", usual.samples),
            trial: n("trial", usual.trial),
            settle: n("settle", usual.settle),
            steps: if self.is_given("steps") { self.size("steps") } else { usual.steps },
            margin: r("margin", usual.margin),
            change: r("change", usual.change),
            least_mpki: r("least-mpki", usual.least_mpki),
            least_miss_rate: r("least-miss-rate", usual.least_miss_rate),
            prefetch_off: if self.is_given("prefetch") { prefetch_off } else { usual.prefetch_off },
            review: if self.is_given("review") { review } else { usual.review },
            ..usual
        }
    }

    /// Those of SRM-buffer, in a cache of this shape, of which a partition may have a part.
    pub fn srm(&self, shape: CacheShape) -> SrmSettings {
        let scans = self.count("scans").and_then(|scans| u32::try_from(scans).ok());
        let rescan = scans.map(|scans| Rescan { cache_pages: shape.pages(), scans });
        SrmSettings { colors: shape.colors, threshold: self.n("threshold"), rescan }
    }

    /// Those of a policy that divides the cache.
    ///
    /// # Errors
    /// When the machine has no cache to divide.
    pub fn coloris(&self, host: &Host) -> Result<coloris::Settings, Error> {
        let usual = self.usual_coloris(self.shape(host)?, host.live);
        let on = |key: &str, usual: bool| self.word(key).map_or(usual, |word| word == "on");
        let ratio = |key: &str, usual: f64| self.ratio(key).unwrap_or(usual);
        let count = |key: &str, usual: u32| self.count(key).map_or(usual, |_| self.n32(key));
        let colors = |key: &str, usual: u16| self.count(key).map_or(usual, |_| self.n16(key));
        let unit = colors("unit", usual.unit);
        let floor = if usual.curve.is_some() { unit } else { usual.floor };
        let bound = self.ratio("bound").map(|at| if at < 1.0 { at } else { f64::INFINITY });
        let high = self.ratio("high").or(bound).unwrap_or(usual.bounds.high);
        Ok(coloris::Settings {
            shared: on("shared", usual.shared),
            sections: colors("sections", usual.sections),
            bounds: coloris::Bounds { low: self.r("low"), high },
            floor: colors("floor", floor),
            unit,
            least_requests: self.n("least-requests"),
            patience: count("patience", usual.patience),
            rest: ratio("rest", usual.rest),
            per_second: ratio("per-second", usual.per_second),
            gain: self.r("gain"),
            again: self.r("again"),
            gradual: on("gradual", usual.gradual),
            margin: self.r("margin"),
            caution: ratio("caution", usual.caution),
            enough: self.n("enough"),
            surprise: self.r("surprise"),
            ..usual
        })
    }

    /// What holds where nothing is given.
    fn usual_coloris(&self, shape: CacheShape, live: bool) -> coloris::Settings {
        let usual = match live {
            true => coloris::Settings::unattended(shape.colors),
            false => coloris::Settings::PAPER,
        };
        let lines = u64::from(shape.ways) * shape.lines_per_page;
        match self.word("by").and_then(By::named).unwrap_or(usual.by) {
            By::Utility if !live => {
                coloris::Settings::utility(CurveSettings::new(shape.colors, lines))
            }
            by => coloris::Settings { by, ..usual },
        }
    }

    /// How a program whose colours change gets pages into the new ones; none if it is no division.
    pub fn growth(&self, shape: CacheShape) -> Option<Growth> {
        Some(match self.word("growth")? {
            "selective" => Growth::SelectiveMoving { ways: shape.ways.into() },
            _ => Growth::Redistribution { window: self.n("window") },
        })
    }

    fn active(&self) -> ActiveSettings {
        ActiveSettings { delay: self.n32("delay"), rest: self.n("rest") }
    }

    fn periodic(&self, shape: CacheShape) -> Periodic {
        let pick = match self.name() {
            "periodic-random" => Pick::Any,
            _ => Pick::Conflicting,
        };
        Periodic::new(shape, pick, self.n("period"), self.n("seed"))
    }

    fn fit(&self) -> FitSettings {
        let (period, delay, length) = (self.n("period"), self.n("delay"), self.n("length"));
        FitSettings { period, delay, length, ..FitSettings::default() }
    }

    /// Those of a policy that takes snapshots, in a cache of this shape.
    pub fn snapshot(&self, shape: CacheShape) -> SnapshotSettings {
        let usual = match self.name() {
            "snapshot" => SnapshotSettings::SNAPSHOT,
            "snapshot-delay" => SnapshotSettings::DELAY,
            "snapshot-miss" => SnapshotSettings::MISS,
            _ => SnapshotSettings::IN_USE,
        };
        let settings = SnapshotSettings {
            period: self.n("period"),
            delay: Some(self.n("delay")).filter(|n| *n > 0),
            length: self.n("length"),
            pages: Some(self.size("pages")).filter(|n| *n > 0).unwrap_or(usize::MAX),
            moves: self.size("moves"),
            target: self.target(),
            fit: self.is_on("fit"),
            absent: u8::try_from(self.n("absent")).unwrap_or(100),
            budget: self.is_on("budget").then(|| usual.budget.unwrap_or_default()),
            ..usual
        };
        if self.name() == "snapshot-in-use" { settings.fitted(shape) } else { settings }
    }

    /// The policy on pages in use of a program that runs or was recorded.
    ///
    /// # Errors
    /// When the cache lacks what the policy is about.
    pub fn in_use(&self, usual: InUseSettings) -> Result<InUse<Box<dyn Policy + Send>>, Error> {
        let (cache, keep_off) = (Some(usual.shape), Some(usual.keep_off.clone()));
        let mut settings = self.clone();
        if !self.is_given("pages") {
            // Nobody knows in which order the pages of a look were used: all of them, where there is such a key.
            let _ = settings.set("pages", "0");
        }
        let policy = settings.make(&Host { cache, keep_off, ..Host::default() })?;
        let watches =
            matches!(self.entry.family, Family::ActiveConflicts | Family::PeriodicConflicts);
        Ok(InUse::with(InUseSettings { watches, ..usual }, policy))
    }

    fn cml(&self, shape: CacheShape) -> CmlSettings {
        let thesis = CmlSettings::thesis(shape);
        CmlSettings {
            recolor: self.count("recolor").unwrap_or(thesis.recolor),
            clear: self.n("clear"),
            target: self.target(),
            budget: self.is_on("budget").then(BudgetSettings::default),
            ..thesis
        }
    }

    fn combined(&self, shape: CacheShape) -> Box<dyn Policy + Send> {
        let fit = self.is_on("fit");
        let cml = if fit { CmlPolicy::budgeted(shape) } else { CmlPolicy::thesis(shape) };
        let throttle =
            Throttle::new(ApproxOnline::new(Superpages::default()), RestBounds::default());
        let settings = CombinedSettings {
            hold: self.n("hold"),
            misses_per_page: self.n("misses-per-page"),
            sizes: fit.then(PageSizes::romer),
            costs: None,
        };
        Box::new(Combined::with(throttle, cml, settings))
    }

    /// The page sizes that a policy of superpages goes by.
    pub fn sizes(&self, host: &Host) -> PageSizes {
        match self.word("sizes") {
            Some("powers") => PageSizes::romer(),
            Some("x86") => PageSizes::x86(),
            _ => host.sizes.clone(),
        }
    }

    /// What TLB misses and superpages cost, as the policy takes it.
    pub fn prices(&self, host: &Host) -> Prices {
        Prices {
            miss: self.count("miss").unwrap_or(host.prices.miss).max(1),
            per_kib: self.count("per-kib").unwrap_or(host.prices.per_kib),
            setup: self.count("setup").unwrap_or(host.prices.setup),
        }
    }

    fn superpage(&self, host: &Host) -> Superpages {
        let usual = Superpages::default();
        Superpages {
            sizes: self.sizes(host),
            prices: self.prices(host),
            prefetch: self.ratio("prefetch").unwrap_or(usual.prefetch),
            capacity: self.ratio("capacity").unwrap_or(usual.capacity),
            by_construction: self.word("by-construction").map_or(host.quotes, |word| word == "on"),
            ..usual
        }
    }

    fn bounds(&self, host: &Host) -> RestBounds {
        let weight = host.weight.max(1);
        let usual = RestBounds::default();
        let (prices, prefetch) = (self.prices(host), self.r("prefetch"));
        let bookkeeping = if host.quotes { 0 } else { BOOKKEEPING };
        let frequency = match self.name() {
            "throttle-strict" => RestBounds::strict(prices, prefetch).frequency,
            _ => self.ratio("frequency").unwrap_or(usual.frequency / weight as f64),
        };
        RestBounds {
            window: self.n("window"),
            frequency,
            target: self.r("target"),
            bookkeeping: self.count("bookkeeping").unwrap_or(bookkeeping),
        }
    }

    fn superpages(&self, host: &Host) -> Made {
        let settings = || self.superpage(host);
        Ok(match self.name() {
            "fixed" => Box::new(Fixed::new(self.n32("order"))),
            "offline" => {
                let plan = host.plan.clone().ok_or_else(|| self.lacks(NO_PLAN))?;
                Box::new(Offline::new(plan))
            }
            "asap" => Box::new(Asap::with_share(self.sizes(host), self.r("share"))),
            "asap-4-64" => Box::new(Asap::four_64()),
            "online" => Box::new(Online::new(&settings())),
            "throttle" | "throttle-strict" => {
                Box::new(Throttle::new(ApproxOnline::new(settings()), self.bounds(host)))
            }
            "hybrid" => {
                let made = Hybrid::new(settings(), self.n32("order"), self.r("share"));
                Box::new(made.ok_or_else(|| self.lacks("an order of 18 at most"))?)
            }
            _ => Box::new(ApproxOnline::new(settings())),
        })
    }

    /// log2 of the pages of blocks in which frames are to be reserved, for a policy that builds in place;
    /// none for the others.
    pub fn reserved(&self) -> Option<u32> {
        let builds = matches!(self.name(), "fixed" | "hybrid");
        self.count("order").filter(|order| builds && *order > 0).and_then(|n| u32::try_from(n).ok())
    }

    /// Whether snapshots are counted in misses.
    pub fn counts_misses(&self) -> bool {
        self.name() == "snapshot-fit" || {
            let shape = CacheShape::direct(1, 1);
            self.entry.family == Family::Snapshots
                && self.snapshot(shape).clock == PeriodClock::Misses
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: CacheShape = CacheShape { colors: 16, ways: 8, lines_per_page: 64 };

    fn settings(text: &str) -> Settings {
        Settings::parse(text).unwrap()
    }

    fn host_live() -> Host {
        Host { live: true, ..host() }
    }

    fn host() -> Host {
        Host {
            cache: Some(SHAPE),
            partition: Some(ColorSet::first(4, 16)),
            cores: 2,
            weight: 1,
            plan: Some(crate::superpage::OfflinePlan::default()),
            ..Host::default()
        }
    }

    #[test]
    fn usual_values_are_the_papers() {
        let paper = RocsSettings::paper(ColorSet::first(1, 16));
        assert_eq!(settings("rocs").rocs(SHAPE), paper);
        assert_eq!(settings("static").backoff(), Backoff::default());
        assert_eq!(settings("srm").srm(SHAPE), SrmSettings::paper(16));
        let rescan = settings("srm-rescan").srm(SHAPE).rescan;
        assert_eq!(rescan, Some(Rescan::new(SHAPE.pages())));
        let (coloris, live) = (|name: &str| settings(name).coloris(&host()), host_live());
        assert_eq!(coloris("coloris"), Ok(coloris::Settings::PAPER));
        let curve = CurveSettings::new(16, 8 * 64);
        assert_eq!(coloris("utility"), Ok(coloris::Settings::utility(curve)));
        let unattended = coloris::Settings::unattended(16);
        assert_eq!(settings("coloris").coloris(&live), Ok(unattended));
        let utility = coloris::Settings { by: By::Utility, ..unattended };
        assert_eq!(settings("utility").coloris(&live), Ok(utility));
        let high = |text: &str| settings(text).coloris(&host()).map(|own| own.bounds.high);
        assert_eq!(high("coloris:high=1"), Ok(1.0), "no miss rate is above it");
        assert_eq!(high("utility:bound=0.5"), Ok(0.5));
        assert_eq!(high("utility:bound=1"), Ok(f64::INFINITY), "none");
        assert_eq!(settings("snapshot-fit").fit(), FitSettings::default());
        assert_eq!(settings("cml").cml(SHAPE), CmlSettings::thesis(SHAPE));
        for (name, usual) in [
            ("snapshot", SnapshotSettings::SNAPSHOT),
            ("snapshot-delay", SnapshotSettings::DELAY),
            ("snapshot-miss", SnapshotSettings::MISS),
            ("snapshot-in-use", SnapshotSettings::IN_USE.fitted(SHAPE)),
        ] {
            assert_eq!(settings(name).snapshot(SHAPE), usual, "{name}");
        }
        assert_eq!(settings("approx-online").superpage(&host()), Superpages::default());
        assert_eq!(settings("throttle").bounds(&host()), RestBounds::default());
        let strict = RestBounds::strict(Prices::default(), 0.125);
        assert_eq!(settings("throttle-strict").bounds(&host()), strict);
    }

    #[test]
    fn every_policy_can_be_made_and_says_what_it_lacks() {
        for entry in super::super::POLICIES {
            let settings = settings(entry.name);
            assert!(settings.make(&host()).is_ok(), "{}", entry.name);
            let divides = settings.make_division(&host()).unwrap().is_some();
            assert_eq!(divides, entry.family == Family::Division, "{}", entry.name);
            if let Err(error) = settings.make(&Host::default()) {
                assert!(error.to_string().contains(entry.name), "{error}");
            }
        }
        let lacks = settings("static").make(&Host::default()).err().unwrap().to_string();
        assert_eq!(lacks, "static needs the colours to keep to; give them with --colors");
        assert!(settings("rocs").make(&Host::default()).is_err());
    }

    #[test]
    fn a_key_reaches_the_policy() {
        let found =
            settings("rocs:buffer=1/4,method=model,start=5M,review=3,prefetch=on").rocs(SHAPE);
        assert_eq!((found.buffer.len(), found.start, found.review), (4, 5_000_000, Some(3)));
        assert_eq!((found.method, found.prefetch_off), (SearchMethod::Model { ways: 8 }, false));
        assert_eq!(settings("fixed:order=6").reserved(), Some(6));
        assert_eq!(settings("asap").reserved(), None);
        assert!(settings("snapshot-miss").counts_misses() && !settings("snapshot").counts_misses());
    }
}
