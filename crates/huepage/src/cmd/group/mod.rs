//! `huepage group`: partitions with names. Each is looked after by a supervisor in the background,
//! which keeps what it would need to begin again on the disk.

pub mod args;
pub mod file;
mod serve;
mod show;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use huepage_linux::color::partition_registry::{Registry, RegistryEntry};
use huepage_linux::control::groups::{GroupStore, Stored};
use huepage_linux::control::socket;
use huepage_linux::control::socket::SupervisorRequest;
use huepage_linux::kernel::cgroup;
use huepage_linux::kernel::cgroup::Cgroup;
use huepage_linux::kernel::procfs::ProcRoot;

use self::args::{AddArgs, ApplyArgs, Definition, GroupArgs, GroupCommand, NameArgs};
use crate::background_supervisor;
use crate::exit::{CmdError, ExitCode};
use crate::partition::{self, internal};
use crate::report::Missed;
use crate::style::count;
use crate::target::{check_free, check_target};

/// Longest that a supervisor may take to take a process, gathering memory for it.
const TAKING: Duration = Duration::from_secs(120);

/// Runs the command.
pub fn run(args: GroupArgs) -> Result<u8, CmdError> {
    partition::check_privileges()?;
    match args.command {
        GroupCommand::Create(args) => {
            let text = create(&args.name, &args.definition)?;
            say(args.quiet, &text);
        }
        GroupCommand::Add(args) => add(&args)?,
        GroupCommand::List(args) => show::list(&args)?,
        GroupCommand::Show(args) => show::show(&args)?,
        GroupCommand::Delete(args) => delete(&args)?,
        GroupCommand::Start(args) => start(&args)?,
        GroupCommand::Apply(args) => apply(&args)?,
        GroupCommand::Serve(args) => serve::serve(&args.name)?,
    }
    Ok(ExitCode::Ok.status())
}

fn say(quiet: bool, text: &str) {
    if !quiet {
        eprintln!("huepage: {text}");
    }
}

/// Makes a group and starts its supervisor; what to say of it.
fn create(name: &str, definition: &Definition) -> Result<String, CmdError> {
    definition.plan.check()?;
    let (store, registry) =
        (GroupStore::open().map_err(internal)?, Registry::open().map_err(internal)?);
    let lock = registry.lock().map_err(internal)?;
    if store.get(name).map_err(usage)?.is_some() {
        let what = format!("there is a group {name}; `huepage group delete {name}` first");
        return Err(CmdError::new(ExitCode::AlreadyAttached, what));
    }
    if let Some(name) = &definition.cgroup {
        Cgroup::find(name, cgroup::MOUNT.as_ref()).map_err(usage)?;
    }
    let definition = serde_json::to_value(rooted(definition)?).map_err(internal)?;
    store.put(name, definition, &[]).map_err(usage)?;
    drop(lock);
    let entry = supervised(name).inspect_err(|_| _ = store.remove(name))?;
    Ok(format!("group {name} has the colours {} of {}", entry.colors, entry.level))
}

/// The definition with paths from the root: a supervisor is somewhere else.
fn rooted(definition: &Definition) -> Result<Definition, CmdError> {
    Ok(Definition { plan: definition.plan.rooted().map_err(usage)?, ..definition.clone() })
}

fn usage(error: impl std::fmt::Display) -> CmdError {
    CmdError::new(ExitCode::Usage, error)
}

/// Starts the supervisor of a group that is stored.
fn supervised(name: &str) -> Result<RegistryEntry, CmdError> {
    let arguments = ["group", "serve", name].map(Into::into).into_iter();
    background_supervisor::start(arguments, |registry| {
        registry.find_group(name).is_ok_and(|e| e.is_some())
    })?;
    running(name)
}

/// What the supervisor of a group announces.
fn running(name: &str) -> Result<RegistryEntry, CmdError> {
    let found = Registry::open().and_then(|registry| registry.find_group(name));
    found.map_err(internal)?.ok_or_else(|| {
        let what = format!("no supervisor of group {name}; see `huepage group list`");
        CmdError::new(ExitCode::NotAttached, what)
    })
}

/// A group that is stored.
fn stored(name: &str) -> Result<(GroupStore, Stored), CmdError> {
    let store = GroupStore::open().map_err(internal)?;
    let group = store.get(name).map_err(usage)?.ok_or_else(|| {
        let what = format!("no group {name}; see `huepage group list`");
        CmdError::new(ExitCode::NotAttached, what)
    })?;
    Ok((store, group))
}

fn call(
    entry: &RegistryEntry,
    request: &SupervisorRequest,
    limit: Duration,
) -> Result<serde_json::Value, CmdError> {
    let registry = Registry::open().map_err(internal)?;
    socket::call(&registry.socket_path(entry.pid), request, limit).map_err(|error| match error {
        socket::ControlError::Refused { message, code } => {
            let own = ExitCode::ALL.into_iter().find(|e| i32::from(e.status()) == code);
            CmdError::new(own.unwrap_or(ExitCode::Internal), message)
        }
        error => internal(error),
    })
}

fn add(args: &AddArgs) -> Result<(), CmdError> {
    let (_, group) = stored(&args.name)?;
    let confines = serve::definition(&group)?.plan.confines();
    let entry = running(&args.name).map_err(|_| {
        let what = format!("group {0} is not running; `huepage group start {0}`", args.name);
        CmdError::new(ExitCode::NotAttached, what)
    })?;
    let pids: BTreeSet<i32> = args.pids.iter().map(|pid| pid.cast_signed()).collect();
    let check = if confines { check_target } else { check_free };
    pids.iter().try_for_each(|&pid| check(pid))?;
    for &pid in &pids {
        call(&entry, &SupervisorRequest::Take { pid }, TAKING)?;
    }
    let processes = count(pids.len() as u64, "process", "processes");
    say(args.quiet, &format!("{processes} added to group {}", args.name));
    Ok(())
}

/// Ends the supervisor, which releases everybody, and forgets the group.
fn delete(args: &NameArgs) -> Result<(), CmdError> {
    let (store, _) = stored(&args.name)?;
    if let Ok(entry) = running(&args.name) {
        call(&entry, &SupervisorRequest::Dissolve, Duration::from_secs(30))?;
        let ended = until(Duration::from_secs(30), || running(&args.name).is_err());
        if !ended {
            let what = format!("supervisor {} does not end; `kill {0}` ends it", entry.pid);
            return Err(internal(what));
        }
    }
    store.remove(&args.name).map_err(internal)?;
    say(args.quiet, &format!("group {} is deleted; its processes run on", args.name));
    Ok(())
}

/// Starts the supervisor of a group again, and says who is in it and who is not.
fn start(args: &NameArgs) -> Result<(), CmdError> {
    let (store, group) = stored(&args.name)?;
    if let Ok(entry) = running(&args.name) {
        let what = format!("group {} runs; its supervisor is {}", args.name, entry.pid);
        return Err(CmdError::new(ExitCode::AlreadyAttached, what));
    }
    let survivors = store.survivors(&group).map_err(internal)?;
    let entry = supervised(&args.name)?;
    let (mut missed, mut held) = (BTreeSet::new(), Vec::new());
    let (proc, mut open) = (ProcRoot::default(), survivors.alive.clone());
    until(TAKING, || {
        held = running(&args.name).map(|entry| entry.members).unwrap_or_default();
        missed = show::missed(&entry).into_iter().map(|missed| missed.pid).collect();
        open.retain(|pid| {
            !held.contains(pid) && !missed.contains(pid) && proc.process_exists(*pid)
        });
        open.is_empty()
    });
    let taken = survivors.alive.iter().filter(|pid| held.contains(pid)).count();
    let all = group.members.len();
    let mut text = format!("group {}: {taken} of {all} processes taken again", args.name);
    if !survivors.gone.is_empty() {
        text += &format!("; ended meanwhile: {}", show::pids(&survivors.gone));
    }
    if !open.is_empty() {
        text += &format!("; not taken yet: {}", show::pids(&open));
    }
    for Missed { pid, reason } in show::missed(&entry) {
        text += &format!("; {pid} cannot be: {reason}");
    }
    say(args.quiet, &text);
    Ok(())
}

fn until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < limit {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Creates what a file names. A group that is there is left alone if it is the same.
fn apply(args: &ApplyArgs) -> Result<(), CmdError> {
    let (groups, store) = (file::read(&args.file)?, GroupStore::open().map_err(internal)?);
    for (name, definition) in groups {
        let there = store.get(&name).map_err(usage)?;
        let text = match there.map(|stored| serve::definition(&stored)).transpose()? {
            None => create(&name, &definition)?,
            Some(old) if Definition { held: None, ..old.clone() } != rooted(&definition)? => {
                let what = format!(
                    "group {name} is defined otherwise; `huepage group delete {name}` first"
                );
                return Err(CmdError::new(ExitCode::AlreadyAttached, what));
            }
            Some(_) if running(&name).is_ok() => format!("group {name} is there"),
            Some(_) => {
                supervised(&name)?;
                format!("group {name} is started again")
            }
        };
        say(args.quiet, &text);
    }
    Ok(())
}
