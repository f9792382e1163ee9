//! The loop of a supervisor: looks after its group and answers `inspect` and `detach`.

use std::time::Duration;

use huepage_color::ColorSet;
use huepage_linux::conflicts::{ConflictReport, Recolorers};
use huepage_linux::control::{Request, Responder, Server};
use huepage_linux::engine::Group;
use huepage_linux::filecache::kin::Heads;
use huepage_linux::filecache::text::{TextKeeper, TextReport};
use huepage_linux::pollute::{PolluteReport, Polluters};
use huepage_linux::procfs::ProcRoot;
use huepage_linux::registry::Registration;
use huepage_linux::superpages::{self, Worker};
use serde_json::json;

use crate::cmd::attach::check_target;
use crate::cmd::run::engine_error;
use crate::exit::{CmdError, ExitCode};
use crate::partition::{Plan, internal};
use crate::text::Placing;

/// How often children are looked for.
const TICK: Duration = Duration::from_millis(5);
/// How often it is looked whether anybody is left where nobody is confined.
const IDLE_TICK: Duration = Duration::from_millis(200);
/// How long a program waits for its text to be placed before it starts, at most.
const TEXT_PATIENCE: Duration = Duration::from_secs(10);

/// A group that can be reached from outside.
pub struct Supervisor {
    /// The processes.
    pub group: Group,
    registration: Registration,
    server: Server,
    facts: serde_json::Value,
    members: Vec<i32>,
    text: Option<TextKeeper>,
    superpages: Option<Worker>,
    polluters: Option<Polluters>,
    recolorers: Option<Recolorers>,
    /// Processes that are not confined, with their start times.
    watched: Vec<(i32, u64)>,
    /// Whether somebody asked for the end of the group.
    pub dissolved: bool,
}

impl Supervisor {
    /// Announces the partition of `plan` and makes an empty group for it.
    pub fn open(plan: Plan) -> Result<Supervisor, CmdError> {
        let Plan { cache, provenance, source, config, registry, index, lock } = plan;
        let facts = json!({
            "colors": config.colors.to_string(),
            "of": config.colors.universe(),
            "level": cache.level.to_string(),
            "colors_from": provenance.to_string(),
            "index": index,
            "supervisor": std::process::id(),
        });
        let registration = registry
            .register(cache.level, provenance, config.colors.clone(), Vec::new())
            .map_err(internal)?;
        drop(lock);
        let server = Server::bind(&registration.socket_path()).map_err(internal)?;
        let group = Group::new(config, source);
        Ok(Supervisor {
            group,
            registration,
            server,
            facts,
            members: Vec::new(),
            text: None,
            superpages: None,
            polluters: None,
            recolorers: None,
            watched: Vec::new(),
            dissolved: false,
        })
    }

    /// The same of processes that are not confined: no colour is held against others.
    pub fn without_colors(mut plan: Plan) -> Result<Supervisor, CmdError> {
        plan.config.colors = ColorSet::empty(plan.config.colors.universe());
        Supervisor::open(plan)
    }

    /// Tells whoever asks why no superpages are built, if they were wanted.
    pub fn refuse_superpages(&mut self, why: Option<String>) {
        self.facts["no_superpages"] = json!(why);
    }

    /// Has superpages built in members from now on.
    pub fn build_superpages(&mut self, worker: Option<Worker>) {
        self.superpages = worker;
    }

    /// Builds no more superpages; what was done.
    pub fn finish_superpages(mut self) -> Option<superpages::Report> {
        self.end_superpages()
    }

    /// As [`Self::finish_superpages`], and goes on with all else.
    pub fn end_superpages(&mut self) -> Option<superpages::Report> {
        self.superpages.take().and_then(Worker::finish)
    }

    /// What was done about superpages so far.
    fn superpages(&self) -> Option<superpages::Report> {
        self.superpages.as_ref().and_then(Worker::report)
    }

    /// Has polluting pages of processes confined from now on, to the colours of the partition.
    pub fn confine_polluters(&mut self, polluters: Polluters) {
        self.polluters = Some(polluters);
    }

    /// What was done about polluting pages so far.
    pub fn pollute(&self) -> Option<PolluteReport> {
        self.polluters.as_ref().map(Polluters::report)
    }

    /// Has pages of processes that conflict recoloured from now on.
    pub fn recolor_conflicts(&mut self, recolorers: Recolorers) {
        self.recolorers = Some(recolorers);
    }

    /// What was done about conflicts so far.
    pub fn conflicts(&self) -> Option<ConflictReport> {
        self.recolorers.as_ref().map(Recolorers::report)
    }

    /// Has the text of members placed from now on.
    pub fn place_text(&mut self, placing: Option<Placing>) {
        if let Some(Placing { keeper, shared }) = placing {
            self.facts["shared_colors"] = json!(shared.map(|colors| colors.to_string()));
            self.text = Some(keeper);
        }
    }

    /// Places the text of a process that is about to start; it waits only so long.
    pub fn place_text_of(&self, pid: i32) {
        if let Some(text) = &self.text {
            text.place_now(pid, TEXT_PATIENCE);
        }
    }

    /// What became of the members' text, if it is placed.
    pub fn text(&self) -> Option<TextReport> {
        self.text.as_ref().map(TextKeeper::report)
    }

    /// Announces processes that are not confined, until they end or are released.
    pub fn watch(&mut self, pids: &[i32]) -> Result<(), CmdError> {
        let start = |&pid: &i32| Some((pid, ProcRoot::default().stat(pid).ok()?.start_time));
        self.watched.extend(pids.iter().filter_map(start));
        self.announce()
    }

    /// Whether nobody is left to look after.
    pub fn is_empty(&self) -> bool {
        self.group.is_empty() && self.watched.is_empty()
    }

    /// Releases everybody.
    pub fn release_all(&mut self) {
        self.group.release_all();
        self.watched.clear();
    }

    fn release(&mut self, pid: i32) -> bool {
        let before = self.watched.len();
        self.watched.retain(|(watched, _)| *watched != pid);
        if let Some(polluters) = &mut self.polluters {
            polluters.release(pid);
        }
        if let Some(recolorers) = &mut self.recolorers {
            recolorers.release(pid);
        }
        self.group.release(pid) || self.watched.len() < before
    }

    /// Announces the name of the group.
    pub fn set_name(&mut self, name: &str) -> Result<(), CmdError> {
        self.registration.set_group(name).map_err(internal)
    }

    /// Pids of the members when the last turn ended.
    pub fn members(&self) -> &[i32] {
        &self.members
    }

    /// One turn: children, requests, a short wait for whatever of `also` becomes readable.
    pub fn turn(&mut self, also: &[i32]) -> Result<(), CmdError> {
        self.wait(also);
        for (request, answer) in self.server.poll_requests() {
            self.answer(&request, answer);
        }
        self.group.tend();
        self.note_provenance()?;
        if let Some(polluters) = &mut self.polluters {
            polluters.tend(&mut self.group);
        }
        if let Some(recolorers) = &mut self.recolorers {
            recolorers.tend(&mut self.group);
        }
        self.announce()
    }

    /// Tells others how colours are known, where that is found out only after the beginning.
    fn note_provenance(&mut self) -> Result<(), CmdError> {
        let found = self.group.provenance();
        if self.registration.entry().provenance != found {
            self.registration.set_provenance(found).map_err(internal)?;
            self.facts["colors_from"] = json!(found.to_string());
        }
        Ok(())
    }

    fn wait(&self, also: &[i32]) {
        let listen = self.server.poll_set().into_iter();
        let all = listen.chain(also.iter().map(|&fd| (fd, libc::POLLIN)));
        let watches = self.polluters.is_some() || self.recolorers.is_some();
        let idle = self.group.is_empty() && !watches;
        let tick = if idle { IDLE_TICK } else { TICK };
        huepage_linux::wait::wait(&all.collect::<Vec<_>>(), tick);
    }

    /// Takes a process that no partition has: who asked may not have known of the last to come.
    fn take(&mut self, pid: i32) -> Result<(), CmdError> {
        check_target(pid)?;
        self.group.take_running(pid, |_, _| ()).map_err(engine_error)?;
        self.announce()
    }

    fn announce(&mut self) -> Result<(), CmdError> {
        let lives = |(pid, start): &(i32, u64)| {
            let stat = ProcRoot::default().stat(*pid);
            stat.is_ok_and(|stat| stat.start_time == *start && stat.state != 'Z')
        };
        self.watched.retain(lives);
        let mut members = self.group.pids();
        members.extend(self.group.releasing());
        if let Some(text) = &mut self.text {
            text.set_members(&members);
        }
        members.extend(self.watched.iter().map(|(pid, _)| pid));
        members.sort_unstable();
        members.dedup();
        if members != self.members {
            if let Some(worker) = &self.superpages {
                worker.set_heads(Heads::With(members.clone()));
            }
            self.registration.set_members(members.clone()).map_err(internal)?;
            self.members = members;
        }
        Ok(())
    }

    /// What is known of a member.
    fn status(&mut self, pid: i32) -> Option<serde_json::Value> {
        let status = self.group.status(pid);
        if status.is_none() && !self.watched.iter().any(|(watched, _)| *watched == pid) {
            return None;
        }
        let (partition, text, superpages) = (&self.facts, self.text(), self.superpages());
        Some(json!({
            "partition": partition, "status": status, "text": text, "superpages": superpages,
            "pollute": self.pollute(), "conflicts": self.conflicts(),
            "colors_known": self.group.colors_known().is_some(),
        }))
    }

    /// What became of a process that was to be released: one that is stopped goes when it goes on.
    fn fate(&self, pid: i32) -> &'static str {
        if self.group.releasing().contains(&pid) { "releasing" } else { "released" }
    }

    fn answer(&mut self, request: &Request, answer: Responder) {
        let absent = "the process is no member of this partition; see `huepage inspect`";
        let code = i32::from(ExitCode::NotAttached.status());
        match *request {
            Request::Ping => {
                let missed = self.group.report().missed;
                answer.ok(json!({ "partition": self.facts, "missed": missed }));
            }
            Request::Status { pid } => match self.status(pid) {
                Some(status) => answer.ok(status),
                None => answer.fail(code, absent),
            },
            Request::Detach { pid } => {
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
            Request::Verify { pid, sample } => match self.group.verify(pid, sample) {
                Some((measured, right)) => {
                    answer.ok(json!({ "measured": measured, "as_believed": right }));
                }
                None => answer.fail(code, absent),
            },
            Request::Take { pid } => match self.take(pid) {
                Ok(()) => answer.ok(json!({ "taken": pid })),
                Err(error) => answer.fail(i32::from(error.code.status()), &error.message),
            },
            Request::Dissolve => {
                self.dissolved = true;
                answer.ok(json!({ "released": self.group.pids() }));
            }
        }
    }
}
