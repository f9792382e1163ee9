//! Starting the program of `huepage run`, stopped before its first instruction.
//!
//! The child waits on a pipe until it is seized with ptrace, then executes the program; the
//! parent catches the exec and lets it settle outside the system call, which is the state an
//! attach finds a process in. Who injects what there is not decided here. Passing on signals
//! and ending as the program did are in [`relay`].

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use rustix::fs::Access;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Resource, Rlimit, WaitOptions, getrlimit, setrlimit, waitpid};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::inject;
use crate::kernel::procfs::{ProcError, elf_info, pidfd};

pub mod limited;
pub mod namespaces;
pub mod relay;

/// Why a program was not started, or could not be waited for.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// No file of that name, in the path given or along PATH.
    #[error("`{}` was not found: check the name, or give the path of the program", .0.display())]
    NotFound(PathBuf),
    /// The file exists and the kernel will not execute it.
    #[error("`{}` cannot be executed ({source}): check that it is a program and `chmod +x` it", .program.display())]
    NotExecutable {
        /// The program.
        program: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// An argument holds a NUL byte, or there is no program at all.
    #[error("the command line is empty or holds a NUL byte: give a program and its arguments")]
    BadCommand,
    /// A program for another processor, or of 32 bits.
    #[error("`{}` is not a 64-bit x86 program, and huepage confines no other: run it without huepage", .0.display())]
    NotX8664(PathBuf),
    /// The program's header cannot be read.
    #[error(transparent)]
    Header(#[from] ProcError),
    /// The kernel does not allow tracing the child.
    #[error(
        "not allowed to trace the program ({0}): run huepage as root, outside a sandbox that forbids ptrace"
    )]
    Trace(io::Error),
    /// The program ended before it was ready (somebody killed it).
    #[error("the program ended while it was started: run it again")]
    Ended(Ending),
    /// No memory, no more processes, or a failure nobody foresaw.
    #[error("cannot {what} ({source}): free some memory or processes and try again")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl LaunchError {
    fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> LaunchError {
        move |error| LaunchError::System { what, source: error.into() }
    }

    fn exec(program: &OsStr, errno: i32) -> LaunchError {
        let program = PathBuf::from(program);
        match errno {
            libc::ENOENT => LaunchError::NotFound(program),
            _ => {
                LaunchError::NotExecutable { program, source: io::Error::from_raw_os_error(errno) }
            }
        }
    }

    /// The exit status that env(1) and timeout(1) use: 127 not found, 126 not executable;
    /// `None` for failures that are huepage's own.
    pub fn exit_code(&self) -> Option<u8> {
        match self {
            LaunchError::NotFound(_) => Some(127),
            LaunchError::NotExecutable { .. } => Some(126),
            _ => None,
        }
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this status, 0 to 255.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
}

/// A change of a child's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildEvent {
    /// It ended; nothing more will come.
    Ended(Ending),
    /// Job control stopped it with this signal.
    Stopped(i32),
    /// It runs again.
    Continued,
}

/// Finds the program as execvp(3) will, along PATH unless the name holds a slash.
pub fn resolve(program: &OsStr) -> Result<PathBuf, LaunchError> {
    resolve_in(program, env::var_os("PATH").as_deref())
}

fn resolve_in(program: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, LaunchError> {
    let bytes = program.as_bytes();
    if bytes.is_empty() || bytes.contains(&0) {
        return Err(LaunchError::BadCommand);
    }
    if bytes.contains(&b'/') {
        let file = PathBuf::from(program);
        return executable(&file).map(|()| file).map_err(|e| LaunchError::exec(program, e));
    }
    let mut refused = None;
    for dir in env::split_paths(path.unwrap_or(OsStr::new("/bin:/usr/bin"))) {
        let file = if dir.as_os_str().is_empty() { Path::new(".") } else { &dir }.join(program);
        match executable(&file) {
            Ok(()) => return Ok(file),
            Err(libc::EACCES) => refused = refused.or(Some(file)),
            Err(_) => {}
        }
    }
    Err(match refused {
        Some(file) => LaunchError::exec(file.as_os_str(), libc::EACCES),
        None => LaunchError::NotFound(program.into()),
    })
}

/// Whether the kernel would try to execute a file; else the errno it would give.
fn executable(file: &Path) -> Result<(), i32> {
    let code = |e: io::Error| e.raw_os_error().unwrap_or(libc::EACCES);
    let found = file.metadata().map_err(code)?;
    if !found.is_file() {
        return Err(libc::EACCES);
    }
    rustix::fs::access(file, Access::EXEC_OK).map_err(|e| e.raw_os_error())
}

/// Refuses programs the agent does not exist for. Scripts pass: what counts is the process
/// that their interpreter becomes.
pub fn check_program(file: &Path) -> Result<(), LaunchError> {
    match elf_info(file) {
        Ok(Some(info)) if !info.is_x86_64() => Err(LaunchError::NotX8664(file.to_owned())),
        Ok(_) => Ok(()),
        // A program that may be executed but not read: its process is checked later.
        Err(ProcError::Denied(_)) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// What the program is to inherit as if huepage were not there: signal mask, CPUs, limits.
///
/// Capture it first thing, before threads are pinned, signals blocked or limits raised.
#[derive(Clone, Debug)]
pub struct Original {
    mask: libc::sigset_t,
    sigchld_ignored: bool,
    cpus: Option<CpuSet>,
    limits: [(Resource, Rlimit); 4],
}

impl Original {
    /// What the calling thread has now.
    pub fn capture() -> Original {
        let kinds = [Resource::Nofile, Resource::Memlock, Resource::Core, Resource::Stack];
        Original {
            mask: current_mask(),
            sigchld_ignored: is_ignored(libc::SIGCHLD),
            // None on machines with more CPUs than the fixed set holds (1024).
            cpus: sched_getaffinity(None).ok(),
            limits: kinds.map(|kind| (kind, getrlimit(kind))),
        }
    }

    /// Puts it back. Runs between fork and exec: system calls only, no allocation.
    fn restore(&self) {
        for (kind, limit) in &self.limits {
            let _ = setrlimit(*kind, *limit);
        }
        let _ = self.cpus.as_ref().map(|cpus| sched_setaffinity(None, cpus));
        // SAFETY: every call reads a structure that lives in `self`, or sets the disposition
        // of a signal to a constant; all are safe between fork and exec.
        unsafe {
            // The Rust runtime ignores SIGPIPE, and exec would pass that on.
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            if self.sigchld_ignored {
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            }
            libc::sigprocmask(libc::SIG_SETMASK, &self.mask, ptr::null_mut());
        }
    }
}

fn current_mask() -> libc::sigset_t {
    let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: with no new set, only the old one is written; all zeroes is a valid set too.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), mask.as_mut_ptr());
        mask.assume_init()
    }
}

fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action, only the old one is written.
    unsafe {
        let done = libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        done == 0 && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// A program that was started and is stopped, traced by the thread that started it.
#[derive(Debug)]
pub struct Launched {
    pid: i32,
    pidfd: OwnedFd,
}

/// Starts `command` (program and arguments, searched for as execvp(3) does) and stops it
/// before its first instruction, in a PTRACE_EVENT_STOP outside any system call.
///
/// Only the calling thread may use ptrace on it. If huepage dies the program runs on by
/// itself. Standard input, output, environment, directory and process group are inherited.
///
/// It forks: memory the caller holds costs time (about 0.05 ms per MiB), and until written
/// again its pages count as shared, which UFFDIO_MOVE refuses. Start the program before
/// frames are gathered, or keep them out of children with MADV_DONTFORK.
pub fn spawn(command: &[OsString], original: &Original) -> Result<Launched, LaunchError> {
    let program = command.first().ok_or(LaunchError::BadCommand)?;
    let image = Image::new(command)?;
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(LaunchError::system("make a pipe"));
    let ((go_read, go_write), (report_read, report_write)) = (pipe()?, pipe()?);
    if is_ignored(libc::SIGCHLD) {
        // Else the kernel would reap the program and its exit status be lost.
        // SAFETY: sets a disposition to a constant.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
    // SAFETY: the child calls only `Image::run`, which keeps to what is safe after a fork.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let fds = [go_read.as_raw_fd(), go_write.as_raw_fd(), report_write.as_raw_fd()];
        image.run(original, fds);
    }
    if pid < 0 {
        return Err(LaunchError::system("fork")(io::Error::last_os_error()));
    }
    drop((go_read, report_write));
    let started = bring_up(pid, program, go_write, report_read);
    if started.is_err() {
        discard(pid);
    }
    started
}

/// Seizes the waiting child, lets it execute and brings it to its first instruction.
fn bring_up(
    pid: i32,
    program: &OsStr,
    go: OwnedFd,
    report: OwnedFd,
) -> Result<Launched, LaunchError> {
    let pidfd = pidfd(pid).map_err(LaunchError::system("open a pidfd"))?;
    ptrace(libc::PTRACE_SEIZE, pid, libc::PTRACE_O_TRACEEXEC).map_err(LaunchError::Trace)?;
    rustix::io::write(&go, b"g").map_err(LaunchError::system("start the program"))?;
    match wait_for(pid, libc::PTRACE_EVENT_EXEC) {
        Err(LaunchError::Ended(ending)) => {
            return Err(exec_failure(program, report).unwrap_or(LaunchError::Ended(ending)));
        }
        other => other?,
    }
    ptrace(libc::PTRACE_INTERRUPT, pid, 0).map_err(LaunchError::Trace)?;
    ptrace(libc::PTRACE_CONT, pid, 0).map_err(LaunchError::Trace)?;
    wait_for(pid, libc::PTRACE_EVENT_STOP)?;
    Ok(Launched { pid, pidfd })
}

/// What the child said of its failed exec; `None` if it was killed before.
fn exec_failure(program: &OsStr, report: OwnedFd) -> Option<LaunchError> {
    let mut errno = [0u8; 4];
    File::from(report).read_exact(&mut errno).ok()?;
    Some(LaunchError::exec(program, i32::from_ne_bytes(errno)))
}

/// Kills a child that came to nothing, and takes its status.
fn discard(pid: i32) {
    // SAFETY: `pid` is a child of ours that was not waited for, or is gone (both fail then).
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        while libc::waitpid(pid, ptr::null_mut(), libc::__WALL) == -1
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

/// Runs the child until it stops with the event; signals on the way reach it.
fn wait_for(pid: i32, event: i32) -> Result<(), LaunchError> {
    loop {
        let status = wait(pid, libc::__WALL)?.unwrap_or(0);
        if let Some(ending) = ending(status) {
            return Err(LaunchError::Ended(ending));
        }
        let resumed = match status >> 16 {
            found if found == event => return Ok(()),
            // Stopped by job control before it started: stay so until it is continued.
            libc::PTRACE_EVENT_STOP if libc::WSTOPSIG(status) != libc::SIGTRAP => {
                ptrace(libc::PTRACE_LISTEN, pid, 0)
            }
            0 => ptrace(libc::PTRACE_CONT, pid, libc::WSTOPSIG(status)),
            _ => ptrace(libc::PTRACE_CONT, pid, 0),
        };
        // It may have been killed meanwhile; the next wait says so.
        resumed
            .or_else(|e| if e.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(e) })
            .map_err(LaunchError::Trace)?;
    }
}

fn wait(pid: i32, flags: i32) -> Result<Option<i32>, LaunchError> {
    let options = WaitOptions::from_bits_retain(flags.cast_unsigned());
    let waited = rustix::io::retry_on_intr(|| waitpid(Pid::from_raw(pid), options));
    let waited = waited.map_err(LaunchError::system("wait for the program"))?;
    Ok(waited.map(|(_, status)| status.as_raw()))
}

fn ending(status: i32) -> Option<Ending> {
    if libc::WIFEXITED(status) {
        Some(Ending::Exited(libc::WEXITSTATUS(status)))
    } else if libc::WIFSIGNALED(status) {
        Some(Ending::Signaled(libc::WTERMSIG(status)))
    } else {
        None
    }
}

/// A ptrace request without an address; `data` is an option set or a signal.
fn ptrace(request: super::request::PtraceRequest, pid: i32, data: i32) -> io::Result<()> {
    inject::ptrace::raw(request, pid, 0, u64::from(data.cast_unsigned())).map(|_| ())
}

impl Launched {
    /// The program's process.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Readable once the process has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Lets the program run, no longer traced. Call it on the thread that started it.
    pub fn detach(&self) -> Result<(), LaunchError> {
        ptrace(libc::PTRACE_DETACH, self.pid, 0).map_err(LaunchError::Trace)
    }

    /// The next change of state, if there is one; never blocks. SIGCHLD announces changes.
    /// While some thread of huepage traces, there is none: it would be the tracer's.
    pub fn try_event(&self) -> Result<Option<ChildEvent>, LaunchError> {
        let flags = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
        let status = inject::unless_tracing(|| wait(self.pid, flags)).transpose()?.flatten();
        Ok(status.and_then(event))
    }

    /// Waits for the program to end, whatever it does before.
    pub fn wait(&self) -> Result<Ending, LaunchError> {
        loop {
            if let Some(ending) = wait(self.pid, 0)?.and_then(ending) {
                return Ok(ending);
            }
        }
    }
}

impl AsFd for Launched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd()
    }
}

fn event(status: i32) -> Option<ChildEvent> {
    if let Some(ending) = ending(status) {
        Some(ChildEvent::Ended(ending))
    } else if libc::WIFSTOPPED(status) {
        Some(ChildEvent::Stopped(libc::WSTOPSIG(status)))
    } else {
        libc::WIFCONTINUED(status).then_some(ChildEvent::Continued)
    }
}

/// The command line in the form exec takes, made before the fork.
struct Image {
    /// Owns what `pointers` points to.
    _words: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

impl Image {
    fn new(command: &[OsString]) -> Result<Image, LaunchError> {
        let word = |w: &OsString| CString::new(w.as_bytes()).map_err(|_| LaunchError::BadCommand);
        let words: Vec<CString> = command.iter().map(word).collect::<Result<_, _>>()?;
        let pointers = words.iter().map(|w| w.as_ptr()).chain([ptr::null()]).collect();
        Ok(Image { _words: words, pointers })
    }

    /// The child's side: waits for the word to go, then becomes the program.
    fn run(&self, original: &Original, [go, go_write, report]: [RawFd; 3]) -> ! {
        let mut word = 0u8;
        // SAFETY: only system calls and execvp (which does not allocate) on descriptors and
        // memory that this process has its own copy of; it never returns to the caller.
        unsafe {
            // With its own copy open it would not notice the death of its parent.
            libc::close(go_write);
            while libc::read(go, (&raw mut word).cast(), 1) == -1
                && *libc::__errno_location() == libc::EINTR
            {}
            if word != b'g' {
                libc::_exit(127);
            }
            original.restore();
            libc::execvp(self.pointers[0], self.pointers.as_ptr());
            let errno = *libc::__errno_location();
            libc::write(report, (&raw const errno).cast(), size_of::<i32>());
            libc::_exit(127)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::procfs::{AreaKind, ProcRoot};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn words(command: &[&str]) -> Vec<OsString> {
        command.iter().map(OsString::from).collect()
    }

    fn shell(script: &str) -> Launched {
        let command = words(&["sh", "-c", script]);
        spawn(&command, &Original::capture()).expect("every system has a shell")
    }

    fn ended(script: &str) -> Ending {
        let launched = shell(script);
        launched.detach().expect("ours to detach");
        launched.wait().expect("ours to wait for")
    }

    #[test]
    fn endings_are_told_apart() {
        assert_eq!(ended("exit 0"), Ending::Exited(0));
        assert_eq!(ended("exit 43"), Ending::Exited(43));
        assert_eq!(ended("kill -9 $$"), Ending::Signaled(9));
        assert_eq!(ended("kill -TERM $$"), Ending::Signaled(libc::SIGTERM));
    }

    #[test]
    fn nothing_runs_before_the_detach() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mark = dir.path().join("mark");
        let launched = shell(&format!(": > '{}'", mark.display()));
        let status = ProcRoot::default().status(launched.pid()).expect("alive");
        assert_eq!((status.state, status.name.as_str()), ('t', "sh"));
        assert!(!mark.exists());
        launched.detach().expect("ours to detach");
        assert_eq!(launched.wait().expect("ours to wait for"), Ending::Exited(0));
        assert!(mark.exists());
    }

    #[test]
    fn it_stands_at_the_first_instruction() {
        let launched = shell("exit 3");
        let mut regs = MaybeUninit::<libc::user_regs_struct>::zeroed();
        let none = ptr::null_mut::<libc::c_void>();
        // SAFETY: the tracee is stopped and the kernel writes one register structure.
        let regs = unsafe {
            let done = libc::ptrace(libc::PTRACE_GETREGS, launched.pid(), none, regs.as_mut_ptr());
            assert_eq!(done, 0);
            regs.assume_init()
        };
        let areas = ProcRoot::default().maps(launched.pid()).expect("alive");
        let code = areas.iter().find(|a| a.contains(regs.rip)).expect("mapped");
        assert!(code.prot.exec && code.kind() == AreaKind::PrivateFile);
        let stack = areas.iter().find(|a| a.contains(regs.rsp)).expect("mapped");
        assert_eq!(stack.kind(), AreaKind::MainStack);
        // The dynamic linker has not run: of the C library there is no trace yet.
        assert!(!areas.iter().any(|a| a.name.contains("libc")));
        launched.detach().expect("ours to detach");
        assert_eq!(launched.wait().expect("ours to wait for"), Ending::Exited(3));
    }

    #[test]
    fn signals_are_as_if_huepage_were_not_there() {
        let launched = shell("exit 0");
        let root = ProcRoot::default();
        let own = root.status(own_tid()).expect("alive");
        let theirs = root.status(launched.pid()).expect("alive");
        let sigpipe = 1u64 << (libc::SIGPIPE - 1);
        assert_ne!(own.ignored & sigpipe, 0, "the Rust runtime ignores SIGPIPE");
        assert_eq!(theirs.ignored, own.ignored & !sigpipe);
        assert_eq!(theirs.blocked, own.blocked);
        launched.detach().expect("ours to detach");
        launched.wait().expect("ours to wait for");
    }

    pub fn own_tid() -> i32 {
        rustix::thread::gettid().as_raw_nonzero().get()
    }

    #[test]
    fn only_standard_descriptors_are_inherited() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let _held = File::create(dir.path().join("held")).expect("created");
        let launched = shell("exit 0");
        let fds = fs::read_dir(format!("/proc/{}/fd", launched.pid())).expect("alive");
        let links = fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
        assert_eq!(links.filter(|l| l.starts_with(dir.path())).count(), 0);
        launched.detach().expect("ours to detach");
        launched.wait().expect("ours to wait for");
    }

    #[test]
    fn absent_programs_end_with_127() {
        for name in ["/nonexistent/program", "no-such-program-of-huepage"] {
            let error = spawn(&words(&[name]), &Original::capture()).expect_err("absent");
            assert_eq!(error.exit_code(), Some(127), "{error}");
            assert_eq!(resolve(OsStr::new(name)).expect_err("absent").exit_code(), Some(127));
        }
    }

    #[test]
    fn what_is_no_program_ends_with_126() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let file = dir.path().join("data");
        fs::write(&file, "x").expect("written");
        for path in [file.as_path(), dir.path()] {
            let error = spawn(&[path.into()], &Original::capture()).expect_err("no program");
            assert_eq!(error.exit_code(), Some(126), "{error}");
            assert_eq!(resolve(path.as_os_str()).expect_err("no program").exit_code(), Some(126));
        }
    }

    #[test]
    fn scripts_without_a_first_line_go_to_the_shell() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (written, file) = (dir.path().join("written"), dir.path().join("script"));
        fs::write(&written, "exit 9\n").expect("written");
        fs::set_permissions(&written, fs::Permissions::from_mode(0o700)).expect("ours");
        huepage_testing::copy_program(&written, &file);
        check_program(&file).expect("scripts are fine");
        let launched = spawn(&[file.into()], &Original::capture()).expect("as execvp does");
        launched.detach().expect("ours to detach");
        assert_eq!(launched.wait().expect("ours to wait for"), Ending::Exited(9));
    }

    #[test]
    fn path_is_searched_in_order() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let make = |sub: &str, mode| {
            let file = dir.path().join(sub).join("tool");
            fs::create_dir_all(file.parent().expect("a parent")).expect("made");
            fs::write(&file, "").expect("written");
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("ours");
            file
        };
        let plain = make("a", 0o600);
        let tool = make("b", 0o700);
        let tool_name = OsStr::new("tool");
        let search = |subs: &[&str]| {
            let path = env::join_paths(subs.iter().map(|s| dir.path().join(s))).expect("joined");
            resolve_in(tool_name, Some(&path))
        };
        assert_eq!(search(&["none", "a", "b"]).expect("found"), tool);
        assert_eq!(search(&["a"]).expect_err("not executable").exit_code(), Some(126));
        assert_eq!(search(&["none"]).expect_err("absent").exit_code(), Some(127));
        assert_eq!(resolve_in(plain.as_os_str(), None).expect_err("mode").exit_code(), Some(126));
        assert!(resolve_in(OsStr::new("sh"), None).is_ok());
    }

    #[test]
    fn foreign_programs_are_refused_before_they_start() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let file = dir.path().join("old");
        let mut header = vec![0u8; 64];
        header[..7].copy_from_slice(b"\x7fELF\x01\x01\x01");
        header[18] = 3;
        fs::write(&file, header).expect("written");
        assert!(matches!(check_program(&file), Err(LaunchError::NotX8664(_))));
        check_program(&env::current_exe().expect("own path")).expect("this is a 64-bit program");
    }

    #[test]
    fn bad_command_lines_are_refused() {
        let original = Original::capture();
        assert!(matches!(spawn(&[], &original), Err(LaunchError::BadCommand)));
        assert!(matches!(spawn(&words(&["sh", "a\0b"]), &original), Err(LaunchError::BadCommand)));
        assert!(matches!(resolve(OsStr::new("")), Err(LaunchError::BadCommand)));
    }

    #[test]
    fn job_control_is_seen() {
        let launched = shell("kill -STOP $$; exit 5");
        launched.detach().expect("ours to detach");
        let next = || loop {
            match launched.try_event().expect("ours to wait for") {
                Some(event) => return event,
                None => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
        };
        assert_eq!(next(), ChildEvent::Stopped(libc::SIGSTOP));
        // SAFETY: a signal to our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(launched.pid(), libc::SIGCONT) }, 0);
        let mut last = next();
        if last == ChildEvent::Continued {
            last = next();
        }
        assert_eq!(last, ChildEvent::Ended(Ending::Exited(5)));
    }
}
