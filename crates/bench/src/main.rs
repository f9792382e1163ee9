//! `huepage-bench`: measures huepage against the promises of SPECIFICATION.md.
//!
//! Each command prints a table, or with `--json` the same as JSON, and exits with 0 when the
//! promises hold, 1 when one is missed, 3 when something could not be measured here though
//! HUEPAGE_REQUIRE_LIVE=1 says that it must be.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use huepage_bench::launch::Huepage;
use huepage_bench::suite::{
    Verdict, acts, anyone, bad_input, confine, conflicts, cost, daemon, first_command, hostile,
    kept, kill, pagecache, pollute, programs, recolour, residency, storm, superpages, traces,
};

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

#[derive(Subcommand)]
enum Command {
    /// Real programs: output, exit status and compliance
    Programs {
        /// Only this program; may be repeated
        #[arg(long)]
        only: Vec<String>,
        /// The share of the cache
        #[arg(long, default_value = "50%")]
        share: String,
        /// No program: only how programs end, and signals
        #[arg(long, conflicts_with = "only")]
        endings: bool,
    },
    /// Slow-down with all colours allowed
    Cost {
        /// Only this program; may be repeated
        #[arg(long)]
        only: Vec<String>,
        /// Pairs of runs per program
        #[arg(long, default_value_t = 5)]
        pairs: usize,
    },
    /// The torture target while every page is moved again and again
    Torture {
        /// Moved pages to reach
        #[arg(long, default_value_t = 1_000_000)]
        recolours: u64,
        /// Seconds of one slice
        #[arg(long, default_value_t = 20.0)]
        slice: f64,
        /// Mode of the target
        #[arg(long, default_value = "all")]
        mode: String,
        /// Memory per mode, in MiB
        #[arg(long, default_value_t = 16)]
        mib: u16,
        /// Seed of the first slice
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// What recolouring a page takes while a thread writes to it
    Recolour {
        /// Slices
        #[arg(long, default_value_t = 5)]
        slices: u64,
        /// Seconds of one slice
        #[arg(long, default_value_t = 4.0)]
        seconds: f64,
    },
    /// kill -9 at random moments
    Kill {
        /// Targets
        #[arg(long, default_value_t = 200)]
        times: u32,
        /// Seed of the moments
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// kill -9 of `huepage daemon` at random moments, with its state taken up again
    DaemonKill {
        /// Daemons
        #[arg(long, default_value_t = 100)]
        times: u32,
        /// Seed of the moments
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How colours are known; nothing of this is about timing
        #[arg(long, default_value = "declared")]
        colors_from: String,
    },
    /// As many decisions of `huepage daemon` as a day has: nothing grows
    DaemonDay {
        /// Rounds of decisions, 20 in a second
        #[arg(long, default_value_t = 28_800)]
        rounds: u64,
        /// Seed of what is measured of groups
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How colours are known
        #[arg(long, default_value = "declared")]
        colors_from: String,
    },
    /// What `huepage daemon` does to the latency of redis
    DaemonLatency {
        /// Repetitions
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Requests of a measurement; fewer are over before the daemon knows who needs what
        #[arg(long, default_value_t = 600_000)]
        requests: usize,
        /// How colours are known: in colours that are not real, what is measured is the daemon's cost alone
        #[arg(long, default_value = "probe")]
        colors_from: String,
    },
    /// Four live groups, one of them hungry: when they settle, and who has what then
    DaemonSettle(daemon::settle::Setting),
    /// Programs of any user and runtime, by run, attach and daemon
    Anyone(anyone::Setting),
    /// What befalls a program from outside while its pages are moved: limits, stops, debuggers, odd shapes
    Acts(acts::Setting),
    /// A confined program over minutes, while the host moves pages: compliance by a test of its own
    KeptTrue(kept::Setting),
    /// The program of kept-true
    #[command(hide = true)]
    KeptTarget(kept::Target),
    /// The first command: how soon a program starts and its memory is in its colours, in any noise
    #[command(name = "first-command")]
    First(first_command::Setting),
    /// Adversaries under one supervisor: nobody gains a right, nobody else is harmed
    Hostile(hostile::Setting),
    /// Bad input of every kind
    BadInput,
    /// Real programs recorded and simulated from start to end
    Traces {
        /// Only bzip2, sqlite3 or gcc; may be repeated
        #[arg(long)]
        only: Vec<String>,
        /// Rows of sqlite3's table
        #[arg(long, default_value_t = 50_000)]
        rows: u64,
        /// A file for bzip2 [default: 2 MiB of made text]
        #[arg(long, value_name = "FILE")]
        text: Option<PathBuf>,
        /// A C file for gcc [default: a made one]
        #[arg(long, value_name = "FILE")]
        c: Option<PathBuf>,
    },
    /// Walks and streams in fewer colours
    Confine {
        /// CPU for walk and stream
        #[arg(long, default_value_t = 0)]
        cpu: usize,
        /// Colours of the cache
        #[arg(long, default_value_t = 16)]
        count: usize,
        /// Footprint of walk and hot set, in KiB
        #[arg(long, default_value_t = 512)]
        hot: usize,
        /// Footprint of the stream, in KiB
        #[arg(long, default_value_t = 1024)]
        stream: usize,
        /// Repetitions
        #[arg(long, default_value_t = 3)]
        rounds: usize,
    },
    #[command(flatten)]
    PageCache(pagecache::Ask),
    #[command(flatten)]
    Superpages(superpages::Ask),
    /// Pollute buffer: what it brings to programs that pollute the cache, and costs others
    Pollute(pollute::Setting),
    /// Conflict recolouring: what it brings to pages that crowd a few colours, and costs others
    Conflicts(conflicts::Setting),
    /// Superpages: what accessed bits choose in traces, against what every miss would
    SuperpageAgreement(superpages::agreement::Setting),
    /// What the residency sensor says of programs, against the simulator on the same accesses
    ResidencyAgreement(residency::Setting),
}

fn measure(cli: &Cli, huepage: &Huepage) -> Verdict {
    let with: Vec<&str> = cli.common.with.iter().map(String::as_str).collect();
    let and = |more: &[&'static str]| [with.as_slice(), more].concat();
    let (dir, half) = (cli.common.dir(), and(&["--share", "50%"]));
    match &cli.command {
        Command::Programs { only, share, endings } => {
            let with = [with.as_slice(), &["--share", share]].concat();
            let all = || programs::run(huepage, &with, only, &dir);
            if *endings { programs::endings_only(huepage, &with) } else { all() }
        }
        Command::Cost { only, pairs } => {
            cost::run(huepage, &and(&["--share", "100%", "--wait"]), only, &dir, *pairs)
        }
        Command::Torture { recolours, slice, mode, mib, seed } => {
            let (recolors, slice, mib, seed, threads) = (*recolours, *slice, *mib, *seed, None);
            let storm = storm::Storm { recolors, slice, mode: mode.clone(), threads, mib, seed };
            storm::run(huepage, &half, &storm)
        }
        Command::Recolour { slices, seconds } => recolour::run(huepage, &half, *slices, *seconds),
        Command::Kill { times, seed } => kill::run(huepage, &half, *times, *seed),
        Command::Anyone(setting) => anyone::run(huepage, &with, setting),
        Command::Acts(setting) => acts::run(huepage, &with, setting),
        Command::KeptTrue(setting) => kept::run(huepage, &with, setting),
        Command::First(setting) => first_command::run(huepage, &with, setting),
        Command::Hostile(setting) => hostile::run(huepage, &with, setting),
        Command::BadInput => bad_input::run(huepage, &with),
        Command::Traces { only, rows, text, c } => {
            let (only, rows, text, c) = (only.clone(), *rows, text.clone(), c.clone());
            let wish = traces::Wish { only, rows, text, c };
            traces::run(huepage, &wish, &dir.join("traces"))
        }
        Command::Confine { cpu, count, hot, stream, rounds } => {
            let (cpu, colors, rounds, hot_kib, stream_kib) = (*cpu, *count, *rounds, *hot, *stream);
            let setting = confine::Setting { cpu, colors, hot_kib, stream_kib, rounds };
            confine::run(huepage, &with, setting)
        }
        Command::PageCache(ask) => pagecache::run(ask, huepage, &with, &dir.join("pagecache")),
        Command::Superpages(ask) => superpages::run(ask, huepage, &with, &dir.join("superpages")),
        Command::Pollute(setting) => pollute::run(huepage, &with, setting, &dir),
        Command::Conflicts(setting) => conflicts::run(huepage, &with, setting),
        Command::SuperpageAgreement(setting) => superpages::agreement::run(setting),
        Command::ResidencyAgreement(setting) => residency::run(setting, huepage),
        rest => measure_daemon(rest, huepage),
    }
}

/// The commands about the daemon.
fn measure_daemon(command: &Command, huepage: &Huepage) -> Verdict {
    match command {
        Command::DaemonKill { times, seed, colors_from } => {
            daemon::kill::run(huepage, colors_from, *times, *seed)
        }
        Command::DaemonDay { rounds, seed, colors_from } => {
            daemon::day::run(huepage, colors_from, *rounds, *seed)
        }
        Command::DaemonLatency { rounds, requests, colors_from } => {
            daemon::latency::run(huepage, colors_from, *rounds, *requests)
        }
        Command::DaemonSettle(setting) => daemon::settle::run(huepage, setting),
        _ => unreachable!("measured above"),
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Command::KeptTarget(setting) = &cli.command {
        return match kept::target(setting) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("huepage-bench: {error}");
                ExitCode::from(2)
            }
        };
    }
    let huepage = match Huepage::find(cli.common.huepage.as_deref()) {
        Ok(huepage) => huepage,
        Err(why) => {
            eprintln!("huepage-bench: {why}");
            return ExitCode::from(2);
        }
    };
    let verdict = measure(&cli, &huepage);
    match serde_json::to_string_pretty(&verdict) {
        Ok(text) if cli.common.json => println!("{text}"),
        _ => print!("{}", verdict.text()),
    }
    let required = std::env::var("HUEPAGE_REQUIRE_LIVE").is_ok_and(|v| v == "1");
    match (verdict.missed.is_empty(), required && !verdict.unmeasured().is_empty()) {
        (false, _) => ExitCode::from(1),
        (true, true) => ExitCode::from(3),
        (true, false) => ExitCode::SUCCESS,
    }
}
