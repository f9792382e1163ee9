//! How many colours each of several partitions gets, given what the programs in it would miss
//! with every size. If a division exists that keeps all programs within their bounds, it is
//! found: divisions are compared exactly, by dynamic programming, first by the bounds they break
//! and then by the misses they leave. (COLORIS 2014 only attempts as much, section 3.2; dividing
//! by utility is Qureshi and Patt's, MICRO 2006, whose search is a greedy one.)

/// What is known of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Miss rate of the last cache, 0 to 1, by the number of colours from 0 on.
    pub rates: Vec<f64>,
    /// Requests of the last cache in a unit of time, the same for all programs.
    pub requests: f64,
    /// The miss rate that it must not exceed.
    pub bound: Option<f64>,
}

impl Demand {
    /// The miss rate with so many colours; that with all known where more.
    pub fn rate(&self, colors: u16) -> f64 {
        let last = self.rates.len().saturating_sub(1);
        self.rates.get(usize::from(colors).min(last)).copied().unwrap_or(1.0)
    }

    fn price(&self, colors: u16) -> Price {
        let rate = self.rate(colors);
        let broken = u32::from(self.bound.is_some_and(|bound| rate > bound));
        Price { broken, misses: rate * self.requests }
    }
}

/// What a division costs; less is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Price {
    /// Bounds that are broken.
    pub broken: u32,
    /// Misses in the unit of time.
    pub misses: f64,
}

impl Price {
    fn plus(self, other: Price) -> Price {
        Price { broken: self.broken + other.broken, misses: self.misses + other.misses }
    }
}

/// A division and its price.
#[derive(Clone, Debug, PartialEq)]
pub struct Sized {
    /// Colours of each partition.
    pub colors: Vec<u16>,
    /// What that costs.
    pub price: Price,
}

/// What a division of the colours costs.
pub fn price(partitions: &[Vec<Demand>], colors: &[u16]) -> Price {
    let each = partitions.iter().zip(colors);
    each.map(|(programs, &colors)| price_of(programs, colors)).fold(Price::default(), Price::plus)
}

fn price_of(programs: &[Demand], colors: u16) -> Price {
    programs.iter().map(|program| program.price(colors)).fold(Price::default(), Price::plus)
}

/// The best division of `colors` colours, in multiples of `unit` of which every partition has at
/// least one; none if there are too few. Programs of one partition share its colours and do not
/// run at the same time. Takes time in proportion to partitions times the square of the units.
pub fn best(partitions: &[Vec<Demand>], colors: u16, unit: u16) -> Option<Sized> {
    let units = usize::from(colors / unit.max(1));
    if partitions.is_empty() || units < partitions.len() {
        return None;
    }
    let unit = unit.max(1);
    let in_colors = |n: usize| u16::try_from(n).unwrap_or(u16::MAX).saturating_mul(unit);
    // For every number of units, the best division of them among the partitions so far.
    let mut found: Vec<Option<Sized>> = vec![None; units + 1];
    found[0] = Some(Sized { colors: Vec::new(), price: Price::default() });
    for programs in partitions {
        let prices: Vec<Price> = (0..=units).map(|n| price_of(programs, in_colors(n))).collect();
        found = (0..=units).map(|all| best_last(&found, &prices, all, &in_colors)).collect();
    }
    found.pop().flatten()
}

/// The best division of `all` units whose last part is of these prices.
fn best_last(
    found: &[Option<Sized>],
    prices: &[Price],
    all: usize,
    in_colors: &impl Fn(usize) -> u16,
) -> Option<Sized> {
    let mut best: Option<(usize, Price)> = None;
    for own in 1..=all {
        let Some(others) = &found[all - own] else { continue };
        let price = others.price.plus(prices[own]);
        if best.is_none_or(|(_, least)| price < least) {
            best = Some((own, price));
        }
    }
    let (own, price) = best?;
    let mut colors = found[all - own].as_ref()?.colors.clone();
    colors.push(in_colors(own));
    Some(Sized { colors, price })
}
