//! How many pages the host moves: a sample of pages is sorted by colour, and again some seconds later.
//! The guest sees nothing of a move but that the page competes with others than before.

use std::time::Duration;

use huepage_color::Color;
use serde::Serialize;

use super::Interval;
use crate::color::probe::bench::TimingBench;
use crate::color::probe::{Classifier, ProbeError};

/// Times that a page must be found in its new colour to count as moved: a single sorting is wrong for
/// one page in ten thousand or so.
const CONFIRMED: usize = 2;

/// Pages whose colours were measured.
#[derive(Clone, Debug)]
pub struct ColoredSample {
    pages: Vec<u64>,
    colors: Vec<Option<Color>>,
}

/// What became of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HostMoves {
    /// Pages that were decided both times.
    pub pages: usize,
    /// Of these, those in another colour. A page that moves to a frame of its old colour is not seen:
    /// one in as many as there are colours.
    pub moved: usize,
    /// Seconds between.
    pub seconds: f64,
    /// Share of pages moved in a minute, if moves come evenly (they come in bursts).
    pub per_minute: Interval,
}

impl ColoredSample {
    /// Sorts some pages of the bench.
    ///
    /// # Errors
    /// As [`Classifier::classify`].
    pub fn take(
        classifier: &mut Classifier,
        bench: &mut dyn TimingBench,
        pages: Vec<u64>,
    ) -> Result<ColoredSample, ProbeError> {
        let verdicts = classifier.classify(bench, &pages)?;
        Ok(ColoredSample { pages, colors: verdicts.iter().map(|verdict| verdict.color).collect() })
    }

    /// The colours; `None` where none was clear.
    pub fn colors(&self) -> &[Option<Color>] {
        &self.colors
    }

    /// Sorts the pages again, `after` a time.
    ///
    /// # Errors
    /// As [`Classifier::classify`].
    pub fn again(
        &self,
        classifier: &mut Classifier,
        bench: &mut dyn TimingBench,
        after: Duration,
    ) -> Result<HostMoves, ProbeError> {
        let now = classifier.classify(bench, &self.pages)?;
        let both = |i: &usize| self.colors[*i].is_some() && now[*i].color.is_some();
        let decided: Vec<usize> = (0..self.pages.len()).filter(both).collect();
        let mut suspects: Vec<usize> =
            decided.iter().copied().filter(|&i| now[i].color != self.colors[i]).collect();
        for _ in 0..CONFIRMED {
            let pages: Vec<u64> = suspects.iter().map(|&i| self.pages[i]).collect();
            let mut verdicts = classifier.classify(bench, &pages)?.into_iter();
            suspects.retain(|&i| verdicts.next().is_some_and(|v| v.color == now[i].color));
        }
        Ok(HostMoves::of(decided.len(), suspects.len(), after))
    }
}

impl HostMoves {
    /// Of `pages` pages, `moved` in a time.
    fn of(pages: usize, moved: usize, time: Duration) -> HostMoves {
        let minutes = time.as_secs_f64() / 60.0;
        let ends =
            Interval::of_count(moved).map(|k| (k / (pages as f64 * minutes)).clamp(0.0, 1.0));
        let [estimate, low, high] = if pages > 0 && minutes > 0.0 { ends } else { [0.0, 0.0, 1.0] };
        let per_minute = Interval { estimate, low, high };
        HostMoves { pages, moved, seconds: time.as_secs_f64(), per_minute }
    }
}

#[cfg(test)]
mod tests {
    use super::super::colors::modelled;
    use super::*;
    use crate::color::probe::model::Replacement;

    const MINUTE: Duration = Duration::from_secs(60);

    /// What is found of 400 pages of which a host moves so many.
    fn moved(count: usize) -> HostMoves {
        let (mut model, classes) = modelled(Replacement::Random, 26);
        let mut classifier = Classifier::new(classes);
        let pages = model.populate(1 << 40, 400, 16);
        let sample = ColoredSample::take(&mut classifier, &mut model, pages.clone()).unwrap();
        assert_eq!(sample.colors()[3], Some(Color(model.color(pages[3]))));
        for &page in pages.iter().step_by(3).take(count) {
            let color = (model.color(page) + 5) % 16;
            model.relocate(page, color);
        }
        sample.again(&mut classifier, &mut model, MINUTE).unwrap()
    }

    #[test]
    fn a_fake_host_is_seen_and_a_still_one_moves_nothing() {
        for count in [0, 4, 40] {
            let found = moved(count);
            assert_eq!((found.pages, found.moved), (400, count), "{found:?}");
            let truth = count as f64 / 400.0;
            assert!(found.per_minute.low <= truth && truth <= found.per_minute.high, "{found:?}");
        }
    }

    #[test]
    fn a_rate_is_no_surer_than_the_sample_is_large_and_long() {
        let none = HostMoves::of(8192, 0, MINUTE / 12);
        assert_eq!((none.per_minute.estimate, none.per_minute.low), (0.0, 0.0));
        assert!((0.004..0.007).contains(&none.per_minute.high), "{none:?}");
        assert_eq!(HostMoves::of(0, 0, MINUTE).per_minute.high, 1.0);
        assert!(HostMoves::of(8192, 0, MINUTE).per_minute.high < none.per_minute.high / 10.0);
    }
}
