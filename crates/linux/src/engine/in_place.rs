//! Times pages of a program where they are. The program may unmap a page at any moment, and a load of ours
//! would end it then: so its agent takes the pages out for each job, some microseconds for a page, and
//! puts them back in the same frames.

//!
//! A look registers memory with a userfaultfd of ours for a moment, and keeps the engine's thread from all
//! else. So before each job the gate is asked, which closes as soon as the program has a userfaultfd of its
//! own: what is left is looked at another time.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::color::probe::{ProbeError, TimingBench, TimingJob, TimingResult};
use crate::inject::agent::{Agent, AgentError};
use crate::kernel::process_memory::thread_time;
use crate::kernel::procfs::ProcRoot;

/// Pages that are out at a time, and rounds for which they are: the program may wait for any.
const PAGES_OUT: usize = 48;
const ROUNDS_OUT: usize = 8;

/// Time between looks at the descriptors, in times of what a look takes.
const LOOK_INTERVAL_FACTOR: u32 = 9;

/// Whether pages of a process may be taken out now.
pub(super) struct Gate<'a> {
    root: &'a ProcRoot,
    pid: i32,
    next_look: Option<Instant>,
    closed: bool,
}

impl Gate<'_> {
    /// Of a process that had no userfaultfd when last seen.
    pub fn new(root: &ProcRoot, pid: i32) -> Gate<'_> {
        Gate { root, pid, next_look: None, closed: false }
    }

    /// Whether it was found closed: it stays so.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Looks whether the program has a userfaultfd of its own by now, unless that was done a moment ago.
    fn is_open(&mut self) -> bool {
        let start = Instant::now();
        if !self.closed && self.next_look.is_none_or(|next| next <= start) {
            // What cannot be read is a process that ends.
            self.closed = self.root.userfaultfds(self.pid).map_or(true, |open| open > 0);
            let took = start.elapsed().max(Duration::from_micros(1));
            self.next_look = Some(start + took * (1 + LOOK_INTERVAL_FACTOR));
        }
        !self.closed
    }
}

/// Runs jobs on pages of one watched range.
pub(super) struct InPlace<'a, 'g> {
    agent: &'a mut Agent,
    gate: &'a mut Gate<'g>,
    range: (u64, u64),
    /// Whether faults in the range are served otherwise.
    serve: bool,
    reference_bytes: u64,
    /// Pages that could not be taken out: what was measured of them says nothing.
    pub failed: HashSet<u64>,
    /// Whether the kernel refused to register the range: somebody else has registered a part of it.
    pub refused: bool,
}

impl<'a, 'g> InPlace<'a, 'g> {
    pub fn new(
        (agent, gate): (&'a mut Agent, &'a mut Gate<'g>),
        range: (u64, u64),
        serve: bool,
        reference_bytes: u64,
    ) -> InPlace<'a, 'g> {
        let failed = HashSet::new();
        InPlace { agent, gate, range, serve, reference_bytes, failed, refused: false }
    }

    /// Those of some pages that can be taken out: tried with each. `None` when the gate closes.
    pub fn movable(&mut self, pages: &[u64]) -> Result<Option<Vec<u64>>, AgentError> {
        let mut movable = Vec::with_capacity(pages.len());
        for some in pages.chunks(PAGES_OUT) {
            let Some((errors, _)) = self.look(some, &TimingJob::default())? else {
                return Ok(None);
            };
            let fine = some.iter().zip(errors).filter(|(_, errno)| *errno == 0);
            movable.extend(fine.map(|(page, _)| *page));
        }
        Ok(Some(movable))
    }

    /// One job, if the gate is open, with each page's errno.
    fn look(
        &mut self,
        pages: &[u64],
        job: &TimingJob,
    ) -> Result<Option<(Vec<u32>, TimingResult)>, AgentError> {
        if !self.gate.is_open() {
            return Ok(None);
        }
        let looked = self.agent.look(pages, self.range, self.serve, job)?;
        let busy = libc::EBUSY.cast_unsigned();
        self.refused |= !looked.0.is_empty() && looked.0.iter().all(|&errno| errno == busy);
        self.agent.drop_lost()?;
        Ok(Some(looked))
    }

    /// Names pages of the program by where they will be; which they are.
    fn name_places(&self, job: &mut TimingJob) -> Vec<u64> {
        let base = self.agent.reference_base();
        let own = base..base + self.reference_bytes;
        let (mut pages, mut places) = (Vec::new(), HashMap::new());
        for line in job.reload.iter_mut().filter(|line| !own.contains(line)) {
            let page = *line & !4095;
            let place = *places.entry(page).or_insert_with(|| {
                pages.push(page);
                self.agent.recycled_page(pages.len() as u64 - 1)
            });
            *line = place | (*line & 4095);
        }
        pages
    }
}

impl TimingBench for InPlace<'_, '_> {
    fn run(&mut self, job: &TimingJob) -> Result<TimingResult, ProbeError> {
        job.check()?;
        let mut part = job.clone();
        let pages = self.name_places(&mut part);
        if pages.len() > PAGES_OUT {
            return Err(ProbeError::BadJob(format!("{} pages, at most {PAGES_OUT}", pages.len())));
        }
        let mut all = TimingResult::default();
        for rounds in job.rounds.chunks(ROUNDS_OUT) {
            part.rounds = rounds.to_vec();
            let gone = |error: AgentError| ProbeError::Remote(error.to_string());
            let closed = || ProbeError::Later("the program serves memory itself".to_owned());
            let (errors, found) = self.look(&pages, &part).map_err(gone)?.ok_or_else(closed)?;
            let failed = pages.iter().zip(errors).filter(|(_, errno)| *errno != 0);
            self.failed.extend(failed.map(|(page, _)| *page));
            all.latencies.extend(found.latencies);
        }
        Ok(all)
    }

    /// The agent does the work.
    fn worked(&self) -> Duration {
        thread_time() + Duration::from_nanos(self.agent.counts().look_cpu_ns)
    }

    fn most_pages(&self) -> usize {
        PAGES_OUT
    }

    fn least_rounds(&self) -> usize {
        ROUNDS_OUT
    }

    fn reference_base(&self) -> u64 {
        self.agent.reference_base()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::procfs::fake::Fake;

    #[test]
    fn the_gate_closes_when_the_program_opens_a_userfaultfd_and_stays_closed() {
        let fake = Fake::new();
        fake.put("7/fd/0", "");
        let mut gate = Gate::new(&fake.root, 7);
        assert!(gate.is_open() && !gate.is_closed());
        let own = fake.root.pid_path(7, "fd").join("3");
        std::os::unix::fs::symlink("anon_inode:[userfaultfd]", &own).expect("a link");
        while gate.is_open() {}
        std::fs::remove_file(own).expect("the link");
        gate.next_look = None;
        assert!(!gate.is_open() && gate.is_closed());
    }

    #[test]
    fn the_gate_is_closed_where_there_is_no_process() {
        let fake = Fake::new();
        let mut gate = Gate::new(&fake.root, 8);
        assert!(!gate.is_open());
    }
}
