//! A real program, unmodified, natively and in half the colours through our own binary: its
//! output must be the same, and its supervisor says where its pages are.
//!
//! The program lives for as long as is needed: it works on what it has read until its standard
//! input ends, and that is when its pages were seen in its colours, or the time is up. How much it
//! reads is what it reads natively in a given time, so that fast and slow processors take as long.
//! Input and output go through pipes that this process holds, so that nothing is left of the program
//! when the demonstration is interrupted: no file, and nobody to feed it.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use huepage_linux::color::partition_registry::Registry;
use huepage_linux::control::socket;
use huepage_linux::control::socket::SupervisorRequest;
use huepage_linux::engine::MemberStatus;
use huepage_linux::inject::launch;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::exit::{CmdError, ExitCode};
use crate::report::Compliance;
use crate::steps::Steps;

/// How long the program is fed natively.
const FED: Duration = Duration::from_millis(1200);
const QUICK_FED: Duration = Duration::from_millis(400);
/// Lines of input at most, some 15 MB: more would only take memory.
const MOST_LINES: u32 = 600_000;
/// Lines written at once.
const PIECE: u32 = 500;
/// How long the program works natively once it is fed.
const NATIVE_WORK: Duration = Duration::from_secs(1);
/// How often its pages are asked for.
const LOOK: Duration = Duration::from_millis(200);
/// Good looks in a row after which the program may end: a single one may have been lucky.
const LOOKS: u32 = 3;
/// Time kept for the program to end once its input has.
const ENDING: Duration = Duration::from_secs(3);
/// Compliance below this falls short of what is promised.
const COMPLIANCE: f64 = 0.99;

/// Counts lines by their first word, adds up their lengths over and over until its input ends (a
/// steady state to be looked at), and prints the counts in order and the sum, which is the same each
/// time; and how long that took on standard error.
const PERL: &str = "my (%n, @l); while (<STDIN>) { last if $_ eq \".\\n\"; push @l, $_; $n{(split)[0]}++ } \
    my ($fd, $sum, $passes) = ('', undef, 0); vec($fd, fileno(STDIN), 1) = 1; my $cpu = (times)[0]; \
    do { my $s = 0; $s = ($s * 31 + length) % 1000003 for @l; $sum //= $s; \
    die \"memory changed\\n\" if $s != $sum; $passes++ } until select(my $r = $fd, undef, undef, 0); \
    printf STDERR \"a pass took %.4f s\\n\", ((times)[0] - $cpu) / $passes; \
    print \"$_ $n{$_}\\n\" for sort keys %n; print \"$sum\\n\"";

/// Programs that end with their input, in order of preference; the first is part of every Debian,
/// the second of every Linux.
const PROGRAMS: [(&str, &[&str]); 2] =
    [("perl", &["-e", PERL]), ("sort", &["--parallel=1", "-S", "256M"])];

/// What became of the program.
#[derive(Clone, Debug, Serialize)]
pub struct DemoProgram {
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
    /// Movable resident pages when they were looked at last while it worked; 0 if they were not.
    pub movable: u64,
    /// Of these, in its colours.
    pub in_colors: u64,
    /// Their share, 0 to 1.
    pub compliance: f64,
    /// Seconds from its start until it complied, if it did.
    pub complied_after: Option<f64>,
    /// Pages of any colour that were placed as the stock was empty.
    pub fallback_pages: u64,
    /// CPU seconds of a pass over its data natively, if it counts them.
    pub native_pass: Option<f64>,
    /// The same in the partition.
    pub confined_pass: Option<f64>,
    /// Seconds that it ran in the partition.
    pub confined_seconds: f64,
    /// Seconds of preparation: opening the colour source, gathering frames.
    pub prepare_seconds: f64,
}

/// A program that ended.
struct Ended {
    status: Option<i32>,
    out: Vec<u8>,
    err: String,
}

/// What was seen of the program while it worked.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    compliance: Compliance,
    complied_after: Option<f64>,
}

/// Runs the first program that is installed, natively and then in half the colours, until `until`.
///
/// # Errors
/// `NotFound` if none is installed, `Noisy` if the time did not suffice, and whatever `run` fails
/// of, with its exit status.
pub fn measure(quick: bool, until: Instant, steps: &Steps) -> Result<DemoProgram, CmdError> {
    steps.say("a real program");
    let (name, args) = *PROGRAMS
        .iter()
        .find(|(name, _)| launch::resolve(OsStr::new(name)).is_ok())
        .ok_or_else(|| {
            CmdError::new(
                ExitCode::NotFound,
                "neither perl nor sort is on PATH; install one of them",
            )
        })?;
    let failed = |error: io::Error| cannot(name, &error);
    let mut plain = Command::new(name);
    plain.args(args);
    let fed = Instant::now() + if quick { QUICK_FED } else { FED };
    let mut native =
        Running::start(&mut plain, Feed { most: MOST_LINES, until: Some(fed) }).map_err(failed)?;
    let lines = native.fed(until).map_err(failed)?;
    thread::sleep(NATIVE_WORK);
    let native = native.finish(until).map_err(failed)?;
    steps.show();
    let own = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(own);
    command.args(["run", "--share", "50%", "--json", "--", name]).args(args);
    let mut confined =
        Running::start(&mut command, Feed { most: lines, until: None }).map_err(failed)?;
    let seen = watch(&mut confined, until - ENDING, steps);
    let confined = confined.finish(until).map_err(failed)?;
    judge(name, &native, &confined, &seen)
}

fn cannot(name: &str, error: &io::Error) -> CmdError {
    let code = match error.kind() {
        io::ErrorKind::TimedOut => ExitCode::Noisy,
        _ => ExitCode::Internal,
    };
    CmdError::new(code, format!("{name} could not be run: {error}; see `huepage doctor`"))
}

/// Looks at the program until its pages are in its colours and stay there, it ends, or the time is up.
fn watch(running: &mut Running, until: Instant, steps: &Steps) -> Seen {
    let (began, mut seen, mut good) = (Instant::now(), Seen::default(), 0);
    while Instant::now() < until && good < LOOKS && !running.is_over() {
        thread::sleep(LOOK);
        steps.show();
        let Some(compliance) = ask(running.child.id()) else { continue };
        seen.compliance = compliance;
        good = if running.is_fed() && complies(&compliance) { good + 1 } else { 0 };
        seen.complied_after = match good {
            0 => None,
            1 => Some(began.elapsed().as_secs_f64()),
            _ => seen.complied_after,
        };
    }
    seen
}

/// Where the supervisor saw the pages of its program last; `None` if it has not yet.
fn ask(supervisor: u32) -> Option<Compliance> {
    let (registry, supervisor) = (Registry::open().ok()?, supervisor.cast_signed());
    let all = registry.list().ok()?;
    let pid = *all.into_iter().find(|entry| entry.pid == supervisor)?.members.first()?;
    let path = registry.socket_path(supervisor);
    let mut answer = socket::call(&path, &SupervisorRequest::Status { pid }, LOOK * 5).ok()?;
    let status = MemberStatus::deserialize(answer["status"].take()).ok()?;
    status.census.as_ref().map(Compliance::from)
}

/// Whether nearly all pages of a program are in its colours.
fn complies(found: &Compliance) -> bool {
    found.movable > 0 && found.share >= COMPLIANCE
}

/// What is written to the program: so many lines at most, and until when, if at all.
#[derive(Clone, Copy)]
struct Feed {
    most: u32,
    until: Option<Instant>,
}

impl Feed {
    /// Writes lines of pseudo-random words, always the same, and a full stop; how many.
    fn write(self, mut pipe: impl Write) -> io::Result<u32> {
        let (mut x, mut line) = (1u32, 0);
        while line < self.most && self.until.is_none_or(|until| Instant::now() < until) {
            let mut text = Vec::new();
            let end = self.most.min(line + PIECE);
            for line in line..end {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let (a, b) = (x >> 16, x >> 20);
                writeln!(text, "{a:x} line {line} of words {b:x}")?;
            }
            pipe.write_all(&text)?;
            line = end;
        }
        pipe.write_all(b".\n")?;
        pipe.flush()?;
        Ok(line)
    }
}

/// A program with its pipes, each served by a thread.
struct Running {
    child: Child,
    /// Lines written, once all are.
    fed: Receiver<io::Result<u32>>,
    lines: Option<io::Result<u32>>,
    /// Its input ends when this is dropped.
    input: Option<Sender<()>>,
    out: Receiver<Vec<u8>>,
    err: Receiver<Vec<u8>>,
}

impl Running {
    /// Starts a program and feeds it; its input stays open.
    fn start(command: &mut Command, feed: Feed) -> io::Result<Running> {
        command.env("LC_ALL", "C").env("PERL_HASH_SEED", "0");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (input, end) = mpsc::channel::<()>();
        let (sender, fed) = mpsc::channel();
        let stdin = child.stdin.take();
        thread::spawn(move || {
            let Some(mut pipe) = stdin else { return };
            // A program that ends before it has read everything says so by its status.
            let _ = sender.send(feed.write(&mut pipe));
            // Returns when the other end is dropped.
            let _ = end.recv();
        });
        let (out, err) = (drain(child.stdout.take()), drain(child.stderr.take()));
        Ok(Running { child, fed, lines: None, input: Some(input), out, err })
    }

    /// Whether all of its input but the end was written.
    fn is_fed(&mut self) -> bool {
        if self.lines.is_none() {
            self.lines = self.fed.try_recv().ok();
        }
        self.lines.is_some()
    }

    /// Waits until all of its input was written; lines of it.
    fn fed(&mut self, until: Instant) -> io::Result<u32> {
        let left = until.saturating_duration_since(Instant::now());
        self.fed.recv_timeout(left).map_err(|_| too_long("read its input"))?
    }

    /// Whether it has ended.
    fn is_over(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Ends its input and waits for its end; one that takes too long is killed.
    fn finish(mut self, until: Instant) -> io::Result<Ended> {
        drop(self.input.take());
        let left = || until.saturating_duration_since(Instant::now());
        let read = |pipe: &Receiver<Vec<u8>>| match pipe.recv_timeout(left()) {
            Err(RecvTimeoutError::Timeout) => Err(too_long("end")),
            text => Ok(text.unwrap_or_default()),
        };
        let (out, err) = (read(&self.out)?, read(&self.err)?);
        while !self.is_over() {
            if left().is_zero() {
                return Err(too_long("end"));
            }
            thread::sleep(Duration::from_millis(2));
        }
        let err = String::from_utf8_lossy(&err).into_owned();
        Ok(Ended { status: self.child.wait()?.code(), out, err })
    }
}

impl Drop for Running {
    /// Nothing is left running: a program whose supervisor is gone ends with its input.
    fn drop(&mut self) {
        drop(self.input.take());
        if !self.is_over() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn too_long(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("it did not {what} in time"))
}

/// Reads a pipe to its end on a thread.
fn drain(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        // What a program wrote before its pipe failed is all there is.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut text));
        let _ = sender.send(text);
    });
    receiver
}

/// Compares the runs and reads the report that `run` wrote.
fn judge(
    name: &str,
    native: &Ended,
    confined: &Ended,
    seen: &Seen,
) -> Result<DemoProgram, CmdError> {
    let report = confined.err.find("{\n").map(|at| &confined.err[at..]);
    let report: Option<Value> = report.and_then(|text| serde_json::from_str(text).ok());
    let report = report.ok_or_else(|| failure(name, confined))?;
    let text = |key: &str| report[key].as_str().unwrap_or_default().to_owned();
    let seconds = |key: &str| report[key].as_f64().unwrap_or(f64::NAN);
    let count = |key: &str| report[key].as_u64().unwrap_or(0);
    Ok(DemoProgram {
        name: name.to_owned(),
        colors: text("colors"),
        of: count("of"),
        colors_from: text("colors_from"),
        same_output: native.out == confined.out && native.status == confined.status,
        output_bytes: confined.out.len(),
        movable: seen.compliance.movable,
        in_colors: seen.compliance.in_colors,
        compliance: seen.compliance.share,
        complied_after: seen.complied_after,
        fallback_pages: count("fallback_pages"),
        native_pass: pass(&native.err),
        confined_pass: pass(&confined.err),
        confined_seconds: seconds("program_seconds"),
        prepare_seconds: seconds("prepare_seconds") + seconds("gather_seconds"),
    })
}

/// What the program says of itself.
fn pass(err: &str) -> Option<f64> {
    let said = err.lines().find_map(|line| line.strip_prefix("a pass took "))?;
    said.strip_suffix(" s")?.parse().ok()
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

impl DemoProgram {
    /// Why its pages prove nothing; empty when they do.
    pub fn doubts(&self) -> Vec<String> {
        if self.movable == 0 {
            return vec![format!("the pages of {} were not looked at in the time", self.name)];
        }
        let (percent, seconds) = (self.compliance * 100.0, self.confined_seconds);
        let what = || {
            format!(
                "only {percent:.2} % of the pages of {} were in its colours after {seconds:.1} s",
                self.name
            )
        };
        self.complied_after.is_none().then(what).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(status: i32, out: &str, err: &str) -> Ended {
        Ended { status: Some(status), out: out.into(), err: err.into() }
    }

    fn seen(movable: u64, in_colors: u64, complied_after: Option<f64>) -> Seen {
        let share = in_colors as f64 / movable.max(1) as f64;
        Seen { compliance: Compliance { movable, in_colors, share }, complied_after }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    const REPORT: &str = "a pass took 0.2500 s\n{\n  \"colors\": \"0-7\", \"of\": 16, \"colors_from\": \"pfn\",\n\
        \"program_seconds\": 1.1, \"gather_seconds\": 0.3, \"prepare_seconds\": 0.1,\n\
        \"fallback_pages\": 2 }\n";

    #[test]
    fn the_report_is_read_and_the_outputs_compared() {
        let (native, seen) = (ended(0, "x", "a pass took 0.2400 s\n"), seen(1000, 998, Some(0.4)));
        let same = judge("perl", &native, &ended(0, "x", REPORT), &seen).unwrap();
        assert!(same.same_output && same.doubts().is_empty(), "{same:?}");
        assert_eq!((same.movable, same.in_colors, same.of), (1000, 998, 16));
        assert_eq!((same.native_pass, same.confined_pass), (Some(0.24), Some(0.25)));
        assert!((same.prepare_seconds - 0.4).abs() < 1e-9);
        let other = judge("perl", &native, &ended(0, "y", REPORT), &seen).unwrap();
        assert!(!other.same_output, "{other:?}");
    }

    #[test]
    fn a_failing_run_keeps_its_words_and_its_status() {
        let refused = ended(101, "", "huepage: too old; use Linux 6.8\n");
        let error = judge("sort", &ended(0, "x", ""), &refused, &Seen::default()).unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            (ExitCode::Kernel, "too old; use Linux 6.8")
        );
        let crash = ended(42, "", "");
        let crash = judge("sort", &ended(0, "x", ""), &crash, &Seen::default()).unwrap_err();
        assert_eq!(crash.code, ExitCode::Internal);
    }

    #[test]
    fn pages_that_were_not_seen_or_are_elsewhere_prove_nothing() {
        let doubts = |seen| {
            let found = judge("sort", &ended(0, "x", ""), &ended(0, "x", REPORT), &seen);
            found.unwrap().doubts().concat()
        };
        assert!(doubts(Seen::default()).contains("not looked at"));
        assert!(doubts(seen(100, 90, None)).contains("only 90.00 %"));
        assert_eq!(doubts(seen(100, 99, Some(1.0))), "");
    }

    #[test]
    fn input_is_the_same_each_time_and_ends_when_the_time_is_up() {
        let text = |most, until| {
            let mut text = Vec::new();
            (Feed { most, until }.write(&mut text).unwrap(), text)
        };
        let (lines, all) = text(2000, None);
        assert_eq!((lines, text(2000, Some(soon()))), (2000, (2000, all.clone())));
        assert_eq!(all.iter().filter(|&&byte| byte == b'\n').count(), 2001);
        assert_eq!(text(2000, Some(Instant::now())), (0, b".\n".to_vec()));
    }

    #[test]
    fn a_program_lives_until_its_input_ends_and_gets_all_of_it() {
        let feed = Feed { most: 2000, until: None };
        let mut running = Running::start(&mut Command::new("cat"), feed).unwrap();
        assert_eq!(running.fed(soon()).unwrap(), 2000);
        thread::sleep(Duration::from_millis(50));
        assert!(!running.is_over());
        let ended = running.finish(soon()).unwrap();
        assert_eq!(ended.status, Some(0));
        assert_eq!(ended.out.iter().filter(|&&byte| byte == b'\n').count(), 2001);
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_and_told() {
        let mut sleep = Command::new("sleep");
        let feed = Feed { most: 0, until: None };
        let running = Running::start(sleep.arg("600"), feed).unwrap();
        let pid = running.child.id();
        let error = running.finish(Instant::now() + Duration::from_millis(50)).err().unwrap();
        assert_eq!(cannot("sleep", &error).code, ExitCode::Noisy);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "it is left running");
    }

    #[test]
    fn the_real_program_writes_the_same_however_long_it_works() {
        if launch::resolve(OsStr::new("perl")).is_err() {
            return huepage_testing::skip("the_real_program_writes_the_same", "no perl");
        }
        let work = |time| {
            let (mut perl, feed) = (Command::new("perl"), Feed { most: 3000, until: None });
            let mut running = Running::start(perl.args(["-e", PERL]), feed).unwrap();
            running.fed(soon()).unwrap();
            thread::sleep(time);
            running.finish(soon()).unwrap()
        };
        let [short, long] = [10, 300].map(|ms| work(Duration::from_millis(ms)));
        assert_eq!((short.status, &short.out), (Some(0), &long.out), "{}", short.err);
        assert!(short.out.len() > 1000 && pass(&long.err).is_some(), "{}", long.err);
    }
}
