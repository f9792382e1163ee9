//! A control group whose limit is slightly above what a program in it holds, with `huepage warm`
//! of a large file in the same group: nothing may be killed for want of memory, the program
//! lives on, and warm ends in good order. Both versions of control groups.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;

use super::{Bench, Guard, Suite, progress, tool};
use crate::cgroup::{ControlGroup, Controller};
use crate::figures::round;
use crate::harness::SuiteFigures;
use crate::launch::bounded;
use crate::pagecache::files;
use crate::verdict::SuiteVerdict;

/// A warm that takes longer hangs: the file is no larger than what a disk reads in seconds.
const LONGEST: Duration = Duration::from_secs(60);

/// What to do.
#[derive(Args, Clone, Debug)]
pub struct WarmPressure {
    /// MiB that the program holds
    #[arg(long, default_value_t = 96)]
    pub hold_mib: usize,
    /// MiB that the limit is above it; huepage itself needs some of them
    #[arg(long, value_delimiter = ',', default_value = "48,32,24")]
    pub room_mib: Vec<usize>,
    /// Size of the file, in MiB
    #[arg(long, default_value_t = 256)]
    pub file_mib: u64,
    /// How colours are known
    #[arg(long, default_value = "pfn")]
    pub colors_from: String,
}

impl Suite for WarmPressure {
    const FIGURES: SuiteFigures = &[("F11", &[""])];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let mut killed = Vec::new();
        for room in &self.room_mib {
            progress(&format!("{room} MiB of room"));
            match ControlGroup::make(Controller::Memory, &room.to_string()) {
                Err(error) => {
                    verdict.skip(format!("no control group: {error}"));
                    break;
                }
                Ok(group) => {
                    let kills = one(verdict, bench, self, &group, *room);
                    killed.extend(verdict.attempt(&format!("{room} MiB of room"), kills));
                }
            }
        }
        if killed.len() == self.room_mib.len() {
            verdict.figure("F11", "", &[killed.iter().sum::<u64>() as f64]);
        }
        Ok(())
    }
}

/// The program that needs its memory.
fn holder(mib: usize) -> io::Result<Command> {
    let mut hold = Command::new(tool()?);
    hold.args(["hold", "--mib", &mib.to_string()]);
    Ok(hold)
}

/// A file of which nothing is cached.
fn cold_file(dir: &Path, mib: u64) -> io::Result<PathBuf> {
    let file = dir.join("file");
    files::fill(&file, mib << 20, 8)?;
    files::drop_cached(std::slice::from_ref(&file))?;
    Ok(file)
}

/// Measures with so much room; how many processes were killed.
fn one(
    verdict: &mut SuiteVerdict,
    bench: Bench<'_>,
    setting: &WarmPressure,
    group: &ControlGroup,
    room: usize,
) -> io::Result<u64> {
    let scratch = bench.scratch()?;
    let file = cold_file(scratch.path(), setting.file_mib)?;
    group.limit_memory(setting.hold_mib + room)?;
    let (mut program, _out) = Guard::ready(&mut group.inside(&holder(setting.hold_mib)?))?;
    let before = group.kills()?;
    let args = ["--policy", "srm", "--colors-from", &setting.colors_from];
    let args = args.iter().map(Into::into).chain([file.as_os_str().to_owned()]);
    let end = bounded(&mut group.inside(&bench.warm_command(args)), LONGEST)?;
    let (status, kills) = (end.status, group.kills()? - before);
    let warmed: super::Warmed = end.json().unwrap_or_default();
    verdict.row([
        ("room MiB", room.into()),
        ("status", status.into()),
        ("killed", kills.into()),
        ("program lives", program.alive().into()),
        ("placed share", round(warmed.share())),
        ("zone pages", warmed.zone.peak_pages.into()),
        ("seconds", round(end.wall)),
        ("said", end.last().into()),
    ]);
    let name = format!("{room} MiB of room");
    let mut require = |holds, what: String| verdict.require(holds, || format!("{name}: {what}"));
    require(kills == 0, format!("{kills} processes were killed"));
    require(program.alive(), "the program is gone".to_owned());
    require(!end.hung, format!("warm did not end within {LONGEST:?}"));
    // What warm cannot do in so little room it must say, in one line and with a status.
    let in_order = status == 0 || (100..=127).contains(&status) && end.err.lines().count() == 1;
    require(in_order, format!("warm ended with {status}: {}", end.err));
    Ok(kills)
}
