//! The daemon itself: takes processes as they come, reads how groups are doing, carries out what is
//! decided, answers, and keeps what a restart needs. Ends on SIGTERM, SIGINT or `huepage ctl stop` and
//! releases everybody; SIGHUP has the file read again. One thread, which waits for no process: what a stopped
//! one holds up goes on in the background. There is one daemon on a machine, which holds a lock for its life.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use huepage_linux::color::partition_registry::{Registry, RegistryLock};
use huepage_linux::control::socket;
use huepage_linux::control::socket::{ControlServer, Responder};
use huepage_linux::inject::launch::relay::SignalRelay;
use huepage_linux::kernel::process_memory::thread_time;
use huepage_linux::kernel::procfs::{KnownProcess, ProcRoot, ProcessHandle};
use huepage_linux::kernel::sd_notify::Notifier;
use huepage_policy::coloris::{AppId, By, Decision, Manager, Want};
use serde_json::{Value, json};

use super::config::DaemonConfig;
use super::division::{self, GroupDivision, OpenedCache};
use super::group::GroupConfig;
use super::journal::{Journal, say};
use super::limits::{self, GroupSize};
use super::live::LiveGroup;
use super::matching::{self, Claims, Finder, MatchedProcess};
use super::metrics;
use super::mistake::bad;
use super::pending::PendingReleases;
use super::protocol::{self, DaemonRequest, DaemonStatus, GroupStatus};
use super::state::{self, DaemonState, KeptGroup};
use crate::deferred_drop::drop_within;
use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;

/// How often members are looked after.
const TICK: Duration = Duration::from_millis(20);
/// How long a turn takes at most.
const LONGEST_TURN: Duration = Duration::from_secs(1);
/// How long processes may take to be released when the daemon ends.
const RELEASES: Duration = Duration::from_secs(3);
/// And what looked after them to end.
const ENDING: Duration = Duration::from_secs(1);

/// See the module's head.
pub struct Daemon {
    file: PathBuf,
    config: DaemonConfig,
    opened: OpenedCache,
    manager: Manager,
    groups: Vec<LiveGroup>,
    /// Groups that the file does not name any more, until all their processes are released.
    retired: Vec<LiveGroup>,
    /// The processes that the numbers of the file stand for.
    numbers: HashMap<i32, KnownProcess>,
    /// Requests that wait for processes.
    pending: PendingReleases,
    notifier: Notifier,
    /// Held for the daemon's life.
    _place: RegistryLock,
    /// Members of before that are not taken again yet, by group.
    before: DaemonState,
    journal: Journal,
    root: ProcRoot,
    began: Instant,
    finder: Finder,
    decided: Instant,
    frozen: bool,
    stopped: bool,
    troubles: Vec<String>,
    asked: ControlServer<DaemonRequest>,
    /// What `huepage inspect` and `detach` ask.
    supervised: ControlServer<socket::SupervisorRequest>,
}

/// Runs until it is told to end.
///
/// # Errors
/// When the file is wrong, the cache cannot be divided here, or a daemon runs already.
pub fn run(file: &Path) -> Result<(), CmdError> {
    let relay = SignalRelay::new().map_err(internal)?;
    let mut daemon = Daemon::start(file, Notifier::from_env())?;
    daemon.notifier.ready();
    let ended = daemon.turns(&relay);
    daemon.notifier.stopping();
    daemon.end();
    ended
}

impl Daemon {
    fn start(file: &Path, notifier: Notifier) -> Result<Daemon, CmdError> {
        let file = std::path::absolute(file).map_err(internal)?;
        let config = DaemonConfig::read(&file).map_err(bad)?;
        // Before anything is measured.
        let held = take_place()?;
        let mut opened = division::open(&config)?;
        let (before, troubles) = state_of(&config);
        let division = division::divide(&config, &opened.prepared.cache, &opened.pool, &before)
            .map_err(bad)?;
        let groups = open_groups(&config, &opened, &division)?;
        opened.prepared.lock = None;
        let (own, registry) = (std::process::id().cast_signed(), &opened.prepared.registry);
        let supervised = ControlServer::bind(&registry.socket_path(own)).map_err(internal)?;
        let asked = ControlServer::bind(&protocol::socket(registry)).map_err(internal)?;
        let daemon = Daemon {
            journal: Journal::new(config.daemon.decisions),
            manager: division.manager,
            frozen: before.frozen,
            numbers: matching::numbers(&ProcRoot::default(), &config.groups),
            retired: Vec::new(),
            pending: PendingReleases::default(),
            notifier,
            _place: held,
            root: ProcRoot::default(),
            began: Instant::now(),
            finder: Finder::new(&ProcRoot::default()),
            decided: Instant::now(),
            stopped: false,
            file,
            config,
            opened,
            groups,
            before,
            troubles,
            asked,
            supervised,
        };
        daemon.introduce();
        Ok(daemon)
    }

    /// Says what it begins with.
    fn introduce(&self) {
        let (level, of) = (self.opened.prepared.cache.level, self.opened.pool.universe());
        let (how, resctrl) = (self.opened.prepared.provenance, division::resctrl());
        say(&format!("{level} has {of} colours ({how}); resctrl: {resctrl}"));
        for live in &self.groups {
            let again = self.before.colors(&live.config.name, of).as_ref() == Some(&live.colors);
            let again = if again { ", as before" } else { "" };
            let rule = division::rule(&live.config, &self.opened.scale());
            say(&format!("{}: colours {}{again}; {rule}", live.config.name, live.colors));
            live.introduce();
        }
    }

    fn turns(&mut self, relay: &SignalRelay) -> Result<(), CmdError> {
        self.keep();
        while !self.stopped {
            self.wait(relay.as_fd().as_raw_fd());
            self.hear(relay)?;
            self.serve();
            self.look();
            let mut changed = self.tend()?;
            changed |= self.decide()?;
            self.notifier.alive();
            if changed {
                self.forget_taken();
                self.keep();
            }
        }
        Ok(())
    }

    /// Looks after all processes, and answers who waited for one; whether any came or went.
    fn tend(&mut self) -> Result<bool, CmdError> {
        let mut changed = false;
        for at in 0..self.groups.len() {
            // As it is now: one group's comers are counted before another's come.
            let limit = self.allowance(at);
            changed |= self.groups[at].tend(limit, &self.root)?;
        }
        for live in &mut self.retired {
            live.tend(0, &self.root)?;
        }
        self.retired.retain(|live| !live.supervisor.is_empty());
        let releasing = self.releasing();
        self.pending.turn(&releasing);
        Ok(changed)
    }

    /// Processes that a group may have now.
    fn allowance(&self, at: usize) -> usize {
        let uses: Vec<GroupSize> = self.groups.iter().map(LiveGroup::size).collect();
        limits::allowances(*self.config.daemon.max_members.get_ref(), &uses)[at]
    }

    /// Processes that were told to go and whose agents are still in them.
    fn releasing(&self) -> Vec<i32> {
        let all = self.groups.iter().chain(&self.retired);
        all.flat_map(|live| live.supervisor.group.releasing()).collect()
    }

    fn wait(&self, signals: i32) {
        let sockets = self.asked.poll_set().into_iter().chain(self.supervised.poll_set());
        let all: Vec<_> = sockets.chain([(signals, libc::POLLIN)]).collect();
        let all: Vec<_> = all.into_iter().chain(self.bells()).collect();
        huepage_linux::kernel::wait::wait(&all, self.pause());
    }

    /// What becomes readable when a member of a group has ended.
    fn bells(&self) -> impl Iterator<Item = (RawFd, i16)> {
        let live = self.groups.iter().chain(&self.retired);
        live.filter_map(|live| Some((live.supervisor.group.descriptor()?, libc::POLLIN)))
    }

    /// How long nothing is to be done.
    fn pause(&self) -> Duration {
        let live = self.groups.iter().chain(&self.retired).map(|live| &live.supervisor);
        let pauses = live.filter(|of| !of.is_empty()).map(|of| of.pause(TICK));
        let decides = self.groups.iter().any(|live| live.config.is_dynamic());
        let decides = decides || self.config.daemon.metrics_file.is_some();
        let decision = decides.then(|| self.interval().saturating_sub(self.decided.elapsed()));
        let due = [LONGEST_TURN, self.until_look()];
        let soonest = pauses.chain(decision).chain(due).min().unwrap_or(TICK);
        soonest.max(Duration::from_millis(1))
    }

    fn interval(&self) -> Duration {
        Duration::from_secs_f64(*self.config.daemon.interval.get_ref())
    }

    /// How long until it is to be looked who belongs to groups.
    fn until_look(&self) -> Duration {
        let shortest = Duration::from_secs_f64(*self.config.daemon.look.get_ref());
        self.finder.wait(shortest)
    }

    fn hear(&mut self, relay: &SignalRelay) -> Result<(), CmdError> {
        while let Some(incoming) = relay.next().map_err(internal)? {
            match incoming.signal {
                libc::SIGINT | libc::SIGTERM => self.stopped = true,
                libc::SIGHUP => match self.reload() {
                    Ok(text) => say(&text),
                    Err(error) => say(&format!("not reloaded: {error}")),
                },
                _ => {}
            }
        }
        Ok(())
    }

    /// Looks for processes that belong to groups, if it is time.
    fn look(&mut self) {
        if self.until_look() > Duration::ZERO {
            return;
        }
        let start = thread_time();
        let claims = Claims::new(&self.root, &self.config.groups, &self.numbers);
        let found = self.finder.find(&claims);
        if let Some(taken) = self.taken(&found) {
            self.invite(&found, taken);
        }
        self.finder.looked(thread_time().saturating_sub(start));
    }

    /// Processes that somebody has; of those that others have, only if any that was found is not ours. A registry that
    /// cannot be read for a moment is no reason to end, nor to take anybody: nothing.
    fn taken(&self, found: &[MatchedProcess]) -> Option<HashSet<i32>> {
        let mut taken: HashSet<i32> = self.releasing().into_iter().collect();
        taken.extend(self.groups.iter().flat_map(|live| live.members().iter().copied()));
        if !self.before.groups.is_empty() || found.iter().any(|of| !taken.contains(&of.pid)) {
            let others = self.opened.prepared.registry.list().ok()?;
            taken.extend(others.iter().flat_map(|e| e.members.clone()));
            taken.extend(others.iter().map(|entry| entry.pid));
        }
        Some(taken)
    }

    /// Invites processes that belong to groups and that nobody has.
    fn invite(&mut self, found: &[MatchedProcess], mut taken: HashSet<i32>) {
        let claims = Claims::new(&self.root, &self.config.groups, &self.numbers);
        for (at, live) in self.groups.iter_mut().enumerate() {
            let matching = found.iter().filter(|of| of.group == at);
            let any = matching.clone().next().is_some();
            let free: Vec<_> = matching.filter(|of| !taken.contains(&of.pid)).collect();
            // One more than there is room for, to know that there is none; each takes a descriptor.
            let room = live.size().most.saturating_sub(live.size().has) + 1;
            let free = free.into_iter().take(room);
            let mut held: Vec<ProcessHandle> = free.filter_map(|of| claims.hold(of)).collect();
            let before = self.before.survivors(&live.config.name, &self.root);
            held.extend(before.into_iter().filter(|of| !taken.contains(&of.pid())));
            // Nobody is invited by two.
            taken.extend(held.iter().map(ProcessHandle::pid));
            live.supervisor.invite(held);
            let lonely = !any && live.members().is_empty();
            if lonely && !live.lonely {
                say(&format!("{}: no process matches", live.config.name));
            }
            live.lonely = lonely;
        }
    }

    /// Reads how groups are doing and carries out what is decided; whether anything changed.
    fn decide(&mut self) -> Result<bool, CmdError> {
        if self.decided.elapsed() < self.interval() {
            return Ok(false);
        }
        self.decided = Instant::now();
        let now = self.began.elapsed().as_secs_f64();
        let foretells = self.manager.settings.by == By::Utility;
        let dynamic = self.groups.iter_mut().filter(|live| live.config.is_dynamic());
        let read = dynamic.filter_map(|live| {
            let reading = live.read(&self.root)?;
            Some((live.holder, reading, foretells.then(|| live.foretold()).flatten()))
        });
        let readings = read.collect();
        let decisions = division::decide(&mut self.manager, readings, self.frozen, now);
        for decision in &decisions {
            let name = self.name_of(decision.app);
            let (from, to) = (decision.from.to_string(), decision.to.to_string());
            self.journal.note(&name, &from, &to, &decision.reason);
        }
        let changed = decisions.iter().any(Decision::is_change);
        if changed {
            self.retune()?;
        }
        self.write_metrics();
        Ok(changed)
    }

    fn name_of(&self, holder: AppId) -> String {
        let own = self.groups.iter().find(|live| live.holder == holder);
        own.map(|live| live.config.name.clone()).unwrap_or_default()
    }

    /// Gives all groups the colours that were decided.
    fn retune(&mut self) -> Result<(), CmdError> {
        for live in &mut self.groups {
            if let Some(colors) = self.manager.colors(live.holder) {
                live.retune(colors.clone())?;
            }
        }
        Ok(())
    }

    /// Members of before that are taken again, or have ended, are not asked for any more.
    fn forget_taken(&mut self) {
        for kept in &mut self.before.groups {
            let live = self.groups.iter().find(|live| live.config.name == kept.name);
            let members = live.map_or(&[][..], LiveGroup::members);
            let root = &self.root;
            kept.members.retain(|of| !members.contains(&of.pid) && root.process_exists(of.pid));
        }
    }

    /// Keeps on the disk what a restart needs.
    fn keep(&mut self) {
        let root = &self.root;
        let known = |&pid: &i32| KnownProcess::read(root, pid).ok();
        let kept = |live: &LiveGroup| {
            let waiting = self.before.groups.iter().filter(|kept| kept.name == live.config.name);
            let waiting = waiting.flat_map(|kept| kept.members.iter().copied());
            let mut members: Vec<KnownProcess> = live.members().iter().filter_map(known).collect();
            members.extend(waiting);
            members.sort_unstable();
            members.dedup();
            KeptGroup { name: live.config.name.clone(), colors: live.colors.clone(), members }
        };
        let groups = self.groups.iter().map(kept).collect();
        let boot = state::boot(root);
        let mut all = DaemonState { version: 0, boot, frozen: self.frozen, groups };
        let written = all.write(&state::path(&self.config)).err().map(|e| e.to_string());
        self.note_trouble("cannot use", written);
    }

    fn write_metrics(&mut self) {
        let Some(path) = self.config.daemon.metrics_file.clone() else { return };
        let text = metrics::text(&self.status(), &self.group_statuses());
        let written = state::replace(&path, Ok(text.into_bytes()), false);
        let why = written.err().map(|e| format!("metrics: cannot write {}: {e}", path.display()));
        self.note_trouble("metrics: ", why);
    }

    /// A trouble of a kind comes or goes; it is said when it comes.
    fn note_trouble(&mut self, kind: &str, trouble: Option<String>) {
        let before = self.troubles.len();
        if trouble.as_ref().is_some_and(|new| self.troubles.contains(new)) {
            return;
        }
        self.troubles.retain(|old| !old.starts_with(kind));
        if let Some(new) = trouble {
            say(&new);
            self.troubles.push(new);
        } else if self.troubles.len() < before {
            say("what could not be written can be written again");
        }
    }

    /// Reads the file again; what was done.
    fn reload(&mut self) -> Result<String, CmdError> {
        self.notifier.reloading();
        let done = self.read_again();
        self.notifier.ready();
        done
    }

    fn read_again(&mut self) -> Result<String, CmdError> {
        let config = DaemonConfig::read(&self.file).map_err(bad)?;
        let same = |config: &DaemonConfig| (config.daemon.level, config.daemon.colors_from.clone());
        if same(&config) != same(&self.config) {
            let what =
                "level and colors_from cannot be changed while it runs; stop it and start it again";
            return Err(CmdError::new(ExitCode::BadFile, what));
        }
        self.check_confined(&config)?;
        let fresh = division::look_again(&config, &self.opened)?;
        let division =
            division::divide(&config, &self.opened.prepared.cache, &fresh.pool, &self.current())
                .map_err(bad)?;
        (self.opened.pool, self.opened.prepared.lock) = (fresh.pool, Some(fresh.lock));
        self.opened.senses = fresh.senses;
        self.numbers = matching::numbers(&self.root, &config.groups);
        self.replace_groups(&config, &division)?;
        self.opened.prepared.lock = None;
        self.manager = division.manager;
        self.journal.resize(config.daemon.decisions);
        self.config = config;
        self.release_strangers();
        self.groups.iter().for_each(LiveGroup::introduce);
        self.finder.again();
        self.keep();
        Ok(format!("{} groups by {}", self.groups.len(), self.file.display()))
    }

    /// Refuses a file by which processes would be confined that are only watched, or the other way round.
    fn check_confined(&self, config: &DaemonConfig) -> Result<(), CmdError> {
        let before = |name: &str| self.groups.iter().find(|live| live.config.name == name);
        let differs = |group: &&GroupConfig| {
            before(&group.name).is_some_and(|live| live.config.confines() != group.confines())
        };
        let Some(group) = config.groups.iter().find(differs) else { return Ok(()) };
        let what = format!(
            "group {} cannot get or lose its colours while the daemon runs; give the group another name",
            group.name
        );
        Err(CmdError::new(ExitCode::BadFile, what))
    }

    /// Groups as the file has them now; those that stay keep their processes.
    fn replace_groups(
        &mut self,
        config: &DaemonConfig,
        division: &GroupDivision,
    ) -> Result<(), CmdError> {
        let mut old = std::mem::take(&mut self.groups);
        // One that comes back while it is released goes on where it was.
        old.append(&mut self.retired);
        // Those that go are told before others come.
        let names: HashSet<&str> = config.groups.iter().map(|g| g.name.as_str()).collect();
        let gone = old.extract_if(.., |live| !names.contains(live.config.name.as_str()));
        self.retired = gone.collect();
        self.retired.iter_mut().for_each(LiveGroup::retire);
        for (group, &holder) in config.groups.iter().zip(&division.holders) {
            let colors = division.colors(holder, self.opened.pool.universe());
            let there = old.iter().position(|live| live.config.name == group.name);
            let mut live = match there {
                Some(place) => old.swap_remove(place),
                None => {
                    let (daemon, colors) = (&config.daemon, colors.clone());
                    LiveGroup::open(group.clone(), daemon, &self.opened, holder, colors)?
                }
            };
            live.holder = holder;
            live.reconfigure(group.clone(), &config.daemon, &self.opened)?;
            live.retune(colors)?;
            self.groups.push(live);
        }
        Ok(())
    }

    /// The colours of now, as if they had been kept.
    fn current(&self) -> DaemonState {
        let kept = |live: &LiveGroup| KeptGroup {
            name: live.config.name.clone(),
            colors: live.colors.clone(),
            members: Vec::new(),
        };
        DaemonState { groups: self.groups.iter().map(kept).collect(), ..DaemonState::default() }
    }

    /// Lets go of members that the file does not name any more, by themselves or by their parents.
    fn release_strangers(&mut self) {
        let found = Claims::new(&self.root, &self.config.groups, &self.numbers).all();
        for (at, live) in self.groups.iter_mut().enumerate() {
            let mut own: HashSet<i32> =
                found.iter().filter(|of| of.group == at).map(|of| of.pid).collect();
            for pid in own.clone() {
                own.extend(self.root.children(pid).unwrap_or_default());
            }
            let others: HashSet<i32> =
                found.iter().filter(|of| of.group != at).map(|of| of.pid).collect();
            for pid in live.members().to_vec() {
                if !own.contains(&pid) || others.contains(&pid) {
                    live.supervisor.begin_release(pid);
                }
            }
            live.supervisor.group.forgive();
        }
    }

    /// Releases everybody, and ends within some seconds: a process that is stopped is free when it goes on.
    fn end(&mut self) {
        let mut all = std::mem::take(&mut self.groups);
        all.append(&mut self.retired);
        let had: Vec<usize> = all.iter().map(|live| live.members().len()).collect();
        for live in &mut all {
            live.supervisor.begin_release_all();
        }
        let until = Instant::now() + RELEASES;
        while all.iter().any(|live| !live.supervisor.is_empty()) && Instant::now() < until {
            all.iter_mut().for_each(|live| live.supervisor.group.poll_members());
            std::thread::sleep(Duration::from_millis(5));
        }
        for (live, had) in all.iter().zip(had).filter(|(_, had)| *had > 0) {
            let gone = had - live.supervisor.group.releasing().len().min(had);
            say(&format!("{}: let {gone} of {had} processes go", live.config.name));
        }
        for pid in all.iter().flat_map(|live| live.supervisor.group.releasing()) {
            say(&format!("process {pid} is stopped or busy; it is let go when it goes on"));
        }
        // What looks after them may wait for one.
        drop_within(all, ENDING);
    }

    /// Answers whoever asked.
    fn serve(&mut self) {
        for (request, answer) in self.asked.poll_requests() {
            self.answer(request, answer);
        }
        for (request, answer) in self.supervised.poll_requests() {
            self.answer_supervised(&request, answer);
        }
    }

    fn answer(&mut self, request: DaemonRequest, answer: Responder) {
        let json = |value: Result<Value, serde_json::Error>| value.unwrap_or_default();
        match request {
            DaemonRequest::Status => answer.ok(json(serde_json::to_value(self.status()))),
            DaemonRequest::Groups => answer.ok(json(serde_json::to_value(self.group_statuses()))),
            DaemonRequest::Decisions { last } => {
                answer.ok(json(serde_json::to_value(self.journal.last(last))));
            }
            DaemonRequest::Metrics => {
                answer.ok(json!(metrics::text(&self.status(), &self.group_statuses())))
            }
            DaemonRequest::Freeze | DaemonRequest::Thaw => {
                self.frozen = request == DaemonRequest::Freeze;
                say(if self.frozen {
                    "frozen: nothing is changed"
                } else {
                    "thawed: decides again"
                });
                self.keep();
                answer.ok(json!({ "frozen": self.frozen }));
            }
            DaemonRequest::Reload => match self.reload() {
                Ok(text) => {
                    say(&text);
                    answer.ok(json!({ "groups": self.groups.len() }));
                }
                Err(error) => {
                    say(&format!("not reloaded: {error}"));
                    answer.fail(i32::from(error.code.status()), &error.message);
                }
            },
            DaemonRequest::Stop => {
                self.stopped = true;
                answer.ok(json!({ "pid": std::process::id() }));
            }
        }
    }

    fn status(&self) -> DaemonStatus {
        let of_groups = self.groups.iter().filter_map(|live| {
            let why = live.trouble()?;
            Some(format!("{}: {why}", live.config.name))
        });
        DaemonStatus {
            pid: std::process::id(),
            config: self.file.clone(),
            level: self.opened.prepared.cache.level.to_string(),
            of: self.opened.pool.universe(),
            colors_from: self.opened.prepared.provenance.to_string(),
            free: self.manager.free().to_string(),
            resctrl: division::resctrl().to_owned(),
            sensor: self.opened.senses.to_string(),
            frozen: self.frozen,
            seconds: self.began.elapsed().as_secs_f64(),
            groups: self.groups.len(),
            processes: self.groups.iter().map(|live| live.members().len()).sum(),
            decisions: self.journal.total(),
            notes: self.groups.iter().flat_map(LiveGroup::notes).collect(),
            troubles: self.troubles.iter().cloned().chain(of_groups).collect(),
        }
    }

    fn group_statuses(&self) -> Vec<GroupStatus> {
        self.groups.iter().map(|live| self.group_status(live)).collect()
    }

    fn group_status(&self, live: &LiveGroup) -> GroupStatus {
        let want = match self.manager.want(live.holder) {
            Want::More => "more",
            Want::Same => "same",
            Want::Less => "less",
            Want::Nothing => "nothing",
        };
        GroupStatus {
            name: live.config.name.clone(),
            colors: live.colors.to_string(),
            rule: division::rule(&live.config, &self.opened.scale()),
            follows: live.config.is_dynamic(),
            processes: live.members().to_vec(),
            sensor: live.read_by().map(|(name, _)| name.to_owned()),
            want: want.to_owned(),
            eager: live.eager(),
            notes: live.intentions(),
            figures: live.figures(),
            services: live.supervisor.reports(),
            buffer: live.supervisor.buffer().map(ToString::to_string),
            trouble: live.trouble(),
        }
    }

    /// What is known of a member, as every supervisor says it.
    fn member(&self, pid: i32) -> Option<Value> {
        self.groups.iter().find_map(|live| live.supervisor.status(pid))
    }

    fn answer_supervised(&mut self, request: &socket::SupervisorRequest, answer: Responder) {
        let absent = "the process is in no group of the daemon; see `huepage ctl groups`";
        let code = i32::from(ExitCode::NotAttached.status());
        match *request {
            socket::SupervisorRequest::Ping => answer.ok(json!({ "daemon": std::process::id() })),
            socket::SupervisorRequest::Status { pid } => match self.member(pid) {
                Some(status) => answer.ok(status),
                None => answer.fail(code, absent),
            },
            socket::SupervisorRequest::Detach { pid } => {
                let of = |live: &mut LiveGroup| live.supervisor.begin_release(pid);
                if self.groups.iter_mut().any(of) || self.releasing().contains(&pid) {
                    self.pending.wait(pid, answer);
                } else {
                    answer.fail(code, absent)
                }
            }
            socket::SupervisorRequest::Take { .. } | socket::SupervisorRequest::Dissolve => {
                let what = "the group is the daemon's; change its file, then `huepage ctl reload`";
                answer.fail(i32::from(ExitCode::AlreadyAttached.status()), what);
            }
        }
    }
}

/// One daemon is enough: two would take each other's processes. Whether the other answers does not matter.
fn take_place() -> Result<RegistryLock, CmdError> {
    let registry = Registry::open().map_err(internal)?;
    registry.take_daemon_place().map_err(internal)?.ok_or_else(|| {
        let what = "a daemon runs already; `huepage ctl status` shows it";
        CmdError::new(ExitCode::AlreadyAttached, what)
    })
}

/// What a daemon before this one left, and what is the matter with it.
fn state_of(config: &DaemonConfig) -> (DaemonState, Vec<String>) {
    match DaemonState::read(&state::path(config)) {
        Ok(state) => (state, Vec::new()),
        Err(error) => {
            say(&error.to_string());
            (DaemonState::default(), vec![error.to_string()])
        }
    }
}

fn open_groups(
    config: &DaemonConfig,
    opened: &OpenedCache,
    division: &GroupDivision,
) -> Result<Vec<LiveGroup>, CmdError> {
    let groups = config.groups.iter().zip(&division.holders);
    let open = |(group, &holder): (_, &AppId)| {
        let colors = division.colors(holder, opened.pool.universe());
        LiveGroup::open(Clone::clone(group), &config.daemon, opened, holder, colors)
    };
    groups.map(open).collect()
}
