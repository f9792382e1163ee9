//! The files that the processes of a group open, placed before they read them: the service of
//! `--page-cache`, which runs while somebody is in the group. All processes of the machine that open a file wait a
//! moment for it, so it ends some time after the last one has left.

use std::time::{Duration, Instant};

use huepage_linux::filecache::kin::Heads;

use super::journal::say;
use crate::args::PartitionArgs;
use crate::cmd::page_cache::args::PageCacheArgs;
use crate::cmd::page_cache::report::PageCacheReport;
use crate::cmd::page_cache::supervisor::Service;

/// How long it waits for somebody to come.
const LINGER: Duration = Duration::from_secs(30);
/// After a failure it is tried again.
const AGAIN: Duration = Duration::from_secs(60);

/// See the module's head.
pub struct Files {
    /// What the log calls the group.
    name: String,
    args: PageCacheArgs,
    partition: PartitionArgs,
    service: Option<Service>,
    /// Whom it knows.
    known: Vec<i32>,
    /// Since when it has nobody.
    idle: Option<Instant>,
    failed: Option<Instant>,
    trouble: Option<String>,
    /// What the last one did.
    before: Option<PageCacheReport>,
}

impl Files {
    /// Of nobody yet, in the colours of `partition`, which says all that can be said of them.
    pub fn new(name: &str, args: PageCacheArgs, partition: PartitionArgs) -> Files {
        let name = name.to_owned();
        let (known, before) = (Vec::new(), None);
        let (service, idle, failed, trouble) = (None, None, None, None);
        Files { name, args, partition, service, known, idle, failed, trouble, before }
    }

    /// One turn; these processes are in the group now. The first one has the service started, for which
    /// this waits: a moment, or some seconds where colours are measured. It has to be called by the thread that
    /// lives as long as the daemon.
    pub fn tend(&mut self, members: &[i32]) {
        if self.service.as_ref().is_some_and(Service::is_dead) {
            let report = self.service.take().map(Service::finish);
            let why = report.as_ref().and_then(|report| report.service_died.clone());
            self.fail(why.unwrap_or_else(|| "the service ended".to_owned()));
            self.before = report;
        }
        self.idle = if members.is_empty() { self.idle.or(Some(Instant::now())) } else { None };
        if self.idle.is_some_and(|since| since.elapsed() >= LINGER) {
            self.before = self.service.take().map(Service::finish).or(self.before.take());
        }
        if self.service.is_some() {
            self.tell(members);
        } else if !members.is_empty() && self.failed.is_none_or(|at| at.elapsed() >= AGAIN) {
            self.start(members);
        }
    }

    fn start(&mut self, members: &[i32]) {
        let heads = Heads::With(members.to_vec());
        match Service::start_if_wanted(&self.args, &self.partition, heads, true) {
            Ok(service) => {
                (self.service, self.failed, self.trouble) = (service, None, None);
                self.known = members.to_vec();
            }
            Err(error) => self.fail(error.message),
        }
    }

    fn fail(&mut self, why: String) {
        let trouble = format!("files are not placed: {why}");
        if self.trouble.as_ref() != Some(&trouble) {
            say(&format!("{}: {trouble}", self.name));
        }
        (self.failed, self.trouble) = (Some(Instant::now()), Some(trouble));
    }

    /// Tells the service who came and who went.
    fn tell(&mut self, members: &[i32]) {
        let Some(service) = self.service.as_ref().filter(|_| self.known != members) else { return };
        let came: Vec<i32> =
            members.iter().copied().filter(|pid| !self.known.contains(pid)).collect();
        service.admit(&came);
        let gone = self.known.iter().filter(|pid| !members.contains(pid));
        gone.for_each(|&pid| service.release(pid));
        self.known = members.to_vec();
    }

    /// What is the matter.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.clone()
    }

    /// What was done by the service that runs, or the last one.
    pub fn report(&self) -> Option<PageCacheReport> {
        self.service.as_ref().map(Service::report).or_else(|| self.before.clone())
    }
}
