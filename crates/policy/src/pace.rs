//! How often something is done that costs time, whoever does it: a share of one CPU ([`CpuBudget`]), pauses that
//! double while nothing is found ([`Gap`]), the cheaper of two ways, with the other tried now and then
//! ([`Alternate`]), and nothing that makes a program wait for too long ([`StallBound`]). Knows no clock: times are told, as durations since any beginning.

use std::time::Duration;

use crate::backoff::Doubling;

/// What sensing and deciding may cost: a share of one CPU. Some time is lent at first, so that the first looks at
/// a program come soon, and paid back; afterwards unused time is saved up to a little.
#[derive(Clone, Debug)]
pub struct CpuBudget {
    settings: CpuBudgetSettings,
    /// CPU seconds earned and not spent; below 0 while more was spent.
    left: f64,
    at: Duration,
    began: Duration,
}

/// How a budget is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuBudgetSettings {
    /// CPU seconds a second.
    pub share: f64,
    /// CPU time that is lent at first.
    pub lent: Duration,
    /// When all of it is paid back, since the beginning.
    pub paid_back_after: Duration,
    /// CPU time that is saved at most: a look or two.
    pub saved: Duration,
}

impl CpuBudgetSettings {
    /// The usual ones, for a share of one CPU.
    pub const fn of(share: f64) -> CpuBudgetSettings {
        CpuBudgetSettings {
            share,
            lent: Duration::from_millis(40),
            paid_back_after: Duration::from_secs(8),
            saved: Duration::from_millis(5),
        }
    }
}

impl CpuBudget {
    /// A share of one CPU, from `now` on.
    pub const fn new(share: f64, now: Duration) -> CpuBudget {
        CpuBudget { settings: CpuBudgetSettings::of(share), left: 0.0, at: now, began: now }
    }

    /// So much was spent.
    pub fn spend(&mut self, time: Duration) {
        self.left -= time.as_secs_f64();
    }

    /// How long to wait until there is something to spend.
    pub fn wait(&mut self, now: Duration) -> Duration {
        let CpuBudgetSettings { share, saved, .. } = self.settings;
        let earned = now.saturating_sub(self.at).as_secs_f64() * share;
        (self.left, self.at) = ((self.left + earned).min(saved.as_secs_f64()), now);
        let overspent = -self.left - self.lent(now);
        if overspent < 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(overspent / share).unwrap_or(Duration::MAX)
    }

    /// What may be overspent now.
    fn lent(&self, now: Duration) -> f64 {
        let CpuBudgetSettings { lent, paid_back_after, .. } = self.settings;
        let past = now.saturating_sub(self.began).as_secs_f64();
        lent.as_secs_f64() * (1.0 - past / paid_back_after.as_secs_f64()).max(0.0)
    }
}

/// Bounds of pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapSettings {
    /// The pause after something was found.
    pub shortest: Duration,
    /// The pause when nothing was found for long.
    pub longest: Duration,
    /// The pause at least, in times of what looking took: after something was found, and after nothing.
    pub factors: [u32; 2],
}

impl GapSettings {
    /// Audits of a partition: an eighth of one CPU at most while they find something, or a twentieth.
    pub const AUDITS: GapSettings = GapSettings::new(20, 1000, [8, 20]);
    /// The same of a process that lay right: a tenth of a percent of one CPU at most while nothing is found.
    pub const QUIET_AUDITS: GapSettings = GapSettings::new(1000, 16_000, [20, 1000]);
    /// Looks at who a process is and what it has open.
    pub const IDENTITY: GapSettings = GapSettings::new(250, 8000, [0, 0]);
    /// Rounds in which pages are looked for that were touched: a twentieth of one CPU at most, or a hundredth.
    pub const ROUNDS: GapSettings = GapSettings::new(20, 1000, [20, 100]);
    /// Looks for text that was not there before: a fifth of one CPU at most.
    pub const TEXT: GapSettings = GapSettings::new(50, 1000, [4, 4]);
    /// Blocks of memory without a frame that is wanted.
    pub const BARREN_BLOCKS: GapSettings = GapSettings::new(20, 1000, [0, 0]);
    /// How long pages in use are taken to stay so while nobody asks.
    pub const IN_USE: GapSettings = GapSettings::new(2000, 32_000, [0, 0]);

    const fn new(shortest_ms: u64, longest_ms: u64, factors: [u32; 2]) -> GapSettings {
        let (shortest, longest) =
            (Duration::from_millis(shortest_ms), Duration::from_millis(longest_ms));
        GapSettings { shortest, longest, factors }
    }
}

/// Pauses that double while nothing is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    settings: GapSettings,
    now: Duration,
}

impl Gap {
    /// The first pause is the shortest.
    pub const fn new(settings: GapSettings) -> Gap {
        Gap { settings, now: settings.shortest }
    }

    /// The pause after a look that took so long, by whether anything was found.
    pub fn after(&mut self, took: Duration, found: bool) -> Duration {
        let GapSettings { shortest, longest, factors } = self.settings;
        self.now = if found { shortest } else { (self.now * 2).min(longest) };
        self.now.max(took * factors[usize::from(!found)])
    }

    /// Something is to be found soon: the pause is the shortest.
    pub const fn reset(&mut self) {
        self.now = self.settings.shortest;
    }

    /// Nothing is to be found for long: the pause is the longest.
    pub const fn stretch(&mut self) {
        self.now = self.settings.longest;
    }

    /// Whether the pause is the longest.
    pub fn is_longest(&self) -> bool {
        self.now == self.settings.longest
    }

    /// The pause now, whatever a look takes.
    pub const fn now(&self) -> Duration {
        self.now
    }
}

/// Whether something may be done for which a program waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayStall {
    /// It takes short enough.
    Yes,
    /// Nobody knows how long it takes now: it is to be tried where no program waits for it.
    TryElsewhere,
    /// It took too long a while ago.
    No,
}

/// Bounds how long programs wait at a time: what took longer is not done for a while, which doubles, and then tried
/// where nobody waits for it.
#[derive(Clone, Debug)]
pub struct StallBound {
    longest: Duration,
    rests: Doubling,
    until: Duration,
    tried: bool,
}

impl StallBound {
    /// Seconds of the first rest, and how often it doubles.
    const REST: (u64, u32) = (10, 6);

    /// A program may wait for so long at a time.
    pub const fn new(longest: Duration) -> StallBound {
        let rests = Doubling::new(StallBound::REST.0, StallBound::REST.1);
        StallBound { longest, rests, until: Duration::ZERO, tried: false }
    }

    /// Whether it may be done now.
    pub fn may(&self, now: Duration) -> MayStall {
        match self.tried {
            _ if now < self.until => MayStall::No,
            true => MayStall::Yes,
            false => MayStall::TryElsewhere,
        }
    }

    /// It took so long, with a program that waited for it or where none did; false if that was too long.
    pub fn took(&mut self, now: Duration, took: Duration, waited: bool) -> bool {
        self.tried = took <= self.longest;
        if !self.tried {
            self.until = now + Duration::from_secs(self.rests.take());
        } else if waited {
            self.rests.reset();
        }
        self.tried
    }
}

/// Two ways to do the same, of which the cheaper is taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlternateSettings {
    /// Times that both ways are tried in turns at first.
    pub trials: u32,
    /// After so many the dearer one is tried again.
    pub retrial: u32,
    /// What the second way may cost of what the first does to be the cheaper one.
    pub better: f64,
}

impl AlternateSettings {
    /// Superpages built without and with a spare block at hand: programs wait for less with one, or for no longer.
    pub const SPARES: AlternateSettings =
        AlternateSettings { trials: 6, retrial: 128, better: 0.75 };
    /// Frames gathered in blocks of small and of huge pages.
    pub const BLOCKS: AlternateSettings = AlternateSettings { trials: 0, retrial: 64, better: 1.0 };
}

/// Which of two ways is taken.
#[derive(Clone, Debug)]
pub struct Alternate {
    settings: AlternateSettings,
    turns: u32,
    /// What the first and the second way cost lately.
    known: [Option<f64>; 2],
}

impl Alternate {
    /// Nothing is known of either.
    pub const fn new(settings: AlternateSettings) -> Alternate {
        Alternate { settings, turns: 0, known: [None, None] }
    }

    /// Whether the next one is done the second way.
    pub fn choose_second(&mut self) -> bool {
        self.turns += 1;
        match self.known {
            [Some(first), Some(second)] if self.turns > self.settings.trials => {
                let better = second < first * self.settings.better;
                better != self.turns.is_multiple_of(self.settings.retrial)
            }
            [Some(_), None] => true,
            [None, Some(_)] => false,
            _ => self.turns % 2 == 1 && self.settings.trials > 0,
        }
    }

    /// What it cost, in any unit; newer costs count more.
    pub fn cost(&mut self, second: bool, cost: f64) {
        let known = &mut self.known[usize::from(second)];
        *known = Some(known.map_or(cost, |old| (old + cost) / 2.0));
    }

    /// What both ways cost lately.
    pub const fn known(&self) -> [Option<f64>; 2] {
        self.known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_is_overspent_has_to_be_waited_for() {
        let start = Duration::from_secs(77);
        let mut budget = CpuBudget::new(0.01, start);
        assert_eq!(budget.wait(start), Duration::ZERO);
        budget.spend(50 * MS);
        let wait = budget.wait(start);
        assert!((wait.as_secs_f64() - 1.0).abs() < 1e-6, "{wait:?}");
        // However long nothing is spent, no more than 5 ms are saved.
        let later = start + Duration::from_secs(1100);
        assert_eq!(budget.wait(later), Duration::ZERO);
        budget.spend(15 * MS);
        let wait = budget.wait(later);
        assert!((wait.as_secs_f64() - 1.0).abs() < 1e-6, "{wait:?}");
    }

    #[test]
    fn what_was_lent_is_paid_back() {
        let settings = CpuBudgetSettings::of(0.01);
        let (mut budget, mut spent) = (CpuBudget::new(0.01, Duration::ZERO), Duration::ZERO);
        for ms in 0..30_000 {
            if budget.wait(ms * MS) == Duration::ZERO {
                budget.spend(MS);
                spent += MS;
            }
            let (share, lent) =
                (MS * ms / 100, if ms < 8000 { settings.lent } else { Duration::ZERO });
            assert!(spent <= share + lent + 2 * MS, "{spent:?} after {ms} ms");
        }
        assert!(spent >= 299 * MS, "nothing is left unused: {spent:?}");
    }

    #[test]
    fn pauses_double_while_nothing_is_found_and_follow_what_looking_takes() {
        let mut gap =
            Gap::new(GapSettings { shortest: 20 * MS, longest: 100 * MS, factors: [4, 10] });
        let found = [false, false, false, true, false].map(|found| gap.after(MS, found));
        assert_eq!(found, [40 * MS, 80 * MS, 100 * MS, 20 * MS, 40 * MS]);
        assert_eq!([gap.after(15 * MS, true), gap.after(15 * MS, false)], [60 * MS, 150 * MS]);
        assert_eq!(gap.now(), 40 * MS);
        gap.reset();
        assert_eq!(gap.now(), 20 * MS);
        gap.stretch();
        assert_eq!(gap.now(), 100 * MS);
    }

    #[test]
    fn the_cheaper_way_is_taken_and_the_other_tried_at_times() {
        let settings = AlternateSettings { trials: 6, retrial: 128, better: 0.75 };
        for (second, costs) in [(true, [5.0, 1.0]), (false, [5.0, 4.0])] {
            let mut ways = Alternate::new(settings);
            let mut last = Vec::new();
            for _ in 0..100 {
                let chosen = ways.choose_second();
                ways.cost(chosen, costs[usize::from(chosen)]);
                last.push(chosen);
            }
            assert!(last[10..].iter().all(|&chosen| chosen == second), "{costs:?}");
            let tried = (0..128).filter(|_| ways.choose_second() != second).count();
            assert_eq!(tried, 1, "the other is tried again");
        }
    }

    #[test]
    fn without_trials_the_first_way_begins() {
        let mut ways = Alternate::new(AlternateSettings { trials: 0, retrial: 64, better: 1.0 });
        assert!(!ways.choose_second());
        ways.cost(false, 2.0);
        assert!(ways.choose_second(), "never tried");
        ways.cost(true, 20.0);
        assert_eq!((0..128).filter(|_| ways.choose_second()).count(), 2);
        (0..8).for_each(|_| ways.cost(true, 0.0));
        assert!(ways.choose_second());
    }

    #[test]
    fn what_takes_too_long_rests_and_is_tried_where_nobody_waits() {
        let at = Duration::from_secs;
        let (short, long) = (Duration::from_micros(100), Duration::from_micros(900));
        let mut bound = StallBound::new(Duration::from_micros(500));
        assert_eq!(bound.may(at(0)), MayStall::TryElsewhere);
        assert!(bound.took(at(0), short, false));
        assert_eq!(bound.may(at(0)), MayStall::Yes);
        assert!(!bound.took(at(1), long, true), "the only one");
        assert_eq!([bound.may(at(10)), bound.may(at(11))], [MayStall::No, MayStall::TryElsewhere]);
        assert!(bound.took(at(11), short, false) && !bound.took(at(11), long, true));
        assert_eq!(bound.may(at(30)), MayStall::No, "what nobody waited for resets no rest");
        assert_eq!(bound.may(at(31)), MayStall::TryElsewhere);
        assert!(bound.took(at(31), short, false) && bound.took(at(31), short, true));
        assert!(!bound.took(at(32), long, true));
        assert_eq!(bound.may(at(42)), MayStall::TryElsewhere, "the first rest again");
    }
}
