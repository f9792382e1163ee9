//! How many frames are kept ready for a process: they count as its memory. While it grows, as many as it takes not
//! to be outrun; while it does not, in proportion to what it has. What somebody asked for is neither more nor less.

/// Numbers of a [`StockGoal`]; pages have 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockSettings {
    /// This part of the memory of a process that does not grow.
    pub part: u64,
    /// Fewest pages: 1 MiB.
    pub fewest: u64,
    /// Most pages that the goal grows to, and most candidates that are held: 128 MiB.
    pub most: u64,
    /// The program outran us when this part of the goal came in any colour since it last did.
    pub outrun_part: u64,
    /// The stock is low below this part of the goal.
    pub low_part: u64,
    /// So many times as many pages as are missing may wait for those of other colours, so that the stock is even:
    /// memory that was given back a moment ago has some colours in plenty and hardly any of others.
    pub uneven_factor: u64,
    /// Candidates of unwanted colours are held while a process grows, in times of the goal or of its own pages, whichever
    /// are more: of those that are given back, each refill would have to look at all again.
    pub candidate_factor: u64,
    /// They leave the rest to others but for this part of what can still be taken.
    pub candidate_part: u64,
}

impl Default for StockSettings {
    fn default() -> StockSettings {
        StockSettings {
            part: 20,
            fewest: 256,
            most: 1 << 15,
            outrun_part: 64,
            low_part: 2,
            uneven_factor: 2,
            candidate_factor: 2,
            candidate_part: 8,
        }
    }
}

impl StockSettings {
    /// Pages for a process that has so many and does not grow.
    pub fn of(&self, resident: u64) -> u64 {
        (resident / self.part).max(self.fewest)
    }
}

/// Pages of stock to have.
#[derive(Clone, Copy, Debug)]
pub struct StockGoal {
    settings: StockSettings,
    asked: u64,
    fixed: bool,
    now: u64,
    /// Pages of any colour that had been placed when the program outran us last.
    fallback: u64,
}

impl StockGoal {
    /// So many at first; `fixed` if that is so for good.
    pub const fn new(settings: StockSettings, pages: u64, fixed: bool) -> StockGoal {
        StockGoal { settings, asked: pages, fixed, now: pages, fallback: 0 }
    }

    /// Pages to have now.
    pub const fn now(&self) -> u64 {
        self.now
    }

    /// Whether so many pages are too few.
    pub const fn is_low(&self, pages: u64) -> bool {
        pages < self.now / self.settings.low_part
    }

    /// Whether a stock that is to have `goal` pages needs no more than it has and what waits for other colours.
    pub const fn is_reached(&self, goal: u64, stock: u64, waiting: u64) -> bool {
        stock + waiting / self.settings.uneven_factor >= goal
    }

    /// Candidates of unwanted colours to hold at most for a process that has so many pages of its `own` and may take
    /// `room` more. What was asked for is a bound: then none.
    pub fn candidates(&self, own: u64, room: u64) -> u64 {
        if self.fixed {
            return 0;
        }
        let most = (self.now.max(own) * self.settings.candidate_factor).min(self.settings.most);
        most.min(room / self.settings.candidate_part)
    }

    /// So many pages of any colour were placed before there was any stock.
    pub const fn began(&mut self, fallback: u64) {
        self.fallback = fallback;
    }

    /// So many were placed by now; whether the program outran us, so that more are to be had: as many again as
    /// pages of its `own` at most, so that many processes that start at once take no more than they will use.
    pub fn is_outrun(&mut self, fallback: u64, own: impl FnOnce() -> u64) -> bool {
        let outrun = fallback > self.fallback + self.now / self.settings.outrun_part;
        if outrun {
            self.fallback = fallback;
            let most = self.settings.most.max(self.asked).min(own());
            self.now = if self.fixed { self.asked } else { (self.now * 2).min(most).max(self.now) };
        }
        outrun
    }

    /// The process has so many pages and does not grow.
    pub fn settle(&mut self, resident: u64) {
        if !self.fixed {
            self.now = self.settings.of(resident).min(self.asked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_grow_has_a_twentieth_or_a_mebibyte() {
        let mut goal = StockGoal::new(StockSettings::default(), 8192, false);
        assert_eq!(goal.now(), 8192);
        for (resident, pages) in [(0, 256), (5000, 256), (16_384, 819), (1 << 20, 8192)] {
            goal.settle(resident);
            assert_eq!(goal.now(), pages, "{resident} pages");
        }
        let mut goal = StockGoal::new(StockSettings::default(), 64, false);
        goal.settle(1 << 20);
        assert_eq!(goal.now(), 64, "no more than was asked for");
    }

    #[test]
    fn a_stock_waits_for_rare_colours_but_not_for_long() {
        let goal = StockGoal::new(StockSettings::default(), 8192, false);
        let reached = [(8192, 0), (8191, 1), (4096, 8191), (4096, 8192)];
        let reached = reached.map(|(stock, waiting)| goal.is_reached(8192, stock, waiting));
        assert_eq!(reached, [true, false, false, true]);
    }

    #[test]
    fn candidates_are_held_in_proportion_and_where_there_is_room() {
        let goal = StockGoal::new(StockSettings::default(), 1024, false);
        let all = 1 << 20;
        let held = [(0, all), (9000, all), (all, all), (9000, 4096), (9000, 0)];
        let held = held.map(|(own, room)| goal.candidates(own, room));
        assert_eq!(held, [2048, 18_000, 1 << 15, 512, 0]);
        let asked = StockGoal::new(StockSettings::default(), 1024, true);
        assert_eq!(asked.candidates(9000, all), 0);
    }

    #[test]
    fn who_outruns_the_stock_gets_more_unless_it_was_asked_for() {
        let grown = |fixed| {
            let mut goal = StockGoal::new(StockSettings::default(), 8192, fixed);
            goal.began(500);
            let own = || 1 << 20;
            assert!(!goal.is_outrun(628, own) && goal.is_outrun(629, own));
            assert!(!goal.is_outrun(700, own), "since then");
            (1..9).for_each(|turn| assert!(goal.is_outrun(turn * 10_000, own)));
            goal
        };
        assert_eq!([grown(false).now(), grown(true).now()], [1 << 15, 8192]);
        let mut small = StockGoal::new(StockSettings::default(), 256, false);
        let goals = [100, 400, 2000, 2000].map(|own| {
            let outrun = small.fallback + 1000;
            assert!(small.is_outrun(outrun, || own));
            small.now()
        });
        assert_eq!(goals, [256, 400, 800, 1600], "no less than before, and as many as it has");
        let mut goal = grown(true);
        goal.settle(100);
        assert_eq!(goal.now(), 8192);
        assert!(goal.is_low(4095) && !goal.is_low(4096));
    }
}
