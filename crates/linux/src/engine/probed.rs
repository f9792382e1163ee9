//! Measured colours as a source for the engine: frames are classified in the target by its
//! agent, results are remembered machine-wide, and what is remembered is checked by sampling.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use huepage_color::{CacheGeometry, Color, Pfn, Provenance};

use super::source::{Candidate, ColorSource};
use crate::probe::{
    Classifier, FrameCache, FrameVerdict, LocalBench, OpenedSet, ProbeError, ProbeParams,
    TimingBench, measure_verdict, open_reference,
};

/// In one of so many batches, some pages of remembered colour are measured all the same: the
/// first batch of a process is one of them. Most of what a measurement takes does not depend
/// on how many pages it is made for, so it is better made seldom for more of them.
const CHECK_ONE_IN: usize = 32;
/// How many.
const CHECK_PAGES: usize = 64;
/// Checks before remembered colours are judged.
const CHECKS_ENOUGH: u32 = 24;
/// Pages measured for the verdict on frame numbers.
const VERDICT_PAGES: usize = 600;

/// Colours by eviction timing.
pub struct Probed {
    opened: Arc<OpenedSet>,
    classifier: Classifier,
    cache: Arc<FrameCache>,
    file: Arc<File>,
    checked: u32,
    wrong: u32,
    turn: usize,
}

impl Probed {
    /// Opens the machine's reference set for a private cache, building it the first time.
    ///
    /// # Errors
    /// When classes cannot be built, or the store cannot be used.
    pub fn open(cache: &CacheGeometry) -> Result<Probed, ProbeError> {
        let params = ProbeParams::for_cache(cache)?;
        let opened = open_reference(&params, measuring_cpu())?;
        let frames = match &opened.dir {
            Some(dir) => FrameCache::open(dir, opened.set.generation)?,
            None => FrameCache::private()?,
        };
        Probed::over(Arc::new(opened), Arc::new(frames))
    }

    fn over(opened: Arc<OpenedSet>, cache: Arc<FrameCache>) -> Result<Probed, ProbeError> {
        let classifier = Classifier::new(opened.set.classes.clone());
        let file = Arc::new(opened.set.memory.file()?);
        Ok(Probed { opened, classifier, cache, file, checked: 0, wrong: 0, turn: 0 })
    }

    /// Whether colours must be measured on this machine, since frame numbers do not tell.
    ///
    /// # Errors
    /// When it cannot be found out.
    pub fn is_needed(cache: &CacheGeometry) -> Result<bool, ProbeError> {
        let params = ProbeParams::for_cache(cache)?;
        let opened = open_reference(&params, measuring_cpu())?;
        let mut bench =
            LocalBench::with_reference(measuring_cpu(), Arc::clone(&opened.set.memory))?;
        let mut classifier = Classifier::new(opened.set.classes);
        let report = measure_verdict(&mut classifier, &mut bench, VERDICT_PAGES)?;
        Ok(report.verdict != FrameVerdict::FrameNumberSelects)
    }

    /// Measures and remembers.
    fn learn(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[Candidate],
    ) -> Result<Vec<Option<Color>>, ProbeError> {
        let addresses: Vec<u64> = pages.iter().map(|p| p.address).collect();
        let verdicts = self.classifier.classify(bench, &addresses)?;
        for (page, verdict) in pages.iter().zip(&verdicts) {
            match verdict.color {
                Some(color) => self.cache.set(page.frame, color),
                None => self.cache.clear(page.frame),
            }
        }
        Ok(verdicts.into_iter().map(|v| v.color).collect())
    }

    /// Every how many pages of a batch of `n` one is checked although its colour is known.
    fn check_stride(&mut self, n: usize) -> usize {
        let due = self.turn == 0;
        self.turn = (self.turn + 1) % CHECK_ONE_IN;
        if due { n.div_ceil(CHECK_PAGES) } else { usize::MAX }
    }

    /// Forgets everything remembered when too much of it turns out wrong: the host has moved
    /// memory about.
    fn judge_memory(&mut self) -> Result<(), ProbeError> {
        if self.checked >= CHECKS_ENOUGH {
            if self.wrong * 10 > self.checked {
                self.cache.clear_all()?;
            }
            (self.checked, self.wrong) = (0, 0);
        }
        Ok(())
    }
}

/// The highest CPU that this process may use: interrupts tend to go to the first.
fn measuring_cpu() -> usize {
    let allowed = rustix::thread::sched_getaffinity(None).ok();
    allowed.and_then(|set| (0..1024).rev().find(|&cpu| set.is_set(cpu))).unwrap_or(0)
}

impl ColorSource for Probed {
    fn universe(&self) -> u16 {
        self.classifier.colors()
    }

    fn provenance(&self) -> Provenance {
        Provenance::Probed
    }

    fn known(&self, frame: Pfn) -> Option<Color> {
        self.cache.get(frame)
    }

    fn reference(&self) -> Option<(BorrowedFd<'_>, u64)> {
        Some((self.file.as_fd(), self.opened.set.memory.pages() as u64 * 4096))
    }

    fn measure(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[Candidate],
    ) -> Result<Vec<Option<Color>>, ProbeError> {
        let mut colors: Vec<Option<Color>> = pages.iter().map(|p| self.known(p.frame)).collect();
        let stride = self.check_stride(pages.len());
        let open: Vec<usize> =
            (0..pages.len()).filter(|&i| colors[i].is_none() || i % stride == stride - 1).collect();
        let asked: Vec<Candidate> = open.iter().map(|&i| pages[i]).collect();
        let found = if asked.is_empty() { Vec::new() } else { self.learn(bench, &asked)? };
        for (&i, color) in open.iter().zip(found) {
            if let (Some(believed), Some(measured)) = (colors[i], color) {
                self.checked += 1;
                self.wrong += u32::from(believed != measured);
            }
            colors[i] = color;
        }
        self.judge_memory()?;
        Ok(colors)
    }

    fn measure_again(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[Candidate],
    ) -> Result<Vec<Option<Color>>, ProbeError> {
        if pages.is_empty() { Ok(Vec::new()) } else { self.learn(bench, pages) }
    }

    fn another(&self) -> Box<dyn ColorSource> {
        Box::new(Probed {
            opened: Arc::clone(&self.opened),
            classifier: Classifier::new(self.opened.set.classes.clone()),
            cache: Arc::clone(&self.cache),
            file: Arc::clone(&self.file),
            checked: 0,
            wrong: 0,
            turn: 0,
        })
    }
}
