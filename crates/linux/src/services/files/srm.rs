//! Whole files into colours: by SRM-buffer's sequences, or spread over a set. It joins the policy and
//! the placer; what a page of a sequence is, the policy decides, and how it gets there, the
//! placer.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use huepage_color::{Color, ColorSet};
use huepage_policy::SrmSettings;

use super::lookup::cached_pages;
use super::place::size_in_pages;
use super::view::View;
use super::{
    FileCacheError, FileRequest, Move, PlacementRefusal, PlacementTally, Placer, Sequences, ZoneUse,
};
use crate::kernel::mappers::FileId;

/// Of the cached pages of a sequence, how many in four lie in one colour for it to count as placed.
const ADOPTED_QUARTERS: u64 = 3;

/// Pages of the shortest sequence that tight memory leads to.
const SHORTEST_SEQUENCE_PAGES: u64 = 8;

/// How files are laid out.
#[derive(Debug)]
enum Layout {
    /// All pages in any of these colours.
    Spread(ColorSet),
    /// In sequences of so many pages.
    Sequences { policy: Box<Sequences>, threshold: u64, colors: ColorSet },
}

/// Places whole files, one after the other.
pub struct FilePlacer {
    placer: Placer,
    layout: Layout,
}

impl FilePlacer {
    /// Any page may come in any of `colors`.
    pub fn spread(placer: Placer, colors: ColorSet) -> FilePlacer {
        FilePlacer { placer, layout: Layout::Spread(colors) }
    }

    /// By SRM-buffer's policy over `colors`; `settings.colors` is set to their number. Where memory
    /// is so tight that the stock cannot hold a sequence's frames of each colour, sequences are
    /// shorter: whoever waits for more of one colour would only be handed the frames again that
    /// the gatherer just gave back.
    ///
    /// # Panics
    /// Without colours, or with a threshold of 0.
    pub fn sequences(placer: Placer, settings: SrmSettings, colors: ColorSet) -> FilePlacer {
        let threshold = affordable(settings.threshold, placer.bound(), colors.len());
        let settings = SrmSettings { threshold, ..settings };
        let policy = Box::new(Sequences::new(settings, &colors));
        FilePlacer { placer, layout: Layout::Sequences { policy, threshold, colors } }
    }

    /// Whether its placer was told to stop.
    pub fn is_stopped(&self) -> bool {
        self.placer.is_stopped()
    }

    /// Pages that go together; between two of them a long file may be interrupted.
    pub fn step(&self) -> u64 {
        match &self.layout {
            Layout::Spread(_) => 4096,
            Layout::Sequences { threshold, .. } => *threshold,
        }
    }

    /// Brings a part of a file on its way for a process: pages in step with [`Self::step`]. A
    /// sequence whose cached pages lie in one colour already is completed, not moved.
    ///
    /// # Errors
    /// As [`Placer::place`].
    pub fn place(
        &mut self,
        file: &Arc<File>,
        process: u32,
        pages: Range<u64>,
    ) -> Result<(), FileCacheError> {
        let size = size_in_pages(file);
        let pages = pages.start..pages.end.min(size);
        for (part, want) in self.wanted(file, size, process, pages)? {
            let (first, pages) = (part.start, part.end - part.start);
            self.placer.place(&FileRequest { file: Arc::clone(file), first, pages, want })?;
        }
        Ok(())
    }

    /// Writes a part of a file that nobody else knows yet, with every page placed; see
    /// [`Placer::write`].
    ///
    /// # Errors
    /// As [`Placer::write`].
    pub fn write(
        &mut self,
        file: &Arc<File>,
        process: u32,
        (first, size): (u64, u64),
        bytes: &[u8],
    ) -> Result<(), FileCacheError> {
        let pages = first..first + (bytes.len() as u64).div_ceil(4096);
        for (part, want) in self.wanted(file, size, process, pages)? {
            let at = |page: u64| usize::try_from((page - first) * 4096).unwrap_or(usize::MAX);
            let some = &bytes[at(part.start)..at(part.end).min(bytes.len())];
            self.placer.write(file, part.start, some, &want)?;
        }
        Ok(())
    }

    /// Waits for everything under way; what became of it.
    ///
    /// # Errors
    /// As [`Placer::settle`].
    pub fn settle(&mut self) -> Result<PlacementTally, FileCacheError> {
        self.placer.settle()
    }

    /// What the stock took.
    pub fn zone(&self) -> ZoneUse {
        self.placer.zone()
    }

    /// The policy, if there is one, to be told of uses and ends.
    pub fn policy(&mut self) -> Option<&mut Sequences> {
        match &mut self.layout {
            Layout::Spread(_) => None,
            Layout::Sequences { policy, .. } => Some(policy),
        }
    }

    /// Carries out one move that the policy asked for; it hears of a refusal.
    ///
    /// # Errors
    /// As [`Placer::place`].
    pub fn carry_out(
        &mut self,
        file: &Arc<File>,
        moved: Move,
    ) -> Result<PlacementTally, FileCacheError> {
        let (_, first, color) = moved;
        let want = one(self.placer.universe(), color);
        self.placer.place(&FileRequest { file: Arc::clone(file), first, pages: 1, want })?;
        let tally = self.placer.settle()?;
        if tally.refused.keys().any(|why| *why != PlacementRefusal::Vanished)
            && let Some(policy) = self.policy()
        {
            policy.refused(moved);
        }
        Ok(tally)
    }

    /// What colours pages should come in.
    fn wanted(
        &mut self,
        file: &Arc<File>,
        size: u64,
        process: u32,
        pages: Range<u64>,
    ) -> Result<Vec<(Range<u64>, ColorSet)>, FileCacheError> {
        let found = self.settled_color(file, &pages)?;
        let placer = &self.placer;
        match &mut self.layout {
            Layout::Spread(colors) => Ok(vec![(pages, colors.clone())]),
            Layout::Sequences { .. } if found.is_some() => {
                let universe = placer.universe();
                Ok(found.into_iter().map(|color| (pages.clone(), one(universe, color))).collect())
            }
            Layout::Sequences { policy, threshold, colors } => {
                let Ok(id) = FileId::from_file(file) else { return Ok(Vec::new()) };
                let stock = |refill| placer.stock(colors, *threshold, refill);
                let runs = policy.place(id, size, process, pages, stock);
                let part = |run: super::PageRun| {
                    (run.first..run.first + run.pages, one(placer.universe(), run.color))
                };
                Ok(runs.into_iter().map(part).collect())
            }
        }
    }

    /// The colour in which a sequence lies already, if it is one and enough of it is cached.
    fn settled_color(
        &mut self,
        file: &File,
        pages: &Range<u64>,
    ) -> Result<Option<Color>, FileCacheError> {
        let Layout::Sequences { colors, .. } = &self.layout else { return Ok(None) };
        if cached_pages(file, pages) * 4 < (pages.end - pages.start) * ADOPTED_QUARTERS {
            return Ok(None);
        }
        let Ok(view) = View::new(file, pages.clone()) else { return Ok(None) };
        let found = self.placer.look(&view)?;
        let mut counts = vec![0u64; usize::from(colors.universe())];
        found.iter().filter_map(|(_, color)| *color).for_each(|c| counts[usize::from(c.0)] += 1);
        let most = (0..).map(Color).zip(&counts).max_by_key(|(_, n)| **n);
        let enough = |n: u64| n * 4 >= found.len() as u64 * ADOPTED_QUARTERS;
        Ok(most.filter(|&(c, n)| enough(*n) && colors.contains(c)).map(|(color, _)| color))
    }
}

/// The length of a sequence when the stock may have so many pages of some colours together: half of
/// what it may have of each, which is what is waited for.
fn affordable(threshold: u64, bound: u64, colors: u16) -> u64 {
    threshold.min((bound / u64::from(colors.max(1)) / 2).max(SHORTEST_SEQUENCE_PAGES))
}

/// The set of one colour.
fn one(universe: u16, color: Color) -> ColorSet {
    let mut set = ColorSet::empty(universe);
    set.insert(color);
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_as_long_as_asked_for_where_the_stock_can_hold_them() {
        let cases = [((256, 49_152, 32), 256), ((256, 768, 32), 12), ((256, 10, 32), 8)];
        for ((threshold, bound, colors), length) in cases {
            assert_eq!(affordable(threshold, bound, colors), length);
        }
        assert_eq!(affordable(4, 10, 32), 4, "never longer than asked for");
    }
}
