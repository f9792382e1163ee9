//! `huepage warm`: files into the page cache, in chosen colours; or where they are now. How pages get
//! where they belong is in `huepage_linux::services::files`.

pub mod args;
mod check;
mod files;
mod into;
mod show;

use std::sync::Arc;
use std::time::Instant;

use huepage_linux::kernel::cpus::allowed_cpus;
use huepage_linux::services::files::{FilePlacer, PlacementTally, Placer, PlacerOptions};
use huepage_policy::SrmSettings;
use indicatif::ProgressBar;

use self::args::WarmArgs;
use self::files::{Files, Opener};
use self::show::WarmSummary;
use crate::exit::{CmdError, ExitCode, cache_error};
use crate::partition::{self, Prepared};
use crate::progress;
use crate::signals::Interrupt;

/// Runs the command.
pub fn run(args: &WarmArgs) -> Result<u8, CmdError> {
    let interrupt = Interrupt::listen_impatiently()?;
    if args.check {
        return check::run(args, &interrupt);
    }
    let plan = partition::prepare(&args.partition())?;
    let mut files = Files::find(args)?;
    check_cpu(args)?;
    be_first_to_go();
    let start = Instant::now();
    let mut summary = WarmSummary::new(args, &plan);
    let mut placer = placer(args, plan)?;
    summary.threshold = summary.threshold.min(placer.step());
    let template = "{bar:30} {bytes} of {total_bytes}, {binary_bytes_per_sec} ({eta} left)";
    let bar = progress::bar(!args.quiet, Some(files.bytes()), template);
    let done = match &args.into {
        Some(dir) => into::copy(dir, &mut placer, &mut files, &interrupt, &bar),
        None => warm(&mut placer, &mut files, &interrupt, &bar),
    };
    bar.finish_and_clear();
    let tally = done?;
    summary.end(&files, tally, placer.zone(), start.elapsed());
    summary.print(args)?;
    match interrupt.signal() {
        Some(signal) => Ok(u8::try_from(128 + signal).unwrap_or(ExitCode::Internal.status())),
        None => summary.verdict(),
    }
}

/// If memory runs out because of the frames that are kept ready, this process is to be ended and no
/// other. Where that cannot be said, nothing is lost.
fn be_first_to_go() {
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

fn check_cpu(args: &WarmArgs) -> Result<(), CmdError> {
    let allowed = allowed_cpus();
    match args.cpu.filter(|cpu| !allowed.contains(cpu)) {
        Some(cpu) => {
            let what = format!("CPU {cpu} is not allowed here; give one of {allowed:?}");
            Err(CmdError::new(ExitCode::Usage, what))
        }
        None => Ok(()),
    }
}

fn placer(args: &WarmArgs, plan: Prepared) -> Result<FilePlacer, CmdError> {
    let colors = plan.config.colors;
    let options = PlacerOptions { cpu: args.cpu, memory: args.memory, ..PlacerOptions::default() };
    let placer = Placer::start(plan.source, colors.clone(), &options).map_err(cache_error)?;
    if !args.is_srm() {
        return Ok(FilePlacer::spread(placer, colors));
    }
    let settings = SrmSettings { threshold: args.threshold, ..SrmSettings::paper(colors.len()) };
    Ok(FilePlacer::sequences(placer, settings, colors))
}

/// Places one file after the other, until a signal comes.
fn warm(
    placer: &mut FilePlacer,
    files: &mut Files,
    interrupt: &Interrupt,
    bar: &ProgressBar,
) -> Result<PlacementTally, CmdError> {
    let (mut opener, process) = (Opener::default(), std::process::id());
    for i in 0..files.entries.len() {
        let file = match opener.open(&files.entries[i].path) {
            Ok(file) => Arc::new(file),
            Err(why) => {
                files.skip(&why);
                continue;
            }
        };
        let pages = files.entries[i].size.div_ceil(4096);
        let mut first = 0;
        while first < pages && interrupt.signal().is_none() {
            let end = pages.min(first + placer.step());
            placer.place(&file, process, first..end).map_err(cache_error)?;
            bar.inc((end - first) * 4096);
            first = end;
        }
        if interrupt.signal().is_some() {
            break;
        }
    }
    placer.settle().map_err(cache_error)
}

/// Files may be named that nothing can be done about.
fn nothing_placed(tally: &PlacementTally) -> CmdError {
    let most = tally.refused.iter().max_by_key(|(_, pages)| **pages);
    let why = most.map_or("are gone", |(why, _)| why.text());
    let what =
        format!("no page could be placed: {} pages {why}; see `huepage warm --help`", tally.pages);
    CmdError::new(ExitCode::BadFile, what)
}
