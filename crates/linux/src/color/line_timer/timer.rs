//! Times loads of lines of memory by their physical addresses, on the CPU that calls; see
//! [`super::program`]. What the times mean is for [`crate::sensors::residency::hit_classifier`].

use huepage_color::{PAGE_BYTES, Pfn};

use super::program::{self, BATCH, DEEPEST, Exchange, SHIFTS, TURN};
use crate::color::probe::paired;
use crate::kernel::bpf::btf::PlainLoads;
use crate::kernel::bpf::memory::{DirectMap, Peeker};
use crate::kernel::bpf::{BpfError, Program, Shared};
use crate::kernel::procfs::ProcRoot;

/// Why residency cannot be sampled.
#[derive(Debug, thiserror::Error)]
pub enum ResidencyError {
    /// The kernel does not let this process.
    #[error(
        "not allowed to time memory of other processes: run huepage as root (CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN)"
    )]
    NotPermitted,
    /// Nobody can here.
    #[error("the cache cannot be watched here: {0}; `huepage info` shows what this kernel has")]
    NotSupported(String),
    /// The process is gone.
    #[error("process {0} ended; nothing is left to watch")]
    Gone(i32),
    /// What the process has cannot be read.
    #[error(transparent)]
    Proc(#[from] crate::kernel::procfs::ProcError),
    /// Memory to compare with.
    #[error(transparent)]
    Probe(#[from] crate::color::probe::ProbeError),
}

impl From<BpfError> for ResidencyError {
    fn from(error: BpfError) -> ResidencyError {
        match error {
            BpfError::NotPermitted => ResidencyError::NotPermitted,
            other => ResidencyError::NotSupported(other.to_string()),
        }
    }
}

/// One line of memory: a frame, and the line's place in it (0 to 63).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedLine {
    /// The frame.
    pub frame: Pfn,
    /// Which of its lines of 64 bytes.
    pub index: u8,
}

impl TimedLine {
    fn address(self) -> u64 {
        self.frame.0 * PAGE_BYTES + u64::from(self.index & 63) * 64
    }
}

/// Chains of lines of a page each, in the form that the timer takes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chains {
    before: Vec<u64>,
    lines: Vec<u64>,
}

/// See the module's head.
#[derive(Debug)]
pub struct Timer {
    shared: Shared<Exchange>,
    program: Program,
    depth: usize,
    way: usize,
}

impl Timer {
    /// Lines, or chains of lines, that can be timed with one call.
    pub const MOST: usize = BATCH;
    /// Lines of a chain, at most.
    pub(crate) const DEEPEST: usize = DEEPEST;

    /// Loads the program, for single lines. Takes some twenty milliseconds.
    ///
    /// # Errors
    /// Without root's capabilities, and on kernels without BPF or that are locked down.
    pub fn open() -> Result<Timer, ResidencyError> {
        Timer::for_chains(1)
    }

    /// Likewise, for chains of so many lines of a page, at most [`Self::DEEPEST`].
    pub(crate) fn for_chains(depth: usize) -> Result<Timer, ResidencyError> {
        // Plain loads are there since Linux 6.2; who builds a kernel may leave them out.
        let plain = PlainLoads::of_kernel().map(|plain| Timer::with_loads(Some(plain), depth));
        plain.and_then(Result::ok).map_or_else(|| Timer::with_loads(None, depth), Ok)
    }

    fn with_loads(loads: Option<PlainLoads>, depth: usize) -> Result<Timer, ResidencyError> {
        if !cfg!(target_arch = "x86_64") {
            return Err(ResidencyError::NotSupported("the processor is not x86-64".to_owned()));
        }
        let peeker = Peeker::new()?;
        let memory = DirectMap::find(&peeker, &ProcRoot::default())?;
        let (shared, depth) = (Shared::new()?, depth.clamp(1, DEEPEST));
        let program = Program::load(&program::time(shared.map(), &memory, loads, depth))?;
        Ok(Timer { shared, program, depth, way: 0 })
    }

    /// Ways to time, of which one tells more than another by a coarse clock.
    pub(crate) const WAYS: usize = SHIFTS + 1;

    /// From now on times in another way, less than [`Self::WAYS`].
    pub(crate) fn shift(&mut self, way: usize) {
        self.way = way;
    }

    /// Nanoseconds that a load of each line takes now, at most [`Self::MOST`] of them; `None` for what is
    /// no memory. Loads one other line of each page, too. Takes some 0.5 us for each.
    ///
    /// # Errors
    /// When the kernel does not run the program.
    pub fn time(&mut self, lines: &[TimedLine]) -> Result<Vec<Option<u64>>, ResidencyError> {
        let chains = self.chains(lines);
        self.time_chains(&chains)
    }

    /// Lines of each chain.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Lines as chains: those that belong together, all of one page, stand beside each other.
    pub(crate) fn chains(&self, lines: &[TimedLine]) -> Chains {
        let addresses: Vec<u64> =
            lines.iter().take(BATCH * self.depth).map(|line| line.address()).collect();
        let before = paired(&addresses).into_iter().step_by(self.depth).collect();
        let packed = |chain: &[u64]| {
            let index = |(k, line): (usize, &u64)| (line >> 6 & 63) << (8 * k);
            chain.iter().enumerate().map(index).sum()
        };
        Chains { before, lines: addresses.chunks(self.depth).map(packed).collect() }
    }

    /// As [`Self::time`], of chains of this timer's depth: what all loads of each take, one after the other.
    pub(crate) fn time_chains(
        &mut self,
        chains: &Chains,
    ) -> Result<Vec<Option<u64>>, ResidencyError> {
        // SAFETY: the memory is mapped, valid for any content, and shared with the program alone,
        // which does not run while the reference lives.
        let exchange = unsafe { self.shared.at().as_mut() };
        let count = chains.before.len();
        (exchange.count, exchange.shift) = (count as u64, self.way as u64);
        fill(&mut exchange.before, &chains.before);
        fill(&mut exchange.lines, &chains.lines);
        self.program.run()?;
        // SAFETY: as above; the program has ended.
        let exchange = unsafe { self.shared.at().as_ref() };
        let took = exchange.took[..count].iter();
        Ok(took.map(|&took| Some(took).filter(|took| *took != u64::MAX)).collect())
    }
}

/// The last is timed again until the turn of the loop is over.
fn fill(places: &mut [u64], values: &[u64]) {
    let all = values.iter().chain(values.last().into_iter().cycle().take(TURN));
    places.iter_mut().zip(all).for_each(|(place, value)| *place = *value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::color::probe::OwnPages;
    use crate::color::probe::frame_number_verdict::frames_of;
    use crate::kernel::testing::live;

    /// By plain loads, where the kernel has them, and by calls: lines of memory take some time, several of a page
    /// more than one, and what is no memory has none.
    #[test]
    fn lines_are_timed_by_either_way_alone_and_together() {
        let Some(_) = live("lines_are_timed_by_either_way", Timer::open()) else { return };
        let page = OwnPages::populated(1).unwrap();
        let frame = frames_of(&page).unwrap()[0];
        let plain = PlainLoads::of_kernel().map(Some);
        for loads in plain.into_iter().chain([None]) {
            let mut timers =
                [1, Timer::DEEPEST].map(|depth| Timer::with_loads(loads, depth).unwrap());
            let mut least = |timer: &mut Timer| {
                let depth = timer.depth();
                let line = |n: usize| TimedLine { frame, index: (n % 64).to_le_bytes()[0] };
                let own: Vec<TimedLine> = (0..depth * Timer::MOST).map(line).collect();
                let nowhere = TimedLine { frame: Pfn(1 << 39), index: 0 };
                assert_eq!(timer.time(&vec![nowhere; depth]).unwrap(), [None], "{loads:?}");
                assert_eq!(timer.time(&own).unwrap().len(), Timer::MOST);
                let took = timer.time(&own).unwrap().into_iter().map(Option::unwrap);
                took.min().unwrap()
            };
            // By turns: a neighbour can slow all that is timed in one of them.
            let turns: Vec<[u64; 2]> = (0..20).map(|_| timers.each_mut().map(&mut least)).collect();
            let [one, many] =
                [0, 1].map(|which| turns.iter().map(|turn| turn[which]).min().unwrap());
            // Seven loads of four cycles each, at least.
            assert!(one > 0 && many >= one + 4, "{loads:?}: {one} and {many} ns of {turns:?}");
        }
    }

    #[test]
    fn chains_name_their_lines_and_another_one_of_the_page() {
        let Some(timer) = live("chains_name_their_lines", Timer::for_chains(3)) else { return };
        let line = |index| TimedLine { frame: Pfn(9), index };
        let chains = timer.chains(&[line(1), line(40), line(63), line(7), line(0), line(20)]);
        assert_eq!(chains.lines, [63 << 16 | 40 << 8 | 1, 20 << 16 | 7]);
        for before in chains.before {
            let index = before >> 6 & 63;
            assert_eq!(before >> 12, 9);
            assert!([0, 1, 7, 20, 40, 63].iter().all(|&timed| index / 2 != timed / 2), "{index}");
        }
    }
}
