//! The arguments of `huepage lab` and the help that explains them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::values::parse_size;

const EXAMPLES: &str = "\
Examples:
  huepage lab -m lab-4-core \\
      --on 0 'huepage-walk --kib 5120 --seconds 9999' \\
      --on 1 'huepage-stream --kib 16384 --seconds 9999' --shares 75%,25%
  huepage lab -m lab-hashed --on 0 ./server --on 1 ./batch \\
      --with '--share 50%' --json
  huepage lab -m lab-4-core boot -- 'uname -r; huepage info'
  huepage lab -m lab-4-core shell

It needs neither root nor KVM, but QEMU, a static busybox and a kernel; what is missing it names. \
A kernel need not be installed: `apt-get download` it and give --kernel the file.";

/// Try programs under a stock kernel on an emulated machine with exact caches (experimental)
///
/// Boots the kernel in QEMU, runs the programs alone, beside each other, and with huepage, and counts
/// every access by its physical address in the caches of a machine file: misses by level and program,
/// and whose lines were evicted by whom. No noise: by default the same command counts the same to the
/// last miss.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct LabArgs {
    #[command(flatten)]
    pub machine: LabMachineArgs,

    #[command(flatten)]
    pub run: LabRunArgs,

    /// What to do instead of running programs.
    #[command(subcommand)]
    pub command: Option<LabCommand>,
}

/// The machine and what boots on it.
#[derive(Args, Debug, Clone)]
pub struct LabMachineArgs {
    /// The machine's description
    #[arg(short, long, value_name = "FILE")]
    pub machine: Option<PathBuf>,

    /// The kernel: a file (vmlinuz, vmlinux or a package of Debian), or a part of the name of one in /boot or
    /// /var/cache/huepage-lab [default: the newest there without PREEMPT_RT]
    #[arg(long, value_name = "NAME|FILE")]
    pub kernel: Option<PathBuf>,

    /// Processors of the guest [default: as many as programs, at least 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub cpus: Option<u16>,

    /// NUMA nodes, each with its part of processors and memory
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=8))]
    pub numa: u16,

    /// Memory of the guest
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    pub memory: u64,

    /// More for the kernel's command line
    #[arg(long, value_name = "WORDS", default_value = "", hide_default_value = true)]
    pub append: String,

    /// More features of the processor, as QEMU names them: +la57 gives it page tables of five levels
    #[arg(
        long,
        value_name = "FEATURES",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    pub features: String,

    /// Fill the guest's memory and free every second page of it by chance before anything else runs, so that frames come
    /// in no order, as on a machine that has run for days. Half of the memory is gone then
    #[arg(long)]
    pub scatter: bool,

    /// Files or directories to put into the guest, at the same paths
    #[arg(long, value_name = "PATH")]
    pub pack: Vec<PathBuf>,

    /// One instruction after the other, in emulated time: the same run always counts the same (the default)
    #[arg(long, conflicts_with = "fast")]
    pub deterministic: bool,

    /// A thread for each processor, in real time: no two runs are the same
    #[arg(long)]
    pub fast: bool,
}

impl LabMachineArgs {
    /// A machine as it comes.
    pub fn plain(machine: PathBuf, kernel: Option<PathBuf>, pack: Vec<PathBuf>) -> LabMachineArgs {
        LabMachineArgs {
            machine: Some(machine),
            kernel,
            cpus: None,
            numa: 1,
            memory: 1 << 30,
            append: String::new(),
            features: String::new(),
            scatter: false,
            pack,
            deterministic: true,
            fast: false,
        }
    }
}

/// The programs and what is done about them.
#[derive(Args, Debug, Clone)]
pub struct LabRunArgs {
    /// Run CMD on a processor; the first one is the victim, whose misses are judged
    #[arg(long, num_args = 2, value_names = ["CPU", "CMD"], action = clap::ArgAction::Append)]
    pub on: Vec<String>,

    /// Shares of the last level, by program: 75%,25%
    #[arg(long, value_name = "SHARES", value_delimiter = ',', conflicts_with = "with")]
    pub shares: Vec<String>,

    /// Options of `huepage run` for a program, by order; a program without any runs without huepage
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub with: Vec<String>,

    /// Have `huepage daemon` govern all programs by a file of groups
    #[arg(long, value_name = "FILE", conflicts_with_all = ["shares", "with"])]
    pub config: Option<PathBuf>,

    /// When programs count as settled: idle (huepage says that their pages lie right, and moves nothing), or a time
    #[arg(long, value_name = "idle|TIME", default_value = "idle")]
    pub settle: LabSettle,

    /// How long accesses are counted, in the guest's time
    #[arg(long, value_name = "TIME", default_value = "0.25s", value_parser = parse_time)]
    pub count: f64,

    /// Give the guests a PMU, as a file that huepage in the guest reads (HUEPAGE_PMU): counts of instructions, misses and
    /// cycles by process, and samples of one load in PERIOD [default: 2000]
    #[arg(long, value_name = "PERIOD", num_args = 0..=1, require_equals = true, default_missing_value = "2000",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000), conflicts_with = "fast")]
    pub pmu: Option<u64>,

    /// Write all accesses of each column into DIR, as a trace for `huepage sim --mapping identity`
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,

    /// Also tell how fast guests were emulated, of which no two runs say the same
    #[arg(long)]
    pub speed: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Print a page of HTML
    #[arg(long, conflicts_with = "json")]
    pub html: bool,
}

/// What else the lab can do.
#[derive(Subcommand, Debug)]
pub enum LabCommand {
    /// Boot, run a script with `sh -c`, and end with its status
    Boot {
        /// The script
        #[arg(last = true, required = true, value_name = "SCRIPT")]
        script: String,
    },
    /// Boot, and give a console; `exit` ends it
    Shell,
    /// Do what the plan in the guest says
    #[command(hide = true)]
    Guest {
        /// The plan.
        plan: PathBuf,
    },
    /// Fill memory with a file, and free every second page of that
    #[command(hide = true)]
    Scatter {
        /// The file.
        file: PathBuf,
    },
    /// Become a program with a number, on a processor
    #[command(hide = true)]
    As {
        /// The number.
        owner: u32,
        /// The processor.
        #[arg(long)]
        cpu: Option<usize>,
        /// The program.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

/// When programs count as settled.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabSettle {
    /// The engine is idle and its stock full.
    Idle,
    /// After so many seconds of the guest.
    Seconds(f64),
}

impl std::str::FromStr for LabSettle {
    type Err = String;

    fn from_str(text: &str) -> Result<LabSettle, String> {
        if text == "idle" { Ok(LabSettle::Idle) } else { parse_time(text).map(LabSettle::Seconds) }
    }
}

impl std::fmt::Display for LabSettle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LabSettle::Idle => f.write_str("idle"),
            LabSettle::Seconds(seconds) => write!(f, "{seconds}s"),
        }
    }
}

/// Seconds.
fn parse_time(text: &str) -> Result<f64, String> {
    let seconds = text.strip_suffix('s').unwrap_or(text).parse().ok();
    let seconds = seconds.filter(|seconds| (0.01..=3600.0).contains(seconds));
    seconds.ok_or_else(|| format!("`{text}` is no time; give seconds, for instance 60s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settling_is_a_state_or_a_time() {
        assert_eq!("idle".parse(), Ok(LabSettle::Idle));
        assert_eq!("60s".parse(), Ok(LabSettle::Seconds(60.0)));
        assert_eq!("0.5".parse(), Ok(LabSettle::Seconds(0.5)));
        assert!("soon".parse::<LabSettle>().unwrap_err().contains("60s"));
        assert!("0".parse::<LabSettle>().is_err());
    }
}
