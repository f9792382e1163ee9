//! One method after the other on what a source shows: each gets the lines that its plan asks
//! for, as many as the other, and its solving is timed alone.

use std::time::Instant;

use huepage_recover::{
    ClusterError, Clusters, ConfigureError, Configured, HashOutcome, Linear, NotLinear,
    Observations, Permuted, RecoverOptions, Recovery, Undetermined, cluster, configure, recover,
    recover_permuted,
};

use super::observed;
use super::source::{LineChoice, ObservationSource};
use crate::cmd::probe::args::HashArgs;
use crate::exit::CmdError;

/// What one method found.
pub struct Solved {
    pub method: &'static str,
    /// Observations it had.
    pub observations: usize,
    /// Seconds of observing and of solving.
    pub seconds: [f64; 2],
    /// The lines it had were all of one set, of 2^n sets per slice where that is known.
    pub set_bits: Option<u32>,
    pub finding: HashFinding,
}

/// A result of either method.
pub enum HashFinding {
    Linear(Recovery, Linear),
    /// Slices that are no power of two, and as much of base and permutation as is known.
    NotLinear(Recovery, NotLinear, Option<Permuted>),
    /// Nothing that can be claimed.
    Undetermined(Recovery, Undetermined),
    /// Clusters of address bits, and the configuration if one was chosen.
    Clusters(Clusters, Result<Configured, ConfigureError>),
    NoClusters(ClusterError),
}

/// The methods, on one source.
pub struct Solver<'a> {
    pub args: &'a HashArgs,
    /// What observes.
    pub source: &'a mut dyn ObservationSource,
}

impl Solver<'_> {
    /// Linear algebra, and base sequences where the hash is not linear.
    pub fn algebra(&mut self) -> Result<Solved, CmdError> {
        let begun = Instant::now();
        let seen = observed(self.source, LineChoice::Random, self.args)?;
        let observing = begun.elapsed().as_secs_f64();
        let options = RecoverOptions {
            slices: self.args.slices,
            seed: self.args.seed,
            ..RecoverOptions::default()
        };
        let begun = Instant::now();
        let recovery = recover(&seen, &options);
        let solving = begun.elapsed().as_secs_f64();
        let mut solved = self.solved("algebra", &seen, [observing, solving]);
        solved.finding = match recovery.outcome.clone() {
            HashOutcome::Linear(found) => HashFinding::Linear(recovery, found),
            HashOutcome::Undetermined(why) => HashFinding::Undetermined(recovery, why),
            HashOutcome::NotLinear(found) => {
                let permuted = self.permuted(seen, &mut solved)?;
                HashFinding::NotLinear(recovery, found, permuted)
            }
        };
        Ok(solved)
    }

    /// Rows of lines observed as well, if the source can, and solved for a base sequence.
    fn permuted(
        &mut self,
        mut seen: Observations,
        solved: &mut Solved,
    ) -> Result<Option<Permuted>, CmdError> {
        let begun = Instant::now();
        if let Some(more) = self.source.observe(LineChoice::Sweep)? {
            seen.list.extend(more.list);
        }
        solved.seconds[0] += begun.elapsed().as_secs_f64();
        solved.observations = seen.list.len();
        let begun = Instant::now();
        let found = recover_permuted(&seen, 6);
        solved.seconds[1] += begun.elapsed().as_secs_f64();
        Ok(found)
    }

    /// Clusters by integer programming, and their configuration.
    pub fn clusters(&mut self) -> Result<Solved, CmdError> {
        let begun = Instant::now();
        let seen = observed(self.source, LineChoice::Neighbours, self.args)?;
        let numbered = self.source.numbered();
        let observing = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        let finding = match cluster(&seen) {
            Ok(found) => {
                let configured = configure(&found.clusters, numbered.as_ref().unwrap_or(&seen));
                HashFinding::Clusters(found, configured)
            }
            Err(why) => HashFinding::NoClusters(why),
        };
        let solving = begun.elapsed().as_secs_f64();
        Ok(Solved { finding, ..self.solved("ilp", &seen, [observing, solving]) })
    }

    fn solved(&self, method: &'static str, seen: &Observations, seconds: [f64; 2]) -> Solved {
        let (observations, set_bits) = (seen.list.len(), self.source.set_bits());
        let finding = HashFinding::NoClusters(ClusterError::NoBits);
        Solved { method, observations, seconds, set_bits, finding }
    }
}

impl Solved {
    /// The masks claimed, if any.
    pub fn masks(&self) -> Option<&[u64]> {
        match &self.finding {
            HashFinding::Linear(_, found) => Some(&found.masks),
            HashFinding::Clusters(_, Ok(found)) => Some(&found.masks),
            _ => None,
        }
    }

    /// Why nothing is known of the hash, if so.
    pub fn failure(&self) -> Option<String> {
        match &self.finding {
            HashFinding::Undetermined(_, why) => Some(why.to_string()),
            HashFinding::NoClusters(why) => Some(why.to_string()),
            HashFinding::Clusters(_, Err(why)) => Some(why.to_string()),
            _ => None,
        }
    }

    /// Why what was found is no hash that a file could hold, and what to do.
    pub fn unwritten(&self) -> String {
        let why = match &self.finding {
            HashFinding::NotLinear(_, _, None) => {
                "the slices are no parities, and no base sequence was found; observe rows of lines with slices told by number"
            }
            HashFinding::NotLinear(_, _, Some(_)) => {
                "the base sequence has lines that were never seen; observe longer rows of lines"
            }
            HashFinding::Clusters(_, Ok(_)) => {
                "clusters have no confidence that a file could state; use --method algebra"
            }
            _ => return self.failure().unwrap_or_else(|| "nothing was found; observe more".into()),
        };
        why.to_owned()
    }
}
