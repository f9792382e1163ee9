//! Conflicts: the options, and the service that recolours pages. Which pages get another colour is decided
//! by the policy; how they are found and moved is in `huepage_linux::services::conflicts`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use huepage_color::ColorSet;
use huepage_linux::engine::Group;
use huepage_linux::kernel::process_tree::ProcessRoots;
use huepage_linux::services::conflicts::{Recolorers, Settings, obstacle};
use huepage_linux::services::pollute::SensorKind;
use huepage_policy::registry::LiveOption;
use serde::{Deserialize, Serialize};

use super::policy::{self, PolicyOption};
use super::{Context, Reports, Service};
use crate::deferred_drop::drop_behind;
use crate::exit::{CmdError, ExitCode};
use crate::headings::{FEATURES, TUNING};
use crate::partition::internal;
use crate::values::parse_cpu;

/// Pages that compete for the same sets of the cache get other colours.
#[derive(Args, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConflictArgs {
    /// Find pages in use that crowd a few colours of the L2, and give them colours with room (experimental)
    ///
    /// The program is watched without counters, unless --conflict-sensor says otherwise: which pages it uses again and again, and how much of
    /// them is in the cache. One whose pages lie evenly, or do not fit the cache at all, is not touched; where
    /// recolouring brings nothing, it rests for longer each time.
    ///
    /// By a policy, with `=`: snapshot-in-use, or one of the thesis's, such as snapshot-miss or active-delay,
    /// which are told the same. `huepage sim --policy NAME:help` lists the keys of a policy.
    #[arg(long, help_heading = FEATURES, value_name = policy::POLICY, num_args = 0..=1, require_equals = true,
          default_missing_value = policy::USUAL_RECOLORING, default_value_t = PolicyOption::OFF,
          value_parser = policy::reader(LiveOption::RecolorConflicts))]
    pub recolor_conflicts: PolicyOption,

    /// Who tells whether lines of the pages in use are in the cache
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_enum, value_name = "SENSOR",
          requires = "recolor_conflicts", default_value_t = ConflictSensor::Residency)]
    pub conflict_sensor: ConflictSensor,

    /// What watching a process may cost, as a share of one CPU
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_name = "PERCENT", default_value = "1%",
          requires = "recolor_conflicts", value_parser = parse_cpu)]
    pub conflict_cpu: f64,

    /// Pages of a process recoloured in a second, at most
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_name = "PAGES", default_value_t = 512,
          requires = "recolor_conflicts", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub conflict_rate: u32,
}

/// Who tells whether lines are in the cache.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConflictSensor {
    /// The time that a line takes
    Residency,
    /// Samples of the program's own loads, where there is a PMU
    Pmu,
}

impl Default for ConflictArgs {
    /// What the command line says when it says nothing.
    fn default() -> ConflictArgs {
        let recolor_conflicts = PolicyOption::OFF;
        let conflict_sensor = ConflictSensor::Residency;
        ConflictArgs { recolor_conflicts, conflict_sensor, conflict_cpu: 0.01, conflict_rate: 512 }
    }
}

impl ConflictArgs {
    /// Whether conflicts are looked for.
    pub const fn is_on(&self) -> bool {
        self.recolor_conflicts.is_on()
    }

    const fn sensor(&self) -> SensorKind {
        match self.conflict_sensor {
            ConflictSensor::Residency => SensorKind::Residency,
            ConflictSensor::Pmu => SensorKind::Pmu,
        }
    }

    /// What is asked for, in a line.
    pub fn line(&self) -> Option<String> {
        let (policy, rate) = (self.recolor_conflicts.policy()?, self.conflict_rate);
        Some(format!("conflicts are recoloured by {policy}, {rate} pages a second at most"))
    }
}

/// Recolours pages that conflict.
struct ConflictService {
    recolorers: Recolorers,
    /// Whether processes are found by their parents.
    below: bool,
}

/// Starts the service; see [`super::Service`].
pub fn start(
    options: &ConflictArgs,
    context: &Context<'_>,
) -> Result<Option<Box<dyn Service>>, CmdError> {
    let Some(policy) = options.recolor_conflicts.policy() else { return Ok(None) };
    if let Some(why) = obstacle(context.cache, options.sensor()) {
        let text = format!(
            "conflicts in the {} cannot be seen here: {why}; leave out --recolor-conflicts, or give the program colours of its own (--share)",
            context.cache.level
        );
        return Err(CmdError::new(ExitCode::Kernel, text));
    }
    let settings = Settings {
        policy: policy.clone(),
        colors: context.source.universe(),
        ways: u16::try_from(context.cache.ways).unwrap_or(u16::MAX),
        cache_bytes: context.cache.size_bytes,
        level: context.cache.level,
        sensor: options.sensor(),
        keep_off: held_by_others(context)?,
        method: context.source.method(),
        cpu: options.conflict_cpu,
        rate: options.conflict_rate,
    };
    let below = matches!(context.roots, ProcessRoots::Below(_));
    let recolorers = Recolorers::new(settings, context.roots.clone());
    Ok(Some(Box::new(ConflictService { recolorers, below })))
}

/// The colours of partitions that run.
fn held_by_others(context: &Context<'_>) -> Result<ColorSet, CmdError> {
    let universe = context.source.universe();
    let claims = context.registry.claimed(context.cache.level, context.provenance);
    let claims = claims.map_err(internal)?;
    let same = claims.iter().filter(|claim| claim.universe() == universe);
    Ok(same.fold(ColorSet::empty(universe), |all, claim| all.union(claim)))
}

impl Service for ConflictService {
    fn admit(&mut self, members: &[i32]) {
        if !self.below {
            self.recolorers.set_roots(ProcessRoots::With(members.to_vec()));
        }
    }

    fn tick(&mut self, group: &mut Group, _members: &[i32]) {
        self.recolorers.poll_processes(group);
    }

    fn release(&mut self, pid: i32) {
        self.recolorers.release(pid);
    }

    fn report(&self, into: &mut Reports) {
        into.conflicts = Some(self.recolorers.report());
    }

    fn withdraw(self: Box<Self>) {
        drop_behind(self.recolorers);
    }

    fn turn(&self) -> Option<Duration> {
        super::move_turn(self.recolorers.move_pages())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::run::parsed_plan as run;

    #[test]
    fn what_it_may_cost_is_an_option_of_it() {
        assert_eq!(run(&["--share", "50%"]).unwrap().conflicts, ConflictArgs::default());
        assert!(run(&["--recolor-conflicts"]).unwrap().conflicts.is_on());
        let sampled = run(&["--recolor-conflicts", "--conflict-sensor", "pmu"]).unwrap();
        assert_eq!(sampled.conflicts.sensor(), SensorKind::Pmu);
        assert!(run(&["--share", "50%", "--conflict-rate", "9"]).is_err(), "about nothing");
        assert!(run(&["--recolor-conflicts", "--conflict-rate", "0"]).is_err());
    }
}
