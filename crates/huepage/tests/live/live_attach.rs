//! A running process is attached to, inspected and released, and ends with the right answer.

use crate::common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::Target;
use serde_json::Value;

fn inspect(pid: &str) -> Option<Value> {
    let output = common::huepage(&["inspect", "--json", pid]);
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

/// Waits for compliance to reach 99 %; the last inspection.
fn settled(pid: &str) -> Value {
    let started = Instant::now();
    loop {
        let found = inspect(pid).expect("an attached process can be inspected");
        let share = found["compliance"]["share"].as_f64().unwrap();
        if share >= 0.99 {
            return found;
        }
        assert!(started.elapsed() < common::HANGS, "still {share}: {found}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn attach_recolours_and_detach_releases() {
    let Some(_turn) = common::live("attach_recolours_and_detach_releases") else { return };
    is_recoloured_and_released(Target::start("600"));
}

/// The areas of an agent fit what is left to it.
#[test]
fn a_target_with_few_addresses_is_recoloured_and_released() {
    let Some(_turn) = common::live("a_target_with_few_addresses") else { return };
    let target = Target::start("600");
    let limit = Some(1 << 30);
    let limits = rustix::process::Rlimit { current: limit, maximum: limit };
    let pid = target.pid().parse().ok().and_then(rustix::process::Pid::from_raw);
    rustix::process::prlimit(pid, rustix::process::Resource::As, limits).unwrap();
    is_recoloured_and_released(target);
}

fn is_recoloured_and_released(target: Target) {
    let pid = target.pid();
    let attach = ["attach", "-q", "--share", "50%", "--colors-from", "declared", &pid];
    let attached = common::huepage(&attach);
    assert!(attached.status.success(), "{attached:?}");
    let found = settled(&pid);
    assert!(found["compliance"]["movable"].as_u64() >= Some(4096), "{found}");
    let released = common::huepage(&["detach", &pid]);
    assert!(released.status.success(), "{released:?}");
    assert_eq!(common::huepage(&["detach", &pid]).status.code(), Some(111));
    assert_eq!(target.end(), Some(42));
}

/// Where the kernel gives one to all, a program that lacks it may have prepared anything in its place.
#[test]
fn a_target_that_took_its_vdso_away_is_refused_and_goes_on() {
    let Some(_turn) = common::live("a_target_that_took_its_vdso_away") else { return };
    const SCRIPT: &str = "
import ctypes, os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
vdso = next(line for line in open('/proc/self/maps') if '[vdso]' in line)
start, end = (int(number, 16) for number in vdso.split()[0].split('-'))
assert ctypes.CDLL(None).munmap(ctypes.c_void_p(start), ctypes.c_size_t(end - start)) == 0
signal.sigwait([signal.SIGTERM])
os._exit(42)
";
    let mut child = Command::new("/usr/bin/python3").args(["-c", SCRIPT]).spawn().unwrap();
    let pid = child.id().to_string();
    // One reading for both: a program that has just begun has neither yet.
    let took_it_away = || {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        maps.contains("libc") && !maps.contains("[vdso]")
    };
    let started = Instant::now();
    while !took_it_away() {
        assert!(started.elapsed() < common::HANGS, "it does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    let output =
        common::huepage(&["attach", "-q", "--share", "50%", "--colors-from", "declared", &pid]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.trim_end().lines().count() == 1, "{output:?}");
    assert!(said.contains("no usable vDSO"), "{said}");
    let raw = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(raw, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(42));
}

/// What a program denies itself is not lifted behind its back: the message says how to.
/// A process that is refused for whom it shares with is not stopped for it: its system calls go on.
#[test]
fn a_target_that_shares_its_descriptors_is_refused_without_a_stop() {
    let test = "a_target_that_shares_its_descriptors_is_refused_without_a_stop";
    let Some(_turn) = common::live(test) else { return };
    // epoll_wait(2) ends with EINTR when its thread is stopped, and else when the input ends.
    const SCRIPT: &str = "
import ctypes, os, signal
CLONE, CLONE_FILES, EPOLLIN = 56, 0x400, b'\\1\\0\\0\\0' + bytes(8)
libc = ctypes.CDLL(None, use_errno=True)
child = libc.syscall(CLONE, CLONE_FILES | signal.SIGCHLD, 0, 0, 0, 0)
while child == 0: signal.pause()
epoll = libc.epoll_create1(0)
assert libc.epoll_ctl(epoll, 1, 0, EPOLLIN) == 0
print('ready', flush=True)
seen = libc.epoll_wait(epoll, ctypes.create_string_buffer(12), 1, -1)
os.kill(child, signal.SIGKILL)
os._exit(42 if seen == 1 else ctypes.get_errno())
";
    let mut command = Command::new("/usr/bin/python3");
    let pipes = command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let pid = child.id().to_string();
    let refused =
        common::huepage(&["attach", "-q", "--share", "50%", "--colors-from", "declared", &pid]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    drop(child.stdin.take());
    let code = child.wait().unwrap().code();
    assert!(!refused.status.success() && said.contains("shares memory or descriptors"), "{said}");
    assert_eq!(code, Some(42), "an error number");
}

#[test]
fn a_target_that_may_have_no_threads_is_told_how_to_allow_them() {
    let Some(_turn) = common::live("a_target_that_may_have_no_threads") else { return };
    const SCRIPT: &str = "
import os, resource, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
signal.sigwait([signal.SIGTERM])
os._exit(42)
";
    let mut child = Command::new("/usr/bin/python3").args(["-c", SCRIPT]).spawn().unwrap();
    let pid = child.id().to_string();
    let limits = || std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let started = Instant::now();
    while !limits()
        .lines()
        .any(|line| line.split_whitespace().nth(2) == Some("0") && line.contains("processes"))
    {
        assert!(started.elapsed() < common::HANGS, "{}", limits());
        std::thread::sleep(Duration::from_millis(20));
    }
    let attach = ["attach", "-q", "--share", "50%", "--colors-from", "declared", &pid];
    let refused = common::huepage(&attach);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.trim_end().lines().count() == 1, "{refused:?}");
    let advice = format!("prlimit --pid {pid} --nproc=64:64");
    assert!(said.contains(&advice), "{said}");
    let mut words = advice.split(' ');
    // Root of a container may lack the right to lift a limit (CAP_SYS_RESOURCE).
    let lifted = Command::new(words.next().unwrap()).args(words).status().unwrap().success();
    let attached = common::huepage(&attach);
    assert_eq!(attached.status.success(), lifted, "{attached:?}");
    let raw = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(raw, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(42));
}

#[test]
fn a_foreground_attach_ends_with_ctrl_c_and_leaves_the_target() {
    let Some(_turn) = common::live("a_foreground_attach_ends_with_ctrl_c") else { return };
    let target = Target::start("600");
    let pid = target.pid();
    let args = ["attach", "-q", "--foreground", "--share", "25%", "--colors-from", "declared"];
    let mut attached = Command::new(common::HUEPAGE).args(args).arg(&pid).spawn().unwrap();
    let started = Instant::now();
    while inspect(&pid).is_none() {
        assert!(started.elapsed() < common::HANGS, "it is not attached");
        std::thread::sleep(Duration::from_millis(100));
    }
    let stop = Command::new("kill").args(["-INT", &attached.id().to_string()]).status();
    assert!(stop.unwrap().success());
    attached.wait().unwrap();
    let after = inspect(&pid).is_some();
    assert_eq!(target.end(), Some(42));
    assert!(!after, "attached still");
}

#[test]
fn the_report_of_a_run_is_complete() {
    let Some(_turn) = common::live("the_report_of_a_run_is_complete") else { return };
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report.json");
    let torture = common::tools().join("huepage-torture");
    let output = Command::new(common::HUEPAGE)
        .args(["run", "-q", "--share", "25%", "--colors-from", "declared", "--report"])
        .arg(&report)
        .arg("--")
        .arg(torture)
        .args(["answer", "--mib", "16", "--seconds", "4", "--right", "42"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(42), "{output:?}");
    let report: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert!(report["program_seconds"].as_f64() > Some(0.0), "{report}");
    assert!(report["faults_served"].as_u64() > Some(0), "{report}");
    assert!(report["compliance"]["movable"].as_u64() >= Some(4096), "{report}");
    // It starts at once: beside others, its first pages are outside for some tenths of a second.
    for share in [&report["compliance"]["share"], &report["compliance_over_time"]] {
        assert!(share.as_f64() >= Some(0.99), "{report}");
    }
    assert_eq!(report["missed"].as_array().unwrap().len(), 0, "{report}");
}
