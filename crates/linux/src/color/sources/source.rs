//! Where the colours of frames come from, behind one interface: computed from the frame
//! number, or measured in the target with results remembered machine-wide.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use huepage_color::{Color, ColorMap, ColorSet, Pfn, Provenance};

use crate::color::frame_colors::ColorMethod;
use crate::color::probe::{ProbeError, TimingBench};
use crate::color::sources::ColorUpkeep;

/// A candidate page: its address in the target and its frame.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Address of the page in the target.
    pub address: u64,
    /// The frame behind it.
    pub frame: Pfn,
}

/// How an engine learns colours.
pub trait ColorSource: Send {
    /// Colours there are.
    fn universe(&self) -> u16;
    /// What the claim rests on.
    fn provenance(&self) -> Provenance;
    /// The colour of a frame as far as it is known without measuring.
    fn known(&self, frame: Pfn) -> Option<Color>;
    /// The same, but only if there is evidence of this process that it still holds: what is
    /// remembered of frames may be out of date.
    fn vouched(&self, frame: Pfn) -> Option<Color> {
        self.known(frame)
    }
    /// The object that agents must map so that colours can be measured there.
    fn reference(&self) -> Option<(BorrowedFd<'_>, u64)>;
    /// The colours of pages of ours in the target, measured where that is needed. For who uses pages of the
    /// `wanted` colours only, others may be none, which takes less time.
    ///
    /// # Errors
    /// When the target is gone or measuring is impossible.
    fn measure(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[Candidate],
        wanted: Option<&ColorSet>,
    ) -> Result<Vec<Option<Color>>, ProbeError>;
    /// Measures pages whose colours are known, whatever is believed of them, and remembers what it finds.
    /// What cannot be told is none, and stays as it was.
    ///
    /// # Errors
    /// As [`ColorSource::measure`].
    fn measure_again(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[Candidate],
    ) -> Result<Vec<Option<Color>>, ProbeError>;
    /// How the colours of frames are found that belong to processes without an agent.
    fn method(&self) -> ColorMethod;
    /// The colour of a frame as anybody's measurement had it: to be shown, never to be used.
    fn shown(&self, frame: Pfn) -> Option<Color> {
        self.known(frame)
    }
    /// Who decides when that is to be done, where colours may change.
    fn upkeep(&self) -> Option<Arc<ColorUpkeep>> {
        None
    }
    /// Pages were found moved: what was measured before does not hold for pages that come anew.
    fn doubt(&mut self) {}
    /// Whether colours can be told by now: a source that is opened in the background cannot at first.
    /// Never waits.
    ///
    /// # Errors
    /// When it never will.
    fn ready(&mut self) -> Result<bool, ProbeError> {
        Ok(true)
    }
    /// Why they cannot be told yet, where it was tried.
    fn unknown_because(&self) -> Option<String> {
        None
    }
    /// Waits until colours can be told.
    ///
    /// # Errors
    /// When they could not be found at the first try.
    fn wait(&mut self) -> Result<(), ProbeError> {
        Ok(())
    }
    /// Another handle, for measurements of this process's own.
    fn another(&self) -> Box<dyn ColorSource>;
    /// Another handle, for a process that measures in its own memory and may lie: what it finds is used for
    /// no other, nor the other way round.
    ///
    /// # Errors
    /// When there is no memory for it.
    fn for_process(&self) -> Result<Box<dyn ColorSource>, ProbeError> {
        Ok(self.another())
    }
}

/// Colours that follow from the frame number.
#[derive(Clone, Debug)]
pub struct Computed(pub ColorMap);

impl ColorSource for Computed {
    fn universe(&self) -> u16 {
        self.0.colors()
    }

    fn provenance(&self) -> Provenance {
        self.0.provenance()
    }

    fn known(&self, frame: Pfn) -> Option<Color> {
        self.0.color(frame)
    }

    fn reference(&self) -> Option<(BorrowedFd<'_>, u64)> {
        None
    }

    fn measure(
        &mut self,
        _: &mut dyn TimingBench,
        pages: &[Candidate],
        _: Option<&ColorSet>,
    ) -> Result<Vec<Option<Color>>, ProbeError> {
        Ok(pages.iter().map(|page| self.0.color(page.frame)).collect())
    }

    fn measure_again(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[Candidate],
    ) -> Result<Vec<Option<Color>>, ProbeError> {
        self.measure(bench, pages, None)
    }

    fn method(&self) -> ColorMethod {
        ColorMethod::Computed(self.0.clone())
    }

    fn another(&self) -> Box<dyn ColorSource> {
        Box::new(self.clone())
    }
}
