//! How long colours take here: classes built from nothing, in memory of one's own, and some pages
//! sorted by them. And whether the frame number would have told the colours.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::moves::{ColoredSample, HostMoves};
use super::replacement::{self, EvictionPoint};
use crate::color::probe::frame_number_verdict::{FrameSample as Framed, frames_of, verdict_of};
use crate::color::probe::{
    Classifier, LocalBench, OwnPages, ProbeError, ProbeParams, ReferenceSet, VerdictReport,
};

/// How long colours took.
#[derive(Clone, Debug, Serialize)]
pub struct ColorTimes {
    /// Colours told apart.
    pub colors: u16,
    /// Seconds to tell them apart from nothing.
    pub seconds: f64,
    /// Pages that were sorted afterwards.
    pub pages: usize,
    /// Of these, pages without a clear colour.
    pub undecided: usize,
    /// Microseconds for each.
    pub us_per_page: f64,
}

/// Attempts to build classes, each in other memory and on another CPU; a later one may take longer.
const ATTEMPTS: u32 = 3;

/// Colours of a cache, on one CPU, which the thread stays on. Ends with its memory.
pub struct ProbedColors {
    classifier: Classifier,
    bench: LocalBench,
    pages: Arc<OwnPages>,
    sample: ColoredSample,
    taken: Instant,
    times: ColorTimes,
}

impl ProbedColors {
    /// Builds classes on the first of `cpus` (or another, if that fails) within about `limit`, and
    /// sorts so many pages by them.
    ///
    /// # Errors
    /// As building classes and classifying.
    ///
    /// # Panics
    /// Without any CPU.
    pub fn measure(
        params: &ProbeParams,
        cpus: &[usize],
        limit: Duration,
        pages: usize,
    ) -> Result<ProbedColors, ProbeError> {
        let began = Instant::now();
        let (set, cpu) = build(params, cpus, limit)?;
        let seconds = began.elapsed().as_secs_f64();
        let mut bench = set.bench(cpu)?;
        let pages = Arc::new(OwnPages::populated(pages)?);
        bench.allow_pages(&pages);
        let mut classifier = Classifier::new(set.classes);
        let began = Instant::now();
        let sample = ColoredSample::take(&mut classifier, &mut bench, pages.addresses())?;
        let times = ColorTimes {
            colors: classifier.colors(),
            seconds,
            pages: pages.count(),
            undecided: sample.colors().iter().filter(|color| color.is_none()).count(),
            us_per_page: began.elapsed().as_secs_f64() * 1e6 / pages.count().max(1) as f64,
        };
        Ok(ProbedColors { classifier, bench, pages, sample, taken: Instant::now(), times })
    }

    /// How long it took.
    pub fn times(&self) -> &ColorTimes {
        &self.times
    }

    /// Whether frame numbers tell the colours of the sample.
    ///
    /// # Errors
    /// `HiddenFrames` without root.
    pub fn verdict(&self) -> Result<VerdictReport, ProbeError> {
        let framed = frames_of(&self.pages)?.into_iter().zip(self.sample.colors());
        let framed = framed.filter_map(|(frame, &color)| Some(Framed { frame, color: color? }));
        Ok(verdict_of(&framed.collect::<Vec<_>>(), self.classifier.colors()))
    }

    /// What streaming evicts.
    ///
    /// # Errors
    /// As [`replacement::measure`].
    pub fn replacement(&mut self) -> Result<Vec<EvictionPoint>, ProbeError> {
        replacement::measure(&mut self.bench, self.classifier.classes())
    }

    /// Time since the sample was taken.
    pub fn age(&self) -> Duration {
        self.taken.elapsed()
    }

    /// What the host has moved of the sample since it was taken.
    ///
    /// # Errors
    /// As [`Classifier::classify`].
    pub fn moves(&mut self) -> Result<HostMoves, ProbeError> {
        let age = self.age();
        self.sample.again(&mut self.classifier, &mut self.bench, age)
    }
}

/// Classes in memory of one's own, and the CPU that they were measured on.
fn build(
    params: &ProbeParams,
    cpus: &[usize],
    limit: Duration,
) -> Result<(ReferenceSet, usize), ProbeError> {
    let parts = ATTEMPTS * (ATTEMPTS + 1) / 2;
    let mut attempt = 1;
    loop {
        let cpu = cpus[(attempt as usize - 1) % cpus.len()];
        match ReferenceSet::build_private(params, cpu, limit * attempt / parts) {
            Err(ProbeError::Classes { .. }) if attempt < ATTEMPTS => attempt += 1,
            built => return Ok((built?, cpu)),
        }
    }
}

/// A modelled cache of 8 ways and 16 colours, and its true classes.
#[cfg(test)]
pub(super) fn modelled(
    replacement: crate::color::probe::model::Replacement,
    step: u32,
) -> (crate::color::probe::model::ModelBench, crate::color::probe::ColorClasses) {
    const BASE: u64 = 1 << 30;
    let params = ProbeParams::new(16, 8, 64, 1024).with_clock(step);
    let mut model = crate::color::probe::model::ModelBench::new(&params, replacement, BASE);
    let pages = model.populate(BASE, 16 * 100, 16);
    let mut classes = vec![Vec::new(); 16];
    for (i, &page) in pages.iter().enumerate() {
        classes[usize::from(model.color(page))].push(i as u32);
    }
    (model, crate::color::probe::ColorClasses { params, classes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_limits_end_with_an_error_and_not_with_figures() {
        let params = ProbeParams::new(16, 8, 64, 1024);
        let cpus = crate::kernel::cpus::allowed_cpus();
        let error = ProbedColors::measure(&params, &cpus, Duration::ZERO, 16).err().unwrap();
        assert!(matches!(error, ProbeError::Classes { .. }), "{error}");
    }
}
