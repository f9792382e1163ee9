//! The supervisor's side of the server: starts it, listens to it on a thread of its own, and kills
//! it when it is silent for longer than an open may take, since the whole machine may be waiting for
//! it then. That thread opens no files, or it would wait for the service too.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use huepage_linux::inject::launch::relay::own_child;
use huepage_linux::kernel::process_tree::ProcessRoots;
use huepage_linux::services::files::gate::GateReport;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::options::PageCacheArgs;
use super::protocol::{ServerCommand, ServerMessage, ServerOrder, hear, tell};
use super::report::PageCacheReport;
use crate::exit::{CmdError, ExitCode};
use crate::partition::{PartitionArgs, internal};

/// Longest that the service may take to be ready: colours may have to be measured.
const PATIENCE: Duration = Duration::from_secs(120);
/// How much longer than an open may wait the service may be silent.
const SILENCE: Duration = Duration::from_secs(1);
/// Longest that it may take to end: it finishes the pages that it is placing.
const ENDING: Duration = Duration::from_secs(10);

/// Longest that it may take to be gone once it is killed.
const DYING: Duration = Duration::from_secs(2);
/// It is gone as soon as who holds it up lets it; nobody waits for it.
const HELD_UP: &str = "a file that it reads holds it up";

/// Processes that are told of in one packet.
const AT_ONCE: usize = 1000;

/// How far the service is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Preparing,
    /// It may hold others up.
    Holding,
    /// It was told to end.
    Ending,
    Over,
}

/// What is known of the service.
#[derive(Debug, Default)]
struct ServerState {
    stage: Stage,
    watching: bool,
    report: GateReport,
    skipped: Vec<(PathBuf, String)>,
    failed: Option<(u8, String)>,
    died: Option<String>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<ServerState>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A service that places files; it ends when this is dropped.
pub struct Client {
    socket: Arc<OwnedFd>,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
    wait_ms: u64,
}

impl Client {
    /// Starts it for the processes of `heads` and returns when their files are being placed.
    ///
    /// Call it on the thread that lives as long as it is to: the service dies with that thread.
    pub fn start(
        files: &PageCacheArgs,
        partition: &PartitionArgs,
        roots: ProcessRoots,
    ) -> Result<Client, CmdError> {
        let supervisor = std::process::id().cast_signed();
        let files = files.resolved()?;
        let (wait_ms, partition) = (files.page_cache_wait, partition.clone());
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (here, there) =
            socketpair(family, kind, SocketFlags::CLOEXEC, None).map_err(internal)?;
        tell(here.as_fd(), &ServerOrder { partition, files, roots, supervisor })
            .map_err(internal)?;
        let child = spawn(there)?;
        let (socket, shared) = (Arc::new(here), Arc::new(Shared::default()));
        let silence = Duration::from_millis(wait_ms) + SILENCE;
        let listener = Listener { socket: socket.clone(), shared: shared.clone(), child, silence };
        let listener = std::thread::Builder::new().spawn(move || listener.run());
        let listener = Some(listener.map_err(internal)?);
        let client = Client { socket, shared, listener, wait_ms };
        client.await_start()?;
        Ok(client)
    }

    fn await_start(&self) -> Result<(), CmdError> {
        let mut state = self.shared.lock();
        while !state.watching && state.stage != Stage::Over {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match (&state.failed, &state.died) {
            (Some((status, message)), _) => Err(failure(*status, message)),
            (None, Some(why)) => Err(internal(format!(
                "the service of --page-cache ended early: {why}; try again, or leave it out"
            ))),
            (None, None) => Ok(()),
        }
    }

    /// Directories that are not watched though they were named, with the reason.
    pub fn skipped(&self) -> Vec<(PathBuf, String)> {
        self.shared.lock().skipped.clone()
    }

    /// Whether it has ended before its time.
    pub fn is_dead(&self) -> bool {
        self.shared.lock().stage == Stage::Over
    }

    /// Processes are of the group from now on.
    pub fn admit(&self, pids: &[i32]) {
        // As for those that go.
        pids.chunks(AT_ONCE)
            .for_each(|pids| _ = tell(self.socket.as_fd(), &ServerCommand::Admit(pids.to_vec())));
    }

    /// A process is not of the group any more.
    pub fn release(&self, pid: i32) {
        // A service that does not listen is killed soon anyway.
        let _ = tell(self.socket.as_fd(), &ServerCommand::Release(pid));
    }

    /// Ends the service; what it did.
    pub fn finish(mut self) -> PageCacheReport {
        self.end();
        self.report()
    }

    /// What it did so far.
    pub fn report(&self) -> PageCacheReport {
        let state = self.shared.lock();
        PageCacheReport {
            wait_ms: self.wait_ms,
            gate: state.report.clone(),
            skipped: state.skipped.clone(),
            service_died: state.died.clone(),
        }
    }

    fn end(&mut self) {
        {
            let mut state = self.shared.lock();
            if state.stage != Stage::Over {
                state.stage = Stage::Ending;
            }
        }
        let _ = tell(self.socket.as_fd(), &ServerCommand::End);
        self.listener.take().map(JoinHandle::join);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.end();
    }
}

/// A failure that the service told of.
fn failure(status: u8, message: &str) -> CmdError {
    let code = ExitCode::ALL.into_iter().find(|code| code.status() == status);
    CmdError::new(code.unwrap_or(ExitCode::Internal), message)
}

/// This program once more, in a process group of its own: stopping the program with Ctrl-Z must not
/// stop who lets it open files.
fn spawn(socket: OwnedFd) -> Result<Child, CmdError> {
    let own = std::env::current_exe().map_err(internal)?;
    let mut command = Command::new(own);
    command.arg(super::SERVICE).process_group(0);
    own_child(&mut command);
    command.stdin(socket).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(internal)
}

/// Hears the service until its end.
struct Listener {
    socket: Arc<OwnedFd>,
    shared: Arc<Shared>,
    child: Child,
    silence: Duration,
}

impl Listener {
    fn run(mut self) {
        let died = self.listen();
        // Nothing waits for it any longer once it is dead.
        let _ = self.child.kill();
        let kept = !self.is_gone();
        let died = if kept { Some(HELD_UP.to_owned()) } else { died };
        let mut state = self.shared.lock();
        state.died = died;
        state.stage = Stage::Over;
        self.shared.changed.notify_all();
        drop(state);
        if kept {
            // Whoever asks for its end does not wait for this.
            std::thread::spawn(move || self.child.wait());
        }
    }

    /// Whether it has ended within a moment after it was killed.
    fn is_gone(&mut self) -> bool {
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() > DYING {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// Returns when it ends or has to: then why.
    fn listen(&self) -> Option<String> {
        let mut last = Instant::now();
        loop {
            let stage = self.shared.lock().stage;
            let limit = match stage {
                Stage::Preparing => PATIENCE,
                Stage::Holding => self.silence,
                Stage::Ending | Stage::Over => ENDING,
            };
            // A change of the stage must be noticed: no wait is long.
            let left = limit.saturating_sub(last.elapsed()).min(SILENCE);
            let descriptor = (self.socket.as_raw_fd(), libc::POLLIN);
            if huepage_linux::kernel::wait::ready(&[descriptor], left)[0] {
                last = Instant::now();
                match hear(self.socket.as_fd(), true) {
                    Ok(Some(message)) => {
                        if let Some(end) = self.take(message) {
                            return end;
                        }
                    }
                    Ok(None) => return Some("it was killed".to_owned()),
                    Err(error) => return Some(format!("it spoke nonsense ({error})")),
                }
            } else if last.elapsed() >= limit {
                return Some(format!("it did not answer for {:.1} s", limit.as_secs_f64()));
            }
        }
    }

    /// Notes what it said; after its last word, why it ended before its time, if it did.
    fn take(&self, message: ServerMessage) -> Option<Option<String>> {
        let mut state = self.shared.lock();
        let mut end = None;
        match message {
            ServerMessage::Prepared => state.stage = Stage::Holding,
            ServerMessage::Watching(skipped) => (state.watching, state.skipped) = (true, skipped),
            ServerMessage::Beat(report) => state.report = report,
            ServerMessage::Failed(status, text) => {
                end = Some(Some(text.clone()));
                state.failed = Some((status, text));
            }
            ServerMessage::Ended(report) => {
                state.report = report;
                end = Some(None);
            }
        }
        self.shared.changed.notify_all();
        end
    }
}
