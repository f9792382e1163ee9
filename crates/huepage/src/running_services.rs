//! The services that a plan asks for, started together. Each kind is named once, in [`KINDS`]; `huepage run`,
//! `attach`, `group` and the daemon all have the same ones, through [`crate::supervise::Supervisor`].

use std::time::Duration;

use huepage_linux::engine::Group;

use crate::exit::CmdError;
use crate::partition::DividedColors;
use crate::plan::Plan;
use crate::services::{Context, Reports, Service, conflicts, files, pollute, superpages, text};

/// What starts a service: none where the plan does not ask for it.
type Start = fn(&Plan, &Context<'_>) -> Result<Option<Box<dyn Service>>, CmdError>;

/// A kind of service.
struct ServiceKind {
    /// Whether two plans ask for the same of it.
    same: fn(&Plan, &Plan) -> bool,
    start: Start,
}

/// All kinds there are, in the order in which they are started.
const KINDS: [ServiceKind; 5] = [
    ServiceKind {
        same: |one, other| one.text == other.text,
        start: |plan, context| text::start(&plan.text, context),
    },
    ServiceKind {
        same: |one, other| one.pollute == other.pollute,
        start: |plan, context| pollute::start(&plan.pollute, context),
    },
    ServiceKind {
        same: |one, other| one.conflicts == other.conflicts,
        start: |plan, context| conflicts::start(&plan.conflicts, context),
    },
    ServiceKind {
        same: |one, other| one.superpages == other.superpages,
        start: |plan, context| superpages::start(&plan.superpages, context),
    },
    ServiceKind {
        same: |one, other| one.page_cache == other.page_cache,
        start: |plan, context| files::start(&plan.page_cache, context),
    },
];

/// The services of a group, by kind.
#[derive(Default)]
pub struct StartedServices([Option<Box<dyn Service>>; KINDS.len()]);

impl StartedServices {
    /// Starts what the plan asks for.
    pub fn start(plan: &Plan, context: &Context<'_>) -> Result<StartedServices, CmdError> {
        let mut services = StartedServices::default();
        for (kind, place) in KINDS.iter().zip(&mut services.0) {
            *place = (kind.start)(plan, context)?;
        }
        Ok(services)
    }

    /// Goes on by another plan than `before`: what both ask for goes on, all else ends and begins.
    pub fn reconfigure(
        &mut self,
        (before, plan): (&Plan, &Plan),
        context: &Context<'_>,
    ) -> Result<(), CmdError> {
        for (kind, place) in KINDS.iter().zip(&mut self.0) {
            if !(kind.same)(before, plan) {
                place.take().into_iter().for_each(Service::withdraw);
                *place = (kind.start)(plan, context)?;
            }
        }
        Ok(())
    }

    fn all(&self) -> impl Iterator<Item = &dyn Service> {
        self.0.iter().flatten().map(|service| &**service)
    }

    /// See [`Service::admit`].
    pub fn admit(&mut self, members: &[i32]) {
        self.0.iter_mut().flatten().for_each(|service| service.admit(members));
    }

    /// See [`Service::tick`].
    pub fn tick(&mut self, group: &mut Group, members: &[i32]) {
        self.0.iter_mut().flatten().for_each(|service| service.tick(group, members));
    }

    /// See [`Service::release`].
    pub fn release(&mut self, pid: i32) {
        self.0.iter_mut().flatten().for_each(|service| service.release(pid));
    }

    /// See [`Service::prepare`].
    pub fn prepare(&mut self, pid: i32, limit: Duration) {
        self.0.iter_mut().flatten().for_each(|service| service.prepare(pid, limit));
    }

    /// See [`Service::recolor`].
    pub fn recolor(&mut self, colors: &DividedColors) {
        self.0.iter_mut().flatten().for_each(|service| service.recolor(colors));
    }

    /// What was done so far.
    pub fn report(&self) -> Reports {
        let mut reports = Reports::default();
        self.all().for_each(|service| service.report(&mut reports));
        reports
    }

    /// Ends all of them; what was done.
    pub fn finish(&mut self) -> Reports {
        let mut reports = Reports::default();
        let all = self.0.iter_mut().filter_map(Option::take);
        all.for_each(|service| service.finish(&mut reports));
        reports
    }

    /// What keeps one of them from its work.
    pub fn trouble(&self) -> Option<String> {
        self.all().find_map(Service::trouble)
    }

    /// Whether there are some, and none of them will do anything any more.
    pub fn are_over(&self) -> bool {
        self.all().next().is_some() && self.all().all(Service::is_over)
    }

    /// How soon the next turn is to come, where one of them asks the engine for moves.
    pub fn turn(&self) -> Option<Duration> {
        self.all().filter_map(Service::turn).min()
    }
}
