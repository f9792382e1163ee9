//! A token bucket: so many a second on average, so many at once after a quiet time.

/// The bucket; full at first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    rate: f64,
    size: f64,
    left: f64,
    seen: Option<f64>,
}

impl Bucket {
    /// With so many tokens a second, and room for so many.
    pub fn new(rate: f64, size: f64) -> Bucket {
        let size = size.max(1.0);
        Bucket { rate: rate.max(0.0), size, left: size, seen: None }
    }

    /// Time has come to `now`, in seconds. Time that goes back adds nothing.
    pub fn pass(&mut self, now: f64) {
        let passed = self.seen.map_or(0.0, |seen| (now - seen).max(0.0));
        self.left = (self.left + passed * self.rate).min(self.size);
        self.seen = Some(now);
    }

    /// Whole tokens that are left.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to what fits"
    )]
    pub fn left(&self) -> u16 {
        self.left.floor().clamp(0.0, f64::from(u16::MAX)) as u16
    }

    /// Takes so many tokens.
    pub fn take(&mut self, tokens: u16) {
        self.left = (self.left - f64::from(tokens)).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_with_time_and_do_not_pile_up() {
        let mut bucket = Bucket::new(0.5, 4.0);
        bucket.pass(10.0);
        assert_eq!(bucket.left(), 4);
        bucket.take(4);
        assert_eq!(bucket.left(), 0);
        bucket.pass(11.9);
        assert_eq!(bucket.left(), 0);
        bucket.pass(12.0);
        assert_eq!(bucket.left(), 1);
        bucket.pass(5.0);
        assert_eq!(bucket.left(), 1, "time that goes back");
        bucket.pass(1e9);
        assert_eq!(bucket.left(), 4);
    }

    #[test]
    fn large_buckets_are_counted_right() {
        for size in [1_u16, 2, 3, 255, 256, 1000, u16::MAX] {
            assert_eq!(Bucket::new(1.0, f64::from(size)).left(), size);
            assert_eq!(Bucket::new(1.0, f64::from(size) + 0.9).left(), size);
        }
    }
}
