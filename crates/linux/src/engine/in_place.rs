//! Times pages of a program where they are. The program may unmap a page at any moment, and a load of ours
//! would end it then: so its agent takes the pages out for each job, some microseconds for a page, and
//! puts them back in the same frames.

use std::collections::{HashMap, HashSet};

use crate::agent::{Agent, AgentError};
use crate::probe::{ProbeError, TimingBench, TimingJob, TimingResult};

/// Pages that are out at a time, and rounds for which they are: the program may wait for any.
const PAGES: usize = 48;
const ROUNDS: usize = 8;

/// Runs jobs on pages of one watched range.
pub(super) struct InPlace<'a> {
    agent: &'a mut Agent,
    range: (u64, u64),
    /// Whether faults in the range are served otherwise.
    serve: bool,
    reference_bytes: u64,
    /// Pages that could not be taken out: what was measured of them says nothing.
    pub failed: HashSet<u64>,
}

impl InPlace<'_> {
    pub fn new(
        agent: &mut Agent,
        range: (u64, u64),
        serve: bool,
        reference_bytes: u64,
    ) -> InPlace<'_> {
        InPlace { agent, range, serve, reference_bytes, failed: HashSet::new() }
    }

    /// Those of some pages that can be taken out: tried with each.
    pub fn movable(&mut self, pages: &[u64]) -> Result<Vec<u64>, AgentError> {
        let mut movable = Vec::with_capacity(pages.len());
        for some in pages.chunks(PAGES) {
            let nothing = TimingJob::default();
            let (errors, _) = self.agent.look(some, self.range, self.serve, &nothing)?;
            let fine = some.iter().zip(errors).filter(|(_, errno)| *errno == 0);
            movable.extend(fine.map(|(page, _)| *page));
            self.agent.drop_lost()?;
        }
        Ok(movable)
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

impl TimingBench for InPlace<'_> {
    fn run(&mut self, job: &TimingJob) -> Result<TimingResult, ProbeError> {
        job.check()?;
        let mut part = job.clone();
        let pages = self.name_places(&mut part);
        if pages.len() > PAGES {
            return Err(ProbeError::BadJob(format!("{} pages, at most {PAGES}", pages.len())));
        }
        let mut all = TimingResult::default();
        for rounds in job.rounds.chunks(ROUNDS) {
            part.rounds = rounds.to_vec();
            let gone = |error: AgentError| ProbeError::Remote(error.to_string());
            let (errors, found) =
                self.agent.look(&pages, self.range, self.serve, &part).map_err(gone)?;
            let failed = pages.iter().zip(errors).filter(|(_, errno)| *errno != 0);
            self.failed.extend(failed.map(|(page, _)| *page));
            self.agent.drop_lost().map_err(gone)?;
            all.latencies.extend(found.latencies);
        }
        Ok(all)
    }

    fn most_pages(&self) -> usize {
        PAGES
    }

    fn reference_base(&self) -> u64 {
        self.agent.reference_base()
    }
}
