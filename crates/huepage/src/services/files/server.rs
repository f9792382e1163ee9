//! The server: a process of its own that places files for a supervisor. It is started as a hidden
//! command with a socket as its standard input, and dies with its supervisor; when it dies, the
//! kernel lets everybody who waits for it open their files. Nothing of it is seen by users.

use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use huepage_linux::kernel::descriptors::{allow_most_files, separate_descriptors};
use huepage_linux::kernel::fanotify::{FanotifyError, FileNotifier};
use huepage_linux::kernel::process_tree::ProcessTree;
use huepage_linux::kernel::procfs::ProcRoot;
use huepage_linux::services::files::gate::{
    FileFilter, FileGate, Flow, GateReport, WaitQueue, serve,
};
use huepage_linux::services::files::mounts::{WatchedPlaces, places};
use huepage_linux::services::files::{FileWorker, Placer, PlacerOptions};
use huepage_policy::conflict::CacheShape;
use huepage_policy::registry::Settings as Policy;
use rustix::process::{Signal, getpid, getppid};

use super::protocol::{ServerCommand, ServerMessage, ServerOrder, hear, tell};
use crate::exit::{CmdError, ExitCode, cache_error};
use crate::partition::{self, PartitionArgs, internal};

/// How much more often than others the doorman gets a CPU: all who open files wait for it.
const NICE: i32 = -15;

/// Is the service; what it has to say goes to the supervisor, not to the terminal.
pub fn run() -> Result<u8, CmdError> {
    let socket = rustix::stdio::stdin();
    let order: Option<ServerOrder> = hear(socket, false).map_err(internal)?;
    let Some(order) = order else { return Ok(ExitCode::Ok.status()) };
    end_with(order.supervisor)?;
    let last = match work(socket, &order) {
        Ok(report) => ServerMessage::Ended(report),
        Err(error) => ServerMessage::Failed(error.code.status(), error.message),
    };
    tell(socket, &last).map_err(internal)?;
    Ok(ExitCode::Ok.status())
}

/// Nothing of this process may stay when its supervisor or a part of it is gone: a signal that
/// also ends a stopped process, and no thread dies alone.
fn end_with(supervisor: i32) -> Result<(), CmdError> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(internal)?;
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get() != supervisor) {
        return Err(internal("the supervisor has ended; start it again"));
    }
    // A backtrace would open files, for which the doorman may be the one to wait.
    std::panic::set_hook(Box::new(|info| {
        let _ = tell(rustix::stdio::stdin(), &ServerMessage::Failed(125, format!("{info}")));
        std::process::exit(i32::from(ExitCode::Internal.status()));
    }));
    // If memory runs out because of the frames kept ready, this process goes first.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    allow_most_files();
    Ok(())
}

fn work(socket: BorrowedFd<'_>, order: &ServerOrder) -> Result<GateReport, CmdError> {
    // Whether there can be one; the one that is used must not be among the worker's descriptors.
    drop(FileNotifier::new().map_err(notify_error)?);
    let queue = Arc::new(WaitQueue::new().map_err(internal)?);
    let worker = start_worker(&queue, order)?;
    let notifier = FileNotifier::new().map_err(notify_error)?;
    let places = find_places(order)?;
    tell(socket, &ServerMessage::Prepared).map_err(internal)?;
    let _ = rustix::process::setpriority_process(None, NICE);
    let tree = tree(order);
    let wait = Duration::from_millis(order.files.page_cache_wait);
    let skipped = mark(&notifier, places)?;
    let gate = FileGate::new(notifier, tree, wanted(order), wait, queue);
    // It may have begun to hold up others: nothing but the gate from here on.
    let _ = tell(socket, &ServerMessage::Watching(skipped));
    let done = attend(&gate, socket);
    if let Err(error @ FanotifyError::Leases) = done {
        // All who can let others wait themselves: the end of this process lets them.
        return Err(notify_error(error));
    }
    let report = gate.finish(|| _ = worker.join());
    done.map(|()| report).map_err(notify_error)
}

/// Runs the gate until the supervisor says so or is gone.
fn attend(gate: &FileGate, socket: BorrowedFd<'_>) -> Result<(), FanotifyError> {
    gate.run(socket, &mut |room| {
        while let Ok(word) = hear(socket, true) {
            match word {
                Some(ServerCommand::Admit(pids)) => pids.into_iter().for_each(|pid| room.join(pid)),
                Some(ServerCommand::Release(pid)) => room.release(pid),
                Some(ServerCommand::End) | None => return Flow::End,
            }
        }
        let _ = tell(socket, &ServerMessage::Beat(room.report()));
        Flow::Go
    })
}

fn tree(order: &ServerOrder) -> ProcessTree {
    let own = getpid().as_raw_nonzero().get();
    ProcessTree::new(ProcRoot::default(), order.roots.clone(), vec![own, order.supervisor])
}

fn wanted(order: &ServerOrder) -> FileFilter {
    FileFilter {
        sizes: order.files.sizes(),
        include: order.files.page_cache_include.clone(),
        exclude: order.files.page_cache_exclude.clone(),
    }
}

/// The thread that places files, once it can. It has descriptors of its own: where a disk, or who keeps a file
/// locked, does not let it end, the doorman's death opens the gate all the same.
fn start_worker(
    queue: &Arc<WaitQueue>,
    order: &ServerOrder,
) -> Result<thread::JoinHandle<()>, CmdError> {
    let partition = order.partition.clone();
    let policy = order.files.policy().ok_or_else(|| internal("no policy places files"))?;
    let queue = Arc::clone(queue);
    let (ready, started) = mpsc::channel();
    let worker =
        thread::Builder::new().name("placer".to_owned()).spawn(move || {
            match file_worker(&partition, &policy, queue.closing()) {
                Ok(mut file_worker) => {
                    let _ = ready.send(Ok(()));
                    serve(&queue, &mut file_worker);
                }
                Err(error) => _ = ready.send(Err(error)),
            }
        });
    let worker = worker.map_err(internal)?;
    started.recv().map_err(internal)??;
    Ok(worker)
}

/// Made on the thread that uses it: it is pinned to a CPU, and what it has open, a lock too, is its own.
fn file_worker(
    partition: &PartitionArgs,
    policy: &Policy,
    stop: Arc<AtomicBool>,
) -> Result<FileWorker, CmdError> {
    separate_descriptors().map_err(internal)?;
    let plan = partition::prepare(partition)?;
    let colors = plan.config.colors;
    // What a partition has of the cache.
    let pages = plan.cache.size_bytes / 4096 / u64::from(colors.universe()).max(1);
    let ways = u16::try_from(pages).unwrap_or(u16::MAX);
    let settings = policy.srm(CacheShape { colors: colors.len(), ways, lines_per_page: 64 });
    let options = PlacerOptions { stop, ..PlacerOptions::default() };
    let placer = Placer::start(plan.source, colors.clone(), &options);
    let placer = placer.map_err(cache_error)?;
    FileWorker::new(placer, colors, settings).map_err(cache_error)
}

/// Where to watch.
fn find_places(order: &ServerOrder) -> Result<WatchedPlaces, CmdError> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").map_err(internal)?;
    Ok(places(&mounts, &order.files.page_cache_include))
}

/// Marks what can be marked; what cannot, with the reason. An error if that is all.
fn mark(
    notifier: &FileNotifier,
    places: WatchedPlaces,
) -> Result<Vec<(std::path::PathBuf, String)>, CmdError> {
    let (mut skipped, mut marked) = (places.skipped, 0);
    for path in places.marks {
        match notifier.mark(&path) {
            Ok(()) => marked += 1,
            Err(error) => skipped.push((path, error.to_string())),
        }
    }
    if marked > 0 {
        return Ok(skipped);
    }
    let why = skipped
        .first()
        .map_or_else(String::new, |(path, why)| format!(": {}: {why}", path.display()));
    let what = format!(
        "there is no filesystem whose files can be placed{why}; name a directory on ext4, xfs or btrfs with --page-cache-include"
    );
    Err(CmdError::new(ExitCode::Kernel, what))
}

fn notify_error(error: FanotifyError) -> CmdError {
    let code = match &error {
        FanotifyError::Privilege => ExitCode::Privilege,
        FanotifyError::Unsupported => ExitCode::Kernel,
        _ => ExitCode::Internal,
    };
    CmdError::new(code, error)
}
