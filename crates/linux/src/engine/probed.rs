//! Measured colours as a source for the engine: frames are classified in the target by its
//! agent, results are remembered machine-wide, and what is remembered is checked by sampling.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use huepage_color::{CacheGeometry, Color, NumberHash, Pfn, Provenance};

use super::belief::{BLOCK_CHECKS, Beliefs, block, frames};
use super::source::{Candidate, ColorSource};
use crate::probe::{
    Classifier, FrameCache, FrameVerdict, LocalBench, OpenedSet, ProbeError, ProbeParams,
    TimingBench, Verdict, measure_verdict, open_reference,
};

/// Pages measured for the verdict on frame numbers.
const VERDICT_PAGES: usize = 600;

/// Colours by eviction timing.
pub struct Probed {
    opened: Arc<OpenedSet>,
    classifier: Classifier,
    cache: Arc<FrameCache>,
    file: Arc<File>,
    beliefs: Beliefs,
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
        Ok(Probed { opened, classifier, cache, file, beliefs: Beliefs::default() })
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
            self.remember(page.frame, verdict.color);
        }
        Ok(verdicts.into_iter().map(|v| v.color).collect())
    }

    /// Which of the pages are to be measured: those of unknown colour, and some others of every
    /// block that is not believed.
    fn to_measure(&self, pages: &[Candidate], colors: &[Option<Color>]) -> Vec<usize> {
        let (now, mut checks) = (Instant::now(), HashMap::<u64, usize, NumberHash>::default());
        let mut due = |frame: Pfn| {
            let n = checks.entry(block(frame)).or_default();
            *n += 1;
            *n <= BLOCK_CHECKS && self.beliefs.due(frame, now)
        };
        (0..pages.len()).filter(|&i| colors[i].is_none() || due(pages[i].frame)).collect()
    }

    /// Measures some pages. Forgets whole blocks of which one was remembered wrongly.
    fn find(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[Candidate],
        colors: &mut [Option<Color>],
        which: &[usize],
    ) -> Result<(), ProbeError> {
        if which.is_empty() {
            return Ok(());
        }
        let addresses: Vec<u64> = which.iter().map(|&i| pages[i].address).collect();
        let found = self.classifier.classify(bench, &addresses)?;
        let differ = |&(&i, v): &(&usize, &Verdict)| {
            v.color.is_some_and(|c| colors[i].is_some_and(|was| was != c))
        };
        let wrong: HashSet<u64> =
            which.iter().zip(&found).filter(differ).map(|(&i, _)| block(pages[i].frame)).collect();
        for &block in &wrong {
            self.beliefs.forget(block);
            frames(block).for_each(|frame| self.cache.clear(frame));
        }
        let now = Instant::now();
        for (&i, verdict) in which.iter().zip(found) {
            let frame = pages[i].frame;
            self.remember(frame, verdict.color);
            if verdict.color.is_some() {
                let as_remembered = colors[i].is_some() && !wrong.contains(&block(frame));
                self.beliefs.measured(frame, as_remembered, now);
            }
            colors[i] = verdict.color;
        }
        Ok(())
    }

    fn remember(&self, frame: Pfn, color: Option<Color>) {
        match color {
            Some(color) => self.cache.set(frame, color),
            None => self.cache.clear(frame),
        }
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

    fn vouched(&self, frame: Pfn) -> Option<Color> {
        self.known(frame).filter(|_| self.beliefs.vouched(frame))
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
        let which = self.to_measure(pages, &colors);
        self.find(bench, pages, &mut colors, &which)?;
        // Blocks of which the checks did not agree, or did not come out at all.
        let (now, measured) = (Instant::now(), HashSet::<usize>::from_iter(which));
        let doubtful = |&i: &usize| !measured.contains(&i) && self.beliefs.due(pages[i].frame, now);
        let doubtful: Vec<usize> = (0..pages.len()).filter(doubtful).collect();
        doubtful.iter().for_each(|&i| colors[i] = None);
        self.find(bench, pages, &mut colors, &doubtful)?;
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
            beliefs: Beliefs::default(),
        })
    }
}
