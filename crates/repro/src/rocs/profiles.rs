//! What profiles of whole passes show under plain Linux, and what taking them costs: the pages by their
//! miss rates (ROCS 2008, figure 2), what prefetchers hide and feign (figure 4), and the time that samples
//! take by their period (figure 6). Each is of a machine of its own, and all are of the same trial.

use std::sync::{Arc, Mutex};

use serde::Serialize;

use super::offline::{PERIOD, Samples, Spy};
use super::programs::RocsProgram;
use super::stream::{Blocks, FirstTouches};
use super::variants::{self, HANDLER, HANDLER_LINES};
use super::window::{Mark, PageSamples, Window};
use crate::run::{RunFailed, lock};
use huepage_sim::experiment::WishError;
use huepage_sim::feedback::{Every, Sense};
use huepage_sim::record::Record;
use huepage_sim::system::{RunError, System};

/// Cycles between samples (figure 6).
pub const PERIODS: [u64; 6] = [1_000, 2_000, 5_000, 10_000, 20_000, 100_000];

/// Trials that all machines of a program do, more or less.
pub const TRIALS: u64 = 2 * (ProfilePrefetch::ALL.len() + 1 + PERIODS.len()) as u64;

/// Prefetchers during a profile (section 3.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProfilePrefetch {
    /// None: as ROCS profiles.
    Off,
    /// Into the L2, as the machine's file has it: lines that come in time for the L2 are taken for reuse,
    /// the paper's artificial hits.
    L2,
    /// Into the L1, too: nobody asks the L2 for lines that come in time for it, the paper's invisible lines.
    Both,
}

impl ProfilePrefetch {
    /// Every one, as the columns of figure 4.
    pub const ALL: [ProfilePrefetch; 3] =
        [ProfilePrefetch::Off, ProfilePrefetch::L2, ProfilePrefetch::Both];
}

/// What a profile shows in which every load is a sample that the L1 lacks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SeenProfile {
    /// Prefetchers meanwhile.
    pub prefetch: ProfilePrefetch,
    /// Instructions of the trial.
    pub instructions: u64,
    /// Loads that the L1 lacked.
    pub requests: u64,
    /// Of these, those that memory answered.
    pub misses: u64,
    /// Pages that had any, by miss rate: below 25 %, 50 %, 75 %, and above.
    pub pages: [u64; 4],
}

impl SeenProfile {
    /// Requests per thousand instructions.
    pub fn per_thousand(&self) -> f64 {
        1000.0 * self.requests as f64 / self.instructions.max(1) as f64
    }

    /// Misses in percent of the requests.
    pub fn miss_percent(&self) -> f64 {
        100.0 * self.misses as f64 / self.requests.max(1) as f64
    }

    /// Percent of the pages in each quarter of miss rates.
    pub fn page_percents(&self) -> [f64; 4] {
        let all = self.pages.iter().sum::<u64>().max(1) as f64;
        self.pages.map(|pages| 100.0 * pages as f64 / all)
    }
}

/// What samples cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SampledRun {
    /// Cycles between samples.
    pub period: u64,
    /// Percent more cycles than without samples.
    pub slower: f64,
}

/// All of a program.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Profiles {
    /// One for each of [`ProfilePrefetch::ALL`].
    pub seen: Vec<SeenProfile>,
    /// One for each of [`PERIODS`], of art.
    pub sampled: Vec<SampledRun>,
}

impl Profiles {
    /// The profile with these prefetchers.
    pub fn of(&self, prefetch: ProfilePrefetch) -> Option<&SeenProfile> {
        self.seen.iter().find(|seen| seen.prefetch == prefetch)
    }
}

/// What is done on a machine.
#[derive(Clone, Copy)]
enum Task {
    Profile(ProfilePrefetch),
    /// Samples at the paper's price, or none.
    Sample(Option<u64>),
}

struct Run {
    task: Task,
    system: System,
    samples: Arc<Mutex<Samples>>,
    begin: Option<Mark>,
}

impl Run {
    fn new(program: &RocsProgram, task: Task) -> Result<Run, WishError> {
        let mut system = match task {
            Task::Profile(ProfilePrefetch::Both) => variants::prefetching_into_both(program)?,
            Task::Profile(_) | Task::Sample(_) => variants::system(program)?,
        };
        if matches!(task, Task::Profile(ProfilePrefetch::Off)) {
            system.switch_prefetchers(false);
        }
        Ok(Run { task, system, samples: Arc::default(), begin: None })
    }

    /// Caches are full: what counts begins.
    fn begin(&mut self) -> Result<(), RunError> {
        self.begin = Some(Mark::of(&self.system));
        let (every, cost, handler_lines) = match self.task {
            Task::Profile(_) => (PERIOD, 0, 0),
            Task::Sample(Some(every)) => (every, HANDLER, HANDLER_LINES),
            Task::Sample(None) => return Ok(()),
        };
        let sample = Some(Every { every, cost });
        let sense = Sense { sample, sample_misses: true, handler_lines, ..Sense::default() };
        self.system.govern(0, Box::new(Spy(Arc::clone(&self.samples))), sense)
    }

    fn window(&self) -> Window {
        self.begin.map_or(Window::default(), |begin| begin.until(&Mark::of(&self.system)))
    }

    fn seen(&self, prefetch: ProfilePrefetch) -> SeenProfile {
        let samples = lock(&self.samples);
        let sum = samples.values().fold(PageSamples::default(), |mut sum, page| {
            sum.add(*page);
            sum
        });
        SeenProfile {
            prefetch,
            instructions: self.window().instructions,
            requests: sum.requests,
            misses: sum.misses,
            pages: by_quarter(samples.values().filter_map(PageSamples::percent)),
        }
    }
}

/// How many miss rates, in percent, are in each quarter.
fn by_quarter(rates: impl Iterator<Item = f64>) -> [u64; 4] {
    let mut quarters = [0; 4];
    for rate in rates {
        quarters[[25.0, 50.0, 75.0].iter().filter(|bound| rate >= **bound).count()] += 1;
    }
    quarters
}

/// Runs a workload on all machines: the samples of art alone, as in the paper.
pub(super) fn run<E>(
    program: &RocsProgram,
    mut blocks: Blocks<'_, E>,
    heard: &dyn Fn(u64),
) -> Result<Profiles, RunFailed<E>> {
    let sampled = program.spec.is_some() && program.stands_for == "art";
    let sampled = std::iter::once(None).chain(PERIODS.map(Some)).filter(|_| sampled);
    let tasks =
        ProfilePrefetch::ALL.map(Task::Profile).into_iter().chain(sampled.map(Task::Sample));
    let mut runs =
        tasks.map(|task| Run::new(program, task)).collect::<Result<Vec<_>, WishError>>()?;
    let (mut block, mut touches) = (Vec::new(), FirstTouches::default());
    while blocks.instructions < program.start && blocks.next(&mut block)? {
        each(&mut runs, &touches.of(&block), heard)?;
    }
    for (trials, last) in [(program.trial / 2, false), (program.trial, true)] {
        let end = blocks.instructions + trials;
        while blocks.instructions < end && blocks.next(&mut block)? {
            each(&mut runs, &block, heard)?;
        }
        if !last {
            runs.iter_mut().try_for_each(Run::begin)?;
        }
    }
    Ok(profiles(&runs))
}

/// Does the same accesses on all machines.
fn each<E>(runs: &mut [Run], block: &[Record], heard: &dyn Fn(u64)) -> Result<(), RunFailed<E>> {
    runs.iter_mut().try_for_each(|run| run.system.run(0, block))?;
    heard((block.len() * runs.len()) as u64);
    Ok(())
}

fn profiles(runs: &[Run]) -> Profiles {
    let mut found = Profiles::default();
    let mut alone = None;
    for run in runs {
        match run.task {
            Task::Profile(prefetch) => found.seen.push(run.seen(prefetch)),
            Task::Sample(None) => alone = Some(run.window()),
            Task::Sample(Some(period)) => {
                let slower =
                    alone.map(|alone: Window| 100.0 * (alone.ipc() / run.window().ipc() - 1.0));
                found.sampled.extend(slower.map(|slower| SampledRun { period, slower }));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quarters_hold_their_lower_bound() {
        assert_eq!(
            by_quarter([0.0, 24.9, 25.0, 50.0, 74.9, 75.0, 100.0].into_iter()),
            [2, 1, 2, 2]
        );
        let seen = SeenProfile {
            prefetch: ProfilePrefetch::Off,
            instructions: 2000,
            requests: 100,
            misses: 25,
            pages: [1, 0, 0, 3],
        };
        assert_eq!(seen.page_percents(), [25.0, 0.0, 0.0, 75.0]);
        assert_eq!((seen.per_thousand(), seen.miss_percent()), (50.0, 25.0));
    }
}
