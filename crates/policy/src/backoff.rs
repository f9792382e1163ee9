//! A rest that doubles: what follows an attempt in vain. One for all policies that try, judge and try again.
//! Knows no clock; lengths are in the unit of whoever rests.

/// The rests; see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubling {
    first: u64,
    /// Doublings at most.
    most: u32,
    times: u32,
}

impl Doubling {
    /// The first rest is so long, and doubles so often at most.
    pub const fn new(first: u64, most: u32) -> Doubling {
        Doubling { first, most, times: 0 }
    }

    /// The next rest; the one after it is twice as long.
    pub const fn take(&mut self) -> u64 {
        let rest = self.first.saturating_mul(match 1_u64.checked_shl(self.times) {
            Some(factor) => factor,
            None => u64::MAX,
        });
        if self.times < self.most {
            self.times += 1;
        }
        rest
    }

    /// Rests taken since the last success, as far as they counted.
    pub const fn times(&self) -> u32 {
        self.times
    }

    /// An attempt was not in vain: the next rest is the first again.
    pub const fn reset(&mut self) {
        self.times = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_double_up_to_the_longest_and_begin_anew() {
        let mut rests = Doubling::new(10, 2);
        assert_eq!([rests.take(), rests.take(), rests.take(), rests.take()], [10, 20, 40, 40]);
        assert_eq!(rests.times(), 2);
        rests.reset();
        assert_eq!(rests.take(), 10);
        let mut never = Doubling::new(u64::MAX, 80);
        assert_eq!((0..80).map(|_| never.take()).max(), Some(u64::MAX));
    }
}
