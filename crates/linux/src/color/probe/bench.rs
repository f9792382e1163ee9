//! Where timed loads run. [`TimingBench`] is the seam: classes and classification are written
//! against it, [`LocalBench`] runs jobs in this process, a remote bench runs them in the
//! address space of a target, a model runs them in tests. No judgement of latencies here.

use std::borrow::{Borrow, Cow};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use huepage_color::PAGE_BYTES;

use super::ProbeError;
use super::pages::OwnPages;
use super::pairs::paired;
use super::params::{MAX_OFFSETS, MAX_RELOAD, MAX_ROUNDS, MAX_STREAM};
use super::reference_memory::ReferenceMemory;
use super::timing::{self, RoundDesc, TimedRounds};
use crate::kernel::cpus::OnCpu;
use crate::kernel::process_memory::thread_time;

/// An owned [`TimedRounds`], with addresses of the address space that the bench works in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimingJob {
    /// Page base addresses; at most [`MAX_STREAM`].
    pub stream: Vec<u64>,
    /// Which of them each round streams; at most [`MAX_ROUNDS`].
    pub rounds: Vec<RoundDesc>,
    /// Byte offsets, below 4096, at which pages are streamed; at most [`MAX_OFFSETS`].
    pub offsets: Vec<u16>,
    /// How often the pages are streamed at each offset.
    pub passes: u32,
    /// Line addresses whose reload is timed; at most [`MAX_RELOAD`].
    pub reload: Vec<u64>,
    /// Whether to load them all before the first round.
    pub prime: bool,
    /// Lines of each page timed together: 0 and 1 time the lines named; more time as many of the
    /// offsets instead, which take turns.
    pub depth: u32,
}

impl TimingJob {
    /// What the timed loop takes for the lines that are timed. Chains need no more than their pages.
    pub(crate) fn lines(&self) -> Cow<'_, [u64]> {
        if self.depth > 1 { Cow::from(&self.reload) } else { Cow::from(paired(&self.reload)) }
    }

    /// Whether the job keeps within the limits and its rounds within its stream.
    ///
    /// # Errors
    /// `BadJob` with what is wrong.
    pub fn check(&self) -> Result<(), ProbeError> {
        let limits = [
            ("pages", self.stream.len(), MAX_STREAM),
            ("rounds", self.rounds.len(), MAX_ROUNDS),
            ("offsets", self.offsets.len(), MAX_OFFSETS),
            ("lines", self.reload.len(), MAX_RELOAD),
        ];
        if let Some((what, got, most)) = limits.into_iter().find(|l| l.1 > l.2) {
            return Err(ProbeError::BadJob(format!("{got} {what}, at most {most} fit")));
        }
        let end = |r: &RoundDesc| r.first as usize + r.len as usize;
        if let Some(round) = self.rounds.iter().find(|r| end(r) > self.stream.len()) {
            return Err(ProbeError::BadJob(format!("{round:?} leaves the stream")));
        }
        if self.depth > 1 && self.depth as usize > self.offsets.len() {
            return Err(ProbeError::BadJob(format!("{} lines of each page", self.depth)));
        }
        match self.offsets.iter().find(|&&o| u64::from(o) >= PAGE_BYTES) {
            Some(offset) => Err(ProbeError::BadJob(format!("offset {offset} leaves the page"))),
            None => Ok(()),
        }
    }
}

/// What a job measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimingResult {
    /// Ticks per reload, round by round; 65535 stands for anything longer.
    pub latencies: Vec<u16>,
}

impl TimingResult {
    /// The latencies of one round of `lines` lines.
    pub fn round(&self, round: usize, lines: usize) -> &[u16] {
        &self.latencies[round * lines..(round + 1) * lines]
    }
}

/// Something that can run timed loads in one address space.
pub trait TimingBench {
    /// Runs a job.
    ///
    /// # Errors
    /// `BadJob` if the job is malformed or names memory that the bench does not know, and
    /// whatever keeps the bench from running it.
    fn run(&mut self, job: &TimingJob) -> Result<TimingResult, ProbeError>;

    /// Pages that are not reference pages that one job may time, at most.
    fn most_pages(&self) -> usize {
        usize::MAX
    }

    /// Rounds below which a job of its own is not worth its cost.
    fn least_rounds(&self) -> usize {
        usize::MAX
    }

    /// The address at which page 0 of the reference pages is mapped where the loads run.
    fn reference_base(&self) -> u64;

    /// What time it is: all that measuring takes is counted by this clock. A model's goes on as it works.
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// The CPU time that the calling thread has used: limits on work are counted by it, as a thread gets a
    /// small part of its CPU on a busy machine. A model's goes on as it works.
    fn worked(&self) -> Duration {
        thread_time()
    }

    /// Waits.
    fn rest(&mut self, time: Duration) {
        thread::sleep(time);
    }
}

/// Runs jobs on the calling thread, which it pins to one CPU until it is dropped.
#[derive(Debug)]
pub struct LocalBench {
    readable: Vec<Range<u64>>,
    owned: Vec<Arc<OwnPages>>,
    reference_base: u64,
    _on: OnCpu,
    reference: Option<Arc<ReferenceMemory>>,
    /// The affinity belongs to a thread, so the bench must not leave it.
    here: PhantomData<*const ()>,
}

impl LocalBench {
    /// A bench on `cpu`, which knows no memory yet.
    ///
    /// # Errors
    /// `Pin` if this thread may not run on that CPU.
    pub fn new(cpu: usize) -> Result<LocalBench, ProbeError> {
        let on = OnCpu::new(cpu).map_err(|e| ProbeError::Pin { cpu, source: e.into() })?;
        Ok(LocalBench {
            readable: Vec::new(),
            owned: Vec::new(),
            reference_base: 0,
            _on: on,
            reference: None,
            here: PhantomData,
        })
    }

    /// A bench on `cpu` that may load from `memory`, where the reference pages are.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_reference(
        cpu: usize,
        memory: impl Borrow<Arc<ReferenceMemory>>,
    ) -> Result<LocalBench, ProbeError> {
        let mut bench = Self::new(cpu)?;
        let memory = Arc::clone(memory.borrow());
        let base = memory.base();
        // SAFETY: the memory is mapped as long as it lives, and the bench keeps it alive; its
        // file is at least as long as the mapping.
        unsafe { bench.allow(base..base + memory.pages() as u64 * PAGE_BYTES) };
        bench.reference_base = base;
        bench.reference = Some(memory);
        Ok(bench)
    }

    /// Lets jobs load from `range` (addresses in bytes, whole pages).
    ///
    /// # Safety
    /// The range must be mapped readable until [`Self::forbid`] or the end of the bench, and
    /// a load from it must not raise a signal.
    pub unsafe fn allow(&mut self, range: Range<u64>) {
        let at = self.readable.partition_point(|r| r.start < range.start);
        self.readable.insert(at, range);
    }

    /// Lets jobs load from pages of this process, which live until [`Self::forbid_pages`] or
    /// the end of the bench.
    pub fn allow_pages(&mut self, pages: &Arc<OwnPages>) {
        // SAFETY: the pages stay mapped while the bench holds them; anonymous memory does not
        // fault for good on loads.
        unsafe { self.allow(pages.range()) };
        self.owned.push(Arc::clone(pages));
    }

    /// Takes back an [`Self::allow_pages`].
    pub fn forbid_pages(&mut self, pages: &Arc<OwnPages>) {
        self.forbid(&pages.range());
        self.owned.retain(|kept| !Arc::ptr_eq(kept, pages));
    }

    /// Takes back an [`Self::allow`] of the same range, before it is unmapped.
    pub fn forbid(&mut self, range: &Range<u64>) {
        self.readable.retain(|r| r != range);
    }

    fn check_pages(&self, addresses: &[u64]) -> Result<(), ProbeError> {
        let mut last = 0..0;
        for &address in addresses {
            let page = address & !(PAGE_BYTES - 1);
            if last.contains(&page) {
                continue;
            }
            last = self.range_of(page).ok_or_else(|| {
                ProbeError::BadJob(format!("address {address:#x} is not known to be readable"))
            })?;
        }
        Ok(())
    }

    fn range_of(&self, page: u64) -> Option<Range<u64>> {
        let after = self.readable.partition_point(|r| r.start <= page);
        let range = self.readable.get(after.checked_sub(1)?)?;
        range.contains(&page).then(|| range.clone())
    }
}

/// What the timed loop takes; valid as long as the job and the lines.
fn raw(job: &TimingJob, lines: &[u64]) -> TimedRounds {
    TimedRounds {
        stream: job.stream.as_ptr(),
        rounds: job.rounds.as_ptr(),
        round_count: job.rounds.len() as u32,
        offsets: job.offsets.as_ptr(),
        offset_count: job.offsets.len() as u32,
        passes: job.passes,
        reload: lines.as_ptr(),
        reload_count: lines.len() as u32,
        prime: u32::from(job.prime),
        depth: job.depth,
    }
}

impl TimingBench for LocalBench {
    fn run(&mut self, job: &TimingJob) -> Result<TimingResult, ProbeError> {
        job.check()?;
        self.check_pages(&job.stream)?;
        self.check_pages(&job.reload)?;
        if job.stream.iter().any(|page| page % PAGE_BYTES != 0) {
            return Err(ProbeError::BadJob("a streamed page is not a page address".into()));
        }
        let mut latencies = vec![0; job.rounds.len() * job.reload.len()];
        let lines = job.lines();
        let raw = raw(job, &lines);
        // SAFETY: the counts are those of live vectors, `check` holds rounds within the stream
        // and offsets within pages, every address lies in a range that the caller of `allow`
        // promised to be readable, and the results have the size that `run` asks for.
        unsafe { timing::run(&raw, latencies.as_mut_ptr()) };
        Ok(TimingResult { latencies })
    }

    /// Such a job costs what it loads, and each loads its lines before its first round.
    fn least_rounds(&self) -> usize {
        4
    }

    fn reference_base(&self) -> u64 {
        self.reference_base
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cpus::allowed_cpus;

    #[repr(align(4096))]
    struct Page([u8; 4096]);

    fn any_cpu() -> usize {
        allowed_cpus()[0]
    }

    fn job(page: u64) -> TimingJob {
        TimingJob {
            stream: vec![page],
            rounds: vec![RoundDesc { first: 0, len: 1 }; 2],
            offsets: vec![0, 64],
            passes: 2,
            reload: vec![page + 128, page + 192, page],
            prime: true,
            depth: 1,
        }
    }

    #[test]
    fn a_job_gives_a_latency_per_round_and_line() {
        let page = Box::new(Page([7; 4096]));
        let base = page.0.as_ptr() as u64;
        let mut bench = LocalBench::new(any_cpu()).unwrap();
        // SAFETY: the box outlives the bench's use of it.
        unsafe { bench.allow(base..base + 4096) };
        let result = bench.run(&job(base)).unwrap();
        assert_eq!(result.latencies.len(), 6);
        assert!(result.latencies.iter().all(|&ticks| ticks > 0), "{result:?}");
        assert!(page.0.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn several_lines_take_longer_than_one() {
        let page = Box::new(Page([7; 4096]));
        let base = page.0.as_ptr() as u64;
        let mut bench = LocalBench::new(any_cpu()).unwrap();
        // SAFETY: the box outlives the bench's use of it.
        unsafe { bench.allow(base..base + 4096) };
        let mut least = |depth| {
            let offsets = (0..64).map(|i| i * 64).collect();
            let rounds = vec![RoundDesc { first: 0, len: 1 }; 64];
            let found = bench.run(&TimingJob { depth, offsets, rounds, ..job(base) }).unwrap();
            assert_eq!(found.latencies.len(), 64 * 3);
            found.latencies.into_iter().map(u32::from).min().unwrap()
        };
        let (one, many) = (least(1), least(64));
        // A load that hits takes a nanosecond or more.
        assert!(many >= one + 50, "{one} {many}");
    }

    #[test]
    fn memory_that_was_not_allowed_is_never_touched() {
        let mut bench = LocalBench::new(any_cpu()).unwrap();
        let error = bench.run(&job(0x1000)).unwrap_err();
        assert!(matches!(error, ProbeError::BadJob(_)), "{error}");
    }

    #[test]
    fn malformed_jobs_are_refused() {
        let good = job(0x1000);
        assert!(good.check().is_ok());
        let outside = TimingJob { rounds: vec![RoundDesc { first: 1, len: 1 }], ..good.clone() };
        assert!(outside.check().is_err());
        let offset = TimingJob { offsets: vec![4096], ..good.clone() };
        assert!(offset.check().is_err());
        let deep = TimingJob { depth: 3, ..good.clone() };
        assert!(deep.check().is_err(), "three of two lines");
        let long = TimingJob { reload: vec![0; MAX_RELOAD + 1], ..good };
        assert!(long.check().is_err());
    }

    #[test]
    fn dropping_a_bench_restores_the_affinity() {
        let before = allowed_cpus();
        drop(LocalBench::new(any_cpu()).unwrap());
        assert_eq!(before, allowed_cpus());
    }
}
