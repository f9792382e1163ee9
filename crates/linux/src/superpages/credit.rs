//! What sensing and deciding may cost: a share of one CPU. Some time is lent at first, so that the
//! first looks at a program come soon, and paid back by [`PAID_BACK`]; afterwards unused time is
//! saved up to a little.

use std::time::{Duration, Instant};

/// CPU time that is lent at first.
const LENT: Duration = Duration::from_millis(40);
/// When all of it is paid back, since the beginning.
const PAID_BACK: Duration = Duration::from_secs(8);
/// CPU time that is saved at most: a look or two.
const SAVED: Duration = Duration::from_millis(5);

/// See the module's head.
#[derive(Debug)]
pub(super) struct Credit {
    /// CPU seconds a second.
    share: f64,
    /// CPU seconds earned and not spent; below 0 while more was spent.
    left: f64,
    at: Instant,
    began: Instant,
}

impl Credit {
    /// A share of one CPU, from now on.
    pub fn new(share: f64, now: Instant) -> Credit {
        Credit { share, left: 0.0, at: now, began: now }
    }

    /// So much was spent.
    pub fn spend(&mut self, time: Duration) {
        self.left -= time.as_secs_f64();
    }

    /// How long to wait until there is something to spend.
    pub fn wait(&mut self, now: Instant) -> Duration {
        let earned = now.saturating_duration_since(self.at).as_secs_f64() * self.share;
        (self.left, self.at) = ((self.left + earned).min(SAVED.as_secs_f64()), now);
        let overspent = -self.left - self.lent(now);
        if overspent < 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(overspent / self.share).unwrap_or(Duration::MAX)
    }

    /// What may be overspent now.
    fn lent(&self, now: Instant) -> f64 {
        let past = now.saturating_duration_since(self.began).as_secs_f64();
        LENT.as_secs_f64() * (1.0 - past / PAID_BACK.as_secs_f64()).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_is_overspent_has_to_be_waited_for() {
        let start = Instant::now();
        let mut credit = Credit::new(0.01, start);
        assert_eq!(credit.wait(start), Duration::ZERO);
        credit.spend(50 * MS);
        let wait = credit.wait(start);
        assert!((wait.as_secs_f64() - 1.0).abs() < 1e-6, "{wait:?}");
        // However long nothing is spent, no more than 5 ms are saved.
        let later = start + Duration::from_secs(1100);
        assert_eq!(credit.wait(later), Duration::ZERO);
        credit.spend(15 * MS);
        let wait = credit.wait(later);
        assert!((wait.as_secs_f64() - 1.0).abs() < 1e-6, "{wait:?}");
    }

    #[test]
    fn what_was_lent_is_paid_back() {
        let start = Instant::now();
        let (mut credit, mut spent) = (Credit::new(0.01, start), Duration::ZERO);
        for ms in 0..30_000 {
            if credit.wait(start + ms * MS) == Duration::ZERO {
                credit.spend(MS);
                spent += MS;
            }
            let (share, lent) = (MS * ms / 100, if ms < 8000 { LENT } else { Duration::ZERO });
            assert!(spent <= share + lent + 2 * MS, "{spent:?} after {ms} ms");
        }
        assert!(spent >= 299 * MS, "nothing is left unused: {spent:?}");
    }
}
