//! Bad input: each kind gives its documented exit status and one line that says what to do,
//! and the process it was aimed at goes on as if nothing had happened.
//!
//! What cannot be made here (an old kernel) is left to unit tests and said to be skipped.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::Args;

use crate::harness::{Bench, Guard, Suite, SuiteFigures, bounded};
use crate::launch::{Captured, End, Huepage, answering};
use crate::mix::Rng;
use crate::rights::NOBODY;
use crate::sys;
use crate::verdict::SuiteVerdict;

/// An answer that takes longer never comes.
const LIMIT: Duration = Duration::from_secs(20);

/// One kind of bad input.
struct Case {
    name: &'static str,
    args: Vec<String>,
    /// Documented statuses, any of which is right.
    statuses: &'static [i32],
    as_nobody: bool,
}

fn case(name: &'static str, statuses: &'static [i32], args: &[&str]) -> Case {
    let args = args.iter().map(|a| (*a).to_owned()).collect();
    Case { name, args, statuses, as_nobody: false }
}

/// The cases, given a process that is alive, one that is not, and a directory with a 32-bit
/// program in it.
fn cases(alive: &str, dead: &str, small: &str) -> Vec<Case> {
    let nobody = |case: Case| Case { as_nobody: true, ..case };
    vec![
        nobody(case("run, not root", &[100], &["run", "--share", "50%", "--", "true"])),
        nobody(case("attach, not root", &[100, 103], &["attach", "--share", "50%", alive])),
        nobody(case("inspect, other user", &[100, 103], &["inspect", alive])),
        case("attach, no such pid", &[102], &["attach", "--share", "50%", dead]),
        case("inspect, no such pid", &[102], &["inspect", dead]),
        case("detach, no such pid", &[102], &["detach", dead]),
        case("detach, not attached", &[111], &["detach", alive]),
        case("attach, kernel thread", &[103, 105], &["attach", "--share", "50%", "2"]),
        case("empty colour set", &[2, 104], &["run", "--colors", "", "--", "true"]),
        case("colour set too large", &[104], &["run", "--colors", "0-99999", "--", "true"]),
        case("colours overlap", &[104], &["run", "--colors", "0-3,2", "--", "true"]),
        case("colours are no set", &[104], &["run", "--colors", "red", "--", "true"]),
        case("share of nothing", &[104], &["run", "--share", "0.1%", "--", "true"]),
        case("share above all", &[104], &["run", "--share", "101%", "--", "true"]),
        case("attach, share of nothing", &[104], &["attach", "--share", "0%", alive]),
        case("no such program", &[127], &["run", "--share", "50%", "--", "/no/such/program"]),
        case("no program", &[126], &["run", "--share", "50%", "--", "/etc/passwd"]),
        case("a directory", &[126], &["run", "--share", "50%", "--", "/etc"]),
        case("32-bit program", &[105], &["run", "--share", "50%", "--", small]),
    ]
}

/// Bad input of every kind.
#[derive(Args, Clone, Debug)]
pub struct BadInput {}

impl Suite for BadInput {
    const FIGURES: SuiteFigures = &[("P16", &[""])];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        verdict.skip("kernel too old: only a unit test can pretend that");
        run_cases(verdict, &Tool { huepage: bench.huepage, with: bench.options })?;
        verdict.figure_of_missed("P16", "");
        Ok(())
    }
}

/// `huepage` with options for each command that takes a partition.
struct Tool<'a> {
    huepage: &'a Huepage,
    with: &'a [&'a str],
}

impl Tool<'_> {
    fn arguments(&self, args: &[&str]) -> Vec<String> {
        let takes_partition = matches!(args.first(), Some(&("run" | "attach")));
        let with = if takes_partition { self.with } else { &[] };
        let (name, rest) = args.split_at(1);
        [name, with, rest].concat().into_iter().map(str::to_owned).collect()
    }

    fn command(&self, args: &[&str]) -> Command {
        self.huepage.command(self.arguments(args))
    }
}

fn run_cases(verdict: &mut SuiteVerdict, tool: &Tool) -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    let small = dir.path().join("small");
    fs::write(&small, small_program())?;
    fs::set_permissions(&small, fs::Permissions::from_mode(0o755))?;
    let bystander = Captured::start(&mut answering(8, 300.0)?)?;
    std::thread::sleep(Duration::from_millis(300));
    let pid = bystander.id();
    let maps = || fs::read_to_string(format!("/proc/{pid}/maps"));
    let before = maps()?;
    for case in cases(&pid.to_string(), &dead_pid()?, &small.to_string_lossy()) {
        judge(verdict, &case, &call(tool, &case)?);
    }
    let untouched = maps()? == before;
    verdict.require(untouched, || "a failed command changed its target's mappings".to_owned());
    attach_twice(verdict, tool, &pid.to_string())?;
    attach_small(verdict, tool, &small)?;
    sys::kill(pid, libc::SIGTERM)?;
    let wrong = bystander.end(LIMIT)?.wrong_answer();
    verdict.require(wrong.is_none(), || "the bystander's answer is wrong".to_owned());
    attach_to_the_dying(verdict, tool)
}

fn call(tool: &Tool, case: &Case) -> io::Result<End> {
    let args: Vec<&str> = case.args.iter().map(String::as_str).collect();
    let mut command = tool.command(&args);
    if !case.as_nobody {
        return bounded(&mut command, LIMIT);
    }
    // The binary may lie where nobody cannot reach it: a copy of it then, in a fresh place.
    let place = tempfile::tempdir()?;
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755))?;
    let copy = place.path().join("huepage");
    fs::copy(&tool.huepage.path, &copy)?;
    let mut command = Command::new(copy);
    bounded(command.args(tool.arguments(&args)).uid(NOBODY).gid(NOBODY), LIMIT)
}

/// Documented status, nothing on standard output, one line on standard error.
fn judge(verdict: &mut SuiteVerdict, case: &Case, end: &End) {
    let (status, said) = (end.status, end.err.trim_end());
    let right_status = case.statuses.contains(&status);
    // Usage errors (2) come from the argument parser, which also shows the usage.
    let one_line = said.lines().count() == 1 && said.starts_with("huepage:") || status == 2;
    verdict.row([
        ("input", case.name.into()),
        ("status", status.into()),
        ("message", said.lines().next().unwrap_or_default().into()),
    ]);
    verdict.require(right_status, || {
        format!("{}: status {status} is none of {:?}: {said}", case.name, case.statuses)
    });
    verdict.require(one_line, || format!("{}: not one line: {said:?}", case.name));
    verdict.require(end.out.is_empty(), || format!("{}: wrote to stdout", case.name));
}

fn attach_twice(verdict: &mut SuiteVerdict, tool: &Tool, pid: &str) -> io::Result<()> {
    let call = |args: &[&str]| bounded(tool.command(args).arg(pid), LIMIT);
    let attach = ["attach", "--quiet", "--share", "50%"];
    let first = call(&attach)?;
    verdict.require(first.status == 0, || format!("attach fails: {}", first.err));
    judge(verdict, &case("attach twice", &[108], &[]), &call(&attach)?);
    let detach = call(&["detach"])?;
    verdict.require(detach.status == 0, || format!("detach fails: {}", detach.err));
    Ok(())
}

fn attach_small(verdict: &mut SuiteVerdict, tool: &Tool, small: &Path) -> io::Result<()> {
    let mut child = match Command::new(small).spawn() {
        Ok(child) => Guard(child),
        Err(error) => {
            verdict.skip(format!("a 32-bit target: this kernel cannot run one ({error})"));
            return Ok(());
        }
    };
    let pid = child.id().to_string();
    let output = bounded(&mut tool.command(&["attach", "--share", "50%", &pid]), LIMIT)?;
    judge(verdict, &case("attach, 32-bit target", &[105], &[]), &output);
    verdict.require(child.alive(), || "the 32-bit target did not survive".to_owned());
    Ok(())
}

/// Attaches to processes that end at about the same time.
fn attach_to_the_dying(verdict: &mut SuiteVerdict, tool: &Tool) -> io::Result<()> {
    let mut rng = Rng::with_seed(3);
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..20 {
        let life = format!("0.{:03}", rng.usize(..400));
        let mut child = Command::new("sleep").arg(&life).spawn()?;
        let pid = child.id().to_string();
        let reaper = std::thread::spawn(move || child.wait());
        let args = ["attach", "--quiet", "--foreground", "--share", "25%", &pid];
        let output = bounded(&mut tool.command(&args), LIMIT)?;
        let natural = reaper.join().is_ok_and(|s| s.is_ok_and(|s| s.success()));
        verdict.require(natural, || format!("a sleep of {life} s did not end by itself"));
        *counts.entry(output.status.to_string()).or_insert(0) += 1;
        if output.status != 0 {
            judge(verdict, &case("target exits during attach", &[102, 106], &[]), &output);
        }
    }
    verdict.total("attached while the target ended, by status", format!("{counts:?}"));
    Ok(())
}

/// A pid that no process has.
fn dead_pid() -> io::Result<String> {
    let mut child = Command::new("true").spawn()?;
    child.wait()?;
    Ok(child.id().to_string())
}

/// A 32-bit x86 program, header and all, that does nothing but wait for signals.
fn small_program() -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    let code: &[u8] = &[0xb8, 29, 0, 0, 0, 0xcd, 0x80, 0xeb, 0xf7]; // pause(), again
    let headers = 52 + 32;
    let size = headers + 9;
    let half = |n: u16| n.to_le_bytes().to_vec();
    let word = |n: u32| n.to_le_bytes().to_vec();
    let mut elf = b"\x7fELF\x01\x01\x01".to_vec();
    elf.resize(16, 0);
    elf.extend([half(2), half(3), word(1), word(BASE + headers), word(52), word(0)].concat());
    elf.extend([word(0), half(52), half(32), half(1), half(40), half(0), half(0)].concat());
    elf.extend([word(1), word(0), word(BASE), word(BASE), word(size), word(size)].concat());
    elf.extend([word(5), word(4096)].concat());
    elf.extend(code);
    elf
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_program_is_a_32_bit_elf_of_the_size_it_states() {
        let elf = small_program();
        assert_eq!((&elf[..4], elf[4]), (b"\x7fELF".as_slice(), 1));
        assert_eq!(elf.len(), 52 + 32 + 9);
        assert_eq!(u32::from_le_bytes(elf[24..28].try_into().unwrap()), 0x0804_8000 + 84);
    }

    #[test]
    fn a_dead_pid_is_dead() {
        let pid: u32 = dead_pid().unwrap().parse().unwrap();
        assert!(crate::sys::kill(pid, 0).is_err());
    }
}
