//! Bad input: each kind gives its documented exit status and one line that says what to do,
//! and the process it was aimed at goes on as if nothing had happened.
//!
//! What cannot be made here (an old kernel) is left to unit tests and said to be skipped.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use clap::Args;

use crate::harness::{Bench, Suite, tool};
use crate::launch::{Huepage, bounded};
use crate::mix::Rng;
use crate::sys;
use crate::verdict::SuiteVerdict;

/// An answer that takes longer never comes.
const LIMIT: Duration = Duration::from_secs(20);
/// The user for "not root".
const NOBODY: u32 = 65534;

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
    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        verdict.skip("kernel too old: only a unit test can pretend that");
        run_cases(verdict, &Tool { huepage: bench.huepage, with: bench.options })
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
    let bystander = Bystander::start()?;
    let maps = bystander.maps()?;
    for case in cases(&bystander.pid(), &dead_pid()?, &small.to_string_lossy()) {
        let output = call(tool, &case)?;
        judge(verdict, &case, &output);
    }
    let untouched = bystander.maps()? == maps;
    verdict.require(untouched, || "a failed command changed its target's mappings".to_owned());
    attach_twice(verdict, tool, &bystander)?;
    attach_small(verdict, tool, &small)?;
    verdict.require(bystander.finish()?, || "the bystander's answer is wrong".to_owned());
    attach_to_the_dying(verdict, tool)
}

fn call(tool: &Tool, case: &Case) -> io::Result<Output> {
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
fn judge(verdict: &mut SuiteVerdict, case: &Case, output: &Output) {
    let status = output.status.code();
    let said = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    let right_status = status.is_some_and(|s| case.statuses.contains(&s));
    // Usage errors (2) come from the argument parser, which also shows the usage.
    let one_line = said.lines().count() == 1 && said.starts_with("huepage:") || status == Some(2);
    verdict.row([
        ("input", case.name.into()),
        ("status", status.map_or(Value::Null, Value::from)),
        ("message", said.lines().next().unwrap_or_default().into()),
    ]);
    verdict.require(right_status, || {
        format!("{}: status {status:?} is none of {:?}: {said}", case.name, case.statuses)
    });
    verdict.require(one_line, || format!("{}: not one line: {said:?}", case.name));
    verdict.require(output.stdout.is_empty(), || format!("{}: wrote to stdout", case.name));
}

/// A process with a known answer that bad commands are aimed at.
struct Bystander(Child);

impl Bystander {
    fn start() -> io::Result<Bystander> {
        let torture = tool("huepage-torture")?;
        let mut command = Command::new(torture);
        command.args(["answer", "--mib", "8", "--seconds", "300", "--right", "42"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        std::thread::sleep(Duration::from_millis(300));
        Ok(Bystander(child))
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn maps(&self) -> io::Result<String> {
        fs::read_to_string(format!("/proc/{}/maps", self.0.id()))
    }

    fn finish(mut self) -> io::Result<bool> {
        sys::kill(self.0.id(), libc::SIGTERM)?;
        Ok(self.0.wait()?.code() == Some(42))
    }
}

impl Drop for Bystander {
    /// It holds our standard error: whoever reads that would wait for it when a case could not be
    /// run. Ends nothing that has been finished.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn attach_twice(verdict: &mut SuiteVerdict, tool: &Tool, target: &Bystander) -> io::Result<()> {
    let attach = || {
        let mut command = tool.command(&["attach", "--quiet", "--share", "50%"]);
        bounded(command.arg(target.pid()), LIMIT)
    };
    let first = attach()?;
    verdict.require(first.status.success(), || {
        format!("attach fails: {}", String::from_utf8_lossy(&first.stderr))
    });
    judge(verdict, &case("attach twice", &[108], &[]), &attach()?);
    let detach = bounded(tool.command(&["detach"]).arg(target.pid()), LIMIT)?;
    verdict.require(detach.status.success(), || {
        format!("detach fails: {}", String::from_utf8_lossy(&detach.stderr))
    });
    Ok(())
}

fn attach_small(verdict: &mut SuiteVerdict, tool: &Tool, small: &Path) -> io::Result<()> {
    let mut child = match Command::new(small).spawn() {
        Ok(child) => child,
        Err(error) => {
            verdict.skip(format!("a 32-bit target: this kernel cannot run one ({error})"));
            return Ok(());
        }
    };
    let pid = child.id().to_string();
    let output = bounded(&mut tool.command(&["attach", "--share", "50%", &pid]), LIMIT)?;
    judge(verdict, &case("attach, 32-bit target", &[105], &[]), &output);
    let alive = child.try_wait()?.is_none();
    verdict.require(alive, || "the 32-bit target did not survive".to_owned());
    child.kill()?;
    child.wait()?;
    Ok(())
}

/// Attaches to processes that end at about the same time.
fn attach_to_the_dying(verdict: &mut SuiteVerdict, tool: &Tool) -> io::Result<()> {
    let mut rng = Rng::new(3);
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..20 {
        let life = format!("0.{:03}", rng.below(400));
        let mut child = Command::new("sleep").arg(&life).spawn()?;
        let pid = child.id().to_string();
        let reaper = std::thread::spawn(move || child.wait());
        let args = ["attach", "--quiet", "--foreground", "--share", "25%", &pid];
        let output = bounded(&mut tool.command(&args), LIMIT)?;
        let natural = reaper.join().is_ok_and(|s| s.is_ok_and(|s| s.success()));
        verdict.require(natural, || format!("a sleep of {life} s did not end by itself"));
        *counts.entry(output.status.code().unwrap_or(-1).to_string()).or_insert(0) += 1;
        if !output.status.success() {
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
