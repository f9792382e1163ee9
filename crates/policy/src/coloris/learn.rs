//! What is known of a program's misses with other numbers of colours: told by the host, or measured. Beyond
//! COLORIS (2014), whose section 5.3 names utility curves as too dear to have: a program's [`Curve`] is
//! measured once, and again when it misses otherwise than foretold for some periods.

use super::{Curve, CurveSettings, Demand, Settings};

/// Surprises in a row that make a curve be measured again, twice as many each time: what a curve
/// cannot foretell, such as what others evict between turns, is not worth measuring for ever.
const IN_A_ROW: u32 = 3;
/// Most of them.
const MOST_IN_A_ROW: u32 = 96;
/// Counted requests below which there is no curve.
const FEWEST_REQUESTS: u64 = 128;
/// Periods after which fewer requests than are wanted must do; a program with next to none has no curve
/// then, and every size counts as the same to it.
const LONGEST_PERIODS: u32 = 8;
/// Decisions after a change before a miss rate is held against the curve: pages are on their way.
const QUIET_ROUNDS: u32 = 1;

/// Where forecasts come from.
#[derive(Clone, Debug)]
pub(super) enum Forecast {
    /// Told with each reading; none since its colours changed: its size stays.
    Told(Option<Vec<f64>>),
    /// Measured here.
    Measured(Box<Learner>),
}

/// A program whose curve is measured.
#[derive(Clone, Debug)]
pub(super) struct Learner {
    curve: Curve,
    /// Periods that its curve has been measured; none: it is known, or was given up.
    learning: Option<u32>,
    rates: Option<Vec<f64>>,
    /// Miss rate and requests of late periods.
    rate: f64,
    requests: f64,
    /// What its miss rate was more than foretold.
    bias: f64,
    surprises: u32,
    /// Surprises in a row until it is measured again.
    patience: u32,
}

impl Forecast {
    pub fn new(settings: &Settings) -> Forecast {
        let measured = |curve| Forecast::Measured(Box::new(Learner::new(curve)));
        settings.curve.map_or(Forecast::Told(None), measured)
    }

    /// Miss rates by the number of colours are told.
    pub fn foretell(&mut self, rates: Vec<f64>) {
        if let Forecast::Told(known) = self {
            *known = Some(rates);
        }
    }

    /// Whether the lines that it requests are wanted.
    pub const fn wants_requests(&self) -> bool {
        matches!(self, Forecast::Measured(own) if own.learning.is_some())
    }

    /// It requested a line of the last cache.
    pub fn request(&mut self, line: u64) {
        if let Forecast::Measured(own) = self
            && own.learning.is_some()
        {
            own.curve.request(line);
        }
    }

    /// What is told is of one size.
    pub fn forget(&mut self) {
        if let Forecast::Told(rates) = self {
            *rates = None;
        }
    }

    /// Whether nothing should be decided before more is known.
    pub fn is_awaited(&self, settings: &Settings) -> bool {
        matches!(self, Forecast::Measured(own) if own.learning.is_some() && !own.is_idle(settings))
    }

    /// The last cache counted misses and requests in a period, with so many colours, so many decisions
    /// after a change.
    pub fn observe(&mut self, counts: [u64; 2], colors: u16, quiet: u32, settings: &Settings) {
        if let Forecast::Measured(own) = self {
            own.observe(counts, colors, quiet, settings);
        }
    }

    /// What is known; none where its size is to stay.
    pub fn demand(&self, priority: u8, bound: f64, settings: &Settings) -> Option<Demand> {
        let (weight, bound) = (f64::from(priority.max(1)), Some(bound));
        match self {
            Forecast::Told(rates) => {
                rates.clone().map(|rates| Demand { rates, requests: weight, bound })
            }
            Forecast::Measured(own) => {
                let (rates, requests) = (own.foretold(settings), weight * own.requests);
                Some(Demand { rates, requests, bound })
            }
        }
    }
}

impl Learner {
    fn new(curve: CurveSettings) -> Learner {
        Learner {
            curve: Curve::new(curve),
            learning: Some(0),
            rates: None,
            rate: 0.0,
            requests: 0.0,
            bias: 0.0,
            surprises: 0,
            patience: IN_A_ROW,
        }
    }

    fn is_idle(&self, settings: &Settings) -> bool {
        self.requests < settings.least_requests as f64
    }

    fn observe(
        &mut self,
        [misses, requests]: [u64; 2],
        colors: u16,
        quiet: u32,
        settings: &Settings,
    ) {
        let before = if self.requests == 0.0 { requests as f64 } else { self.requests };
        self.requests = 0.5 * (before + requests as f64);
        self.rate = if requests == 0 { 0.0 } else { misses as f64 / requests as f64 };
        if requests < settings.least_requests {
            // Whatever it was, it uses the cache too little to be measured.
            return;
        }
        self.learn(settings);
        if quiet > QUIET_ROUNDS {
            self.compare(colors, settings);
        }
    }

    /// A period of learning has passed.
    fn learn(&mut self, settings: &Settings) {
        let Some(periods) = &mut self.learning else { return };
        *periods += 1;
        let counted = self.curve.counted();
        if counted >= settings.enough || *periods >= LONGEST_PERIODS {
            self.learning = None;
            self.rates = (counted >= FEWEST_REQUESTS).then(|| self.curve.miss_rates()).flatten();
            (self.bias, self.surprises) = (0.0, 0);
            self.curve.clear();
        }
    }

    /// Holds what was foretold against what came.
    fn compare(&mut self, colors: u16, settings: &Settings) {
        let Some(rates) = self.rates.as_ref().filter(|_| self.learning.is_none()) else { return };
        let foretold = rates.get(usize::from(colors)).copied().unwrap_or(self.rate);
        let off = self.rate - foretold;
        self.bias += 0.5 * (off - self.bias);
        if off.abs() <= settings.surprise {
            self.surprises = 0;
            self.patience = (self.patience - 1).max(IN_A_ROW);
            return;
        }
        self.surprises += 1;
        if self.surprises >= self.patience {
            (self.learning, self.surprises) = (Some(0), 0);
            self.patience = (2 * self.patience).min(MOST_IN_A_ROW);
        }
    }

    fn foretold(&self, settings: &Settings) -> Vec<f64> {
        match &self.rates {
            _ if self.is_idle(settings) => vec![0.0],
            Some(rates) => rates.iter().map(|rate| (rate + self.bias).clamp(0.0, 1.0)).collect(),
            None => vec![self.rate],
        }
    }
}
