//! The loop of a supervisor: looks after its group and answers `inspect` and `detach`.

use std::time::Duration;

use huepage_linux::control::{Request, Responder, Server};
use huepage_linux::engine::Group;
use huepage_linux::registry::Registration;
use serde_json::json;

use crate::cmd::attach::check_target;
use crate::cmd::run::engine_error;
use crate::exit::{CmdError, ExitCode};
use crate::partition::{Plan, internal};

/// How often children are looked for.
const TICK: Duration = Duration::from_millis(5);

/// A group that can be reached from outside.
pub struct Supervisor {
    /// The processes.
    pub group: Group,
    registration: Registration,
    server: Server,
    facts: serde_json::Value,
    members: Vec<i32>,
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
        Ok(Supervisor { group, registration, server, facts, members: Vec::new(), dissolved: false })
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
        self.announce()
    }

    fn wait(&self, also: &[i32]) {
        let listen = self.server.poll_set().into_iter();
        let all = listen.chain(also.iter().map(|&fd| (fd, libc::POLLIN)));
        huepage_linux::wait::wait(&all.collect::<Vec<_>>(), TICK);
    }

    /// Takes a process that no partition has: who asked may not have known of the last to come.
    fn take(&mut self, pid: i32) -> Result<(), CmdError> {
        check_target(pid)?;
        self.group.take_running(pid, |_, _| ()).map_err(engine_error)?;
        self.announce()
    }

    fn announce(&mut self) -> Result<(), CmdError> {
        let members = self.group.pids();
        if members != self.members {
            self.registration.set_members(members.clone()).map_err(internal)?;
            self.members = members;
        }
        Ok(())
    }

    fn answer(&mut self, request: &Request, answer: Responder) {
        let absent = "the process is no member of this partition; see `huepage inspect`";
        let code = i32::from(ExitCode::NotAttached.status());
        match *request {
            Request::Ping => {
                let missed = self.group.report().missed;
                answer.ok(json!({ "partition": self.facts, "missed": missed }));
            }
            Request::Status { pid } => match self.group.status(pid) {
                Some(status) => answer.ok(json!({ "partition": self.facts, "status": status })),
                None => answer.fail(code, absent),
            },
            Request::Detach { pid } => {
                if self.group.release(pid) {
                    answer.ok(json!({ "released": pid }));
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
