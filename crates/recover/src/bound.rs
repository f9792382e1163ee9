//! How unlikely it is that chance agrees so well: Chernoff bounds on binomial tails, as natural
//! logarithms, because the probabilities themselves are far below the smallest `f64`.

/// Upper bound on the logarithm of P(at least `agree` of `all` trials succeed), each by chance
/// `p` and independently (Chernoff 1952). 0, which is no bound, up to the expected number.
#[expect(clippy::cast_precision_loss, reason = "counts of observations are far below 2^53")]
pub fn ln_tail(agree: u64, all: u64, p: f64) -> f64 {
    if all == 0 || agree as f64 <= p * all as f64 {
        return 0.0;
    }
    let share = (agree as f64 / all as f64).min(1.0);
    let part = |x: f64, y: f64| if x > 0.0 { x * (x / y).ln() } else { 0.0 };
    -(all as f64) * (part(share, p) + part(1.0 - share, 1.0 - p))
}

/// The logarithm of the sum of two probabilities given by theirs, at most 0.
pub fn ln_add(a: f64, b: f64) -> f64 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    if high == f64::NEG_INFINITY {
        return high;
    }
    (high + (low - high).exp().ln_1p()).min(0.0)
}

/// `a / b`; 0 if `b` is 0.
#[expect(clippy::cast_precision_loss, reason = "counts of observations are far below 2^53")]
pub fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

/// 1 - e^`ln_doubt`, in words that do not round to certainty: "1 - 10^-37".
pub fn words(ln_doubt: f64) -> String {
    let power = ln_doubt / std::f64::consts::LN_10;
    if power > -6.0 {
        return format!("{:.6}", 1.0 - ln_doubt.min(0.0).exp());
    }
    format!("1 - 10^{:.0}", power.ceil())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exact tail of a binomial distribution of a half.
    fn exact(agree: u64, all: u64) -> f64 {
        let choose = |n: u64, k: u64| (0..k).fold(1.0, |c, i| c * (n - i) as f64 / (i + 1) as f64);
        (agree..=all).map(|k| choose(all, k)).sum::<f64>() / 2_f64.powf(all as f64)
    }

    #[test]
    fn the_bound_is_above_the_exact_tail_and_not_by_far() {
        for (agree, all) in [(30, 40), (40, 40), (22, 40), (60, 100)] {
            let (bound, exact) = (ln_tail(agree, all, 0.5), exact(agree, all).ln());
            assert!(bound >= exact - 1e-9 && bound < exact + 3.5, "{agree}/{all}: {bound} {exact}");
        }
        assert_eq!(ln_tail(20, 40, 0.5), 0.0);
    }

    #[test]
    fn sums_and_words() {
        assert!((ln_add(0.25_f64.ln(), 0.5_f64.ln()) - 0.75_f64.ln()).abs() < 1e-12);
        assert_eq!(ln_add(f64::NEG_INFINITY, f64::NEG_INFINITY), f64::NEG_INFINITY);
        assert_eq!(words(-90.0), "1 - 10^-39");
        assert_eq!(words(0.01_f64.ln()), "0.990000");
    }
}
