//! All experiments, one after the other: a line for each, and pages where they are asked for. Traces that are not
//! there are recorded first.

use std::fs;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use huepage::exit::{CmdError, ExitCode};
use huepage::style;

use super::experiment::{can_be_written, found, save};
use super::{html, markdown};
use crate::asked::{AllArgs, Asked};
use crate::engine::Study;
use crate::{coloris, rocs, romer, scolari, srm};

/// The real programs of SRM-buffer's experiments.
const TRACES: [&str; 2] = ["join", "scan"];

/// Runs all of them.
pub fn run(args: &AllArgs) -> Result<u8, CmdError> {
    for folder in args.traces.iter().chain(&args.markdown) {
        fs::create_dir_all(folder).map_err(|error| refused(folder, &error))?;
    }
    args.html.iter().try_for_each(|path| can_be_written(path))?;
    let traces = args.traces.as_deref().map(recorded).transpose()?.unwrap_or_default();
    let sections = [
        one::<rocs::RocsStudy>(args, Vec::new())?,
        one::<srm::SrmStudy>(args, traces)?,
        one::<coloris::ColorisStudy>(args, Vec::new())?,
        one::<scolari::ScolariStudy>(args, Vec::new())?,
        one::<romer::RomerStudy>(args, Vec::new())?,
    ];
    if let Some(path) = &args.html {
        save(path, &html::page("Five papers, run again", &sections.concat()))?;
    }
    Ok(ExitCode::Ok.status())
}

/// Runs one, and says how it ended; what a page says of it.
fn one<S: Study>(args: &AllArgs, traces: Vec<(String, PathBuf)>) -> Result<String, CmdError> {
    let paper = S::paper();
    let page = args.markdown.as_ref().map(|folder| folder.join(format!("{}.md", paper.page)));
    let asked = Asked::whole(args.quick, traces, page);
    let (found, page) = found::<S>(&asked)?;
    let held = found.claims.iter().filter(|claim| claim.holds).count();
    let (all, seconds) = (found.claims.len(), found.seconds);
    let line = format!("{:8} {held} of {all} statements hold; {seconds:.0} s\n", paper.name);
    style::print(&line).map_err(CmdError::internal)?;
    if let Some(path) = &asked.output.markdown {
        save(path, &markdown::page(&found, &page))?;
    }
    html::section(&found, &page)
}

/// The traces in a folder, recorded where they are not there.
fn recorded(folder: &Path) -> Result<Vec<(String, PathBuf)>, CmdError> {
    let traces = TRACES.map(|name| (name.to_owned(), folder.join(format!("{name}.trace"))));
    let missing: Vec<&PathBuf> =
        traces.iter().map(|(_, path)| path).filter(|path| !path.exists()).collect();
    if !missing.is_empty() {
        record(folder, &missing)?;
    }
    Ok(traces.to_vec())
}

/// Records into a folder of its own, and takes what is missing from there.
fn record(folder: &Path, missing: &[&PathBuf]) -> Result<(), CmdError> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/trace-srm.sh");
    if std::io::stderr().is_terminal() {
        eprintln!("recording {} into {}: some minutes", TRACES.join(" and "), folder.display());
    }
    let made = folder.join("recording");
    let mut command = Command::new(&script);
    command.arg(&made).env("HUEPAGE", recorder()?).stdout(Stdio::null());
    let status = command.status();
    let status = status.map_err(|error| refused(&script, &error))?;
    let taken = missing.iter().try_for_each(|path| {
        let name = path.file_name().unwrap_or_default();
        fs::rename(made.join(name), path).map_err(|_| name.to_string_lossy().into_owned())
    });
    let _ = fs::remove_dir_all(&made);
    taken.map_err(|name| {
        let what = format!(
            "{name} was not recorded ({status}); install postgresql and qemu-user, or leave --traces out"
        );
        CmdError::new(ExitCode::Usage, what)
    })
}

/// The `huepage` that records: the one that the environment names, or that was built with this program.
fn recorder() -> Result<PathBuf, CmdError> {
    let named = std::env::var_os("HUEPAGE").map(PathBuf::from);
    let beside = || std::env::current_exe().ok().map(|own| own.with_file_name("huepage"));
    named.or_else(beside).filter(|path| path.is_file()).ok_or_else(|| {
        let what = "there is no huepage to record with; cargo build --release --workspace";
        CmdError::new(ExitCode::Usage, what)
    })
}

fn refused(path: &Path, error: &std::io::Error) -> CmdError {
    let what = format!("{}: {error}; name another place", path.display());
    CmdError::new(ExitCode::Usage, what)
}
