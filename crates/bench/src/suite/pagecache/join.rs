//! A hash join of PostgreSQL beside a sequential scan of a large table, each in a session of its
//! own, on the same CPU and on two: with the tables anywhere in the page cache, placed by
//! SRM-buffer, placed in two colours, and the join alone. In turns; promised is that those placed by SRM-buffer do
//! not slow the join down.
//!
//! Only the page cache is placed: the server's own memory is where the kernel put it.

use std::io;
use std::path::Path;

use clap::Args;

use super::server::{DatabaseServer, programs};
use super::{Bench, NamedSamples, Suite, interleaved, progress};
use crate::figures::round;
use crate::harness::SuiteFigures;
use crate::pagecache::files;
use crate::verdict::SuiteVerdict;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct WarmJoin {
    /// Size of the table that is scanned, in MiB
    #[arg(long, default_value_t = 1024)]
    pub mib: u64,
    /// Rows of the table that is hashed; some 50 bytes each
    #[arg(long, default_value_t = 6000)]
    pub hashed: u64,
    /// Rows of the table that is looked up in it
    #[arg(long, default_value_t = 1_000_000)]
    pub probes: u64,
    /// Joins for each measurement
    #[arg(long, default_value_t = 5)]
    pub joins: usize,
    /// Repetitions
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// How colours are known
    #[arg(long, default_value = "probe")]
    pub colors_from: String,
    /// CPU of the join; the scan's is the same or the next
    #[arg(long, default_value_t = 0)]
    pub cpu: usize,
}

const JOIN: &str = "select count(*), sum(h.v) from probes p join hashed h on p.k = h.k;";
const SCAN: &str = "select count(*) from big where pad like '%no such text%';";
/// Scans until the session ends.
const SCANS: &str = "do $$ begin loop perform count(*) from big \
    where pad like '%no such text%'; end loop; end $$;";
/// Ways in which the tables come into the page cache.
const WAYS: [(&str, &[&str]); 3] = [
    ("anywhere", &[]),
    ("placed, srm", &["--policy", "srm"]),
    ("placed, 0-1", &["--colors", "0-1"]),
];

/// CPUs of the scan: the join's own, and another.
const SCANNED_ON: &[&str] = &["same CPU", "next CPU"];

impl Suite for WarmJoin {
    const FIGURES: SuiteFigures = &[("F14", SCANNED_ON)];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let Some(bin) = programs() else {
            verdict.skip("PostgreSQL is not installed; install the package `postgresql`");
            return Ok(());
        };
        let mut samples = NamedSamples::default();
        let outcome = measure(bench, self, &bin, &mut samples);
        samples.rows(verdict, "s");
        figures(verdict, &samples);
        outcome
    }
}

/// Joins beside a scan against joins alone, and the figures: tables in sequences against anywhere.
fn figures(verdict: &mut SuiteVerdict, samples: &NamedSamples) {
    let [anywhere, sequences, _] = WAYS.map(|(way, _)| way);
    for on in SCANNED_ON {
        for (way, _) in WAYS {
            let alone = samples.median("join alone, wall");
            let ratio = samples.median(&name(way, on, "wall")) / alone;
            verdict.total(&format!("{way}, scan on {on}: wall / alone"), round(ratio));
        }
        let wall = |way| name(way, on, "wall");
        verdict.figure("F14", on, &samples.ratios(&wall(sequences), &wall(anywhere)));
    }
}

fn name(way: &str, on: &str, what: &str) -> String {
    format!("join, tables {way}, scan on the {on}, {what}")
}

/// Fills the tables: the one to be scanned has rows of about 1 KiB.
fn fill(server: &DatabaseServer, setting: &WarmJoin) -> io::Result<()> {
    let mut session = server.session(None)?;
    let (big, hashed, probes) = (setting.mib * 1024, setting.hashed, setting.probes);
    session.query(&format!(
        "create table big as select i, repeat(md5(i::text), 30) as pad \
         from generate_series(1, {big}) i;\n\
         create table hashed as select i as k, i as v from generate_series(1, {hashed}) i;\n\
         create table probes as select (hashint4(i) & 2147483647) % {hashed} + 1 as k \
         from generate_series(1, {probes}) i;\n\
         vacuum freeze analyze;\nset enable_mergejoin = off;\ncheckpoint;"
    ))?;
    let plan = session.query(&format!("explain {JOIN}"))?;
    if !plan.contains("Hash Join") || !plan.contains("Seq Scan on hashed") {
        return Err(io::Error::other(format!("the server plans another join: {plan}")));
    }
    Ok(())
}

fn measure(
    bench: Bench<'_>,
    setting: &WarmJoin,
    bin: &Path,
    samples: &mut NamedSamples,
) -> io::Result<()> {
    progress("making the tables");
    // Below the system's temporary directory: the server's user must be able to get there.
    let server = DatabaseServer::start(bin, &std::env::temp_dir())?;
    fill(&server, setting)?;
    let tables = server.tables();
    interleaved(setting.rounds, WAYS, |(way, options)| {
        bring(bench, setting, &tables, options)?;
        for (on, cpu) in SCANNED_ON.iter().zip([setting.cpu, setting.cpu ^ 1]) {
            let mut scan = server.session(Some(cpu))?;
            scan.send(SCANS)?;
            joins(&server, setting, samples, |what| name(way, on, what))?;
        }
        joins(&server, setting, samples, |what| format!("join alone, {what}"))
    })?;
    let (wall, _) = server.session(Some(setting.cpu))?.timed(SCAN)?;
    samples.push("scan alone, wall", wall);
    Ok(())
}

fn joins(
    server: &DatabaseServer,
    setting: &WarmJoin,
    samples: &mut NamedSamples,
    name: impl Fn(&str) -> String,
) -> io::Result<()> {
    let mut session = server.session(Some(setting.cpu))?;
    session.query(JOIN)?;
    for _ in 0..setting.joins {
        let (wall, cpu) = session.timed(JOIN)?;
        samples.push(&name("wall"), wall);
        samples.push(&name("CPU"), cpu);
    }
    Ok(())
}

/// Brings the tables into the page cache.
fn bring(bench: Bench<'_>, setting: &WarmJoin, tables: &Path, options: &[&str]) -> io::Result<()> {
    let paths = files::below(tables)?;
    files::drop_cached(&paths)?;
    if options.is_empty() {
        return files::read_in(&paths).map(|_| ());
    }
    bench.place(tables, &[options, &["--colors-from", &setting.colors_from]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_compared_with_tables_anywhere_round_by_round() {
        let mut samples = NamedSamples::default();
        for (alone, anywhere, sequences) in [(1.0, 2.0, 1.8), (2.0, 4.0, 3.0)] {
            samples.push("join alone, wall", alone);
            samples.push(&name("anywhere", "same CPU", "wall"), anywhere);
            samples.push(&name("placed, srm", "same CPU", "wall"), sequences);
        }
        let mut verdict = SuiteVerdict::new("warm-join");
        figures(&mut verdict, &samples);
        assert!(verdict.missed.is_empty(), "{:?}", verdict.missed);
        assert_eq!(verdict.totals["anywhere, scan on same CPU: wall / alone"], 2.0);
        let given: Vec<_> = verdict.figures.iter().map(|own| (own.figure, own.spread)).collect();
        assert_eq!(given, [(0.825, Some([0.75, 0.9]))]);
    }
}
