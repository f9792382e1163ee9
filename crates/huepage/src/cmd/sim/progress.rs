//! The progress line of runs and sweeps: on a terminal only, and only after two seconds. How
//! long a run is, a trace's index says; a workload is counted on a thread of its own, which
//! takes a small part of the time that simulating it does.

use std::cell::Cell;
use std::io::IsTerminal as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use huepage_sim::record::Record;
use huepage_sim::workloads::{AccessSink, WorkloadSpec};
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::args::SimRunArgs;
use crate::cmd::trace::args::From;
use crate::cmd::trace::input;

/// What may pass without a word.
const PATIENCE: Duration = Duration::from_secs(2);
/// Workloads that use more memory are not counted: counting uses it again.
const LARGEST: usize = 1 << 30;

/// How far a run or a sweep is.
pub struct SweepProgress {
    bar: ProgressBar,
    started: Instant,
    wanted: bool,
    shown: AtomicBool,
    points: u64,
    done: AtomicU64,
    accesses: AtomicU64,
    length: Arc<Length>,
    parts: Parts,
}

/// Accesses of one point, 0 until they are known.
#[derive(Default)]
struct Length {
    accesses: AtomicU64,
    /// Nobody wants to know any more.
    over: AtomicBool,
}

/// What a point consists of.
#[derive(Clone)]
struct Parts {
    traces: Vec<std::path::PathBuf>,
    workloads: Vec<WorkloadSpec>,
    limit: u64,
    /// Programs begin again, so that their lengths say little.
    endless: bool,
}

impl SweepProgress {
    /// Of so many points, each of so many accesses of parts of a trace or of all there is.
    pub fn new(args: &SimRunArgs, points: usize, known: Option<u64>) -> SweepProgress {
        let programs = args.traces.len() + args.workload.len();
        // Reading a trace once has a line of its own, by the bytes of the file.
        let wanted = points > 1 || args.traces.is_empty() || known.is_some();
        let known = known.unwrap_or_default();
        let length = Length { accesses: AtomicU64::new(known), ..Length::default() };
        SweepProgress {
            bar: ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()),
            started: Instant::now(),
            wanted: wanted && std::io::stderr().is_terminal(),
            shown: AtomicBool::new(false),
            points: points as u64,
            done: AtomicU64::new(0),
            accesses: AtomicU64::new(0),
            length: Arc::new(length),
            parts: Parts {
                traces: args.traces.clone(),
                workloads: args.workload.clone(),
                limit: args.limit,
                endless: args.restart && programs > 1,
            },
        }
    }

    /// What hears of the accesses that one point has done so far; a smaller number than before
    /// begins anew.
    pub fn of_a_point(&self) -> impl FnMut(u64) + '_ {
        let mut before = 0;
        move |total| {
            self.accesses.fetch_add(total.checked_sub(before).unwrap_or(total), Relaxed);
            before = total;
            self.show();
        }
    }

    /// A point is finished.
    pub fn finish_point(&self) {
        self.done.fetch_add(1, Relaxed);
        self.show();
    }

    fn show(&self) {
        if !self.wanted || self.started.elapsed() < PATIENCE {
            return;
        }
        if !self.shown.swap(true, Relaxed) {
            self.appear();
        }
        let (length, done) = (self.length.accesses.load(Relaxed), self.done.load(Relaxed));
        let accesses = self.accesses.load(Relaxed);
        let millions = HumanCount(accesses / 1_000_000);
        let of = if self.points > 1 {
            format!("{done} of {} points, ", self.points)
        } else {
            String::new()
        };
        self.bar.set_message(format!("{of}{millions} M accesses"));
        if length > 0 {
            self.scale(length * self.points, accesses);
        } else if self.points > 1 {
            self.scale(self.points, done);
        } else {
            self.bar.tick();
        }
    }

    fn scale(&self, length: u64, position: u64) {
        if self.bar.length() != Some(length) {
            style(&self.bar, "simulating {bar:30} {percent:>3} % ({eta} left), {msg}");
            self.bar.set_length(length);
            // What was done before the length was known counts for the estimate, too.
            self.bar.reset_eta();
        }
        self.bar.set_position(position.min(length));
    }

    fn appear(&self) {
        style(&self.bar, "simulating {spinner} {elapsed}, {msg}");
        self.bar.set_draw_target(ProgressDrawTarget::stderr());
        if self.length.accesses.load(Relaxed) > 0 {
            return;
        }
        let (parts, length) = (self.parts.clone(), Arc::clone(&self.length));
        // Without a thread there is no estimate, which is no reason to fail.
        let _ = std::thread::Builder::new().name("length".into()).spawn(move || {
            if let Some(accesses) = parts.accesses(&length.over) {
                length.accesses.store(accesses, Relaxed);
            }
        });
    }
}

impl Drop for SweepProgress {
    fn drop(&mut self) {
        self.length.over.store(true, Relaxed);
        self.bar.finish_and_clear();
    }
}

fn style(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

impl Parts {
    /// All accesses of a point, if they can be told.
    fn accesses(&self, over: &AtomicBool) -> Option<u64> {
        if self.endless {
            return None;
        }
        let mut sum = 0;
        for path in &self.traces {
            let from = From { path: path.clone(), format: None };
            let (mut reader, _) = input::own(&from).ok()??;
            sum += reader.summary().ok()??.records.min(self.limit);
        }
        for &spec in &self.workloads {
            sum += count(spec, self.limit, over)?;
        }
        Some(sum)
    }
}

/// The accesses of a workload, at most so many; none if nobody waits or it is too large.
fn count(spec: WorkloadSpec, most: u64, over: &AtomicBool) -> Option<u64> {
    if spec.parameters().size > LARGEST {
        return None;
    }
    let counted = Cell::new(0);
    let mut counter = Counter { counted: &counted, most, over };
    // A kernel can be ended only by unwinding; nothing of it is used afterwards.
    let _ = catch_unwind(AssertUnwindSafe(|| spec.run(&mut counter)));
    (!over.load(Relaxed)).then(|| counted.get().min(most))
}

struct Counter<'a> {
    counted: &'a Cell<u64>,
    most: u64,
    over: &'a AtomicBool,
}

impl AccessSink for Counter<'_> {
    fn access(&mut self, _: Record) {
        let counted = self.counted.get() + 1;
        self.counted.set(counted);
        if counted >= self.most || counted.is_multiple_of(1 << 16) && self.over.load(Relaxed) {
            resume_unwind(Box::new(()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_counted_to_its_end_or_to_the_limit() {
        let spec: WorkloadSpec = "random:size=64K,rounds=2".parse().unwrap();
        let mut all = 0;
        spec.run(&mut |_: Record| all += 1);
        let going = AtomicBool::new(false);
        assert_eq!(count(spec, u64::MAX, &going), Some(all));
        assert_eq!(count(spec, 100, &going), Some(100));
        let over = AtomicBool::new(true);
        let long: WorkloadSpec = "random:size=1M,rounds=1000000".parse().unwrap();
        assert_eq!(count(long, u64::MAX, &over), None);
    }
}
