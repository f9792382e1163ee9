//! The supervisor of a plan: a group of processes under the engine's care, what services do for them, what is
//! announced of it, and answers to `inspect` and `detach`. `huepage run`, `attach` and `group` each have one; the
//! daemon has one for each group and answers for all of them itself. Processes of a plan without a partition
//! are only watched: the engine takes those of which a service wants pages moved.

use std::sync::Arc;
use std::time::Duration;

use huepage_color::ColorSet;
use huepage_linux::color::partition_registry::Registration;
use huepage_linux::control::socket::{ControlServer, Responder, SupervisorRequest};
use huepage_linux::engine::{EngineConfig, Group, Scope};
use huepage_linux::kernel::descriptors::allow_most_files;
use huepage_linux::kernel::process_tree::ProcessRoots;
use huepage_linux::kernel::procfs::{KnownProcess, ProcRoot, ProcessHandle};
use serde_json::{Value, json};

use crate::deferred_drop::drop_behind;
use crate::exit::{CmdError, ExitCode, engine_error};
use crate::partition::{DividedColors, Prepared, internal};
use crate::plan::Plan;
use crate::running_services::StartedServices;
use crate::services::{Context, Reports};
use crate::target::check_target;

/// How often children are looked for.
const TICK: Duration = Duration::from_millis(5);
/// How often it is looked whether anybody is left where nobody is confined.
const IDLE_TICK: Duration = Duration::from_millis(200);
/// How long a program waits for what services do before it starts, at most.
const PREPARE_PATIENCE: Duration = Duration::from_secs(10);

/// Runs a plan for a group of processes.
pub struct Supervisor {
    /// The processes that the engine has.
    pub group: Group,
    services: StartedServices,
    registration: Registration,
    /// None where somebody else answers for the group.
    server: Option<ControlServer>,
    /// What is said of the partition.
    partition: Value,
    /// Whether all memory of the processes is confined.
    confines: bool,
    /// The colours that it has, or that files have where it has none.
    given: ColorSet,
    /// What lies in them.
    colors: DividedColors,
    /// Processes that are looked after and not confined.
    watched: Vec<KnownProcess>,
    /// Those of them that were let go.
    let_go: Vec<KnownProcess>,
    /// Those that services have.
    admitted: Vec<i32>,
    /// Those that are announced.
    members: Vec<i32>,
    /// Whether somebody asked for the end of the group.
    pub dissolved: bool,
}

impl Supervisor {
    /// Announces what a plan holds, begins its services, and answers for it; nobody is in the group yet.
    /// `heads` are those whose processes it will have.
    pub fn open(
        plan: &Plan,
        mut prepared: Prepared,
        roots: ProcessRoots,
        quiet: bool,
    ) -> Result<Supervisor, CmdError> {
        let given = prepared.config.colors.clone();
        let colors = plan.divide(&given, None)?;
        let (level, how) = (prepared.cache.level, prepared.provenance);
        let registered = prepared.registry.register(level, how, colors.held.clone(), Vec::new());
        let registration = registered.map_err(internal)?;
        prepared.lock = None;
        let server = ControlServer::bind(&registration.socket_path()).map_err(internal)?;
        let config = prepared.config.clone();
        let mut supervisor = Supervisor::new(
            plan,
            &prepared,
            config,
            (given, colors),
            registration,
            (roots, quiet),
        )?;
        supervisor.server = Some(server);
        Ok(supervisor)
    }

    /// The same for a part of the caller's colours, which the caller announces and answers for.
    pub fn open_part(
        plan: &Plan,
        prepared: &Prepared,
        config: EngineConfig,
        colors: &ColorSet,
        name: &str,
    ) -> Result<Supervisor, CmdError> {
        let (level, how) = (prepared.cache.level, prepared.provenance);
        let given = colors.clone();
        let colors = plan.divide(&given, None)?;
        let registered = prepared.registry.register_part(level, how, colors.held.clone(), name);
        let registration = registered.map_err(internal)?;
        let nobody = ProcessRoots::With(Vec::new());
        Supervisor::new(plan, prepared, config, (given, colors), registration, (nobody, true))
    }

    fn new(
        plan: &Plan,
        prepared: &Prepared,
        config: EngineConfig,
        (given, colors): (ColorSet, DividedColors),
        registration: Registration,
        (roots, quiet): (ProcessRoots, bool),
    ) -> Result<Supervisor, CmdError> {
        allow_most_files();
        let group = Group::new(config_for(plan, config, &colors), prepared.source.another());
        let mut context =
            Context::new(&plan.partition, prepared, &colors, group.promotion_handle(), roots);
        context.quiet = quiet;
        let services = StartedServices::start(plan, &context)?;
        Ok(Supervisor {
            partition: facts(plan, prepared, &colors)?,
            confines: plan.confines(),
            group,
            services,
            registration,
            server: None,
            given,
            colors,
            watched: Vec::new(),
            let_go: Vec::new(),
            admitted: Vec::new(),
            members: Vec::new(),
            dissolved: false,
        })
    }

    /// Goes on by another plan than `before`; the colours stay.
    pub fn reconfigure(
        &mut self,
        before: &Plan,
        plan: &Plan,
        prepared: &Prepared,
    ) -> Result<(), CmdError> {
        if before.pollute != plan.pollute {
            // What is in the buffer was chosen by somebody who is told otherwise now.
            self.group.rebuffer(None);
            self.colors.buffer = None;
        }
        self.divide(plan)?;
        let roots = ProcessRoots::With(self.admitted.clone());
        let context = Context::new(
            &plan.partition,
            prepared,
            &self.colors,
            self.group.promotion_handle(),
            roots,
        );
        self.services.reconfigure((before, plan), &context)?;
        self.services.admit(&self.admitted);
        self.partition = facts(plan, prepared, &self.colors)?;
        Ok(())
    }

    /// Has the engine divide the colours as the plan says.
    fn divide(&mut self, plan: &Plan) -> Result<(), CmdError> {
        let divided = plan.divide(&self.given, self.colors.buffer.as_ref())?;
        self.group.retune(divided.own.clone());
        if divided.buffer != self.colors.buffer {
            self.group.rebuffer(divided.buffer.clone());
        }
        self.colors = divided;
        Ok(())
    }

    /// The partition has these colours from now on.
    pub fn retune(&mut self, plan: &Plan, colors: &ColorSet) -> Result<(), CmdError> {
        self.given = colors.clone();
        self.divide(plan)?;
        self.registration
            .update(|entry| entry.colors = self.colors.held.clone())
            .map_err(internal)?;
        self.services.recolor(&self.colors);
        self.partition["colors"] = json!(self.colors.held.to_string());
        self.partition["buffer"] = json!(self.colors.buffer.as_ref().map(ToString::to_string));
        Ok(())
    }

    /// The colours for pages that pollute, where all else is confined too.
    pub const fn buffer(&self) -> Option<&ColorSet> {
        self.colors.buffer.as_ref()
    }

    /// Whether all memory of the processes is confined.
    pub const fn confines(&self) -> bool {
        self.confines
    }

    /// Has services prepare a process that is about to start; it waits only so long.
    pub fn prepare(&mut self, pid: i32) {
        self.services.prepare(pid, PREPARE_PATIENCE);
    }

    /// What services did so far.
    pub fn reports(&self) -> Reports {
        self.services.report()
    }

    /// Ends the services; what they did.
    pub fn finish_services(&mut self) -> Reports {
        self.services.finish()
    }

    /// Ends services whose processes are let go as well, in the background.
    pub fn drop_services(&mut self) {
        drop_behind(std::mem::take(&mut self.services));
    }

    /// What keeps a service from its work.
    pub fn trouble(&self) -> Option<String> {
        self.services.trouble()
    }

    /// Looks after processes that are not confined, until they end or are released.
    pub fn watch(&mut self, pids: &[i32]) -> Result<(), CmdError> {
        let root = ProcRoot::default();
        self.watched.extend(pids.iter().filter_map(|&pid| KnownProcess::read(&root, pid).ok()));
        self.announce().map(|_| ())
    }

    /// Has these processes taken as they come, in place of those invited before; where nobody is confined they
    /// are watched.
    pub fn invite(&mut self, processes: Vec<ProcessHandle>) {
        if self.confines {
            return self.group.invite(processes.into_iter().map(Arc::new).collect());
        }
        let root = ProcRoot::default();
        self.let_go.retain(|known| known.is_alive(&root));
        for known in processes.iter().map(ProcessHandle::known) {
            if !self.watched.contains(&known) && !self.let_go.contains(&known) {
                self.watched.push(known);
            }
        }
    }

    /// Whether nobody is left to look after.
    pub fn is_empty(&self) -> bool {
        self.group.is_empty() && self.watched.is_empty()
    }

    /// Whether nothing will be done any more for those that are watched.
    pub fn is_over(&self) -> bool {
        !self.confines && self.services.are_over()
    }

    /// Releases everybody.
    pub fn release_all(&mut self) {
        self.group.release_all();
        self.watched.clear();
    }

    /// Begins to release everybody; the engine's go when they can.
    pub fn begin_release_all(&mut self) {
        self.group.invite(Vec::new());
        self.group.begin_release_all();
        self.watched.clear();
    }

    fn forget(&mut self, pid: i32) -> bool {
        let gone: Vec<KnownProcess> =
            self.watched.extract_if(.., |known| known.pid == pid).collect();
        let was_watched = !gone.is_empty();
        self.let_go.extend(gone);
        self.services.release(pid);
        was_watched
    }

    /// Releases a process and waits for that; whether it was in the group.
    fn release(&mut self, pid: i32) -> bool {
        let watched = self.forget(pid);
        self.group.release(pid) || watched
    }

    /// Begins to release a process; whether it is in the group.
    pub fn begin_release(&mut self, pid: i32) -> bool {
        if !self.has(pid) {
            return false;
        }
        let watched = self.forget(pid);
        self.group.begin_release(pid) || watched
    }

    /// Whether a process is in the group.
    pub fn has(&self, pid: i32) -> bool {
        self.group.holds(pid) || self.watched.iter().any(|known| known.pid == pid)
    }

    /// Announces the name of the group.
    pub fn set_name(&mut self, name: &str) -> Result<(), CmdError> {
        self.registration.update(|entry| entry.group = Some(name.to_owned())).map_err(internal)
    }

    /// Processes when the last turn ended, with those whose agents have not left them yet.
    pub fn members(&self) -> &[i32] {
        &self.members
    }

    /// The same without those.
    pub fn admitted(&self) -> &[i32] {
        &self.admitted
    }

    /// One turn with a short wait for requests, or whatever of `also` becomes readable.
    pub fn turn(&mut self, also: &[i32]) -> Result<(), CmdError> {
        self.wait(also);
        let requests = self.server.as_mut().map(ControlServer::poll_requests).unwrap_or_default();
        requests.into_iter().for_each(|(request, answer)| self.answer(&request, answer));
        self.tick().map(|_| ())
    }

    /// One turn, every few milliseconds; whether others are in the group now.
    pub fn tick(&mut self) -> Result<bool, CmdError> {
        self.group.poll_members();
        self.announce_provenance()?;
        self.services.tick(&mut self.group, &self.admitted);
        self.announce()
    }

    /// Tells others how colours are known, where that is found out only after the beginning.
    fn announce_provenance(&mut self) -> Result<(), CmdError> {
        let found = self.group.provenance();
        if self.registration.entry().provenance != found {
            self.registration.update(|entry| entry.provenance = found).map_err(internal)?;
            self.partition["colors_from"] = json!(found.to_string());
        }
        Ok(())
    }

    fn wait(&self, also: &[i32]) {
        let listen = self.server.iter().flat_map(ControlServer::poll_set);
        let also = also.iter().copied().chain(self.group.descriptor());
        let all = listen.chain(also.map(|fd| (fd, libc::POLLIN)));
        let idle = self.group.is_empty() && self.services.turn().is_none();
        let tick = if idle { IDLE_TICK } else { self.pause(TICK) };
        huepage_linux::kernel::wait::wait(&all.collect::<Vec<_>>(), tick);
    }

    /// How long until the next turn, unless [`Group::descriptor`] is readable before: `tick`, or longer while no
    /// member needs care and no service has pages to move.
    pub fn pause(&self, tick: Duration) -> Duration {
        self.group.pause(tick).min(self.services.turn().unwrap_or(Duration::MAX))
    }

    /// Takes a process that no partition has: who asked may not have known of the last to come.
    fn take(&mut self, pid: i32) -> Result<(), CmdError> {
        check_target(pid)?;
        if !self.confines {
            return self.watch(&[pid]);
        }
        self.group.take_running(pid, |_, _| ()).map_err(engine_error)?;
        self.announce().map(|_| ())
    }

    /// Announces who is in the group, to others and to services; whether it is others than before.
    fn announce(&mut self) -> Result<bool, CmdError> {
        let root = ProcRoot::default();
        self.watched.retain(|known| known.is_alive(&root));
        let mut admitted = self.group.pids();
        admitted.extend(self.watched.iter().map(|known| known.pid));
        let mut members = admitted.clone();
        members.extend(self.group.releasing());
        for list in [&mut admitted, &mut members] {
            list.sort_unstable();
            list.dedup();
        }
        if members != self.members {
            self.registration
                .update(|entry| entry.members.clone_from(&members))
                .map_err(internal)?;
            self.members = members;
        }
        let changed = admitted != self.admitted;
        if changed {
            self.services.admit(&admitted);
            self.admitted = admitted;
        }
        Ok(changed)
    }

    /// What is known of a process.
    pub fn status(&self, pid: i32) -> Option<Value> {
        let status = self.group.status(pid);
        if status.is_none() && !self.has(pid) {
            return None;
        }
        let reports = self.services.report();
        let mut partition = self.partition.clone();
        partition["no_superpages"] = json!(reports.no_superpages);
        let mut answer = serde_json::to_value(&reports).unwrap_or_default();
        answer["partition"] = partition;
        answer["status"] = json!(status);
        answer["colors_known"] = json!(self.group.colors_known().is_some());
        answer["colors_unknown_because"] = json!(self.group.colors_unknown_because());
        Some(answer)
    }

    /// What became of a process that was to be released: one that is stopped goes when it goes on.
    fn fate(&self, pid: i32) -> &'static str {
        if self.group.releasing().contains(&pid) { "releasing" } else { "released" }
    }

    fn answer(&mut self, request: &SupervisorRequest, answer: Responder) {
        let absent = "the process is no member of this partition; see `huepage inspect`";
        let code = i32::from(ExitCode::NotAttached.status());
        match *request {
            SupervisorRequest::Ping => {
                let missed = self.group.report().missed;
                answer.ok(json!({ "partition": self.partition, "missed": missed }));
            }
            SupervisorRequest::Status { pid } => match self.status(pid) {
                Some(status) => answer.ok(status),
                None => answer.fail(code, absent),
            },
            SupervisorRequest::Detach { pid } => {
                if self.release(pid) {
                    // Who asked may attach to it at once.
                    if let Err(error) = self.announce() {
                        return answer.fail(i32::from(error.code.status()), &error.message);
                    }
                    answer.ok(json!({ self.fate(pid): pid }));
                } else {
                    answer.fail(code, absent);
                }
            }
            SupervisorRequest::Take { pid } => match self.take(pid) {
                Ok(()) => answer.ok(json!({ "taken": pid })),
                Err(error) => answer.fail(i32::from(error.code.status()), &error.message),
            },
            SupervisorRequest::Dissolve => {
                self.dissolved = true;
                answer.ok(json!({ "released": self.members }));
            }
        }
    }
}

/// How the engine treats members: without a partition it has none before a service wants pages moved.
fn config_for(plan: &Plan, config: EngineConfig, colors: &DividedColors) -> EngineConfig {
    let config =
        EngineConfig { colors: colors.own.clone(), buffer: colors.buffer.clone(), ..config };
    if plan.confines() {
        return config;
    }
    // A child is watched like its parent, and not taken before there is a reason.
    EngineConfig { scope: Some(Scope::default()), child_delay: Duration::MAX, ..config }
}

/// What is said of the partition to whoever asks.
fn facts(plan: &Plan, prepared: &Prepared, colors: &DividedColors) -> Result<Value, CmdError> {
    let shared = plan.text.shared(colors.held.universe())?.filter(|_| plan.text.is_on());
    let mut facts = json!({
        "colors": colors.held.to_string(),
        "of": colors.held.universe(),
        "level": prepared.cache.level.to_string(),
        "colors_from": prepared.provenance.to_string(),
        "index": prepared.index,
        "supervisor": std::process::id(),
    });
    let text = |colors: &ColorSet| json!(colors.to_string());
    facts["shared_colors"] = shared.as_ref().map(text).unwrap_or_default();
    facts["buffer"] = colors.buffer.as_ref().map(text).unwrap_or_default();
    Ok(facts)
}
