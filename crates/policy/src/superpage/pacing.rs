//! When superpages that a policy wants are built and broken in programs that run: how much memory they may add, how
//! long a program is let run between two of them, and how often it is looked at. Beyond Romer (1998), whose
//! policies build at once: here a program waits while one is built. Sees what the host measured, and no clock.

use std::time::Duration;

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacingSettings {
    /// Time between two looks at what is resident, at least and, where nothing grows, at most.
    pub survey: [Duration; 2],
    /// Looks at what is resident take no more than one part in so many of the time.
    pub survey_parts: u32,
    /// Growth that makes a new look worth it, as one part of so many.
    pub growth_parts: u64,
    /// Seconds within which a superpage pays for itself that make the process rest no longer than it had to wait
    /// for it: what pays later is built at longer intervals, in proportion.
    pub soon: f64,
    /// The process works at least so many times as long as it waits, however late a superpage pays.
    pub most_rest: f64,
    /// The same where it is not known how soon one pays.
    pub unknown_rest: f64,
    /// A process that does nothing is waited for no longer than so many times what building took.
    pub longest_rest: u32,
    /// Above what part of the allowed memory superpages are broken again: not for a page or two.
    pub slack: f64,
    /// CPU seconds of the process between two looks at which superpages it uses.
    pub use_interval: f64,
    /// Superpages looked at each time.
    pub blocks_per_use: usize,
    /// Superpages built in one turn at most.
    pub builds_per_turn: usize,
    /// What a superpage costs before one was built, in nanoseconds.
    pub first_price_ns: u64,
    /// What the credit is, of what sensing and deciding may cost: a look costs more than was expected now and then.
    pub credit: f64,
}

impl PacingSettings {
    /// The usual ones.
    pub const USUAL: PacingSettings = PacingSettings {
        survey: [Duration::from_millis(100), Duration::from_secs(5)],
        survey_parts: 400,
        growth_parts: 16,
        soon: 1.0,
        most_rest: 32.0,
        unknown_rest: 4.0,
        longest_rest: 8,
        slack: 1.25,
        use_interval: 1.0,
        blocks_per_use: 64,
        builds_per_turn: 16,
        first_price_ns: 1_200_000,
        credit: 0.93,
    };

    /// Whether what is resident is to be looked at again: so long after the last look, which took `cost`, with so
    /// many pages resident then and now.
    pub fn survey_is_due(&self, since: Duration, cost: Duration, pages: [u64; 2]) -> bool {
        let [then, now] = pages;
        let least = self.survey[0].max(cost * self.survey_parts);
        let changed = now.abs_diff(then) > then / self.growth_parts;
        since >= if changed { least } else { self.survey[1].max(least) }
    }

    /// How long the process should run after it had to wait for a superpage, as a multiple of that: the longer the
    /// later the superpage, which costs so many nanoseconds, pays for itself by what it saves in a second. Who
    /// waits for many that pay late is slowed down for as long, and may end before they do. `saved_ns` is none
    /// where nobody knows it.
    pub fn rest(&self, price_ns: u64, saved_ns: Option<f64>) -> f64 {
        let Some(saved) = saved_ns else { return self.unknown_rest };
        (price_ns as f64 / saved / self.soon).clamp(1.0, self.most_rest)
    }
}

/// Pages that superpages may add to what a program has resident itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryBound {
    /// Pages resident, those that superpages added too.
    pub resident: u64,
    /// Pages that superpages added.
    pub filled: u64,
    /// Pages that may be added for each that is resident without them.
    pub overhead: f64,
}

impl MemoryBound {
    /// How many that are.
    pub fn allowed(self) -> u64 {
        let own = self.resident.saturating_sub(self.filled);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "pages")]
        let allowed = (own as f64 * self.overhead) as u64;
        allowed
    }

    /// Whether a superpage may be built that adds so many.
    pub fn allows(self, holes: u64) -> bool {
        holes == 0 || self.filled + holes <= self.allowed()
    }

    /// Which superpages are to be broken, of some with the pages that each added: the emptiest first, until those
    /// that are left take no more than is allowed and a little.
    pub fn excess(self, mut built: Vec<(u64, u64)>, slack: f64) -> Vec<u64> {
        let (most, mut filled) = (self.allowed() as f64 * slack, self.filled);
        built.sort_unstable();
        let mut broken = Vec::new();
        while filled as f64 > most
            && let Some((less, at)) = built.pop().filter(|(less, _)| *less > 0)
        {
            filled -= less.min(filled);
            broken.push(at);
        }
        broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: PacingSettings = PacingSettings::USUAL;

    #[test]
    fn what_pays_late_is_built_seldom() {
        assert!((USUAL.rest(1_000_000, None) - 4.0).abs() < 1e-9);
        // A superpage of 1 ms that saves 30 ns so many times a second.
        let rest = [1e6, 1e4, 10.0, 0.0].map(|rate| USUAL.rest(1_000_000, Some(rate * 30.0)));
        assert_eq!(rest.map(f64::round), [1.0, 3.0, 32.0, 32.0]);
    }

    #[test]
    fn what_grows_is_looked_at_soon() {
        let due = |ms, cost, pages| {
            let [since, cost] = [ms, cost].map(Duration::from_millis);
            USUAL.survey_is_due(since, cost, pages)
        };
        assert!(due(100, 0, [1600, 1701]) && !due(100, 0, [1600, 1700]) && !due(99, 0, [0, 9]));
        assert!(due(5000, 0, [1600, 1600]) && !due(4999, 0, [1600, 1600]));
        assert!(!due(5000, 20, [1600, 3000]) && due(8000, 20, [1600, 3000]), "dear looks");
    }

    #[test]
    fn memory_is_bounded_and_the_emptiest_go_first() {
        let bound = |filled, overhead| MemoryBound { resident: 10_000 + filled, filled, overhead };
        assert!(bound(0, 0.0).allows(0) && !bound(0, 0.0503).allows(504));
        assert!(bound(0, 0.0504).allows(504) && !bound(1, 0.0504).allows(504));
        let built = vec![(100, 7), (300, 8), (0, 9), (200, 5)];
        assert!(bound(600, 0.05).excess(built.clone(), 1.25).is_empty(), "500 and a little");
        assert_eq!(bound(600, 0.04).excess(built.clone(), 1.25), [8]);
        assert_eq!(bound(600, 0.0).excess(built, 1.25), [8, 5, 7], "one without holes stays");
    }
}
