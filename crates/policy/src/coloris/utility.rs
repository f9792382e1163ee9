//! By utility: the division of the colours among sections that is best by what is known of other sizes.
//! The search is exact ([`best`]): first so that bounds hold, then for the fewest misses, of which those of
//! a program count as often as its priority. A division is changed only for one that breaks fewer bounds or
//! saves a good part of the misses, so that divisions settle. Programs of one section share its part. Colours
//! that nobody may have are left over.

use super::Manager;
use super::manager::App;
use super::sizes::{Part, Price, best, price};

/// A division that is better than the one there is.
struct Better {
    sizes: Vec<u16>,
    why: String,
}

impl Manager {
    /// Moves towards the best division, once some decisions in a row wanted another.
    pub(super) fn divide(&mut self) {
        self.rounds[1] = self.rounds[1].saturating_add(1);
        let changes = |app: &&App| app.spec.bounds.is_some();
        let mut all = self.apps.iter().filter(changes);
        if all.any(|app| app.forecast.is_awaited(&self.settings)) {
            return;
        }
        // The first program of each section stands for all of it.
        let first = |&at: &usize| self.mates(at).first() == Some(&at);
        let firsts: Vec<usize> = (0..self.apps.len()).filter(first).collect();
        let known = |at| {
            let caution = self.settings.caution;
            Some((at, (self.part(at, 0.0)?, self.part(at, caution)?)))
        };
        let known = firsts.into_iter().filter_map(known);
        let (at, (strict, cautious)): (Vec<usize>, (Vec<Part>, Vec<Part>)) = known.unzip();
        let sizes: Vec<u16> = at.iter().map(|&at| self.apps[at].colors.len()).collect();
        let better = self.better([&strict, &cautious], &sizes);
        self.rounds[0] = if better.is_some() { self.rounds[0].saturating_add(1) } else { 0 };
        if let Some(better) = better.filter(|_| self.rounds[0] >= self.settings.patience) {
            self.rounds[0] = 0;
            self.approach(&at, &strict, &better);
        }
    }

    /// What is known of a program's section; none where its size is to stay.
    fn part(&self, at: usize, caution: f64) -> Option<Part> {
        let mates: Vec<&App> = self.mates(at).into_iter().map(|at| &self.apps[at]).collect();
        let rest = self.settings.rest;
        let programs = mates.iter().map(|app| {
            let bound = app.spec.bounds.filter(|_| !app.rests(self.now, rest))?.high - caution;
            app.forecast.demand(app.spec.priority, bound, &self.settings)
        });
        let programs = programs.collect::<Option<Vec<_>>>()?;
        let floor = mates.iter().map(|app| app.spec.floor.max(1)).max()?;
        let ceiling = mates.iter().map(|app| app.spec.ceiling).min()?;
        Some(Part { floor, ceiling, programs })
    }

    /// A division that is worth the change: as it is without caution, if it cannot be had with it.
    fn better(&self, [strict, cautious]: [&[Part]; 2], sizes: &[u16]) -> Option<Better> {
        let colors = sizes.iter().sum::<u16>() + self.free().len();
        let grain = if self.settings.gradual { 1 } else { self.settings.unit };
        let mut parts = cautious;
        let mut found = best(parts, colors, grain)?;
        if found.price.broken > 0 {
            parts = strict;
            found = best(parts, colors, grain)?;
        }
        // What holds is not given up for want of caution.
        let (now, old) = (price(parts, sizes), price(strict, sizes));
        let saved = share(now, found.price);
        let mended = old.broken.saturating_sub(found.price.broken);
        let saves = saved > self.settings.margin && found.price.broken <= old.broken;
        let bounds = if mended > 0 { format!(", {mended} bounds mended") } else { String::new() };
        let why = format!("{:.0} % fewer misses in all{bounds}, as foretold", 100.0 * saved);
        (mended > 0 || saves).then_some(Better { sizes: found.sizes, why })
    }

    /// Has those give that are to have fewer, as much as the others take now.
    fn approach(&mut self, at: &[usize], parts: &[Part], better: &Better) {
        let now: Vec<u16> = at.iter().map(|&at| self.apps[at].colors.len()).collect();
        let [given, taken] = self.steps(&now, &better.sizes);
        let reason = |i: usize, to: u16| {
            let rate = |colors: u16| parts[i].programs[0].rate(colors);
            format!("miss rate {:.3} -> {:.3}: {}", rate(now[i]), rate(to), better.why)
        };
        for i in (0..at.len()).filter(|&i| given[i] > 0) {
            self.give(at[i], given[i], None, &reason(i, now[i] - given[i]));
        }
        for i in (0..at.len()).filter(|&i| taken[i] > 0) {
            self.take(at[i], taken[i], None, &reason(i, now[i] + taken[i]));
        }
        if taken.iter().any(|&n| n > 0) {
            self.rounds[1] = 0;
        }
    }

    /// How much each gives and takes now, on the way from some sizes to others.
    fn steps(&self, now: &[u16], sizes: &[u16]) -> [Vec<u16>; 2] {
        let step = if self.settings.gradual { self.settings.unit } else { u16::MAX };
        let free = self.free().len();
        let spare: Vec<u16> =
            now.iter().zip(sizes).map(|(now, n)| now.saturating_sub(*n)).collect();
        let most = (free + spare.iter().sum::<u16>()).min(self.bucket.left());
        let missing = now.iter().zip(sizes).map(|(now, n)| n.saturating_sub(*now).min(step));
        let taken = first_of(missing, most);
        let wanted = taken.iter().sum::<u16>().saturating_sub(free);
        [first_of(spare.into_iter(), wanted), taken]
    }
}

/// What each gets of so many, the first of them first.
fn first_of(wishes: impl Iterator<Item = u16>, mut left: u16) -> Vec<u16> {
    let share = |wish: u16| {
        let n = wish.min(left);
        left -= n;
        n
    };
    wishes.map(share).collect()
}

/// The share of the misses that is saved.
fn share(now: Price, then: Price) -> f64 {
    if now.misses > 0.0 { 1.0 - then.misses / now.misses } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use huepage_color::ColorSet;

    use super::super::{AppId, Bounds, By, Settings, Spec};
    use super::*;

    fn spec(floor: u16, ceiling: u16, priority: u8) -> Spec {
        let bounds = Some(Bounds { low: 0.1, high: 0.5 });
        Spec { name: "x".to_owned(), floor, ceiling, priority, bounds, measure: "miss rate" }
    }

    /// Sizes of two programs after some rounds, at first so many, with a margin.
    fn settled(specs: [Spec; 2], rates: [&[f64]; 2], first: u16, margin: f64) -> [u16; 2] {
        let unattended = Settings::unattended(16);
        let settings = Settings { by: By::Utility, margin, per_second: 0.0, ..unattended };
        let all = ColorSet::all(16);
        let own = ColorSet::first(first, 16);
        let before = [Some(own.clone()), Some(own.complement())];
        let mut manager = Manager::of_groups(settings, all, specs.to_vec(), &before).unwrap();
        for round in 0..60_u32 {
            let now = 10.0 * f64::from(round);
            for (at, rates) in rates.iter().enumerate() {
                manager.foretell(AppId(at), rates.to_vec(), now);
            }
            for decision in manager.decide(now) {
                assert!(decision.reason.contains("as foretold"), "{decision:?}");
            }
        }
        [0, 1].map(|at| manager.colors(AppId(at)).unwrap().len())
    }

    #[test]
    fn colours_go_where_they_are_worth_most() {
        let steep: Vec<f64> = (0..=16).map(|n| 1.0 - f64::from(n) / 20.0).collect();
        let flat = vec![0.4; 17];
        let both = [&steep[..], &flat];
        assert_eq!(settled([spec(1, 16, 1), spec(2, 16, 1)], both, 8, 0.05), [14, 2]);
        assert_eq!(settled([spec(1, 10, 1), spec(2, 16, 1)], both, 8, 0.01)[0], 10, "a ceiling");
        // With ten no bound is broken, and more would save less than the margin.
        assert_eq!(settled([spec(1, 16, 1), spec(2, 16, 1)], both, 10, 0.4), [10, 6]);
    }

    #[test]
    fn priorities_weigh() {
        let rates: Vec<f64> = (0..=16).map(|n| 0.4 - f64::from(n) / 60.0).collect();
        let specs = [spec(1, 16, 1), spec(1, 16, 3)];
        assert_eq!(settled(specs, [&rates, &rates], 8, 0.01), [1, 15]);
    }
}
