//! A real program, unmodified, natively and in half the colours through our own binary: its
//! output must be the same, and `run` reports where its pages were.
//!
//! Input and output go through pipes that this process holds, so that nothing is left of the
//! program when the demonstration is interrupted: no file, and nobody to feed it.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use huepage_linux::launch;
use serde::Serialize;
use serde_json::Value;

use crate::exit::{CmdError, ExitCode};

/// Planned time, for the progress line.
pub const PLANNED: Duration = Duration::from_secs(18);
/// Lines of input.
const LINES: u32 = 600_000;
const QUICK_LINES: u32 = 250_000;
/// Compliance below this falls short of what is promised.
const COMPLIANCE: f64 = 0.99;

/// Counts lines by their first word, adds up lengths for some seconds (a steady state for the
/// audit to find), then prints the counts in order.
const PERL: &str = "my %n; my @l; while (<STDIN>) { push @l, $_; $n{(split)[0]}++ } \
    my $s = 0; for my $r (1..75) { for (@l) { $s = ($s * 31 + length) % 1000003 } } \
    print \"$_ $n{$_}\\n\" for sort keys %n; print \"$s\\n\"";

/// Programs that do, in order of preference; the first is part of every Debian.
const PROGRAMS: [(&str, &[&str]); 3] =
    [("perl", &["-e", PERL]), ("sort", &["--parallel=1", "-S", "256M"]), ("xz", &["-1", "-T1"])];

/// What became of the program.
#[derive(Clone, Debug, Serialize)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Colours it had, and of how many.
    pub colors: String,
    /// Colours there are.
    pub of: u64,
    /// How colours were known.
    pub colors_from: String,
    /// Whether output and exit status were those of the native run.
    pub same_output: bool,
    /// Bytes it wrote.
    pub output_bytes: usize,
    /// Movable resident pages at the last audit.
    pub movable: u64,
    /// Of these, in its colours.
    pub in_colors: u64,
    /// Their share, 0 to 1.
    pub compliance: f64,
    /// The share over the run, with what audits found before their repairs, 0 to 1.
    pub over_time: f64,
    /// Pages of any colour that were placed as the stock was empty.
    pub fallback_pages: u64,
    /// Seconds from start to end, natively.
    pub native_seconds: f64,
    /// The same in the partition, without preparation.
    pub confined_seconds: f64,
    /// Seconds of preparation: opening the colour source, gathering frames.
    pub prepare_seconds: f64,
}

/// A program that ended.
struct Ended {
    status: Option<i32>,
    out: Vec<u8>,
    err: String,
    seconds: f64,
}

/// Runs the first program that is installed, natively and then in half the colours.
///
/// # Errors
/// `NotFound` if none is installed, and whatever `run` fails of, with its exit status.
pub fn measure(quick: bool) -> Result<Program, CmdError> {
    let (name, args) = *PROGRAMS
        .iter()
        .find(|(name, _)| launch::resolve(OsStr::new(name)).is_ok())
        .ok_or_else(|| {
            CmdError::new(
                ExitCode::NotFound,
                "none of perl, sort and xz is on PATH; install one of them",
            )
        })?;
    let input = input(if quick { QUICK_LINES } else { LINES });
    let mut plain = Command::new(name);
    plain.args(args);
    let native = run(&mut plain, &input).map_err(|e| cannot(name, &e))?;
    let own = std::env::current_exe().map_err(|e| cannot("huepage", &e))?;
    let mut command = Command::new(own);
    command.args(["run", "--share", "50%", "--json", "--", name]).args(args);
    let confined = run(&mut command, &input).map_err(|e| cannot(name, &e))?;
    judge(name, &native, &confined)
}

fn cannot(name: &str, error: &io::Error) -> CmdError {
    CmdError::new(ExitCode::Internal, format!("cannot run {name}: {error}; try again"))
}

/// Lines of pseudo-random words, always the same.
fn input(lines: u32) -> Vec<u8> {
    let mut text = Vec::new();
    let mut x = 1u32;
    for line in 0..lines {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (a, b) = (x >> 16, x >> 20);
        let _ = writeln!(text, "{a:x} line {line} of words {b:x}");
    }
    text
}

/// Runs a command to its end, feeding it from a thread.
fn run(command: &mut Command, input: &[u8]) -> io::Result<Ended> {
    command.env("LC_ALL", "C").env("PERL_HASH_SEED", "0");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = Instant::now();
    let mut child = command.spawn()?;
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let mut out = Vec::new();
    let err = std::thread::scope(|scope| {
        // A program that ends before it has read everything says so by its status.
        scope.spawn(move || stdin.map(|mut pipe| pipe.write_all(input)));
        let err = scope.spawn(move || {
            let mut text = Vec::new();
            stderr.map(|mut pipe| pipe.read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        });
        if let Some(mut pipe) = child.stdout.take() {
            pipe.read_to_end(&mut out)?;
        }
        Ok::<_, io::Error>(err.join().unwrap_or_default())
    })?;
    let status = child.wait()?.code();
    Ok(Ended { status, out, err, seconds: start.elapsed().as_secs_f64() })
}

/// Compares the runs and reads the report that `run` wrote.
fn judge(name: &str, native: &Ended, confined: &Ended) -> Result<Program, CmdError> {
    let report = confined.err.find("{\n").map(|at| &confined.err[at..]);
    let report: Option<Value> = report.and_then(|text| serde_json::from_str(text).ok());
    let report = report.ok_or_else(|| failure(name, confined))?;
    let text = |key: &str| report[key].as_str().unwrap_or_default().to_owned();
    let seconds = |key: &str| report[key].as_f64().unwrap_or(f64::NAN);
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let audit = &report["compliance"];
    Ok(Program {
        name: name.to_owned(),
        colors: text("colors"),
        of: count(&report["of"]),
        colors_from: text("colors_from"),
        same_output: native.out == confined.out && native.status == confined.status,
        output_bytes: confined.out.len(),
        movable: count(&audit["movable"]),
        in_colors: count(&audit["in_colors"]),
        compliance: audit["share"].as_f64().unwrap_or(f64::NAN),
        over_time: report["compliance_over_time"].as_f64().unwrap_or(f64::NAN),
        fallback_pages: count(&report["fallback_pages"]),
        native_seconds: native.seconds,
        confined_seconds: seconds("program_seconds"),
        prepare_seconds: seconds("prepare_seconds") + seconds("gather_seconds"),
    })
}

/// The error of a `run` that wrote no report: its own words and its own exit status.
fn failure(name: &str, confined: &Ended) -> CmdError {
    let said = confined.err.lines().find(|line| line.starts_with("huepage: "));
    let own = ExitCode::ALL.iter().find(|code| Some(i32::from(code.status())) == confined.status);
    match (said, own) {
        (Some(said), Some(&code)) => CmdError::new(code, said.trim_start_matches("huepage: ")),
        _ => CmdError::internal(format!(
            "`huepage run -- {name}` ended with {:?} and without a report",
            confined.status
        )),
    }
}

impl Program {
    /// Why its pages prove nothing; empty when they do.
    pub fn doubts(&self) -> Vec<String> {
        if self.movable == 0 {
            return vec![format!("{} ended before its pages were looked at", self.name)];
        }
        Vec::new()
    }

    /// Whether nearly all of its pages were in its colours nearly all of the time. The last
    /// audit alone would not do: a program that grows before it ends is seen in mid-step.
    pub fn complied(&self) -> bool {
        self.over_time >= COMPLIANCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(status: i32, out: &str, err: &str) -> Ended {
        Ended { status: Some(status), out: out.into(), err: err.into(), seconds: 1.0 }
    }

    const REPORT: &str = "{\n  \"colors\": \"0-7\", \"of\": 16, \"colors_from\": \"pfn\",\n\
        \"program_seconds\": 1.1, \"gather_seconds\": 0.3, \"prepare_seconds\": 0.1,\n\
        \"compliance\": {\"movable\": 1000, \"in_colors\": 998, \"share\": 0.998},\n\
        \"compliance_over_time\": 0.997, \"fallback_pages\": 2 }\n";

    #[test]
    fn the_report_is_read_and_the_outputs_compared() {
        let same = judge("sort", &ended(0, "x", ""), &ended(0, "x", REPORT)).unwrap();
        assert!(same.same_output && same.complied() && same.doubts().is_empty(), "{same:?}");
        assert_eq!((same.movable, same.in_colors, same.of), (1000, 998, 16));
        assert!((same.prepare_seconds - 0.4).abs() < 1e-9);
        let other = judge("sort", &ended(0, "x", ""), &ended(0, "y", REPORT)).unwrap();
        assert!(!other.same_output, "{other:?}");
    }

    #[test]
    fn a_failing_run_keeps_its_words_and_its_status() {
        let refused = ended(101, "", "huepage: too old; use Linux 6.8\n");
        let error = judge("sort", &ended(0, "x", ""), &refused).unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            (ExitCode::Kernel, "too old; use Linux 6.8")
        );
        let crash = judge("sort", &ended(0, "x", ""), &ended(42, "", "")).unwrap_err();
        assert_eq!(crash.code, ExitCode::Internal);
    }

    #[test]
    fn an_unwatched_program_proves_nothing() {
        let report = REPORT.replace("1000", "0");
        let program = judge("sort", &ended(0, "x", ""), &ended(0, "x", &report)).unwrap();
        assert!(program.doubts()[0].contains("before its pages"));
    }

    #[test]
    fn input_is_the_same_each_time_and_a_program_gets_all_of_it() {
        let text = input(2000);
        assert_eq!(text, input(2000));
        let ended = run(&mut Command::new("cat"), &text).unwrap();
        assert_eq!((ended.status, ended.out), (Some(0), text));
    }
}
