//! Standing in for the program towards whoever started huepage: signals sent to huepage
//! reach the program, and huepage ends the way the program ended.
//!
//! Signals of a terminal (Ctrl-C, Ctrl-Z, a change of the window's size) go to the whole
//! process group, so the program has them already; only what somebody sent to huepage
//! itself is passed on.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd};
use std::os::unix::process::CommandExt as _;
use std::process;
use std::ptr;

use super::{Ending, LaunchError, Launched, current_mask};

/// Signals that a program may want to hear of, besides the real-time ones.
const RELAYED: [i32; 16] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGCONT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGWINCH,
    libc::SIGIO,
    libc::SIGPWR,
];

/// A signal that reached huepage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Its number; SIGCHLD says that some child changed its state.
    pub signal: i32,
    /// A process sent it, as opposed to the kernel on behalf of a terminal or a timer.
    pub from_process: bool,
}

/// Takes the place of signal handlers: blocks signals and hands them out one by one.
///
/// Make it on the main thread before any other thread exists, else the kernel may deliver a
/// signal to a thread that does not block it; and after [`super::Original::capture`].
/// Dropping it restores the thread's mask; signals not yet taken then have their usual effect.
#[derive(Debug)]
pub struct SignalRelay {
    signals: File,
    previous: libc::sigset_t,
}

impl SignalRelay {
    /// Blocks the relayed signals and SIGCHLD in the calling thread and listens for them.
    pub fn new() -> Result<SignalRelay, LaunchError> {
        let fault = LaunchError::system("listen for signals");
        let set = relayed_set();
        let previous = current_mask();
        // SAFETY: `set` is initialised; a new descriptor is returned and owned from then on.
        let signals = unsafe {
            let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(fault(io::Error::last_os_error()));
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
            File::from_raw_fd(fd)
        };
        Ok(SignalRelay { signals, previous })
    }

    /// The next signal that has come, if any; never blocks. Poll the relay's descriptor.
    pub fn next(&self) -> Result<Option<Incoming>, LaunchError> {
        let mut record = [0u8; size_of::<libc::signalfd_siginfo>()];
        loop {
            match (&self.signals).read(&mut record) {
                Ok(n) if n == record.len() => return Ok(Some(decode(&record))),
                Ok(_) => return Ok(None),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(LaunchError::system("take a signal")(e)),
            }
        }
    }

    /// Passes on all signals that have come and returns them. SIGCHLD is only returned: call
    /// [`Launched::try_event`] then, and [`stop_like`] if it reports a stop.
    pub fn relay_to(&self, program: &Launched) -> Result<Vec<Incoming>, LaunchError> {
        let mut seen = Vec::new();
        while let Some(incoming) = self.next()? {
            if concerns(program.pid(), incoming) {
                send(program, incoming.signal);
            }
            seen.push(incoming);
        }
        Ok(seen)
    }
}

/// Has a command begin with no signal blocked, though the thread that starts it blocks those that it
/// listens for; and be asked to end when that thread ends, however that happens.
pub fn own_child(command: &mut process::Command) {
    let parent = process::id().cast_signed();
    let prepare = move || {
        // SAFETY: calls on values of this frame, all allowed between fork and exec.
        unsafe {
            let mut none = MaybeUninit::<libc::sigset_t>::zeroed();
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            // It may have ended before that was asked for.
            if libc::getppid() != parent {
                return Err(io::Error::from_raw_os_error(libc::ECHILD));
            }
        }
        Ok(())
    };
    // SAFETY: `prepare` neither allocates nor takes locks.
    unsafe { command.pre_exec(prepare) };
}

/// Undoes the second half of [`own_child`], in the child: from now on it outlives its parent.
pub fn outlive_parent() {
    // SAFETY: changes an attribute of the calling process only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) };
}

impl AsFd for SignalRelay {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}

impl Drop for SignalRelay {
    fn drop(&mut self) {
        // SAFETY: sets the mask to one that this thread had before.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.previous, ptr::null_mut())
        };
    }
}

fn relayed_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    // SAFETY: sigemptyset initialises the set before signals are added to it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in RELAYED.into_iter().chain(real_time).chain([libc::SIGCHLD]) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Reads `ssi_signo` (at 0) and `ssi_code` (at 8) of a `signalfd_siginfo`.
fn decode(record: &[u8]) -> Incoming {
    let word = |at: usize| {
        i32::from_ne_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
    };
    // SI_USER is 0, SI_QUEUE and SI_TKILL are below; the kernel's own codes are above. Timers
    // (SI_TIMER, -2) are the only others below, and huepage sets none.
    Incoming { signal: word(0), from_process: word(8) <= 0 }
}

/// Whether the program should get it: it has not got it from the terminal by itself.
fn concerns(pid: i32, incoming: Incoming) -> bool {
    // SAFETY: both calls take numbers and return numbers.
    let same_group = unsafe { libc::getpgid(pid) == libc::getpgrp() };
    incoming.signal != libc::SIGCHLD && (incoming.from_process || !same_group)
}

/// Sends a signal; a program that has ended meanwhile needs none.
fn send(program: &Launched, signal: i32) {
    // SAFETY: the pid is a child that is waited for only through `program`, so it cannot have
    // been given to another process.
    unsafe { libc::kill(program.pid(), signal) };
}

/// Stops huepage because job control stopped the program, so that the shell notices; returns
/// when the shell continues it.
pub fn stop_like(signal: i32) {
    let stopping = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    if stopping.contains(&signal) {
        // SAFETY: stops this process; the relayed signals are blocked, SIGSTOP cannot be.
        unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
    }
}

/// Ends huepage as the program ended: same exit status, or killed by the same signal (without
/// a core dump of its own).
///
/// No destructor runs: drop sockets, registrations and terminal states before.
pub fn exit_like(ending: Ending) -> ! {
    match ending {
        Ending::Exited(code) => process::exit(code),
        Ending::Signaled(signal) => die_of(signal),
    }
}

fn die_of(signal: i32) -> ! {
    let _ = io::stdout().flush();
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: constants, and a set that is initialised before use; the process ends here.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        libc::signal(signal, libc::SIG_DFL);
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut());
        libc::raise(signal);
    }
    // Only a signal that does not kill comes here, or the first process of a container.
    process::exit(128 + signal)
}

#[cfg(test)]
mod tests {
    use super::super::{Original, spawn};
    use super::*;
    use std::ffi::OsString;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// To this thread alone: the other threads of the test runner do not block signals.
    fn send_self(signal: i32) {
        // SAFETY: a signal to the calling thread, which blocks it.
        let done =
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), signal) };
        assert_eq!(done, 0);
    }

    fn shell(script: &str) -> Launched {
        let command = ["sh", "-c", script].map(OsString::from);
        let launched = spawn(&command, &Original::capture()).expect("every system has a shell");
        launched.detach().expect("ours to detach");
        launched
    }

    #[test]
    fn signals_are_taken_in_and_the_mask_restored() {
        let before = ProcMask::own();
        let relay = SignalRelay::new().expect("made");
        assert_ne!(ProcMask::own(), before);
        assert_eq!(relay.next().expect("readable"), None);
        send_self(libc::SIGUSR1);
        let expected = Incoming { signal: libc::SIGUSR1, from_process: true };
        assert_eq!(relay.next().expect("readable"), Some(expected));
        assert_eq!(relay.next().expect("readable"), None);
        drop(relay);
        assert_eq!(ProcMask::own(), before);
    }

    /// The signals a thread blocks, as `/proc` shows them.
    #[derive(Debug, PartialEq, Eq)]
    struct ProcMask(u64);

    impl ProcMask {
        fn own() -> ProcMask {
            let tid = super::super::tests::own_tid();
            let status = crate::kernel::procfs::ProcRoot::default().status(tid).expect("alive");
            ProcMask(status.blocked)
        }
    }

    #[test]
    fn a_signal_sent_to_huepage_reaches_the_program() {
        let original = Original::capture();
        let relay = SignalRelay::new().expect("made");
        // The trap is set once the file is there; until then the signal would kill.
        let dir = tempfile::tempdir().expect("temporary directory");
        let ready = dir.path().join("ready");
        let script =
            format!("trap 'exit 21' TERM; : > '{}'; while :; do sleep 0.01; done", ready.display());
        let command = ["sh", "-c", &script].map(OsString::from);
        let launched = spawn(&command, &original).expect("every system has a shell");
        launched.detach().expect("ours to detach");
        while !ready.exists() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        send_self(libc::SIGTERM);
        let seen = relay.relay_to(&launched).expect("relayed");
        assert!(seen.contains(&Incoming { signal: libc::SIGTERM, from_process: true }));
        assert_eq!(launched.wait().expect("ours to wait for"), Ending::Exited(21));
    }

    #[test]
    fn the_terminal_s_signals_are_not_doubled() {
        let launched = shell("exit 0");
        let incoming = |signal, from_process| Incoming { signal, from_process };
        assert!(concerns(launched.pid(), incoming(libc::SIGINT, true)));
        assert!(!concerns(launched.pid(), incoming(libc::SIGINT, false)));
        assert!(!concerns(launched.pid(), incoming(libc::SIGCHLD, true)));
        launched.wait().expect("ours to wait for");
    }

    #[test]
    fn codes_tell_senders_apart() {
        let record = |signal: i32, code: i32| {
            let mut record = [0u8; size_of::<libc::signalfd_siginfo>()];
            record[..4].copy_from_slice(&signal.to_ne_bytes());
            record[8..12].copy_from_slice(&code.to_ne_bytes());
            decode(&record)
        };
        assert_eq!(record(2, libc::SI_USER), Incoming { signal: 2, from_process: true });
        assert!(record(2, libc::SI_QUEUE).from_process);
        assert!(!record(2, libc::SI_KERNEL).from_process);
    }

    const ROLE: &str = "HUEPAGE_TEST_EXIT_LIKE";

    /// Runs itself once more in another role, which must end as asked.
    #[test]
    fn huepage_ends_as_the_program_did() {
        if let Ok(role) = std::env::var(ROLE) {
            let number = role[1..].parse().expect("a number");
            exit_like(if role.starts_with('s') {
                Ending::Signaled(number)
            } else {
                Ending::Exited(number)
            });
        }
        let run = |role: &str| {
            let name = "inject::launch::relay::tests::huepage_ends_as_the_program_did";
            let mut command = Command::new(std::env::current_exe().expect("own path"));
            let output = command.args(["--exact", name]).env(ROLE, role).output();
            output.expect("started").status
        };
        assert_eq!(run("e0").code(), Some(0));
        assert_eq!(run("e77").code(), Some(77));
        for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV, libc::SIGPIPE] {
            let status = run(&format!("s{signal}"));
            assert_eq!(status.signal(), Some(signal));
            assert!(!status.core_dumped());
        }
        assert_eq!(run(&format!("s{}", libc::SIGWINCH)).code(), Some(128 + libc::SIGWINCH));
    }
}
