//! Real programs from start to end: natively, under `huepage trace`, and the whole trace
//! through `huepage sim` on two machines. The output must be the native one, nothing may be
//! lost, and the simulator must have seen every record. Times are wall times of one run.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use serde_json::Value;

use crate::figures::round;
use crate::harness::{Bench, Suite, SuiteFigures, wanted};
use crate::launch::{Captured, End, Huepage};
use crate::programs;
use crate::verdict::SuiteVerdict;

/// The machines of the papers whose programs these are.
const MACHINES: [(&str, &str); 2] = [
    ("core-i7-860", include_str!("../../../../machines/core-i7-860.toml")),
    ("xeon-e5-1410", include_str!("../../../../machines/xeon-e5-1410.toml")),
];

/// Bytes of the text that is compressed.
const TEXT: usize = 2 << 20;
/// Functions of the C file that is compiled.
const FUNCTIONS: usize = 8;

/// What is run.
#[derive(Args, Clone, Debug)]
pub struct TracesSuite {
    /// Only bzip2, sqlite3 or gcc; may be repeated
    #[arg(long)]
    only: Vec<String>,
    /// Rows of sqlite3's table
    #[arg(long, default_value_t = 50_000)]
    rows: u64,
    /// A file for bzip2 [default: 2 MiB of made text]
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// A C file for gcc [default: a made one]
    #[arg(long, value_name = "FILE")]
    c: Option<PathBuf>,
}

impl Suite for TracesSuite {
    const FIGURES: SuiteFigures = &[("S7", &[""])];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let dir = bench.dir.join("traces");
        let all = match commands(self, &dir) {
            Ok(all) => all,
            Err(error) => {
                verdict.skip(format!("{}: {error}", dir.display()));
                return Ok(());
            }
        };
        let programs = all.len();
        for (name, command) in all.into_iter().filter(|(name, _)| wanted(&self.only, name)) {
            eprintln!("{name} ...");
            if let Err(what) = one(verdict, bench.huepage, name, &command, &dir) {
                verdict.miss(format!("{name}: {what}"));
            }
        }
        if verdict.missed.is_empty() && self.only.is_empty() {
            verdict.figure("S7", "", &[programs as f64]);
        }
        Ok(())
    }
}

/// Records one of the programs from start to end; where its trace is.
pub(super) fn record(huepage: &Huepage, name: &str, dir: &Path) -> Result<PathBuf, String> {
    let suite = TracesSuite { only: Vec::new(), rows: 0, text: None, c: None };
    let all = commands(&suite, dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let command = all.into_iter().find(|(program, _)| *program == name);
    let command = command.map(|(_, command)| command).unwrap_or_default();
    let trace = dir.join(format!("{name}.trace"));
    let mut record = huepage.command(["trace", "-o"]);
    let end = ended(record.arg(&trace).arg("--").args(command))?;
    if end.status != 0 {
        return Err(format!("{name} cannot be recorded: {}", end.err.trim()));
    }
    Ok(trace)
}

/// Writes the inputs and gives the command lines.
fn commands(traces: &TracesSuite, dir: &Path) -> io::Result<Vec<(&'static str, Vec<OsString>)>> {
    std::fs::create_dir_all(dir)?;
    let given = |path: &Option<PathBuf>, name: &str, made: fn() -> String| match path {
        Some(path) => Ok(path.clone()),
        None => std::fs::write(dir.join(name), made()).map(|()| dir.join(name)),
    };
    let text = given(&traces.text, "traced.txt", made_text)?;
    let c = given(&traces.c, "traced.c", made_c)?;
    for (machine, description) in MACHINES {
        std::fs::write(dir.join(machine), description)?;
    }
    let words = |words: &[&str], last: OsString| {
        words.iter().map(OsString::from).chain([last]).collect::<Vec<_>>()
    };
    Ok(vec![
        ("bzip2", words(&["bzip2", "-k", "-c"], text.into())),
        ("sqlite3", words(&["sqlite3", ":memory:"], sql(traces.rows).into())),
        ("gcc", words(&["gcc", "-O1", "-S", "-o", "-"], c.into())),
    ])
}

/// Half of what the other suites compress: bzip2 takes some 135 accesses for a byte.
fn made_text() -> String {
    let mut text = programs::text();
    text.truncate(text.floor_char_boundary(TEXT));
    text
}

/// A twelfth of what the other suites compile: gcc takes thousands of accesses for a byte.
fn made_c() -> String {
    let text = programs::large_c();
    let end =
        text.match_indices("\n}\n").nth(FUNCTIONS - 1).map_or(text.len(), |(at, s)| at + s.len());
    text[..end].to_owned()
}

/// A table, an index, and a join by the index.
fn sql(rows: u64) -> String {
    format!(
        "create table a(id integer primary key, k int, t text); with recursive c(i) as (select 1 \
         union all select i+1 from c where i<{rows}) insert into a select i,(i*7919)%10007,\
         'row'||i from c; create index ak on a(k); select count(*),sum(length(y.t)) from a x \
         join a y on y.k=x.k where x.id<{rows}/10;"
    )
}

/// Records and simulates a program.
fn one(
    verdict: &mut SuiteVerdict,
    huepage: &Huepage,
    name: &str,
    command: &[OsString],
    dir: &Path,
) -> Result<(), String> {
    let native = ended(Command::new(&command[0]).args(&command[1..]))?;
    let trace = dir.join(format!("{name}.trace"));
    let mut record = huepage.command(["trace", "--json", "-o"]);
    let recorded = ended(record.arg(&trace).arg("--").args(command))?;
    let same = recorded.difference(&native).is_none();
    verdict.require(same, || format!("{name}: the recorded run gives another output"));
    let report = report_of(&recorded)?;
    let records = all_records(verdict, name, &report);
    for (machine, _) in MACHINES {
        let (result, sim_s) = simulated(huepage, &dir.join(machine), &trace)?;
        let seen = result["spaces"].as_array().into_iter().flatten();
        let seen: u64 = seen.filter_map(|space| space["accesses"].as_u64()).sum();
        verdict.require(seen == records, || format!("{name}: {seen} of {records} were simulated"));
        let of = |part: &str, unit: &str| misses(&result[part], unit).into();
        verdict.row([
            ("program", name.into()),
            ("machine", machine.into()),
            ("records", records.into()),
            ("bytes/record", report["bytes_per_record"].as_f64().map_or(Value::Null, round)),
            ("native_s", round(native.wall)),
            ("slowdown", round(recorded.wall / native.wall)),
            ("sim_s", round(sim_s)),
            ("M/s", round(records as f64 / sim_s / 1e6)),
            ("L1D", of("caches", "L1 data")),
            ("L2", of("caches", "L2")),
            ("L3", of("caches", "L3")),
            ("TLB1", of("tlbs", "L1 data")),
            ("TLB2", of("tlbs", "L2")),
        ]);
    }
    std::fs::remove_file(&trace).map_err(|e| e.to_string())
}

/// The report that `huepage trace --json` writes behind what the program does.
fn report_of(recorded: &End) -> Result<Value, String> {
    let json = recorded.err.find('{').map_or("", |at| &recorded.err[at..]);
    serde_json::from_str(json).map_err(|e| format!("no report: {e}"))
}

/// How many accesses were recorded; none may be lost.
fn all_records(verdict: &mut SuiteVerdict, name: &str, report: &Value) -> u64 {
    let records = report["summary"]["records"].as_u64().unwrap_or(0);
    verdict.require(records > 0 && report["lost_records"] == 0, || {
        format!("{name}: {records} records, {} lost", report["lost_records"])
    });
    records
}

/// What a trace does on a machine, and the seconds that simulating it takes.
fn simulated(huepage: &Huepage, machine: &Path, trace: &Path) -> Result<(Value, f64), String> {
    let mut sim = huepage.command(["sim", "--json", "--machine"]);
    let end = ended(sim.arg(machine).arg(trace))?;
    let mut result: Value = end.json().map_err(|error| error.to_string())?;
    Ok((result["report"].take(), end.wall))
}

/// Misses of every kind in the first part whose name begins so; none without such a part.
fn misses(parts: &Value, name: &str) -> Option<u64> {
    let parts = parts.as_array()?.iter();
    let named = |part: &&Value| part["name"].as_str().is_some_and(|text| text.starts_with(name));
    let misses = &parts.clone().find(named)?["misses"];
    let kinds = misses.as_object().map(|kinds| kinds.values().filter_map(Value::as_u64).sum());
    kinds.or_else(|| misses.as_u64())
}

fn ended(command: &mut Command) -> Result<End, String> {
    let end = Captured::start(command.stdin(Stdio::null())).and_then(Captured::wait);
    end.map_err(|e| format!("{}: {e}", command.get_program().display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_made_text_is_two_mebibytes() {
        assert_eq!(made_text().len(), TEXT);
    }

    #[test]
    fn the_made_c_file_is_whole_functions() {
        let text = made_c();
        assert_eq!(text.matches("return a % 3").count(), FUNCTIONS);
        assert!(text.ends_with("}\n"));
    }

    #[test]
    fn misses_of_all_kinds_are_one_number() {
        let kinds = serde_json::json!({"loads": 1, "stores": 2, "fetches": 4});
        let caches = serde_json::json!([{"name": "L1 data cache", "misses": kinds}]);
        assert_eq!(misses(&caches, "L1 data"), Some(7));
        let tlbs = serde_json::json!([{"name": "L2 unified TLB", "misses": 5}]);
        assert_eq!(misses(&tlbs, "L2"), Some(5));
        assert_eq!(misses(&tlbs, "L3"), None);
    }
}
