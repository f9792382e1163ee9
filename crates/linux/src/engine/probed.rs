//! Measured colours as a source for the engine: frames are classified in the target by its
//! agent, results are remembered machine-wide, and what is remembered is checked by sampling.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use huepage_color::{CacheGeometry, Color, NumberHash, Pfn, Provenance};

use super::source::{Candidate, ColorSource};
use crate::probe::{
    Classifier, FrameCache, FrameVerdict, LocalBench, OpenedSet, ProbeError, ProbeParams,
    TimingBench, measure_verdict, open_reference,
};

/// Frames that a host takes back and gives anew together, when all of them are free: the
/// block of free page reporting, and of huge pages.
const BLOCK_BITS: u32 = 9;
/// Pages of a block that are measured before what is remembered of the block is believed.
/// In a block that got other memory both agree once in colours squared times.
const BLOCK_CHECKS: usize = 2;
/// How long it is believed for new pages: reporting waits for two seconds.
const BELIEF: Duration = Duration::from_secs(2);
/// Pages measured for the verdict on frame numbers.
const VERDICT_PAGES: usize = 600;

/// Colours by eviction timing.
pub struct Probed {
    opened: Arc<OpenedSet>,
    classifier: Classifier,
    cache: Arc<FrameCache>,
    file: Arc<File>,
    /// Blocks whose remembered colours were found right by this process, and when.
    believed: HashMap<u64, Instant, NumberHash>,
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
        Ok(Probed { opened, classifier, cache, file, believed: HashMap::default() })
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

    /// Which of the pages are to be measured: those of unknown colour, and some of every
    /// block that was not looked at lately.
    fn to_measure(&self, pages: &[Candidate], colors: &[Option<Color>]) -> Vec<usize> {
        let mut checks: HashMap<u64, usize, NumberHash> = HashMap::default();
        let mut due = |frame: Pfn| {
            let fresh = self.believed.get(&block(frame)).is_some_and(|at| at.elapsed() < BELIEF);
            let n = checks.entry(block(frame)).or_default();
            *n += 1;
            !fresh && *n <= BLOCK_CHECKS
        };
        (0..pages.len()).filter(|&i| colors[i].is_none() || due(pages[i].frame)).collect()
    }

    /// Compares what was measured with what was remembered: blocks are believed from now on,
    /// or forgotten as a whole. Says which were.
    fn judge(&mut self, measured: &[(Candidate, Option<Color>, Option<Color>)]) -> Vec<u64> {
        let mut wrong = Vec::new();
        for (page, remembered, found) in measured {
            let (Some(remembered), Some(found)) = (remembered, found) else { continue };
            if remembered == found {
                self.believed.insert(block(page.frame), Instant::now());
            } else {
                wrong.push(block(page.frame));
            }
        }
        for block in &wrong {
            self.believed.remove(block);
            let first = block << BLOCK_BITS;
            (first..first + (1 << BLOCK_BITS)).for_each(|frame| self.cache.clear(Pfn(frame)));
        }
        wrong
    }

    /// Measures some pages, and says which blocks turned out to be remembered wrongly.
    fn find(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[Candidate],
        colors: &mut [Option<Color>],
        which: &[usize],
    ) -> Result<Vec<u64>, ProbeError> {
        if which.is_empty() {
            return Ok(Vec::new());
        }
        let asked: Vec<Candidate> = which.iter().map(|&i| pages[i]).collect();
        let addresses: Vec<u64> = asked.iter().map(|page| page.address).collect();
        let found = self.classifier.classify(bench, &addresses)?;
        let compared: Vec<_> =
            which.iter().zip(&found).map(|(&i, v)| (pages[i], colors[i], v.color)).collect();
        let wrong = self.judge(&compared);
        for ((&i, page), verdict) in which.iter().zip(&asked).zip(found) {
            self.remember(page.frame, verdict.color);
            if verdict.color.is_some() && colors[i].is_none() {
                self.believed.entry(block(page.frame)).or_insert_with(Instant::now);
            }
            colors[i] = verdict.color;
        }
        Ok(wrong)
    }

    fn remember(&self, frame: Pfn, color: Option<Color>) {
        match color {
            Some(color) => self.cache.set(frame, color),
            None => self.cache.clear(frame),
        }
    }
}

fn block(frame: Pfn) -> u64 {
    frame.0 >> BLOCK_BITS
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
        self.believed.contains_key(&block(frame)).then(|| self.known(frame)).flatten()
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
        let wrong = self.find(bench, pages, &mut colors, &which)?;
        if !wrong.is_empty() {
            let measured: HashSet<usize> = which.into_iter().collect();
            let again =
                |i: &usize| !measured.contains(i) && wrong.contains(&block(pages[*i].frame));
            let again: Vec<usize> = (0..pages.len()).filter(again).collect();
            again.iter().for_each(|&i| colors[i] = None);
            self.find(bench, pages, &mut colors, &again)?;
        }
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
            believed: HashMap::default(),
        })
    }
}
