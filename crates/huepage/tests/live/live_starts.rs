//! An agent's start fails at every step that there is, or the process ends there: what is left is
//! what was before, or the exit status that the process had.

use crate::common;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use huepage_linux::inject::Session;
use huepage_linux::inject::agent::protocol::UNPRIVILEGED_ID;
use huepage_linux::inject::agent::{
    Agent, AgentError, AgentOptions, StartFaults, agent_step, start_step,
};

/// Three more threads that wait, blocked signals, a handler, memory in use.
const SCRIPT: &str = "
import signal, threading, time
signal.signal(signal.SIGUSR1, lambda *a: None)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
memory = bytearray(b'x' * (8 << 20))
for _ in range(3):
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
print('ready', flush=True)
time.sleep(3600)
";

/// A process with several threads, ended when dropped.
struct Waiting(Child);

impl Waiting {
    /// With a uid of its own if one is given.
    fn start(uid: Option<u32>) -> Waiting {
        Waiting::run(SCRIPT, uid)
    }

    fn run(script: &str, uid: Option<u32>) -> Waiting {
        use std::io::{BufRead, BufReader};
        use std::os::unix::process::CommandExt;
        let mut python = Command::new("/usr/bin/python3");
        python.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped());
        if let Some(uid) = uid {
            python.uid(uid).gid(uid);
        }
        let mut child = python.spawn().expect("setup-programs.sh installs python3");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let target = Waiting(child);
        target.settle();
        target
    }

    fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }

    /// Waits until every thread sleeps.
    fn settle(&self) {
        let start = Instant::now();
        let asleep = |tid: &str| {
            let stat = format!("/proc/{}/task/{tid}/stat", self.pid());
            std::fs::read_to_string(stat).is_ok_and(|text| text.contains(") S "))
        };
        while !(self.threads().len() == 4 && self.threads().iter().all(|tid| asleep(tid))) {
            assert!(start.elapsed() < common::HANGS, "its threads do not come to rest");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn threads(&self) -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        tasks.map(|task| task.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Everything that a refused process must have as before, by name.
    fn state(&self) -> BTreeMap<String, String> {
        let dir = format!("/proc/{}", self.pid());
        let mut all = BTreeMap::new();
        for file in
            ["maps", "limits", "oom_score_adj", "timerslack_ns", "coredump_filter", "cgroup"]
        {
            all.insert(file.to_owned(), std::fs::read_to_string(format!("{dir}/{file}")).unwrap());
        }
        // Who cannot be looked at belongs to root.
        all.insert(
            "owner".into(),
            std::fs::metadata(format!("{dir}/maps")).unwrap().uid().to_string(),
        );
        for fd in std::fs::read_dir(format!("{dir}/fd")).unwrap() {
            let path = fd.unwrap().path();
            let link = std::fs::read_link(&path).unwrap();
            all.insert(path.display().to_string(), link.display().to_string());
        }
        for tid in self.threads() {
            let status = std::fs::read_to_string(format!("{dir}/task/{tid}/status")).unwrap();
            // But for the signals that all processes of its user have queued, which are others' business.
            let kept = [
                "Name", "Uid", "Gid", "Groups", "SigPnd", "SigBlk", "SigIgn", "SigCgt", "Shd",
                "Cap", "NoNew", "Seccomp", "THP", "Threads", "Cpus",
            ];
            let lines = status.lines().filter(|line| kept.iter().any(|k| line.starts_with(k)));
            all.insert(format!("thread {tid}"), lines.collect::<Vec<_>>().join("\n"));
        }
        all.insert("vDSO".into(), format!("{:?}", self.vdso()));
        all
    }

    fn vdso(&self) -> Vec<u8> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid())).unwrap();
        let line = maps.lines().find(|line| line.ends_with("[vdso]")).expect("a vDSO");
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [start, end] = [start, end].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
        let memory = std::fs::File::open(format!("/proc/{}/mem", self.pid())).unwrap();
        memory.read_exact_at(&mut bytes, start).unwrap();
        bytes
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn options(faults: StartFaults) -> AgentOptions {
    AgentOptions {
        ring_pages: 1 << 10,
        candidate_pages: 1 << 12,
        fault_around: 16,
        strict: false,
        keep_huge: false,
        heir: false,
        faults,
    }
}

fn start(pid: i32, faults: StartFaults) -> Result<Agent, AgentError> {
    let mut session = Session::stop(pid)?;
    let started = Agent::start(pid, &mut session, None, &options(faults));
    session.finish();
    started
}

thread_local! {
    /// The step that fails, or at which the process is killed, of the test that this thread runs.
    static AT: Cell<u64> = const { Cell::new(0) };
}

fn fails(_: i32, step: u64) -> bool {
    step == AT.get()
}

fn dies(pid: i32, step: u64) -> bool {
    if step == AT.get() {
        // SIGKILL.
        let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
        assert!(killed.expect("a shell's kill").success());
    }
    false
}

/// Every way in which a start can be made to fail.
fn all_faults() -> impl Iterator<Item = (String, u64, StartFaults)> {
    let supervisor = start_step::ALL.map(|step| {
        (
            format!("supervisor's step {step}"),
            step,
            StartFaults { supervisor: Some(fails), agent: 0 },
        )
    });
    let agent = (1..=agent_step::LAST).map(|step| {
        (agent_step::name(step).to_owned(), 0, StartFaults { supervisor: None, agent: step })
    });
    supervisor.chain(agent)
}

fn check_every_failure(uid: Option<u32>) {
    let target = Waiting::start(uid);
    let before = target.state();
    let mut ways = 0;
    for (name, step, faults) in all_faults() {
        AT.set(step);
        let error =
            start(target.pid(), faults).err().unwrap_or_else(|| panic!("{name} did not fail"));
        assert!(matches!(error, AgentError::Start { .. }), "{name}: {error}");
        target.settle();
        let after = target.state();
        for (what, was) in &before {
            assert_eq!(after.get(what), Some(was), "{what} after a failure to {name}");
        }
        assert_eq!(after.len(), before.len(), "after a failure to {name}: {after:#?}");
        ways += 1;
    }
    assert!(ways >= 20, "only {ways} ways to fail");
}

#[test]
fn a_refused_process_of_roots_is_as_before() {
    let Some(_turn) = common::live("a_refused_process_of_roots_is_as_before") else { return };
    check_every_failure(None);
}

#[test]
fn a_refused_process_of_another_user_is_as_before() {
    let Some(_turn) = common::live("a_refused_process_of_another_user_is_as_before") else {
        return;
    };
    check_every_failure(Some(65534));
    check_every_failure(Some(1234));
}

#[test]
fn a_released_process_is_as_before() {
    let Some(_turn) = common::live("a_released_process_is_as_before") else { return };
    for uid in [None, Some(1234)] {
        let target = Waiting::start(uid);
        let before = target.state();
        let agent = start(target.pid(), StartFaults::default()).expect("started");
        assert_eq!(target.threads().len(), 4 + 2, "the agent has two threads");
        assert_eq!(agent.threads().len(), 2);
        agent.detach().expect("taken out");
        target.settle();
        let after = target.state();
        for (what, was) in &before {
            assert_eq!(after.get(what), Some(was), "{what}");
        }
        assert_eq!(after.len(), before.len());
    }
}

/// How many of the candidates from `first` on are backed.
fn backed(target: &Waiting, agent: &Agent, first: u64, pages: usize) -> usize {
    let pagemap = std::fs::File::open(format!("/proc/{}/pagemap", target.pid())).unwrap();
    let mut entries = vec![0; pages * 8];
    pagemap.read_exact_at(&mut entries, agent.candidate(first) / 4096 * 8).unwrap();
    // The highest bit says that a page is present.
    entries.chunks(8).filter(|entry| entry[7] & 0x80 != 0).count()
}

#[test]
fn candidates_are_backed_from_both_ends_and_given_back() {
    let Some(_turn) = common::live("candidates_are_backed_from_both_ends") else { return };
    let target = Waiting::start(None);
    let mut agent = start(target.pid(), StartFaults::default()).expect("started");
    let until = |agent: &Agent, first, pages, all| {
        let began = Instant::now();
        while backed(&target, agent, first, pages) != all {
            assert!(began.elapsed() < common::HANGS, "{}", backed(&target, agent, first, pages));
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    agent.back_ahead(0..1000).unwrap();
    until(&agent, 0, 1000, 1000);
    assert_eq!(agent.populate(0, 500, true).unwrap(), 0, "what is backed");
    agent.discard(0, 1000).unwrap();
    assert_eq!(backed(&target, &agent, 0, 1000), 0);
    assert_eq!(agent.populate(3500, 500, false).unwrap(), 0);
    // Those are at higher addresses, as of an earlier round, and keep it from nothing.
    agent.back_ahead(1000..3000).unwrap();
    until(&agent, 1000, 2000, 2000);
    agent.back_ahead(3000..3500).unwrap();
    agent.back_ahead(0..0).unwrap();
    agent.discard(1000, 3000).unwrap();
    assert_eq!(backed(&target, &agent, 0, 4096), 0, "it does not go on");
    agent.detach().unwrap();
}

#[test]
fn agents_have_no_right_that_their_program_lacks() {
    let Some(_turn) = common::live("agents_have_no_right_that_their_program_lacks") else { return };
    for uid in [None, Some(1234)] {
        let target = Waiting::start(uid);
        let agent = start(target.pid(), StartFaults::default()).expect("started");
        let nobody = uid.unwrap_or(UNPRIVILEGED_ID);
        for tid in agent.threads() {
            let status =
                std::fs::read_to_string(format!("/proc/{}/task/{tid}/status", target.pid()))
                    .unwrap();
            let line = |key: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
                line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
            };
            assert_eq!(line("Uid:"), vec![nobody.to_string(); 4]);
            assert_eq!(line("Gid:"), vec![nobody.to_string(); 4]);
            assert!(line("Groups:").is_empty() || uid.is_some(), "{status}");
            for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
                assert_eq!(line(set), ["0000000000000000"], "{set} of {tid}");
            }
            assert_eq!(
                (line("NoNewPrivs:"), line("Seccomp:")),
                (vec!["1".into()], vec!["2".into()])
            );
            let fds = std::fs::read_dir(format!("/proc/{}/task/{tid}/fd", target.pid())).unwrap();
            let links: Vec<_> =
                fds.map(|fd| std::fs::read_link(fd.unwrap().path()).unwrap()).collect();
            assert!(!links.is_empty());
            assert!(!links.iter().any(|l| l.starts_with("/dev")), "{links:?}");
        }
        agent.detach().expect("taken out");
    }
}

#[test]
fn a_process_that_ends_during_a_start_keeps_its_exit_status() {
    let Some(_turn) = common::live("a_process_that_ends_during_a_start_keeps_its_exit_status")
    else {
        return;
    };
    for step in start_step::ALL {
        let mut target = Waiting::start(None);
        AT.set(step);
        let started = start(target.pid(), StartFaults { supervisor: Some(dies), agent: 0 });
        drop(started);
        let status = target.0.wait().expect("its end is still there to be waited for");
        assert_eq!(status.signal(), Some(9), "killed before step {step}");
    }
}

/// A filter of classic BPF that gives `action` for the call with this number, as a script that installs
/// it and waits.
fn filtered(number: i64, action: u32) -> Waiting {
    let script = format!(
        "
import ctypes, struct
code = [(0x20, 0, 0, 0), (0x15, 0, 1, {number}), (0x06, 0, 0, {action}), (0x06, 0, 0, 0x7fff0000)]
program = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *i) for i in code))
class Filter(ctypes.Structure):
    _fields_ = [('n', ctypes.c_ushort), ('at', ctypes.c_void_p)]
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Filter(4, ctypes.addressof(program)))) == 0
{SCRIPT}"
    );
    Waiting::run(&script, None)
}

#[test]
fn sandboxed_processes_are_taken_or_refused_by_name() {
    let Some(_turn) = common::live("sandboxed_processes_are_taken_or_refused_by_name") else {
        return;
    };
    const KILL: u32 = 0x8000_0000;
    const EPERM: u32 = 0x0005_0001;
    let harmless = filtered(libc::SYS_bind, KILL);
    let agent =
        start(harmless.pid(), StartFaults::default()).expect("no call of ours is forbidden");
    agent.detach().expect("taken out");
    let without_landlock = filtered(libc::SYS_landlock_create_ruleset, KILL);
    start(without_landlock.pid(), StartFaults::default()).expect("Landlock can be done without");
    let refused = [
        (libc::SYS_sendmsg, KILL, "sendmsg(2)"),
        (libc::SYS_socketpair, EPERM, "socketpair(2)"),
        (libc::SYS_mincore, EPERM, "mincore(2)"),
        (libc::SYS_setresuid, EPERM, "setresuid(2)"),
    ];
    for (number, action, name) in refused {
        let target = filtered(number, action);
        let before = target.state();
        let error = start(target.pid(), StartFaults::default()).err().expect(name).to_string();
        assert!(error.contains("seccomp") && error.contains(name), "{error}");
        assert_eq!(error.lines().count(), 1);
        target.settle();
        assert_eq!(target.state(), before, "after a refusal for {name}");
    }
}
