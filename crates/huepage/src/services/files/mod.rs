//! `--page-cache`: the files of a program are placed before it reads them. `options` has the options, `server`
//! is the process that lets others open files, `client` starts and watches it, `protocol` and `report` are what
//! is said. Here is the service of a group: the server runs while somebody is in the group. All processes of the
//! machine that open a file wait a moment for it, so it ends some time after the last one has left. The
//! mechanism is in `huepage_linux::services::files`.

mod client;
mod options;
mod protocol;
mod report;
pub mod server;

use std::time::{Duration, Instant};

use huepage_linux::engine::Group;
use huepage_linux::kernel::process_tree::ProcessRoots;

pub use options::PageCacheArgs;
pub use report::PageCacheReport;

use self::client::Client;
use super::{Context, Reports, Service};
use crate::exit::CmdError;
use crate::partition::{self, DividedColors, PartitionArgs};

/// The hidden command that is the server.
pub const SERVICE: &str = "page-cache-service";

/// How long the server waits for somebody to come.
const LINGER: Duration = Duration::from_secs(30);
/// After a failure it is started again this much later.
const RETRY: Duration = Duration::from_secs(60);

/// Has the files of a group placed.
struct FileService {
    options: PageCacheArgs,
    partition: PartitionArgs,
    client: Option<Client>,
    /// Whether the processes are known from the beginning: then the server is started at once and once only.
    started_at_once: bool,
    /// Whether they are found by their parents.
    below: bool,
    /// Whom the server knows.
    known: Vec<i32>,
    /// Since when it has nobody.
    idle: Option<Instant>,
    failed: Option<Instant>,
    trouble: Option<String>,
    /// What the last server did.
    before: Option<PageCacheReport>,
}

/// Starts the service; see [`super::Service`]. Where processes are known already it returns when their files
/// are being placed; call it on the thread that lives as long as that is to go on.
pub fn start(
    options: &PageCacheArgs,
    context: &Context<'_>,
) -> Result<Option<Box<dyn Service>>, CmdError> {
    if !options.is_on() {
        return Ok(None);
    }
    let asked = context.partition;
    let partition = PartitionArgs {
        colors: Some(context.colors.files.to_string()),
        share: None,
        colors_from: Some(partition::found(asked, context.provenance)),
        ..asked.clone()
    };
    let (below, known) = match &context.roots {
        ProcessRoots::Below(_) => (true, Vec::new()),
        ProcessRoots::With(pids) => (false, pids.clone()),
    };
    let mut service = FileService {
        options: options.clone(),
        partition,
        client: None,
        started_at_once: below || !known.is_empty(),
        below,
        known,
        idle: None,
        failed: None,
        trouble: None,
        before: None,
    };
    if service.started_at_once {
        let client = Client::start(options, &service.partition, context.roots.clone())?;
        for (path, why) in client.skipped().iter().filter(|_| !context.quiet) {
            eprintln!("huepage: {} is not watched: {why}", path.display());
        }
        service.client = Some(client);
    }
    Ok(Some(Box::new(service)))
}

impl FileService {
    /// The first member has the server started, for which this waits: a moment, or some seconds where colours
    /// are measured.
    fn begin(&mut self, members: &[i32]) {
        match Client::start(&self.options, &self.partition, ProcessRoots::With(members.to_vec())) {
            Ok(client) => {
                (self.client, self.failed, self.trouble) = (Some(client), None, None);
                self.known = members.to_vec();
            }
            Err(error) => self.fail(&error.message),
        }
    }

    fn fail(&mut self, why: &str) {
        self.trouble = Some(format!("files are not placed: {why}"));
        self.failed = Some(Instant::now());
    }

    /// Ends a server that died before its time.
    fn bury(&mut self) {
        if !self.client.as_ref().is_some_and(Client::is_dead) {
            return;
        }
        self.before = self.client.take().map(Client::finish);
        let why = self.before.as_ref().and_then(|report| report.service_died.clone());
        self.fail(why.as_deref().unwrap_or("the service ended"));
    }

    /// Tells the server who came and who went.
    fn tell(&mut self, members: &[i32]) {
        let Some(client) = self.client.as_ref().filter(|_| self.known != members) else { return };
        let came = members.iter().copied().filter(|pid| !self.known.contains(pid));
        client.admit(&came.collect::<Vec<_>>());
        let gone = self.known.iter().filter(|pid| !members.contains(pid));
        gone.for_each(|&pid| client.release(pid));
        self.known = members.to_vec();
    }
}

impl Service for FileService {
    fn admit(&mut self, members: &[i32]) {
        if !self.below {
            self.tell(members);
        }
    }

    fn tick(&mut self, _group: &mut Group, members: &[i32]) {
        if self.started_at_once {
            return;
        }
        self.bury();
        self.idle = if members.is_empty() { self.idle.or(Some(Instant::now())) } else { None };
        if self.idle.is_some_and(|since| since.elapsed() >= LINGER) {
            self.before = self.client.take().map(Client::finish).or(self.before.take());
        }
        let may_begin = self.failed.is_none_or(|at| at.elapsed() >= RETRY);
        if self.client.is_none() && !members.is_empty() && may_begin {
            self.begin(members);
        }
    }

    fn recolor(&mut self, colors: &DividedColors) {
        // The old one ends before a new one begins.
        self.client = None;
        self.partition.colors = Some(colors.files.to_string());
    }

    fn report(&self, into: &mut Reports) {
        into.page_cache = self.client.as_ref().map(Client::report).or_else(|| self.before.clone());
    }

    fn finish(mut self: Box<Self>, into: &mut Reports) {
        into.page_cache = self.client.take().map(Client::finish).or_else(|| self.before.take());
    }

    fn withdraw(self: Box<Self>) {
        // It ends before another begins.
        drop(self.client);
    }

    fn trouble(&self) -> Option<String> {
        self.trouble.clone()
    }

    fn is_over(&self) -> bool {
        self.started_at_once && self.client.as_ref().is_none_or(Client::is_dead)
    }
}
