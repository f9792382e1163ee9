//! Windows and samples of a trace: which accesses are run, running them, and what they say of the
//! whole. What a part is and how sure its rates are is in `huepage_sim::partial`.

use std::fs::File;
use std::path::Path;

use huepage_sim::experiment::Shard;
use huepage_sim::governed::{Governed, Overseeing};
use huepage_sim::partial::{self, RateFigure, SamplePlan, TracePart};
use huepage_sim::record::Record;
use huepage_sim::schedule::{AccessSource, Schedule, SchedulePlan};
use huepage_sim::system::System;
use huepage_sim::trace::{TraceError, TraceReader};
use serde_json::{Value, json};

use super::args::{HeatOf, SimRunArgs};
use super::progress::SweepProgress;
use super::{ended, interrupt, usage};
use crate::cmd::trace::args::From;
use crate::cmd::trace::input::{self, Metered};
use crate::exit::{CmdError, ExitCode};
use crate::signals::Interrupt;
use crate::style::Style;

/// Accesses before a part that warm caches and TLBs, if nothing is said.
const WARM_UP: u64 = 1_000_000;

/// The parts of a trace that are run.
#[derive(Debug)]
pub struct TraceParts {
    parts: Vec<TracePart>,
    /// Accesses of the whole trace, or up to the limit.
    whole: u64,
}

impl TraceParts {
    /// What is asked for; none if that is the whole trace.
    pub fn of(args: &SimRunArgs) -> Result<Option<TraceParts>, CmdError> {
        if args.window.is_none() && args.sample.is_none() {
            return match args.against_whole {
                true => {
                    Err(usage("--against-whole is of a part; name one with --window or --sample"))
                }
                false => Ok(None),
            };
        }
        let ([path], true) = (args.traces.as_slice(), args.workload.is_empty()) else {
            return Err(usage("--window and --sample are of one trace; name one, and no workload"));
        };
        if args.heat != HeatOf::Colors {
            return Err(usage(
                "--heat pages and --heat accesses show whole runs; leave out --window",
            ));
        }
        let whole = reader(path)?.1.min(args.limit);
        let warm_up = args.warm_up.unwrap_or(WARM_UP);
        let parts = match (args.window, args.sample) {
            (_, Some(plan)) => plan.parts(whole, warm_up).map_err(|e| usage(&e.to_string()))?,
            (window, None) => {
                let window = window.unwrap_or(Shard { number: 1, parts: 1 });
                vec![TracePart::window(window, whole, warm_up)]
            }
        };
        Ok(Some(TraceParts { parts, whole }))
    }

    /// Accesses of a point: of the parts, and of the whole trace if that is run, too.
    pub fn length(&self, args: &SimRunArgs) -> u64 {
        self.simulated() + if args.against_whole { self.whole } else { 0 }
    }

    fn simulated(&self) -> u64 {
        self.parts.iter().map(|part| part.end - part.from).sum()
    }

    fn counted(&self) -> u64 {
        self.parts.iter().map(|part| part.end - part.first).sum()
    }

    /// Runs the parts one after the other on a machine; what each counted.
    pub fn run(
        &self,
        args: &SimRunArgs,
        run: &Governed,
        system: &mut System,
        interrupt: &Interrupt,
        progress: &SweepProgress,
    ) -> Result<Vec<Value>, CmdError> {
        let mut oversight = run.oversight(Vec::new()).map_err(|e| usage(&e.to_string()))?;
        let plan = SchedulePlan { quantum: args.quantum, ..SchedulePlan::default() };
        let mut schedule = Schedule::new(system.cores(), plan);
        let source = PartSource::open(&args.traces[0], self.parts.clone())?;
        schedule.add(interrupt::guard(Box::new(source), interrupt));
        let (mut heard, error) = (progress.of_a_point(), |e| usage(&format!("{e}")));
        let oversight = &mut oversight;
        let overseeing = &mut Overseeing { oversight, error, heard: &mut heard };
        partial::run(&self.parts, self.whole, &mut schedule, system, overseeing).map_err(ended)
    }

    /// The report of all parts together, and what they say of the whole trace; `whole` is its own
    /// report, if it was run.
    pub fn row(&self, args: &SimRunArgs, counted: &[Value], whole: Option<&Value>) -> [Value; 2] {
        let (first, rest) = counted.split_first().expect("at least one part");
        let report = rest.iter().fold(first.clone(), |sum, part| partial::sum(&sum, part));
        let units: Vec<Vec<RateFigure>> = counted.iter().map(partial::rates).collect();
        let truth = whole.map(partial::rates);
        let figure = |(at, figure): (usize, RateFigure)| {
            let units: Vec<[f64; 2]> =
                units.iter().map(|unit| [unit[at].events, unit[at].of]).collect();
            let truth = truth.as_ref().map(|rates| rates[at].rate());
            self.figure(&figure, &units, truth)
        };
        let figures: Vec<Value> =
            partial::rates(&report).into_iter().enumerate().map(figure).collect();
        let window = args.window.map(|Shard { number, parts }| format!("{number}/{parts}"));
        let sample = args.sample.map(|SamplePlan { units, length }| format!("{units}:{length}"));
        let part = json!({
            "window": window,
            "sample": sample,
            "first": self.parts[0].first,
            "accesses": self.counted(),
            "warm_up": self.simulated() - self.counted(),
            "of": self.whole,
            "figures": figures,
        });
        [report, part]
    }

    fn figure(&self, figure: &RateFigure, units: &[[f64; 2]], truth: Option<f64>) -> Value {
        let rate = figure.rate();
        let sampled = self.counted() as f64 / self.whole.max(1) as f64;
        let interval = (units.len() > 1).then(|| partial::half_width(units, sampled));
        let error = truth.filter(|truth| *truth > 0.0).map(|truth| rate / truth - 1.0);
        json!({
            "name": figure.name,
            "rate": rate,
            "interval": interval,
            "whole": truth,
            "error": error,
        })
    }
}

/// What is printed of a row's part for people.
pub fn text(row: &Value, style: Style) -> String {
    let part = &row["part"];
    let count = |key: &str| part[key].as_u64().unwrap_or_default();
    let what = match (part["window"].as_str(), part["sample"].as_str()) {
        (Some(window), _) => format!("window {window} from access {}", count("first")),
        (None, Some(sample)) => format!("sample {sample}"),
        (None, None) => return String::new(),
    };
    let (accesses, warm_up, of) = (count("accesses"), count("warm_up"), count("of"));
    let head = format!("{what}: {accesses} of {of} accesses counted, {warm_up} to warm up\n");
    let mut table = style.table(&["rate", "here", "95 % interval", "whole trace", "error"]);
    for figure in part["figures"].as_array().into_iter().flatten() {
        let percent = figure["name"].as_str().is_some_and(|name| name.ends_with("miss rate"));
        let show = |value: f64| {
            if percent { format!("{:.3} %", 100.0 * value) } else { format!("{value:.3}") }
        };
        let cell = |key: &str| figure[key].as_f64().map_or_else(String::new, show);
        let name = figure["name"].as_str().unwrap_or_default().to_owned();
        let interval = figure["interval"].as_f64().map(|half| format!("± {}", show(half)));
        let error = figure["error"].as_f64().map(|error| format!("{:+.2} %", 100.0 * error));
        let last = [interval.unwrap_or_default(), cell("whole"), error.unwrap_or_default()];
        table.add_row([name, cell("rate")].into_iter().chain(last));
    }
    format!("{head}{}\n", crate::style::lay_out(table))
}

/// A trace that can be sought in, and how many accesses it has.
fn reader(path: &Path) -> Result<(TraceReader<Metered<File>>, u64), CmdError> {
    let bad = |what: &str| CmdError::new(ExitCode::BadFile, format!("{}: {what}", path.display()));
    let from = From { path: path.to_owned(), format: None };
    let Some((mut reader, _)) = input::own(&from)? else {
        return Err(bad(
            "--window and --sample need a trace with an index; take it over first: `huepage trace \
             import`",
        ));
    };
    let summary = reader.summary().map_err(|e| bad(&e.to_string()))?;
    let Some(summary) = summary else {
        return Err(bad(
            "has no index, so it was cut; save what is there: `huepage trace slice -o FILE`",
        ));
    };
    Ok((reader, summary.records))
}

/// The accesses of some parts of a trace, those that warm included.
struct PartSource {
    path: std::path::PathBuf,
    reader: TraceReader<Metered<File>>,
    parts: Vec<TracePart>,
    /// The part that is read, and the access of it that comes next.
    at: usize,
    next: u64,
}

impl PartSource {
    fn open(path: &Path, parts: Vec<TracePart>) -> Result<PartSource, CmdError> {
        let next = parts.first().map_or(0, |part| part.from);
        let (mut reader, _) = reader(path)?;
        // Reading the index has lost the place.
        reader
            .seek_to(next)
            .map_err(|e| CmdError::new(ExitCode::BadFile, format!("{}: {e}", path.display())))?;
        Ok(PartSource { path: path.to_owned(), reader, parts, at: 0, next })
    }

    fn batch(&mut self, batch: &mut Vec<Record>) -> Result<bool, TraceError> {
        let Some(part) = self.parts.get(self.at) else { return Ok(false) };
        if self.reader.record_number() != self.next {
            self.reader.seek_to(self.next)?;
        }
        let left = usize::try_from(part.end - self.next).unwrap_or(usize::MAX);
        let more = left > 0 && self.reader.next_block(batch)?;
        batch.truncate(if more { left } else { 0 });
        self.next += batch.len() as u64;
        if self.next == part.end {
            self.at += 1;
            self.next = self.parts.get(self.at).map_or(self.next, |part| part.from);
        }
        Ok(more)
    }
}

impl AccessSource<CmdError> for PartSource {
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<bool, CmdError> {
        self.batch(batch)
            .map_err(|e| CmdError::new(ExitCode::BadFile, format!("{}: {e}", self.path.display())))
    }

    fn restart(&mut self) -> Result<(), CmdError> {
        self.at = 0;
        self.next = self.parts.first().map_or(0, |part| part.from);
        Ok(())
    }
}
