//! The verdict of `huepage info`: does the frame number select cache sets here, or must
//! colours be probed?
//!
//! `huepage_linux::color::probe` measures and judges; here it is given a time limit and words. The
//! measurement runs on a thread of its own, because it pins itself to a CPU.

use std::fmt::Write as _;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use huepage_color::{CacheGeometry, CacheLevel, LevelChoice};
use huepage_linux::color::probe::{
    Classifier, FrameVerdict, ProbeParams, ReferenceOrigin, VerdictReport, coarse_llc_colors,
    measure_verdict, open_reference,
};
use huepage_linux::kernel::machine::HostMachine;
use serde::Serialize;

use crate::style::Style;

/// `info` promises to answer within three seconds.
const LIMIT: Duration = Duration::from_millis(2500);
/// Pages that are measured: far more than eight for each colour of any L2, about 10 ms.
const PAGES: usize = 4096;

/// What became of the measurement.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum VerdictOutcome {
    /// It was made.
    Measured(MeasuredVerdict),
    /// It was not made.
    Skipped {
        /// The reason, and what to do about it.
        why: String,
    },
}

/// The verdict, and what it rests on.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredVerdict {
    /// The cache that was timed.
    level: CacheLevel,
    /// The CPU it belongs to.
    cpu: usize,
    /// Where the reference pages came from.
    reference: &'static str,
    /// Wall time in seconds, reference pages included.
    seconds: f64,
    /// What these colours are worth for the last level, if that is another one.
    last_level: Option<LastLevel>,
    #[serde(flatten)]
    report: VerdictReport,
}

/// The last level as the measured colours divide it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum LastLevel {
    /// Pages of different measured colours share no set of it.
    Divided {
        /// Measured colours.
        colors: u16,
        /// Its own colours within each, which probing does not tell apart.
        finer: u64,
    },
    /// Nothing can be said.
    Unknown {
        /// The reason, and what to do about it.
        why: String,
    },
}

impl VerdictOutcome {
    /// No measurement, for this reason.
    pub fn skipped(why: impl ToString) -> VerdictOutcome {
        VerdictOutcome::Skipped { why: why.to_string() }
    }

    /// In words.
    pub fn render(&self, style: Style) -> String {
        match self {
            VerdictOutcome::Skipped { why } => format!("{}: {why}\n", style.yellow("not measured")),
            VerdictOutcome::Measured(found) => found.render(style),
        }
    }
}

impl MeasuredVerdict {
    fn render(&self, style: Style) -> String {
        let report = &self.report;
        let (verdict, meaning) = words(report.verdict);
        let verdict = match report.verdict {
            FrameVerdict::Unclear => style.yellow(verdict),
            _ => style.green(verdict),
        };
        let mut out = format!("{verdict}: {meaning}\n");
        let (share, chance) = (report.share * 100.0, report.chance * 100.0);
        let _ = writeln!(
            out,
            "measured: of {} pages timed in the {} of CPU {}, the frame number gives the\n\
             right one of {} colours for {share:.1} % at best; chance gives {chance:.1} %",
            report.samples, self.level, self.cpu, report.colors
        );
        let (seconds, reference) = (self.seconds, self.reference);
        let _ = writeln!(out, "took {seconds:.2} s, reference pages {reference}");
        match &self.last_level {
            Some(LastLevel::Divided { colors, finer }) => {
                let _ = writeln!(
                    out,
                    "last level: these {colors} colours divide it too (it has {finer} within each)"
                );
            }
            Some(LastLevel::Unknown { why }) => {
                let _ = writeln!(out, "last level: {why}");
            }
            None => {}
        }
        out
    }
}

fn words(verdict: FrameVerdict) -> (&'static str, &'static str) {
    match verdict {
        FrameVerdict::FrameNumberSelects => {
            ("the frame number selects the sets", "colours can be had for nothing (pfn)")
        }
        FrameVerdict::MustProbe => {
            ("colours must be probed", "the frame number does not select the sets here")
        }
        FrameVerdict::Unclear => {
            ("unclear", "too much noise to tell; try again when the machine is quieter")
        }
    }
}

/// Times pages of this process in the private L2, for at most [`LIMIT`].
pub fn measure(machine: &HostMachine) -> VerdictOutcome {
    let caches = match level_2(machine) {
        Ok(caches) => caches,
        Err(why) => return VerdictOutcome::Skipped { why },
    };
    let (sender, receiver) = mpsc::channel();
    // Left behind if it takes too long: it holds nothing that the end of the process keeps.
    thread::spawn(move || sender.send(attempt(&caches)));
    match receiver.recv_timeout(LIMIT) {
        Ok(Ok(found)) => VerdictOutcome::Measured(found),
        Ok(Err(why)) => VerdictOutcome::Skipped { why },
        Err(_) => VerdictOutcome::skipped(
            "no result within 2.5 s; try again when the machine is quieter, or probe with \
             `huepage run --colors-from probe`",
        ),
    }
}

/// The cache to time and the last level behind it.
struct Caches {
    private: CacheGeometry,
    last: Option<CacheGeometry>,
}

/// A report that only contradicts the model is not refused: hypervisors make up models too, and
/// with a wrong geometry no classes are found.
fn level_2(machine: &HostMachine) -> Result<Caches, String> {
    let private = machine.cache(LevelChoice::Level(CacheLevel::L2)).map_err(|e| e.to_string())?;
    let last = machine.cache(LevelChoice::Llc).ok().map(|cache| cache.geometry.clone());
    let last = last.filter(|last| last.level != CacheLevel::L2);
    Ok(Caches { private: private.geometry.clone(), last })
}

fn attempt(caches: &Caches) -> Result<MeasuredVerdict, String> {
    let start = Instant::now();
    let cpu = rustix::thread::sched_getcpu();
    let timed = timed_pages(&caches.private, cpu).map_err(|e| e.to_string());
    let (reference, report) = timed?;
    Ok(MeasuredVerdict {
        level: caches.private.level,
        cpu,
        reference,
        seconds: start.elapsed().as_secs_f64(),
        last_level: caches.last.as_ref().map(|last| divided(&caches.private, last)),
        report,
    })
}

fn timed_pages(
    cache: &CacheGeometry,
    cpu: usize,
) -> Result<(&'static str, VerdictReport), huepage_linux::color::probe::ProbeError> {
    let opened = open_reference(&ProbeParams::for_cache(cache)?, cpu)?;
    let reference = match opened.origin {
        ReferenceOrigin::Found => "found from earlier",
        ReferenceOrigin::Built => "built now",
        ReferenceOrigin::Private(_) => "private to this run",
    };
    let mut bench = opened.set.bench(cpu)?;
    let mut classifier = Classifier::new(opened.set.classes.clone());
    Ok((reference, measure_verdict(&mut classifier, &mut bench, PAGES)?))
}

fn divided(private: &CacheGeometry, last: &CacheGeometry) -> LastLevel {
    match coarse_llc_colors(private, last) {
        Ok(coarse) => LastLevel::Divided { colors: coarse.colors, finer: coarse.finer },
        Err(why) => LastLevel::Unknown { why: why.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(verdict: FrameVerdict) -> VerdictOutcome {
        let report = VerdictReport { verdict, samples: 4096, colors: 16, share: 0.5, chance: 0.08 };
        VerdictOutcome::Measured(MeasuredVerdict {
            level: CacheLevel::L2,
            cpu: 1,
            reference: "built now",
            seconds: 0.4,
            last_level: Some(LastLevel::Divided { colors: 16, finer: 2 }),
            report,
        })
    }

    #[test]
    fn the_measurement_stands_beside_the_verdict() {
        let text = measured(FrameVerdict::MustProbe).render(Style::plain());
        assert!(text.starts_with("colours must be probed:"), "{text}");
        assert!(text.contains("4096 pages") && text.contains("50.0 %"), "{text}");
        assert!(text.contains("8.0 %"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 78), "{text}");
    }

    #[test]
    fn each_verdict_has_its_own_words() {
        let all =
            [FrameVerdict::FrameNumberSelects, FrameVerdict::MustProbe, FrameVerdict::Unclear];
        let texts: std::collections::HashSet<_> = all.into_iter().map(words).collect();
        assert_eq!(texts.len(), all.len());
    }

    #[test]
    fn json_is_flat() {
        let json = serde_json::to_value(measured(FrameVerdict::Unclear)).expect("JSON");
        assert_eq!((&json["status"], &json["verdict"]), (&"measured".into(), &"unclear".into()));
        assert_eq!(json["last_level"]["divided"]["finer"], 2);
    }

    #[test]
    fn a_skipped_measurement_says_why() {
        assert_eq!(
            VerdictOutcome::skipped("no L2").render(Style::plain()),
            "not measured: no L2\n"
        );
    }
}
