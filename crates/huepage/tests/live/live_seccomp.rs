//! Programs under seccomp: one whose filter permits exactly the calls that confining takes, and kills for
//! every other, is confined and released; where one call of them is missing, that call is named and
//! the program goes on.

use crate::common;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use huepage_linux::inject::calls::{AGENT, IDS, LANDLOCK, SESSION};
use huepage_linux::inject::filters::Probe;
use huepage_linux::inject::filters::bpf::{Insn, code};
use serde_json::Value;

/// Installs the filter that is its argument, computes for as many seconds, says a sum and ends with 7.
const SCRIPT: &str = "
import ctypes, os, sys, time
words = bytes.fromhex(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
class Program(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ushort), ('code', ctypes.c_char_p)]
memory = bytearray(b'x' * (24 << 20))
until = time.monotonic() + float(sys.argv[2])
program = Program(len(words) // 8, words)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
os.write(1, b'ready\\n')
while time.monotonic() < until:
    for at in range(0, len(memory), 4096):
        memory[at] = (memory[at] + 1) % 250
    libc.poll(None, 0, 20)
os.write(1, b'%d\\n' % len(set(memory[0::4096])))
os._exit(7)
";
/// What the script itself calls: write, a wait with a timeout, clock, exit, and what its allocator may.
const OWN: [i64; 6] = [
    libc::SYS_write,
    libc::SYS_poll,
    libc::SYS_clock_gettime,
    libc::SYS_exit_group,
    libc::SYS_brk,
    libc::SYS_rt_sigreturn,
];
const ALLOW: Insn = Insn::new(code::RET_K, 0x7fff_0000);
const KILL: Insn = Insn::new(code::RET_K, 0x8000_0000);
const EQUAL: u16 = code::JMP | code::JEQ;

/// Permits a call with exactly the arguments that are known.
fn permit(probe: &Probe) -> Vec<Insn> {
    let mut tests = vec![(0, u32::try_from(probe.number).unwrap())];
    for (at, value) in (4u32..).step_by(2).zip(probe.arguments) {
        if let Some(value) = value {
            let halves =
                [value & 0xffff_ffff, value >> 32].map(|half| u32::try_from(half).unwrap());
            tests.extend([(at, halves[0]), (at + 1, halves[1])]);
        }
    }
    let mut list = Vec::new();
    for (i, (word, value)) in tests.iter().enumerate() {
        let behind = u8::try_from(2 * (tests.len() - i - 1) + 1).unwrap();
        list.push(Insn::new(code::LD_ABS, 4 * word));
        list.push(Insn::jump(EQUAL, *value, 0, behind));
    }
    list.push(ALLOW);
    list
}

/// A filter that permits these calls and the script's own, and kills for all others.
fn filter<'a>(calls: impl Iterator<Item = &'a Probe>) -> String {
    let own = OWN.iter().map(|&number| Probe::new("", number, &[]));
    let list = own.chain(calls.copied()).flat_map(|probe| permit(&probe)).chain([KILL]);
    let bytes = list.flat_map(|i| {
        let mut bytes = [0; 8];
        bytes[..2].copy_from_slice(&i.code.to_ne_bytes());
        (bytes[2], bytes[3]) = (i.jt, i.jf);
        bytes[4..].copy_from_slice(&i.k.to_ne_bytes());
        bytes
    });
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

struct Sandboxed(Child, BufReader<ChildStdout>);

impl Sandboxed {
    fn start(filter: &str, seconds: &str) -> Sandboxed {
        let mut python = Command::new("/usr/bin/python3");
        python.args(["-c", SCRIPT, filter, seconds]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = python.spawn().expect("setup-programs.sh installs python3");
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Sandboxed(child, said)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// It ended by itself, with the right answer.
    fn finish(mut self) {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        let status = self.0.wait().unwrap();
        assert_eq!((status.code(), line.as_str()), (Some(7), "1\n"), "{status}");
    }
}

impl Drop for Sandboxed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const ATTACH: [&str; 6] = ["attach", "-q", "--share", "50%", "--colors-from", "declared"];

#[test]
fn a_filter_with_exactly_the_listed_calls_permits_it_all() {
    let Some(_turn) = common::live("a_filter_with_exactly_the_listed_calls") else { return };
    let all = filter(SESSION.iter().chain(AGENT).chain(LANDLOCK).chain(IDS));
    let target = Sandboxed::start(&all, "8");
    let pid = target.pid();
    let attached = common::huepage(&[&ATTACH[..], &[&pid]].concat());
    assert!(attached.status.success(), "{attached:?}");
    let started = Instant::now();
    loop {
        let output = common::huepage(&["inspect", "--json", &pid]);
        let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if found["compliance"]["share"].as_f64() >= Some(0.99) {
            break;
        }
        assert!(started.elapsed() < common::HANGS, "{output:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let released = common::huepage(&["detach", &pid]);
    assert!(released.status.success(), "{released:?}");
    target.finish();
}

#[test]
fn a_filter_without_one_of_them_is_named_and_the_program_goes_on() {
    let Some(_turn) = common::live("a_filter_without_one_of_them_is_named") else { return };
    // Without the last one a wait that was interrupted to look at the program cannot go on.
    for missing in
        ["ioctl(UFFDIO_MOVE)", "socketpair(2)", "rt_sigprocmask(2)", "restart_syscall(2)"]
    {
        let all = SESSION.iter().chain(AGENT).chain(LANDLOCK).chain(IDS);
        let some = all.filter(|probe| probe.name != missing);
        let target = Sandboxed::start(&filter(some), "3");
        let refused = common::huepage(&[&ATTACH[..], &[&target.pid()]].concat());
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(107), "{said}");
        assert!(said.contains(missing) && said.trim_end().lines().count() == 1, "{said}");
        target.finish();
    }
}

#[test]
fn without_landlock_it_is_confined_all_the_same() {
    let Some(_turn) = common::live("without_landlock_it_is_confined_all_the_same") else { return };
    let target = Sandboxed::start(&filter(SESSION.iter().chain(AGENT).chain(IDS)), "4");
    let pid = target.pid();
    let attached = common::huepage(&[&ATTACH[..], &[&pid]].concat());
    assert!(attached.status.success(), "{attached:?}");
    let released = common::huepage(&["detach", &pid]);
    assert!(released.status.success(), "{released:?}");
    target.finish();
}
