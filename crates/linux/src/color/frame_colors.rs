//! The colours of frames that belong to other processes, found without touching those: computed from
//! the frame number, or measured as always (`probe::classify`), but with the lines in question loaded
//! and timed in the kernel, by their physical addresses. Pages that are streamed are our own.
//!
//! A frame may go to somebody else meanwhile; then its colour is of no use, and no harm.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use huepage_color::{Color, ColorMap, NumberHash, PAGE_BYTES, Pfn, Vpn};

use crate::color::line_timer::{Chains, ResidencyError, TimedLine, Timer};
use crate::color::probe::frame_number_verdict::frames_of;
use crate::color::probe::params::MAX_STREAM;
use crate::color::probe::timing::{RoundDesc, ticks};
use crate::color::probe::{
    Classifier, LocalBench, OpenedSet, OwnPages, PageVerdict, ProbeError, ReferenceOrigin,
    TimingBench, TimingJob, TimingResult,
};
use crate::kernel::procfs::{PageEntry, ProcRoot};

/// How colours come to be known; for [`FrameColors::open`], on any thread.
#[derive(Clone, Debug)]
pub enum ColorMethod {
    /// From the frame number.
    Computed(ColorMap),
    /// By timing against these pages, on this CPU.
    Measured(Arc<OpenedSet>, usize),
    /// Not at all: why.
    Missing(String),
}

impl ColorMethod {
    /// Why these colours are this process's own and mean nothing to others, where that is so.
    pub fn private_because(&self) -> Option<&str> {
        match self {
            ColorMethod::Measured(opened, _) => match &opened.origin {
                ReferenceOrigin::Private(why) => Some(why),
                ReferenceOrigin::Found | ReferenceOrigin::Built => None,
            },
            ColorMethod::Computed(_) | ColorMethod::Missing(_) => None,
        }
    }
}

/// See the module's head.
pub struct FrameColors(How);

enum How {
    Computed(ColorMap),
    Measured(Box<Measured>),
}

/// What frames are measured with.
struct Measured {
    opened: Arc<OpenedSet>,
    cpu: usize,
    classifier: Classifier,
    timer: Timer,
    /// Ticks of the probe's clock in a nanosecond.
    pace: f64,
    /// Nanoseconds that the timer takes for a line that is as near as can be.
    least: u64,
}

impl FrameColors {
    /// Takes some milliseconds where colours are measured.
    ///
    /// # Errors
    /// When they cannot be, here or by this process.
    pub fn open(method: ColorMethod) -> Result<FrameColors, ResidencyError> {
        Ok(FrameColors(match method {
            ColorMethod::Computed(map) => How::Computed(map),
            ColorMethod::Measured(opened, cpu) => {
                How::Measured(Box::new(Measured::open(opened, cpu)?))
            }
            ColorMethod::Missing(why) => return Err(ProbeError::Later(why).into()),
        }))
    }

    /// The colours of some frames; `None` for what cannot be told. Measuring takes some 0.2 ms for each,
    /// where many are measured together.
    ///
    /// # Errors
    /// When the machine is too noisy for any answer, or the kernel does not let us.
    pub fn colors_of(&mut self, frames: &[Pfn]) -> Result<Vec<Option<Color>>, ResidencyError> {
        match &mut self.0 {
            How::Computed(map) => Ok(frames.iter().map(|&frame| map.color(frame)).collect()),
            How::Measured(measured) => Ok(measured.colors_of(frames)?),
        }
    }
}

impl Measured {
    fn open(opened: Arc<OpenedSet>, cpu: usize) -> Result<Measured, ResidencyError> {
        let timer = Timer::for_chains(opened.set.classes.params.depth as usize)?;
        let classifier = Classifier::new(opened.set.classes.clone());
        let mut measured = Measured { opened, cpu, classifier, timer, pace: 1.0, least: 0 };
        measured.pace = measured.touch()?;
        measured.least = measured.least()?;
        Ok(measured)
    }

    /// A line that is timed again and again.
    fn least(&mut self) -> Result<u64, ResidencyError> {
        let own = OwnPages::populated(1)?;
        let frame = frames_of(&own)?[0];
        let took =
            self.timer.time(&[TimedLine { frame, index: 5 }; Timer::MOST * Timer::DEEPEST])?;
        Ok(took.into_iter().flatten().min().unwrap_or(0))
    }

    /// Loads something of every reference page, so that all are mapped here; how fast the clock of the
    /// probe is, by the way.
    fn touch(&self) -> Result<f64, ProbeError> {
        let memory = &self.opened.set.memory;
        let mut bench = LocalBench::with_reference(self.cpu, memory)?;
        let pages = self.opened.set.classes.pages();
        let pages: Vec<u64> =
            pages.map(|page| memory.base() + u64::from(page) * PAGE_BYTES).collect();
        let (started, first) = (Instant::now(), ticks());
        for stream in pages.chunks(MAX_STREAM) {
            let len = u32::try_from(stream.len()).unwrap_or(0);
            let rounds = vec![RoundDesc { first: 0, len }];
            let offsets = (0..64).map(|line| line * 64).collect();
            let stream = stream.to_vec();
            let job = TimingJob { stream, rounds, offsets, passes: 8, ..TimingJob::default() };
            bench.run(&job)?;
        }
        Ok(ticks().wrapping_sub(first) as f64 / started.elapsed().as_nanos().max(1) as f64)
    }

    fn colors_of(&mut self, frames: &[Pfn]) -> Result<Vec<Option<Color>>, ProbeError> {
        let memory = &self.opened.set.memory;
        let mut bench = FrameBench {
            local: LocalBench::with_reference(self.cpu, memory)?,
            own: frames_at(memory.base(), memory.pages())?,
            timer: &mut self.timer,
            pace: self.pace,
            least: self.least,
        };
        let pages: Vec<u64> = frames.iter().map(|frame| FOREIGN | (frame.0 * PAGE_BYTES)).collect();
        let verdicts = self.classifier.classify(&mut bench, &pages)?;
        Ok(verdicts.into_iter().map(|PageVerdict { color, .. }| color).collect())
    }
}

/// The frames of pages of ours, by address.
fn frames_at(base: u64, pages: usize) -> Result<HashMap<u64, Pfn, NumberHash>, ProbeError> {
    let own = std::process::id().cast_signed();
    let mut entries: Vec<PageEntry> = Vec::new();
    ProcRoot::default().pagemap(own)?.entries(Vpn(base / PAGE_BYTES), pages, &mut entries)?;
    let address = |at: usize| base + at as u64 * PAGE_BYTES;
    let frames = entries.iter().enumerate();
    Ok(frames.filter_map(|(at, entry)| Some((address(at), entry.pfn()?))).collect())
}

/// What stands for a frame where the probe has addresses; no process has such.
const FOREIGN: u64 = 1 << 62;

/// Streams pages of ours and times lines of any frame.
struct FrameBench<'a> {
    local: LocalBench,
    own: HashMap<u64, Pfn, NumberHash>,
    timer: &'a mut Timer,
    pace: f64,
    least: u64,
}

impl FrameBench<'_> {
    fn line(&self, address: u64) -> Result<TimedLine, ProbeError> {
        let index = (address % PAGE_BYTES / 64).to_le_bytes()[0];
        let page = address - address % PAGE_BYTES;
        let frame = match page & FOREIGN {
            0 => self.own.get(&page).copied(),
            _ => Some(Pfn((page & !FOREIGN) / PAGE_BYTES)),
        };
        let unknown = || ProbeError::BadJob(format!("nothing is mapped at {page:#x}"));
        Ok(TimedLine { frame: frame.ok_or_else(unknown)?, index })
    }

    /// The lines that a job times, those that belong together beside each other.
    fn lines(&self, job: &TimingJob) -> Result<Vec<TimedLine>, ProbeError> {
        if job.depth <= 1 {
            return job.reload.iter().map(|&line| self.line(line)).collect();
        }
        let (deep, mut turns) = (job.depth as usize, job.offsets.iter().cycle());
        let mut lines = Vec::with_capacity(deep * job.reload.len());
        for line in &job.reload {
            let page = line - line % PAGE_BYTES;
            for offset in turns.by_ref().take(deep) {
                lines.push(self.line(page + u64::from(*offset))?);
            }
        }
        Ok(lines)
    }

    /// Times all, in ticks: how much longer they took than lines that are as near as can be.
    fn reload(&mut self, chains: &[Chains]) -> Result<Vec<u16>, ProbeError> {
        let mut latencies = Vec::new();
        for some in chains {
            let took = self.timer.time_chains(some).map_err(remote)?;
            let longer = |ns: u64| (ns.saturating_sub(self.least) as f64 * self.pace) as u16;
            // Saturates; so it does where the kernel has no such memory.
            latencies.extend(took.into_iter().map(|ns| ns.map_or(u16::MAX, longer)));
        }
        Ok(latencies)
    }
}

fn remote(error: ResidencyError) -> ProbeError {
    ProbeError::Remote(error.to_string())
}

impl TimingBench for FrameBench<'_> {
    fn run(&mut self, job: &TimingJob) -> Result<TimingResult, ProbeError> {
        job.check()?;
        if job.depth.max(1) as usize != self.timer.depth() {
            return Err(ProbeError::BadJob(format!("{} lines of each page", job.depth)));
        }
        // All is made ready before anything is streamed: lines are evicted by others meanwhile.
        let most = Timer::MOST * job.depth.max(1) as usize;
        let lines = self.lines(job)?;
        let chains: Vec<Chains> = lines.chunks(most).map(|some| self.timer.chains(some)).collect();
        let mut result = TimingResult::default();
        if job.prime {
            self.reload(&chains)?;
        }
        for round in &job.rounds {
            let (first, len) = (round.first as usize, round.len as usize);
            let streaming = TimingJob {
                stream: job.stream[first..first + len].to_vec(),
                rounds: vec![RoundDesc { first: 0, len: round.len }],
                offsets: job.offsets.clone(),
                passes: job.passes,
                ..TimingJob::default()
            };
            self.local.run(&streaming)?;
            result.latencies.extend(self.reload(&chains)?);
        }
        Ok(result)
    }

    fn least_rounds(&self) -> usize {
        self.local.least_rounds()
    }

    fn reference_base(&self) -> u64 {
        self.local.reference_base()
    }
}
