//! `huepage run --page-cache srm`, `--superpages`, `--pollute-buffer` or `--recolor-conflicts` without a partition:
//! the program runs as it would without huepage, only its files are placed, superpages built in it, or pages
//! moved that pollute the cache or conflict. No agent and no injection before the last of these finds some.

use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use huepage_linux::conflicts::ConflictReport;
use huepage_linux::filecache::kin::Heads;
use huepage_linux::launch::relay::{SignalRelay, exit_like, stop_like};
use huepage_linux::launch::{self, ChildEvent, Ending, Launched, Original};
use huepage_linux::pollute::PolluteReport;
use huepage_linux::superpages;
use serde::Serialize;

use super::decided;
use super::report::PageCacheReport;
use super::supervisor::Service;
use crate::args::{PartitionArgs, RunArgs};
use crate::cmd::run::{launch_error, write_report};
use crate::exit::{CmdError, ExitCode};
use crate::partition::{self, Plan, internal};
use crate::superpages::no_partition;
use crate::supervise::Supervisor;

/// How long there is nothing to look after, at most.
const TURN: Duration = Duration::from_secs(1);

/// The report of such a run.
#[derive(Serialize)]
struct NativeReport {
    /// Of the files.
    #[serde(flatten)]
    colors: Option<Colors>,
    program_seconds: f64,
    prepare_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    page_cache: Option<PageCacheReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    superpages: Option<superpages::Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pollute: Option<PolluteReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conflicts: Option<ConflictReport>,
}

/// The colours that files come in.
#[derive(Serialize)]
struct Colors {
    colors: String,
    of: u16,
    level: String,
    colors_from: String,
}

impl Colors {
    fn of(plan: &Plan) -> Colors {
        Colors {
            colors: plan.config.colors.to_string(),
            of: plan.config.colors.universe(),
            level: plan.cache.level.to_string(),
            colors_from: plan.provenance.to_string(),
        }
    }
}

/// Runs the program; the status is its own.
pub fn run(args: &RunArgs) -> Result<u8, CmdError> {
    let original = Original::capture();
    let began = Instant::now();
    launch::resolve(&args.command[0]).map_err(launch_error)?;
    let files = args.page_cache.is_on();
    let wanted = wanted(args)?;
    let later = args.pollute.is_on();
    let plan = if later { partition::prepare_for_later } else { partition::prepare }(&wanted)?;
    let (colors, partition) = (files.then(|| Colors::of(&plan)), decided(&wanted, &plan));
    let mut supervisor = opened(args, plan)?;
    let relay = SignalRelay::new().map_err(launch_error)?;
    let heads = Heads::Below(std::process::id().cast_signed());
    let service = Service::start_if_wanted(&args.page_cache, &partition, heads, args.quiet)?;
    let launched = launch::spawn(&args.command, &original).map_err(launch_error)?;
    if let Some(supervisor) = &mut supervisor {
        supervisor.watch(&[launched.pid()])?;
        supervisor.build_superpages(args.superpages.start(&[launched.pid()]));
    }
    launched.detach().map_err(launch_error)?;
    let (prepared, started) = (began.elapsed(), Instant::now());
    let ending = stand_in(&launched, &relay, supervisor.as_mut())?;
    let report = NativeReport {
        colors,
        program_seconds: started.elapsed().as_secs_f64(),
        prepare_seconds: prepared.as_secs_f64(),
        pollute: supervisor.as_ref().and_then(Supervisor::pollute),
        conflicts: supervisor.as_ref().and_then(Supervisor::conflicts),
        superpages: supervisor.and_then(Supervisor::finish_superpages),
        page_cache: service.map(Service::finish),
    };
    report.tell(args)?;
    drop(relay);
    exit_like(ending)
}

/// The partition that is asked for: of files, a pollute buffer, or none.
fn wanted(args: &RunArgs) -> Result<PartitionArgs, CmdError> {
    if args.conflicts.is_on() {
        return Ok(args.conflicts.partition(&args.partition));
    }
    match (args.pollute.is_on(), args.page_cache.is_on()) {
        (true, true) => {
            let what = "files and polluting pages cannot be looked after in one run yet; leave out --page-cache or --pollute-buffer";
            Err(CmdError::new(ExitCode::Usage, what))
        }
        (true, false) => args.pollute.partition(&args.partition),
        (false, true) => Ok(args.partition.clone()),
        (false, false) => Ok(no_partition(&args.partition)),
    }
}

/// Who looks after the program's memory, if anybody does.
fn opened(args: &RunArgs, plan: Plan) -> Result<Option<Supervisor>, CmdError> {
    if args.pollute.is_on() {
        let below = Heads::Below(std::process::id().cast_signed());
        let (plan, polluters) = args.pollute.start(plan, below)?;
        let mut supervisor = Supervisor::open(plan)?;
        supervisor.confine_polluters(polluters);
        return Ok(Some(supervisor));
    }
    if args.conflicts.is_on() {
        let below = Heads::Below(std::process::id().cast_signed());
        let (plan, recolorers) = args.conflicts.start(plan, below)?;
        let mut supervisor = Supervisor::without_colors(plan)?;
        supervisor.recolor_conflicts(recolorers);
        return Ok(Some(supervisor));
    }
    args.superpages.is_on().then(|| Supervisor::without_colors(plan)).transpose()
}

/// Relays signals until the program ends.
fn stand_in(
    launched: &Launched,
    relay: &SignalRelay,
    mut supervisor: Option<&mut Supervisor>,
) -> Result<Ending, CmdError> {
    let descriptors = [launched.pidfd().as_raw_fd(), relay.as_fd().as_raw_fd()];
    loop {
        match &mut supervisor {
            Some(supervisor) => supervisor.turn(&descriptors)?,
            None => huepage_linux::wait::wait(&descriptors.map(|fd| (fd, libc::POLLIN)), TURN),
        }
        relay.relay_to(launched).map_err(launch_error)?;
        match launched.try_event().map_err(launch_error)? {
            Some(ChildEvent::Ended(ending)) => return Ok(ending),
            Some(ChildEvent::Stopped(signal)) => stop_like(signal),
            _ => {}
        }
    }
}

impl NativeReport {
    fn tell(&self, args: &RunArgs) -> Result<(), CmdError> {
        let json = serde_json::to_string_pretty(self).map_err(internal)?;
        write_report(args, &json)?;
        let mut out = std::io::stderr();
        if args.json {
            let _ = writeln!(out, "{json}");
        } else if !args.quiet {
            let _ = writeln!(out, "{}", self.text());
        }
        Ok(())
    }

    fn text(&self) -> String {
        let files = self.colors.as_ref().map(|found| {
            let Colors { colors, of, level, colors_from } = found;
            format!("files in the colours {colors} of {of} ({level}, {colors_from}), ")
        });
        let (program, prepared) = (self.program_seconds, self.prepare_seconds);
        let first = format!(
            "huepage: {}{program:.2} s after {prepared:.2} s of preparation",
            files.unwrap_or_default()
        );
        let parts = [
            Some(first),
            self.page_cache.as_ref().map(PageCacheReport::text),
            self.superpages.as_ref().map(superpages::Report::text),
            self.pollute.as_ref().map(PolluteReport::text),
            self.conflicts.as_ref().map(ConflictReport::text),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }
}
