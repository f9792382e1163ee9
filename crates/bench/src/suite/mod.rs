//! The benchmarks: each compares huepage with its promises and says whether they hold.
//!
//! A suite gives back a [`SuiteVerdict`]: rows for a table, the same as JSON, and what was missed.
//! A suite never stops at the first miss; it stops only when it cannot run at all.

pub mod acts;
pub mod anyone;
pub mod bad_input;
pub mod confine;
pub mod conflicts;
pub mod cost;
pub mod daemon;
pub mod first_command;
mod frames;
pub mod gather;
pub mod hostile;
pub mod kept_true;
pub mod kill;
pub mod lab;
pub mod lab_effects;
pub mod live_effects;
pub mod noise;
pub mod pagecache;
pub mod pollute;
pub mod probe;
pub mod programs;
pub mod recolour;
pub mod residency;
pub mod settled;
pub mod sim_peers;
pub mod sim_speed;
pub mod storm;
pub mod superpages;
pub mod traces;

use clap::Subcommand;

use crate::harness::{Bench, Suite, SuiteFigures, run};
use crate::verdict::SuiteVerdict;

/// The suites by their commands, with their help.
macro_rules! suites {
    ($($(#[$about:meta])* $name:ident($suite:ty),)*) => {
        /// The suites by their commands.
        #[derive(Subcommand)]
        pub enum Suites {
            $($(#[$about])* $name($suite),)*
        }

        impl Suites {
            /// Runs the one that is asked for under the name of its command.
            pub fn run(&self, name: &str, bench: Bench<'_>) -> SuiteVerdict {
                match self {
                    $(Suites::$name(suite) => run(name, suite, bench),)*
                }
            }

            /// The figures that it can give.
            pub const fn figures(&self) -> SuiteFigures {
                match self {
                    $(Suites::$name(_) => <$suite as Suite>::FIGURES,)*
                }
            }
        }
    };
}

suites! {
    /// Real programs: output, exit status and compliance
    Programs(programs::RealPrograms),
    /// Slow-down with all colours allowed
    Cost(cost::Cost),
    /// The torture target while every page is moved again and again
    Torture(storm::Storm),
    /// What recolouring a page takes while a thread writes to it
    Recolour(recolour::Recolour),
    /// kill -9 at random moments
    Kill(kill::Kill),
    /// kill -9 of `huepage daemon` at random moments, with its state taken up again
    DaemonKill(daemon::kill::DaemonKill),
    /// As many decisions of `huepage daemon` as a day has: nothing grows
    DaemonDay(daemon::day::DaemonDay),
    /// What `huepage daemon` does to the latency of redis
    DaemonLatency(daemon::latency::DaemonLatency),
    /// Four live groups, one of them hungry: when they settle, and who has what then
    DaemonSettle(daemon::settle::DaemonSettle),
    /// Programs of any user and runtime, by run, attach and daemon
    Anyone(anyone::Anyone),
    /// What a settled group costs redis, PostgreSQL and nginx: requests a second, and their 99th percentile
    Served(anyone::served::ServiceCost),
    /// Twelve services, outside of containers and in them: by number, schemata, identifier and hook
    Services(anyone::everywhere::Everywhere),
    /// What befalls a program from outside while its pages are moved: limits, stops, debuggers, odd shapes
    Acts(acts::Acts),
    /// A confined program over minutes, while the host moves pages: compliance by a test of its own
    KeptTrue(kept_true::KeptTrue),
    /// What a group costs whose pages lie right and that allocates nothing
    Settled(settled::Settled),
    /// How soon a running program lies in a sixteenth of the colours
    Gather(gather::Gather),
    /// Shares of an emulated machine's last level under a stock kernel: misses to the last one
    Lab(lab::LabShares),
    /// The papers' effects under a stock kernel in the lab, beside the simulator and the paper
    LabEffects(lab_effects::LabEffects),
    /// The papers' effects on this machine, beside the simulator on what the programs did
    LiveEffects(live_effects::LiveEffects),
    /// The first command: how soon a program starts and its memory is in its colours, in any noise
    FirstCommand(first_command::FirstCommand),
    /// The colour probe: time to build classes, time for each page, agreement with a slow test, in any noise
    Probe(probe::ProbeCost),
    /// Adversaries under one supervisor: nobody gains a right, nobody else is harmed
    Hostile(hostile::Hostile),
    /// Bad input of every kind
    BadInput(bad_input::BadInput),
    /// Real programs recorded and simulated from start to end
    Traces(traces::TracesSuite),
    /// The simulator against others on the same accesses: speed, and equal misses
    SimPeers(sim_peers::SimPeers),
    /// The simulator on every machine file, against bare loops, and by threads
    SimSpeed(sim_speed::SimSpeed),
    /// Walks and streams in fewer colours
    Confine(confine::Confine),
    /// Page cache: whether pages are where they should be
    WarmPlace(pagecache::place::WarmPlace),
    /// Page cache: what placing costs, against a cold read and a copy
    WarmCost(pagecache::cost::WarmCost),
    /// Page cache: a hot set beside a scan of a placed file, and beside grep
    WarmEffect(pagecache::cases::WarmEffect),
    /// Page cache: random reads, and a file that fits the cache
    WarmAdverse(pagecache::adverse::WarmAdverse),
    /// Page cache: files that are written while they are placed
    WarmTorture(pagecache::torture::WarmTorture),
    /// Page cache: a hash join of PostgreSQL beside a sequential scan
    WarmJoin(pagecache::join::WarmJoin),
    /// Page cache: a control group near its limit
    WarmPressure(pagecache::pressure::WarmPressure),
    /// Superpages: speed of programs, against the kernel's own large pages and none
    SuperpageSpeed(superpages::table::SuperpageSpeed),
    /// Superpages: memory of programs that use it sparsely
    SuperpageMemory(superpages::table::SuperpageMemory),
    /// Superpages: how soon a program is fast
    SuperpageStart(superpages::start::SuperpageStart),
    /// Superpages: latency of redis, and the longest stall of a thread
    SuperpageLatency(superpages::latency::SuperpageLatency),
    /// Superpages: CPU time of sensing and deciding, by resident memory
    SuperpageCpu(superpages::cpu::SuperpageCpu),
    /// Superpages: a program in a partition that they may leave where that pays
    SuperpagePartition(superpages::partition::SuperpagePartition),
    /// Superpages: what accessed bits choose in traces, against what every miss would
    SuperpageAgreement(superpages::agreement::SuperpageAgreement),
    /// Pollute buffer: what it brings to programs that pollute the cache, and costs others
    Pollute(pollute::Pollute),
    /// Conflict recolouring: what it brings to pages that crowd a few colours, and costs others
    Conflicts(conflicts::Conflicts),
    /// What the residency sensor says of programs, against the simulator on the same accesses
    ResidencyAgreement(residency::ResidencyAgreement),
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{CommandFactory as _, Parser};

    use super::Suites;
    use crate::promises::Promises;
    use crate::spec::root;

    #[derive(Parser)]
    struct Cli {
        #[command(subcommand)]
        suites: Suites,
    }

    /// Figures with the commands of their suites.
    type Commanded = BTreeSet<[String; 3]>;

    fn declared() -> Commanded {
        let commands = Cli::command();
        let names = commands.get_subcommands().map(|command| command.get_name().to_owned());
        let of_suite = |name: String| {
            let cli = Cli::parse_from(["huepage-bench", &name]);
            let figures = cli.suites.figures().iter();
            let all = figures.flat_map(|(id, of)| of.iter().map(|of| (*id, *of)));
            all.map(|(id, of)| [name.clone(), id.to_owned(), of.to_owned()]).collect::<Vec<_>>()
        };
        names.flat_map(of_suite).collect()
    }

    fn promised() -> Commanded {
        let (promises, mut all) = (Promises::read(&root()).unwrap(), Commanded::new());
        for promise in promises.all() {
            let command = promise.command.as_deref().unwrap_or_default();
            let Some(words) = command.strip_prefix("huepage-bench ") else { continue };
            let name = words.split(' ').next().unwrap_or_default();
            all.extend(promise.parts().map(|(of, _)| [name, &promise.id, of].map(str::to_owned)));
        }
        all
    }

    #[test]
    fn every_promise_of_the_bench_has_a_suite_that_gives_its_figures_and_every_figure_a_promise() {
        let (declared, promised) = (declared(), promised());
        let only = |one: &Commanded, other: &Commanded| {
            one.difference(other).map(|words| words.join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(only(&promised, &declared), [""; 0], "promised, and no figure of the suite");
        assert_eq!(only(&declared, &promised), [""; 0], "given, and not promised by this command");
        assert!(promised.len() > 100, "{}", promised.len());
    }
}
