//! What the parts of the demo need of a machine: pages by colour, walks through them, and a clock; and
//! how long a part is repeated. Parts are measured for a time, whatever the processor gets done in it,
//! so that a slow one takes no longer and a fast one repeats more. Tests put a modelled machine here.

use std::time::Duration;

use crate::exit::CmdError;

/// Repetitions that a part needs at least: fewer have no median worth the name.
pub const LEAST_ROUNDS: usize = 3;

/// A machine to measure on.
pub trait Lab {
    /// Time since the demonstration began.
    fn now(&self) -> Duration;

    /// All colours, those with the most pages first.
    fn richest_first(&self) -> Vec<usize>;

    /// `count` pages of the given colours, in rotation over them.
    ///
    /// # Errors
    /// If a colour has too few.
    fn pick(&self, colors: &[usize], count: usize) -> Result<Vec<usize>, CmdError>;

    /// Nanoseconds per access of a random walk through all lines of `pages` that takes about `time`.
    fn walk(&mut self, pages: &[usize], seed: u64, time: Duration) -> f64;

    /// The same of a walk before each lap of which `stream` is read once from end to end.
    fn walk_beside(&mut self, pages: &[usize], stream: &[usize], seed: u64, time: Duration) -> f64;
}

/// How long a part may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time that it is measured for.
    pub aim: Duration,
    /// When it ends at the latest, by the clock of the lab, whether it is convincing or not.
    pub until: Duration,
}

/// Repeats a part for the time aimed at, and beyond it until it is convincing or the time is up.
/// A round that gives nothing has run out of time.
pub fn repeat<R>(
    lab: &mut dyn Lab,
    limits: Limits,
    mut round: impl FnMut(&mut dyn Lab, usize) -> Option<R>,
    convincing: impl Fn(&[R]) -> bool,
) -> Vec<R> {
    let aim = lab.now() + limits.aim;
    let mut rounds = Vec::new();
    while lab.now() < limits.until {
        let enough = rounds.len() >= LEAST_ROUNDS && lab.now() >= aim;
        if enough && convincing(&rounds) {
            break;
        }
        match round(lab, rounds.len()) {
            Some(found) => rounds.push(found),
            None => break,
        }
    }
    rounds
}

/// Why so many rounds say nothing; `None` if they do.
pub fn too_few(rounds: usize) -> Option<String> {
    let what = || format!("only {rounds} of {LEAST_ROUNDS} repetitions fitted into the time");
    (rounds < LEAST_ROUNDS).then(what)
}

/// A modelled machine for tests.
#[cfg(test)]
pub mod model {
    use std::collections::HashSet;

    use super::super::DemoCache;
    use super::*;

    /// The cache of the model: 1 MiB in 16 colours.
    pub const CACHE: DemoCache = DemoCache { bytes: 1 << 20, line_bytes: 64, colors: 16 };

    /// A processor that is so many times slower than one of 4 ns for what is in the cache.
    pub struct ModelLab {
        /// Times slower.
        pub slowness: f64,
        /// Whether colours make a difference.
        pub has_colors: bool,
        /// The most that noise adds, as a share.
        pub noise: f64,
        now: Duration,
        random: u64,
    }

    impl ModelLab {
        /// A quiet one.
        pub fn new(slowness: f64) -> ModelLab {
            ModelLab { slowness, has_colors: true, noise: 0.02, now: Duration::ZERO, random: 99 }
        }

        fn colors(&self, pages: &[usize]) -> HashSet<usize> {
            pages.iter().map(|page| page % usize::from(CACHE.colors)).collect()
        }

        /// Lets a walk pass that takes `ns` per access.
        fn pass(&mut self, pages: &[usize], ns: f64, time: Duration) -> f64 {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let part = (self.random >> 40) as f64 / (1u64 << 24) as f64;
            let ns = ns * self.slowness * (1.0 + self.noise * part);
            let lap = Duration::from_secs_f64(pages.len() as f64 * 64.0 * ns * 1e-9);
            // To link the lines takes as long as a lap; two laps warm the cache.
            self.now += lap * 3 + time.max(lap);
            ns
        }
    }

    /// Nanoseconds where so large a share of the accesses is in the cache.
    fn latency(inside: f64) -> f64 {
        4.0 + 20.0 * (1.0 - inside.clamp(0.0, 1.0))
    }

    impl Lab for ModelLab {
        fn now(&self) -> Duration {
            self.now
        }

        fn richest_first(&self) -> Vec<usize> {
            (0..usize::from(CACHE.colors)).collect()
        }

        fn pick(&self, colors: &[usize], count: usize) -> Result<Vec<usize>, CmdError> {
            let nth =
                |i: usize| i / colors.len() * usize::from(CACHE.colors) + colors[i % colors.len()];
            Ok((0..count).map(nth).collect())
        }

        fn walk(&mut self, pages: &[usize], _: u64, time: Duration) -> f64 {
            let colors = if self.has_colors { self.colors(pages).len() } else { 16 };
            let room = colors as f64 * (CACHE.bytes / usize::from(CACHE.colors)) as f64;
            self.pass(pages, latency(room / (pages.len() * 4096) as f64), time)
        }

        fn walk_beside(
            &mut self,
            pages: &[usize],
            stream: &[usize],
            _: u64,
            time: Duration,
        ) -> f64 {
            let apart = self.colors(pages).is_disjoint(&self.colors(stream));
            let inside = if apart && self.has_colors { 1.0 } else { 0.1 };
            self.pass(pages, latency(inside), time)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::model::ModelLab;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Rounds of a second each, until they are convincing.
    fn rounds(aim: u32, until: u32, enough: usize) -> usize {
        let limits = Limits { aim: SECOND * aim, until: SECOND * until };
        let mut lab = ModelLab::new(1.0);
        lab.noise = 0.0;
        // Some pages take 1 s: three laps more than it, so that a lap is next to nothing.
        let round = |lab: &mut dyn Lab, _| Some(lab.walk(&[0], 1, SECOND));
        repeat(&mut lab, limits, round, |rounds| rounds.len() >= enough).len()
    }

    #[test]
    fn a_part_is_repeated_for_its_time_and_longer_only_in_doubt() {
        assert_eq!(rounds(5, 20, 1), 5);
        assert_eq!(rounds(5, 20, 9), 9);
        assert_eq!(rounds(5, 20, 99), 20);
        assert_eq!(rounds(1, 20, 1), LEAST_ROUNDS);
        assert_eq!(rounds(5, 2, 1), 2);
    }

    #[test]
    fn too_few_rounds_are_told() {
        assert!(too_few(2).is_some_and(|why| why.contains("only 2 of 3")));
        assert_eq!(too_few(3), None);
    }
}
