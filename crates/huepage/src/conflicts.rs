//! The options about conflicts, and what they start. Which pages get another colour is decided by the
//! policy; how they are found and moved is in `huepage_linux::conflicts`.

use clap::Args;
use huepage_color::ColorSet;
use huepage_linux::conflicts::{Recolorers, Settings, obstacle};
use huepage_linux::engine::Scope;
use huepage_linux::filecache::kin::Heads;

use crate::args::{Level, PartitionArgs};
use crate::exit::{CmdError, ExitCode};
use crate::partition::{Plan, internal};
use crate::superpages::parse_cpu;

/// Where help lists them.
const HEADING: &str = "Conflicts";

/// Pages that compete for the same sets of the cache get other colours.
#[derive(Args, Debug, Clone, PartialEq)]
pub struct ConflictArgs {
    /// Find pages in use that crowd a few colours of the L2, and give them colours with room
    ///
    /// The program is watched without counters: which pages it uses again and again, and how much of
    /// them is in the cache. One whose pages lie evenly, or do not fit the cache at all, is not touched; where
    /// recolouring brings nothing, it rests for longer each time.
    #[arg(long, help_heading = HEADING)]
    pub recolor_conflicts: bool,

    /// What watching a process may cost, as a share of one CPU
    #[arg(long, help_heading = HEADING, value_name = "PERCENT", default_value = "1%",
          requires = "recolor_conflicts", value_parser = parse_cpu)]
    pub conflict_cpu: f64,

    /// Pages of a process recoloured in a second, at most
    #[arg(long, help_heading = HEADING, value_name = "PAGES", default_value_t = 512,
          requires = "recolor_conflicts", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub conflict_rate: u32,
}

impl ConflictArgs {
    /// Whether conflicts are looked for.
    pub fn is_on(&self) -> bool {
        self.recolor_conflicts
    }

    /// Refuses what cannot be had together; `other` is whether anything else is asked for that is done
    /// to pages or files.
    pub fn check(&self, partition: &PartitionArgs, other: bool) -> Result<(), CmdError> {
        let what = match partition {
            _ if !self.is_on() => return Ok(()),
            _ if other => {
                "conflicts are looked for in programs that nothing else is done to yet; leave out --page-cache, --text, --superpages and --pollute-buffer"
            }
            PartitionArgs { colors: Some(_), .. } | PartitionArgs { share: Some(_), .. } => {
                "conflicts are looked for in programs that have all colours; leave out --colors and --share"
            }
            PartitionArgs { level: Level::Llc, .. } => {
                "only the L2 can be watched for conflicts; leave out --level"
            }
            _ => return Ok(()),
        };
        Err(CmdError::new(ExitCode::Usage, what))
    }

    /// What is to be asked of a plan: colours are known as they would be for a partition.
    pub fn partition(&self, args: &PartitionArgs) -> PartitionArgs {
        PartitionArgs { colors: Some("all".to_owned()), ..args.clone() }
    }

    /// The plan of a partition that is for no pages, and who decides which are moved.
    pub fn start(&self, mut plan: Plan, heads: Heads) -> Result<(Plan, Recolorers), CmdError> {
        if let Some(why) = obstacle(&plan.cache) {
            let text = format!(
                "conflicts in the {} cannot be seen here: {why}; leave out --recolor-conflicts, or give the program colours of its own (--share)",
                plan.cache.level
            );
            return Err(CmdError::new(ExitCode::Kernel, text));
        }
        plan.config.scope = Some(Scope::default());
        // A child is watched like its parent, and not taken before there is a reason.
        plan.config.child_delay = std::time::Duration::MAX;
        let settings = Settings {
            colors: plan.source.universe(),
            ways: u16::try_from(plan.cache.ways).unwrap_or(u16::MAX),
            cache_bytes: plan.cache.size_bytes,
            keep_off: held_by_others(&plan)?,
            sight: plan.source.sight(),
            cpu: self.conflict_cpu,
            rate: self.conflict_rate,
        };
        Ok((plan, Recolorers::new(settings, heads)))
    }
}

/// The colours of partitions that run.
fn held_by_others(plan: &Plan) -> Result<ColorSet, CmdError> {
    let universe = plan.source.universe();
    let claims = plan.registry.claimed(plan.cache.level, plan.provenance).map_err(internal)?;
    let same = claims.iter().filter(|claim| claim.universe() == universe);
    Ok(same.fold(ColorSet::empty(universe), |all, claim| all.union(claim)))
}

#[cfg(test)]
mod tests {
    use crate::args::parsed_run as run;

    #[test]
    fn conflicts_stand_in_for_colours() {
        let args = run(&["--recolor-conflicts"]).unwrap();
        assert!(args.conflicts.is_on() && args.conflicts.check(&args.partition, false).is_ok());
        assert!((args.conflicts.conflict_cpu - 0.01).abs() < 1e-9);
        assert_eq!(args.conflicts.partition(&args.partition).colors.as_deref(), Some("all"));
        assert!(run(&["--share", "50%", "--conflict-rate", "9"]).is_err(), "about nothing");
        assert!(run(&["--recolor-conflicts", "--conflict-rate", "0"]).is_err());
    }

    #[test]
    fn what_cannot_be_had_together_is_refused() {
        let check = |options: &[&str], other| {
            let args = run(options).unwrap();
            args.conflicts.check(&args.partition, other).map_err(|error| error.message)
        };
        assert!(check(&["--recolor-conflicts"], true).unwrap_err().contains("--superpages"));
        let share = check(&["--recolor-conflicts", "--share", "25%"], false);
        assert!(share.unwrap_err().contains("leave out --colors"));
        let level = check(&["--recolor-conflicts", "--level", "llc"], false);
        assert!(level.unwrap_err().contains("leave out --level"));
        assert!(check(&["--share", "25%"], true).is_ok());
    }
}
