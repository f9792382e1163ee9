//! `huepage-bench`: measures huepage against the promises of SPECIFICATION.md.
//!
//! Each command prints a table, or with `--json` the same as JSON, and exits with 0 when the
//! promises hold, 1 when one is missed, 3 when something could not be measured here though
//! HUEPAGE_REQUIRE_LIVE=1 says that it must be.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use huepage_bench::harness::{Bench, Suite, run};
use huepage_bench::launch::{Huepage, tied};
use huepage_bench::spec;
use huepage_bench::suite::{
    acts, anyone, bad_input, confine, conflicts, cost, daemon, first_command, hostile, kept_true,
    kill, lab, lab_effects, live_effects, pagecache, pollute, probe, programs, recolour, residency,
    settled, sim_peers, sim_speed, storm, superpages, traces,
};
use huepage_bench::verdict::SuiteVerdict;

/// Measure huepage against its promises
#[derive(Parser)]
#[command(version, after_help = "Example:\n  huepage-bench programs --only xz --share 50%")]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Common {
    /// The huepage binary [default: the one beside this program]
    #[arg(long, global = true)]
    huepage: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    /// Another option for `huepage run`, `attach` or `warm`; may be repeated
    #[arg(long = "with", global = true, value_name = "OPTION", allow_hyphen_values = true)]
    with: Vec<String>,
    /// Record the figures in the results of a machine, as bench/results/MACHINE.json
    #[arg(long, global = true, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Directory for built programs [default: below the system's temporary directory]
    #[arg(long, global = true)]
    dir: Option<PathBuf>,
}

impl Common {
    fn dir(&self) -> PathBuf {
        let default = || std::env::temp_dir().join("huepage-bench");
        self.dir.clone().unwrap_or_else(default)
    }
}

/// The suites by their commands.
macro_rules! suites {
    ($($(#[$about:meta])* $name:ident($suite:ty),)*) => {
        #[derive(Subcommand)]
        enum Suites {
            $($(#[$about])* $name($suite),)*
        }

        impl Suites {
            fn suite(&self) -> &dyn Suite {
                match self {
                    $(Suites::$name(suite) => suite,)*
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
    /// Twelve services, outside of containers and in them: by number, schemata, identifier and hook
    Services(anyone::everywhere::Everywhere),
    /// What befalls a program from outside while its pages are moved: limits, stops, debuggers, odd shapes
    Acts(acts::Acts),
    /// A confined program over minutes, while the host moves pages: compliance by a test of its own
    KeptTrue(kept_true::KeptTrue),
    /// What a group costs whose pages lie right and that allocates nothing
    Settled(settled::Settled),
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

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Measure(Suites),
    /// Make the table of SPECIFICATION.md from bench/promises.toml and bench/results
    Spec(spec::SpecArgs),
    /// The program of kept-true
    #[command(hide = true)]
    KeptTarget(kept_true::KeptTarget),
    /// A program of settled
    #[command(hide = true)]
    SettledTarget(settled::SettledTarget),
    /// A program of lab
    #[command(hide = true)]
    LabTarget(lab::LabTarget),
    /// A load that ends with the process that started it
    #[command(hide = true)]
    Tied {
        /// That process
        parent: u32,
        /// The load
        #[arg(last = true, required = true)]
        load: Vec<OsString>,
    },
}

/// Measures, prints, and gives the exit status.
fn measured(name: &str, suite: &dyn Suite, common: &Common) -> Result<u8, String> {
    let huepage = Huepage::find(common.huepage.as_deref()).map_err(|error| error.to_string())?;
    let options: Vec<&str> = common.with.iter().map(String::as_str).collect();
    let dir = common.dir();
    let bench = Bench { huepage: &huepage, options: &options, dir: &dir };
    let verdict = run(name, suite, bench);
    match serde_json::to_string_pretty(&verdict) {
        Ok(text) if common.json => println!("{text}"),
        _ => print!("{}", verdict.text()),
    }
    if let Some(path) = &common.save {
        record(&verdict, path).map_err(|error| error.to_string())?;
    }
    let required = std::env::var("HUEPAGE_REQUIRE_LIVE").is_ok_and(|v| v == "1");
    Ok(match (verdict.missed.is_empty(), required && !verdict.unmeasured().is_empty()) {
        (false, _) => 1,
        (true, true) => 3,
        (true, false) => 0,
    })
}

/// Takes the figures up in the results of a machine.
fn record(verdict: &SuiteVerdict, path: &Path) -> Result<(), spec::SpecError> {
    let root = spec::root();
    let saved = spec::save::save(verdict, path, &root, &spec::save::RunOrigin::here(&root)?)?;
    eprintln!("{saved} figures are in {}", path.display());
    Ok(())
}

fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let name = matches.subcommand_name().unwrap_or_default();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let status = match &cli.command {
        Command::Measure(suites) => measured(name, suites.suite(), &cli.common),
        Command::Spec(args) => spec::run(args).map(|()| 0).map_err(|error| error.to_string()),
        Command::KeptTarget(target) => {
            kept_true::target(target).map(|()| 0).map_err(|e| e.to_string())
        }
        Command::SettledTarget(target) => {
            settled::target(target).map(|()| 0).map_err(|e| e.to_string())
        }
        Command::LabTarget(target) => lab::target(target).map(|()| 0).map_err(|e| e.to_string()),
        Command::Tied { parent, load } => match tied(*parent, load) {
            Ok(status) => Ok(u8::from(!status.success())),
            Err(error) => Err(error.to_string()),
        },
    };
    status.map_or_else(
        |error| {
            eprintln!("huepage-bench: {error}");
            ExitCode::from(2)
        },
        ExitCode::from,
    )
}
