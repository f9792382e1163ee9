//! How many colours each of several parts gets, given what the programs in it would miss
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

/// Who has a part of the colours: programs that do not run at the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Colours that it has, at least.
    pub floor: u16,
    /// And at most.
    pub ceiling: u16,
    /// What is known of its programs.
    pub programs: Vec<Demand>,
}

impl Part {
    fn price(&self, colors: u16) -> Price {
        let each = self.programs.iter().map(|program| program.price(colors));
        each.fold(Price::default(), Price::plus)
    }
}

/// A division and its price.
#[derive(Clone, Debug, PartialEq)]
pub struct Sized {
    /// Colours of each part.
    pub sizes: Vec<u16>,
    /// What that costs.
    pub price: Price,
}

/// What a division of the colours costs.
pub fn price(parts: &[Part], sizes: &[u16]) -> Price {
    let each = parts.iter().zip(sizes);
    each.map(|(part, &colors)| part.price(colors)).fold(Price::default(), Price::plus)
}

/// The best division of `colors` colours, by multiples of `grain` above the parts' floors; none if
/// there are too few. Takes time in proportion to parts times the square of the multiples.
pub fn best(parts: &[Part], colors: u16, grain: u16) -> Option<Sized> {
    let (floors, grain) = (parts.iter().map(|part| part.floor).sum::<u16>(), grain.max(1));
    let above = usize::from(colors.checked_sub(floors)? / grain);
    // For every number of multiples, the best division of them among the parts so far.
    let nobody = Sized { sizes: Vec::new(), price: Price::default() };
    let mut found: Vec<Option<Sized>> = vec![None; above + 1];
    found[0] = (!parts.is_empty()).then_some(nobody);
    for part in parts {
        let size = |n: usize| {
            let more = u16::try_from(n).unwrap_or(u16::MAX).saturating_mul(grain);
            part.floor.saturating_add(more).min(part.ceiling)
        };
        let own: Vec<(u16, Price)> = (0..=above).map(size).map(|n| (n, part.price(n))).collect();
        found = (0..=above).map(|all| best_last(&found, &own, all)).collect();
    }
    found.pop().flatten()
}

/// The best division of `all` multiples whose last part has these sizes and prices.
fn best_last(found: &[Option<Sized>], own: &[(u16, Price)], all: usize) -> Option<Sized> {
    let mut best: Option<(usize, Price)> = None;
    for (n, (_, price)) in own.iter().enumerate().take(all + 1) {
        let Some(others) = &found[all - n] else { continue };
        let price = others.price.plus(*price);
        if best.is_none_or(|(_, least)| price < least) {
            best = Some((n, price));
        }
    }
    let (n, price) = best?;
    let mut sizes = found[all - n].as_ref()?.sizes.clone();
    sizes.push(own[n].0);
    Some(Sized { sizes, price })
}
