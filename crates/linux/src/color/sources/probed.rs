//! Measured colours as a source for the engine: frames are classified in the target by its
//! agent, results are remembered for that target alone, and what is remembered is checked by sampling.
//! A target may lie about its latencies, so what was found in one says nothing to another; machine-wide it is
//! noted only to be shown.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use huepage_color::{CacheGeometry, Color, ColorSet, NumberHash, Pfn, Provenance};

use super::validity::{BLOCK_CHECKS, ColorValidity};
use crate::color::frame_colors::ColorMethod;
use crate::color::probe::{
    Classifier, ColorClasses, FrameCache, FrameVerdict, LocalBench, OpenedSet, PageVerdict,
    ProbeError, ProbeParams, StoreDir, TimingBench, block, frames_of_block, measure_verdict,
    open_reference, quietest_cpu as measuring_cpu,
};
use crate::color::sources::{Candidate, ColorSource, ColorUpkeep};

/// CPU time for pages that are measured again, and for each of them besides.
const REMEASURE_CPU_TIME: Duration = Duration::from_millis(10);
const REMEASURE_CPU_TIME_PER_PAGE: Duration = Duration::from_micros(40);
/// Pages measured for the verdict on frame numbers.
const VERDICT_PAGES: usize = 600;
/// The file of the store that says that frame numbers do not tell colours.
const NEEDED: &str = "frame-numbers-do-not-tell";

/// Colours by eviction timing.
pub struct Probed {
    opened: Arc<OpenedSet>,
    /// Keeps the classes true, and decides when frames are measured again.
    upkeep: Arc<ColorUpkeep>,
    /// What it said last.
    classes: Arc<ColorClasses>,
    classifier: Classifier,
    /// What was found by who uses it.
    cache: Arc<FrameCache>,
    /// What was found by anybody, to be shown.
    shown: Arc<FrameCache>,
    file: Arc<File>,
    validity: ColorValidity,
}

impl Probed {
    /// Opens the machine's reference set for a private cache, building it the first time.
    ///
    /// # Errors
    /// When classes cannot be built, or the store cannot be used.
    pub fn open(cache: &CacheGeometry) -> Result<Probed, ProbeError> {
        let params = ProbeParams::for_cache(cache)?;
        Probed::over(open_reference(&params, measuring_cpu())?)
    }

    /// The same if colours must be measured on this machine, since frame numbers do not tell; that
    /// they must is remembered, that they need not is found out each time.
    ///
    /// # Errors
    /// When it cannot be found out, and as [`Self::open`].
    pub fn open_if_needed(cache: &CacheGeometry) -> Result<Option<Probed>, ProbeError> {
        let params = ProbeParams::for_cache(cache)?;
        let opened = open_reference(&params, measuring_cpu())?;
        if !opened.dir.as_ref().is_some_and(is_told) {
            if !is_needed(&opened)? {
                return Ok(None);
            }
            opened.dir.iter().for_each(tell);
        }
        Probed::over(opened).map(Some)
    }

    /// Whether it is remembered that colours must be measured on this machine; nothing is measured.
    pub fn is_known_needed() -> bool {
        StoreDir::open_default().is_ok_and(|dir| is_told(&dir))
    }

    fn over(opened: OpenedSet) -> Result<Probed, ProbeError> {
        let frames = match &opened.dir {
            Some(dir) => FrameCache::open(dir, opened.set.generation)?,
            None => FrameCache::private()?,
        };
        let mut classifier = Classifier::new(opened.set.classes.clone());
        classifier.follow(opened.set.classes.clone());
        let file = Arc::new(opened.set.memory.file()?);
        let (opened, shown) = (Arc::new(opened), Arc::new(frames));
        let upkeep = Arc::new(ColorUpkeep::new(Arc::clone(&opened)));
        let (classes, validity) = (upkeep.classes(), ColorValidity::default());
        let cache = Arc::new(FrameCache::private()?);
        Ok(Probed { opened, upkeep, classes, classifier, cache, shown, file, validity })
    }

    /// Another handle, which knows what is in this cache.
    fn with(&self, cache: Arc<FrameCache>) -> Probed {
        Probed {
            opened: Arc::clone(&self.opened),
            upkeep: Arc::clone(&self.upkeep),
            classes: Arc::clone(&self.classes),
            classifier: self.classifier.clone(),
            cache,
            shown: Arc::clone(&self.shown),
            file: Arc::clone(&self.file),
            validity: ColorValidity::default(),
        }
    }

    /// Goes by the classes as they were found last.
    fn follow(&mut self) {
        let classes = self.upkeep.classes();
        if !Arc::ptr_eq(&classes, &self.classes) {
            self.classifier.follow((*classes).clone());
            self.classes = classes;
        }
    }

    /// Sorts pages. The reference pages are kept true by this process alone, whoever owns the bench: if
    /// they are out of date, that is mended first.
    fn classify(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[u64],
        wanted: Option<&ColorSet>,
    ) -> Result<Vec<PageVerdict>, ProbeError> {
        self.upkeep.heal_if_due();
        self.follow();
        match self.classifier.classify_among(bench, pages, wanted) {
            Err(ProbeError::Stale { .. }) => {
                self.upkeep.heal();
                self.follow();
                self.classifier.classify_among(bench, pages, wanted)
            }
            result => result,
        }
    }

    /// Which of the pages are to be measured: those of unknown colour, and some others of every
    /// block that is not believed.
    fn to_measure(&self, pages: &[Candidate], colors: &[Option<Color>]) -> Vec<usize> {
        let (now, mut checks) = (Instant::now(), HashMap::<u64, usize, NumberHash>::default());
        let mut due = |frame: Pfn| {
            let n = checks.entry(block(frame)).or_default();
            *n += 1;
            *n <= BLOCK_CHECKS && self.due(frame, now)
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
        wanted: Option<&ColorSet>,
    ) -> Result<(), ProbeError> {
        if which.is_empty() {
            return Ok(());
        }
        let addresses: Vec<u64> = which.iter().map(|&i| pages[i].address).collect();
        let found = self.classify(bench, &addresses, wanted)?;
        let now = Instant::now();
        self.note_validity(pages, colors, which, &found, now);
        for (&i, verdict) in which.iter().zip(found) {
            let frame = pages[i].frame;
            // What nobody vouches for is not mixed with what was just measured.
            if verdict.color.is_some() && colors[i].is_none() {
                self.believe(frame, now);
                self.validity.measured(frame, false, now);
            }
            colors[i] = verdict.color;
        }
        which.iter().for_each(|&i| self.remember(pages[i].frame, colors[i]));
        Ok(())
    }

    /// The colours of pages, remembered or measured; where colours are `wanted`, those of others may be none.
    fn colors_of(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[Candidate],
        wanted: Option<&ColorSet>,
    ) -> Result<Vec<Option<Color>>, ProbeError> {
        let now = Instant::now();
        let mut colors: Vec<Option<Color>> =
            pages.iter().map(|page| self.remembered(page.frame, now)).collect();
        let which = self.to_measure(pages, &colors);
        self.find(bench, pages, &mut colors, &which, wanted)?;
        // Blocks of which the checks did not agree, or did not come out at all.
        let (now, measured) = (Instant::now(), HashSet::<usize>::from_iter(which));
        let doubtful = |&i: &usize| !measured.contains(&i) && self.due(pages[i].frame, now);
        let doubtful: Vec<usize> = (0..pages.len()).filter(doubtful).collect();
        doubtful.iter().for_each(|&i| colors[i] = None);
        self.find(bench, pages, &mut colors, &doubtful, wanted)?;
        let known = pages.iter().zip(&colors).filter(|(_, color)| color.is_some());
        known.for_each(|(page, _)| self.validity.taken(page.frame, now));
        Ok(colors)
    }

    /// Compares what was measured with what was remembered. Blocks of which one page differs are
    /// forgotten.
    fn note_validity(
        &mut self,
        pages: &[Candidate],
        colors: &[Option<Color>],
        which: &[usize],
        found: &[PageVerdict],
        now: Instant,
    ) {
        let both = |(&i, verdict): (&usize, &PageVerdict)| {
            Some((pages[i].frame, colors[i]? == verdict.color?))
        };
        let compared: Vec<(Pfn, bool)> = which.iter().zip(found).filter_map(both).collect();
        for &(frame, _) in compared.iter().filter(|(_, same)| *same) {
            self.validity.measured(frame, true, now);
        }
        for &(frame, _) in compared.iter().filter(|(_, same)| !same) {
            self.validity.forget(block(frame));
            frames_of_block(block(frame)).for_each(|frame| self.remember(frame, None));
        }
    }

    /// Begins another epoch of the block of a frame that was measured for the first time, unless
    /// what is remembered of the present one was checked.
    fn believe(&mut self, frame: Pfn, now: Instant) {
        if !self.validity.is_valid(block(frame), now) {
            self.cache.begin_epoch(frame);
            self.validity.began(frame, now);
        }
    }

    /// Whether a page that comes anew has to be measured though a colour is remembered.
    fn due(&self, frame: Pfn, now: Instant) -> bool {
        self.validity.due(frame, self.cache.is_current(frame), now)
    }

    /// The remembered colour, unless it is of an epoch of which none can be checked.
    fn remembered(&self, frame: Pfn, now: Instant) -> Option<Color> {
        let usable = self.cache.is_current(frame) || !self.due(frame, now);
        self.known(frame).filter(|_| usable)
    }

    fn remember(&self, frame: Pfn, color: Option<Color>) {
        for cache in [&self.cache, &self.shown] {
            match color {
                Some(color) => cache.set(frame, color),
                None => cache.clear(frame),
            }
        }
    }
}

/// Whether frame numbers do not tell colours, by measuring some.
fn is_needed(opened: &OpenedSet) -> Result<bool, ProbeError> {
    let memory = Arc::clone(&opened.set.memory);
    let mut bench = LocalBench::with_reference(measuring_cpu(), memory)?;
    let mut classifier = Classifier::new(opened.set.classes.clone());
    let report = measure_verdict(&mut classifier, &mut bench, VERDICT_PAGES)?;
    Ok(report.verdict != FrameVerdict::FrameNumberSelects)
}

fn is_told(dir: &StoreDir) -> bool {
    dir.file(NEEDED).exists()
}

/// The store goes with the boot, and so does what is remembered. Not to remember costs time only.
fn tell(dir: &StoreDir) {
    let _ = dir.open_file(NEEDED);
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
        self.known(frame).filter(|_| self.validity.vouched(frame))
    }

    fn reference(&self) -> Option<(BorrowedFd<'_>, u64)> {
        Some((self.file.as_fd(), self.opened.set.memory.pages() as u64 * 4096))
    }

    fn measure(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[Candidate],
        wanted: Option<&ColorSet>,
    ) -> Result<Vec<Option<Color>>, ProbeError> {
        let Some(wanted) = wanted else { return self.colors_of(bench, pages, None) };
        // What is remembered as of another colour is not looked at: if that is wrong by now, it is no loss.
        let now = Instant::now();
        let is_other = |page: &Candidate| {
            self.remembered(page.frame, now).is_some_and(|color| !wanted.contains(color))
        };
        let open: Vec<usize> = (0..pages.len()).filter(|&i| !is_other(&pages[i])).collect();
        let some: Vec<Candidate> = open.iter().map(|&i| pages[i]).collect();
        let found = self.colors_of(bench, &some, Some(wanted))?;
        let mut colors = vec![None; pages.len()];
        open.into_iter().zip(found).for_each(|(i, color)| colors[i] = color);
        Ok(colors)
    }

    fn measure_again(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[Candidate],
    ) -> Result<Vec<Option<Color>>, ProbeError> {
        self.follow();
        let before: Vec<Option<Color>> = pages.iter().map(|page| self.known(page.frame)).collect();
        let which: Vec<usize> = (0..pages.len()).filter(|&i| before[i].is_some()).collect();
        let addresses: Vec<u64> = which.iter().map(|&i| pages[i].address).collect();
        let colors: Vec<Color> = before.iter().flatten().copied().collect();
        let limit = REMEASURE_CPU_TIME
            + REMEASURE_CPU_TIME_PER_PAGE * u32::try_from(which.len()).unwrap_or(u32::MAX);
        let verdicts = self.classifier.confirm(bench, &addresses, &colors, limit)?;
        let (now, mut found) = (Instant::now(), vec![None; pages.len()]);
        for (&i, verdict) in which.iter().zip(&verdicts) {
            let Some(color) = verdict.color else { continue };
            self.validity.measured(pages[i].frame, before[i] == Some(color), now);
            self.remember(pages[i].frame, Some(color));
            found[i] = Some(color);
        }
        Ok(found)
    }

    fn upkeep(&self) -> Option<Arc<ColorUpkeep>> {
        Some(Arc::clone(&self.upkeep))
    }

    fn doubt(&mut self) {
        self.validity.doubt();
    }

    fn method(&self) -> ColorMethod {
        ColorMethod::Measured(Arc::clone(&self.opened), measuring_cpu())
    }

    fn shown(&self, frame: Pfn) -> Option<Color> {
        self.shown.get(frame)
    }

    fn another(&self) -> Box<dyn ColorSource> {
        Box::new(self.with(Arc::clone(&self.cache)))
    }

    fn for_process(&self) -> Result<Box<dyn ColorSource>, ProbeError> {
        Ok(Box::new(self.with(Arc::new(FrameCache::private()?))))
    }
}
