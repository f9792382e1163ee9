//! How groups would come to divide a cache whose residency was recorded: the manager that the daemon runs
//! is told how each group would do with the colours that it gave it, as foretold from what was found of its
//! pages ([`forecast::curve`]) and set right by the miss rate that it had. Recordings count as made at the
//! same time; when they end, the last readings are told again until nothing changes any more. Reads no file.

use huepage_color::ColorSet;

use super::forecast::{self, Found};
use super::{AppId, Decision, Manager, Reading, Settings};
use crate::recording::residency::ResidencyLook;
use crate::residency::ResidencyTally;

/// Lines that make an estimate, as live.
const ENOUGH: u64 = 1000;
/// Seconds between two readings, as live.
const ESTIMATE: f64 = 0.5;
/// Seconds of looks that one reading is made of, at most, as live: programs change.
const WINDOW: f64 = 30.0;
/// Seconds between two decisions, as the daemon's usual ones.
const INTERVAL: f64 = 3.0;
/// Decisions in a row without a change after which it is settled, and decisions in all, at most: more than
/// patience and rest of a manager take.
const QUIET: u32 = 8;
const MOST: u32 = 2000;

/// How a group was doing at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Seconds since the beginning.
    pub at: f64,
    /// How far off the miss rate may be, plus or minus.
    pub margin: f64,
    /// What the miss rate was more than `rates` have it with all colours.
    pub bias: f64,
    /// Miss rates by the number of colours, from 0 on.
    pub rates: Vec<f64>,
}

/// Makes readings of the looks of a recording, as the daemon's sensor does of its own.
#[derive(Clone, Debug)]
pub struct Listener {
    colors: u16,
    blank: ResidencyTally,
    tally: ResidencyTally,
    began: f64,
    told: f64,
    samples: u64,
    readings: Vec<Told>,
}

impl Listener {
    /// Nothing was heard yet of a process that had all of so many colours; `blank` has its pages.
    pub fn new(blank: &ResidencyTally, colors: u16) -> Listener {
        let (blank, tally) = (blank.clone(), blank.clone());
        let (began, told, samples, readings) = (0.0, 0.0, 0, Vec::new());
        Listener { colors, blank, tally, began, told, samples, readings }
    }

    /// The next look. Every half second of the recording takes a millisecond or two.
    pub fn look(&mut self, look: &ResidencyLook) {
        if look.at - self.began >= WINDOW {
            (self.tally, self.began, self.samples) = (self.blank.clone(), look.at, 0);
        }
        for (pages, found) in [(&look.found, true), (&look.missed, false)] {
            pages.iter().for_each(|&page| _ = self.tally.note_page(page, found));
        }
        if look.at - self.told >= ESTIMATE {
            self.told = look.at;
            self.read(look.at);
        }
    }

    fn read(&mut self, at: f64) {
        let fresh = |samples: u64| samples >= ENOUGH && samples > self.samples;
        let Some(estimate) = self.tally.estimate().filter(|found| fresh(found.samples)) else {
            return;
        };
        self.samples = estimate.samples;
        let seen = self.tally.sampled_pages.iter().map(|page| (page.samples, page.found));
        let pages: Vec<Found> = seen.collect();
        if let Some(rates) = forecast::curve(&pages, self.colors, self.colors) {
            let (margin, whole) = (estimate.margin, rates.last().copied().unwrap_or(1.0));
            self.readings.push(Told { at, margin, bias: estimate.miss_rate - whole, rates });
        }
    }

    /// The readings, in the order of time.
    pub fn finish(self) -> Vec<Told> {
        self.readings
    }
}

/// What becomes of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Became {
    /// The colours that it has at first, and in the end.
    pub colors: [ColorSet; 2],
    /// Its miss rate with each, as foretold from its last reading; `None` without any.
    pub miss_rate: Option<[f64; 2]>,
}

/// What becomes of a division.
#[derive(Clone, Debug, PartialEq)]
pub struct OfflineDivision {
    /// Of each group.
    pub groups: Vec<Became>,
    /// What was decided, with the second.
    pub decisions: Vec<(f64, Decision)>,
}

/// Has a manager divide so many colours among groups, which are called by names. `None` if there are more
/// groups than colours.
pub fn divide(
    settings: Settings,
    colors: u16,
    groups: &[(String, Vec<Told>)],
) -> Option<OfflineDivision> {
    let specs = groups.iter().map(|(name, _)| settings.spec(name, None)).collect();
    let mut manager = Manager::of_groups(settings, ColorSet::all(colors), specs, &[])?;
    let of = |manager: &Manager, at| manager.colors(AppId(at)).cloned();
    let first: Vec<ColorSet> = (0..groups.len()).filter_map(|at| of(&manager, at)).collect();
    let decisions = govern(&mut manager, groups);
    let became = |(at, first): (usize, ColorSet)| {
        let last = of(&manager, at).unwrap_or_else(|| first.clone());
        let colors = [first, last];
        let miss_rate =
            groups[at].1.last().map(|told| colors.each_ref().map(|c| told.rate(c.len())));
        Became { colors, miss_rate }
    };
    Some(OfflineDivision { groups: first.into_iter().enumerate().map(became).collect(), decisions })
}

/// Tells and asks the manager until nothing changes any more.
fn govern(manager: &mut Manager, groups: &[(String, Vec<Told>)]) -> Vec<(f64, Decision)> {
    let ends = groups.iter().filter_map(|(_, told)| Some(told.last()?.at));
    let end = ends.fold(0.0, f64::max);
    let (mut decisions, mut quiet) = (Vec::new(), 0);
    for round in 1..=MOST {
        let now = INTERVAL * f64::from(round);
        for (at, (_, told)) in groups.iter().enumerate() {
            let late = told.partition_point(|told| told.at <= now);
            let Some(told) = late.checked_sub(1).and_then(|last| told.get(last)) else { continue };
            let size = manager.colors(AppId(at)).map_or(0, ColorSet::len);
            let reading = Reading { value: told.rate(size), margin: told.margin };
            manager.observe(AppId(at), Some(reading), now);
            manager.foretell(AppId(at), told.rates.clone(), now);
        }
        let changes = manager.decide(now);
        quiet = if changes.iter().any(Decision::is_change) { 0 } else { quiet + 1 };
        decisions.extend(changes.into_iter().map(|decision| (now, decision)));
        if now > end && quiet >= QUIET {
            break;
        }
    }
    decisions
}

impl Told {
    /// The miss rate with so many colours.
    fn rate(&self, colors: u16) -> f64 {
        let last = self.rates.len().saturating_sub(1);
        let rate = self.rates.get(usize::from(colors).min(last)).copied().unwrap_or(1.0);
        (rate + self.bias).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use huepage_color::Vpn;

    use super::super::{Bounds, By};
    use super::*;
    use crate::AreaKind;

    fn unattended() -> Settings {
        Settings { bounds: Bounds { low: 0.1, high: 0.2 }, ..Settings::unattended(16) }
    }

    /// Readings of a program whose pages are found with a share each, for so many looks of 50 lines, ten a
    /// second.
    fn heard(shares: &[f64], looks: u32) -> Vec<Told> {
        let (mut blank, mut random) = (ResidencyTally::default(), fastrand::Rng::with_seed(3));
        let pages = shares.len() as u64;
        let own = (16..16 + pages).map(Vpn);
        blank.add((16 * 4096, (16 + pages) * 4096), (AreaKind::Heap, String::new()), pages, own);
        let mut listener = Listener::new(&blank, 16);
        for at in 1..=looks {
            let mut look = ResidencyLook { at: f64::from(at) / 10.0, ..ResidencyLook::default() };
            for _ in 0..50 {
                let page = random.usize(..shares.len());
                let there = random.f64() < shares[page];
                let list = if there { &mut look.found } else { &mut look.missed };
                list.push(16 + page as u64);
            }
            listener.look(&look);
        }
        listener.finish()
    }

    #[test]
    fn readings_come_as_often_as_live_once_there_are_enough() {
        let told = heard(&[0.5; 100], 60);
        // 1,000 lines after 2 s, then one every half second.
        assert!((8..=9).contains(&told.len()) && told[0].at >= 2.0, "{}", told.len());
        let last = told.last().unwrap();
        assert!((last.rates[16] - 0.5).abs() < 0.1 && last.rates.len() == 17, "{last:?}");
        assert!((last.rate(16) - 0.5).abs() < 0.05 && last.rate(8) > last.rate(16), "{last:?}");
        assert!(heard(&[0.5; 100], 10).is_empty(), "500 lines are too few");
    }

    #[test]
    fn windows_forget_what_was_before() {
        let told = heard(&[0.5; 100], 700);
        let margins: Vec<f64> = told.iter().map(|told| told.margin).collect();
        let least = margins.iter().copied().fold(1.0, f64::min);
        assert!(margins.last().unwrap() > &least, "after 30 s it begins anew: {margins:?}");
    }

    #[test]
    fn who_is_served_by_more_colours_takes_them_from_a_scan() {
        let fits = ("fits".to_owned(), heard(&[0.8; 400], 100));
        let scan = ("scan".to_owned(), heard(&[0.01; 400], 100));
        for by in [By::Utility, By::Priority, By::Signals] {
            let groups = [fits.clone(), scan.clone()];
            let settings = Settings { by, ..unattended() };
            let found = divide(settings, 16, &groups).unwrap();
            assert_eq!(found.groups.iter().map(|g| g.colors[0].len()).collect::<Vec<_>>(), [8, 8]);
            let [own, other] = &found.groups[..] else { panic!() };
            assert!(own.colors[1].intersection(&other.colors[1]).is_empty());
            assert_eq!(found, divide(settings, 16, &groups).unwrap(), "the same each time");
            if by == By::Utility {
                assert!(own.colors[1].len() > 10, "{:?}", own.colors);
                let [before, after] = own.miss_rate.unwrap();
                assert!(after < before, "{before} {after}");
                assert!(!found.decisions.is_empty());
            }
        }
    }

    #[test]
    fn nobody_is_read_without_looks_and_too_many_do_not_fit() {
        let silent = |n: usize| vec![("silent".to_owned(), Vec::new()); n];
        let found = divide(unattended(), 4, &silent(2)).unwrap();
        assert!(found.decisions.is_empty());
        assert!(found.groups.iter().all(|g| g.miss_rate.is_none() && g.colors[0] == g.colors[1]));
        assert_eq!(divide(unattended(), 4, &silent(5)), None);
    }
}
