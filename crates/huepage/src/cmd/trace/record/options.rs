//! Options of `huepage trace -- CMD`, and what can be judged of them from the text alone.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::exit::{CmdError, ExitCode};
use crate::values::{parse_count, parse_size};

const EXAMPLES: &str = "\
Examples:
  huepage trace -- gzip -k data              all of it, to gzip.trace
  huepage trace -o q.trace -- sqlite3 my.db < queries.sql
  huepage trace --skip 2s --limit 1G -- ./server
  huepage trace --limit 50000000 --stop-at-limit -- python3 script.py
  huepage trace --system machines/lab-4-core.toml --pack data -- gzip -k data

Standard input, output and error, signals and the exit status are the program's own.";

/// Record every access to memory of a program
///
/// CMD runs unmodified under QEMU's user mode (apt-get install qemu-user). Each access to
/// memory costs some 100 ns of CPU time: a program that computes in its caches takes 50 to 100
/// times as long, one that waits for memory far less. Its threads and children are recorded,
/// each with a number of its own. Ctrl-C ends the recording; what was recorded by then is a
/// good trace.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct TraceRecordArgs {
    /// The file to write, which must not exist yet [default: the program's name and .trace]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Overwrite the file if it exists
    #[arg(long)]
    pub force: bool,

    /// End the recording at a size of the file (512K, 32M, 2G) or a number of records (5000000)
    ///
    /// The program runs on, unrecorded and faster.
    #[arg(long, value_name = "SIZE|RECORDS", value_parser = parse_limit)]
    pub limit: Option<Limit>,

    /// End the program too when the limit is reached, with status 0
    #[arg(long, requires = "limit")]
    pub stop_at_limit: bool,

    /// Do not record the beginning: a number of instructions (20M) or seconds (2s, 0.5s)
    #[arg(long, value_name = "INSTRUCTIONS|SECONDS", value_parser = parse_skip)]
    pub skip: Option<SkipOption>,

    /// Record instruction fetches too: one for each line of 64 bytes entered
    #[arg(long)]
    pub fetches: bool,

    /// What records [default: the first of these that is to be had]
    #[arg(long, value_enum)]
    pub recorder: Option<RecorderKind>,

    /// Run the program under a stock kernel on an emulated MACHINE, and record every access by its physical address,
    /// the kernel's too
    ///
    /// See `huepage lab`, whose options of the same names these are. Standard input and output are the guest's.
    #[arg(long, value_name = "MACHINE",
          conflicts_with_all = ["limit", "skip", "fetches", "recorder", "json"])]
    pub system: Option<PathBuf>,

    /// The kernel for --system
    #[arg(long, value_name = "NAME|FILE", requires = "system")]
    pub kernel: Option<PathBuf>,

    /// Files or directories to put into the guest of --system
    #[arg(long, value_name = "PATH", requires = "system")]
    pub pack: Vec<PathBuf>,

    /// Print the closing report on standard error as JSON instead of as text
    #[arg(long)]
    pub json: bool,

    /// Print nothing but errors
    #[arg(short, long)]
    pub quiet: bool,

    /// The program and its arguments
    #[arg(
        required = true,
        value_name = "CMD",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub command: Vec<OsString>,
}

/// What can record.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecorderKind {
    /// QEMU's user mode with a plugin: threads and children, 100 ns an access
    Qemu,
    /// DynamoRIO's drmemtrace (`drrun` in PATH): one process with its threads, turned into a trace when it has ended
    Dynamorio,
    /// Valgrind's lackey: one process, all threads as one, fifty times slower than that
    Lackey,
}

/// When recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// After that many records.
    Records(u64),
    /// Before the file is larger, in bytes.
    Bytes(u64),
}

/// What is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipOption {
    /// The first instructions, of all threads together.
    Instructions(u64),
    /// The first seconds.
    Time(Duration),
}

impl TraceRecordArgs {
    /// Where the trace goes. A file that exists is replaced only with `--force`; what is no file, such as a
    /// pipe, has nothing to lose.
    ///
    /// # Errors
    /// A file that exists.
    pub fn output_file(&self) -> Result<PathBuf, CmdError> {
        let output = self.output.clone().unwrap_or_else(|| super::default_name(&self.command[0]));
        if output.is_file() && !self.force {
            let path = output.display();
            let what = format!(
                "{path} exists; name another file with --output, or overwrite it with --force"
            );
            return Err(CmdError::new(ExitCode::Usage, what));
        }
        Ok(output)
    }
}

fn parse_limit(text: &str) -> Result<Limit, String> {
    let is_count = text.ends_with(|last: char| last.is_ascii_digit());
    let limit = parse_size(text).map(if is_count { Limit::Records } else { Limit::Bytes });
    limit.map_err(|_| {
        format!(
            "`{text}` is no limit; write a size (512K, 32M, 2G) or a number of records (5000000)"
        )
    })
}

fn parse_skip(text: &str) -> Result<SkipOption, String> {
    let wrong =
        || format!("`{text}` is neither instructions nor seconds; write for instance 20M or 2.5s");
    match text.strip_suffix('s') {
        None => parse_count(text).map(SkipOption::Instructions).map_err(|_| wrong()),
        Some(seconds) => {
            let seconds: f64 = seconds.parse().map_err(|_| wrong())?;
            Duration::try_from_secs_f64(seconds).map(SkipOption::Time).map_err(|_| wrong())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_size_or_a_number_of_records() {
        assert_eq!(parse_limit("2G"), Ok(Limit::Bytes(2 << 30)));
        assert_eq!(parse_limit("512k"), Ok(Limit::Bytes(512 << 10)));
        assert_eq!(parse_limit("5000000"), Ok(Limit::Records(5_000_000)));
        for bad in ["", "0", "0M", "G", "-1", "1.5G", "99999999999G", "é"] {
            assert!(parse_limit(bad).unwrap_err().contains("records"), "{bad}");
        }
    }

    #[test]
    fn a_skip_is_a_number_of_instructions_or_seconds() {
        assert_eq!(parse_skip("1000"), Ok(SkipOption::Instructions(1000)));
        assert_eq!(parse_skip("20M"), Ok(SkipOption::Instructions(20_000_000)));
        assert_eq!(parse_skip("0.5s"), Ok(SkipOption::Time(Duration::from_millis(500))));
        for bad in ["", "s", "-1", "-1s", "1m", "infs", "NaNs"] {
            assert!(parse_skip(bad).unwrap_err().contains("seconds"), "{bad}");
        }
    }
}
