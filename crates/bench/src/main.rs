//! `huepage-bench`: measures huepage against the promises of SPECIFICATION.md.
//!
//! Each command prints a table, or with `--json` the same as JSON, and exits with 0 when the
//! promises hold, 1 when one is missed, 3 when something could not be measured here though
//! HUEPAGE_REQUIRE_LIVE=1 says that it must be.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use huepage_bench::harness::{Bench, lacking};
use huepage_bench::launch::{Huepage, tied};
use huepage_bench::spec;
use huepage_bench::suite::{Suites, kept_true, lab, settled};
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
fn measured(name: &str, suite: &Suites, common: &Common) -> Result<u8, String> {
    let huepage = Huepage::find(common.huepage.as_deref()).map_err(|error| error.to_string())?;
    let options: Vec<&str> = common.with.iter().map(String::as_str).collect();
    let dir = common.dir();
    let bench = Bench { huepage: &huepage, options: &options, dir: &dir };
    let verdict = suite.run(name, bench);
    match serde_json::to_string_pretty(&verdict) {
        Ok(text) if common.json => println!("{text}"),
        _ => print!("{}", verdict.text()),
    }
    if let Some(path) = &common.save {
        record(&verdict, path).map_err(|error| error.to_string())?;
        let lacking = lacking(suite.figures(), &verdict);
        lacking.iter().for_each(|figure| eprintln!("not measured: {figure}"));
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
        Command::Measure(suites) => measured(name, suites, &cli.common),
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
