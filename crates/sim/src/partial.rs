//! Parts of a run: windows and samples of a trace, and what they say of the whole.
//!
//! A part is simulated from some accesses before it on, which warm caches and TLBs, and counted
//! from its first access to its last: its counts are the difference of two reports. So parts that
//! follow each other on one machine add up to a run over all of them, exactly, whatever the machine
//! and the policy.
//!
//! A sample is many short parts, evenly spread (systematic sampling: Wunderlich et al., SMARTS,
//! 2003). The machine keeps what it holds from one part to the next. A rate over a sample is a
//! ratio of two sums; its confidence interval comes from how much the parts differ. What warming
//! misses is an error of another kind, which no interval shows: a run of the whole does.

use std::str::FromStr;

use huepage_policy::registry::count;
use serde_json::Value;

use crate::cost::ProgramCosts;
use crate::experiment::{Shard, WishError};
use crate::schedule::{Overseer, Schedule, ScheduleError};
use crate::system::System;

/// Fewer parts say too little of how much they differ.
const FEWEST_UNITS: u64 = 10;
/// Accesses of a part of a sample, if nothing is said.
const UNIT: u64 = 100_000;
/// Quantile of the normal distribution that leaves 2.5 % on either side.
const Z: f64 = 1.959_963_985;
/// What a report says of the end of a run, or of what was run; all other numbers are counts.
const STATE: [&str; 10] = [
    "machine",
    "name",
    "space",
    "frames_used",
    "frames_outside",
    "occupancy",
    "page_cache",
    "pages",
    "memory_overhead",
    "pages_by_color",
];

/// A part of a trace; numbers of accesses, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracePart {
    /// The first that is simulated.
    pub from: u64,
    /// The first that counts.
    pub first: u64,
    /// The one behind the last.
    pub end: u64,
}

impl TracePart {
    /// One of the equal parts of a trace of so many accesses, warmed by so many before it.
    pub fn window(window: Shard, accesses: u64, warm_up: u64) -> TracePart {
        let (number, parts) = (window.number as u128, window.parts as u128);
        let at = |n: u128| u64::try_from(u128::from(accesses) * n / parts).unwrap_or(u64::MAX);
        let (first, end) = (at(number - 1), at(number));
        TracePart { from: first.saturating_sub(warm_up), first, end }
    }
}

/// How a trace is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplePlan {
    /// How many parts.
    pub units: u64,
    /// Accesses of each that count.
    pub length: u64,
}

impl FromStr for SamplePlan {
    type Err = WishError;

    fn from_str(text: &str) -> Result<SamplePlan, WishError> {
        let (units, length) = text.split_once(':').map_or((text, None), |(a, b)| (a, Some(b)));
        let (units, length) = (units.parse(), length.map_or(Some(UNIT), count));
        match (units, length) {
            (Ok(units), Some(length)) if units >= FEWEST_UNITS && length > 0 => {
                Ok(SamplePlan { units, length })
            }
            _ => Err(WishError::new(format!(
                "`{}` is no sample; write the number of parts, at least {FEWEST_UNITS}, and the \
                 accesses of each: 100:50k",
                text.escape_debug()
            ))),
        }
    }
}

impl SamplePlan {
    /// The parts of a trace of so many accesses, each in the middle of its share and warmed by so
    /// many accesses before it, or by all since the part before.
    ///
    /// # Errors
    /// When the trace has fewer accesses than all parts together.
    pub fn parts(&self, accesses: u64, warm_up: u64) -> Result<Vec<TracePart>, WishError> {
        let share = accesses / self.units;
        if share < self.length {
            return Err(WishError::new(format!(
                "{} parts of {} accesses are more than the {accesses} of the trace; ask for fewer \
                 or shorter ones, or leave out --sample",
                self.units, self.length
            )));
        }
        let mut before = 0;
        let part = |unit: u64| {
            let first = unit * share + (share - self.length) / 2;
            let from = first.saturating_sub(warm_up).max(before);
            before = first + self.length;
            TracePart { from, first, end: before }
        };
        Ok((0..self.units).map(part).collect())
    }
}

/// Runs parts of a trace of so many accesses one after the other on a machine; what each counted.
/// The schedule has one program, whose accesses are those of the parts, from the first that is
/// simulated on.
///
/// # Errors
/// When machine or source cannot go on.
pub fn run<E>(
    parts: &[TracePart],
    whole: u64,
    schedule: &mut Schedule<'_, E>,
    system: &mut System,
    overseer: &mut impl Overseer<E>,
) -> Result<Vec<Value>, ScheduleError<E>> {
    let (mut done, mut counted) = (0, Vec::new());
    for part in parts {
        done += part.first - part.from;
        schedule.pause_after(done);
        schedule.oversee(system, overseer)?;
        let before = report(system);
        done += part.end - part.first;
        schedule.pause_after(done);
        schedule.oversee(system, overseer)?;
        if part.end == whole {
            system.finish();
        }
        counted.push(difference(&report(system), &before));
    }
    Ok(counted)
}

fn report(system: &System) -> Value {
    serde_json::to_value(system.report()).unwrap_or_default()
}

/// A rate: so many events of so many that could have been.
#[derive(Clone, Debug, PartialEq)]
pub struct RateFigure {
    /// Such as `L2 unified cache miss rate`.
    pub name: String,
    /// How often it came.
    pub events: f64,
    /// What it came of.
    pub of: f64,
}

impl RateFigure {
    /// Events of each; 0 of none.
    pub fn rate(&self) -> f64 {
        if self.of > 0.0 { self.events / self.of } else { 0.0 }
    }
}

/// The rates of a report: misses of each cache and TLB, and cycles per access.
pub fn rates(report: &Value) -> Vec<RateFigure> {
    let parts = ["caches", "tlbs"].iter().flat_map(|kind| report[*kind].as_array());
    let part = |part: &Value| {
        let name = format!("{} miss rate", part["name"].as_str().unwrap_or_default());
        RateFigure { name, events: total(&part["misses"]), of: total(&part["accesses"]) }
    };
    let mut rates: Vec<RateFigure> = parts.flatten().map(part).collect();
    let spaces = report["spaces"].as_array().into_iter().flatten();
    let sum = |key: &str| spaces.clone().map(|space| total(&space[key])).sum();
    let name = "cycles per access".to_owned();
    rates.push(RateFigure { name, events: sum("cycles"), of: sum("accesses") });
    rates
}

/// A number, or all of an object.
fn total(value: &Value) -> f64 {
    let kinds = value.as_object().into_iter().flat_map(|kinds| kinds.values());
    value.as_f64().unwrap_or_else(|| kinds.filter_map(Value::as_f64).sum())
}

/// How far a rate over all parts of a sample may be from that of the whole trace, to either side,
/// in 95 of 100 samples; `sampled` is the share of the trace that the parts are. Each part as its
/// events and what they came of.
pub fn half_width(parts: &[[f64; 2]], sampled: f64) -> f64 {
    let n = parts.len() as f64;
    let sum = |at: usize| parts.iter().map(|part| part[at]).sum::<f64>();
    let (events, of) = (sum(0), sum(1));
    if n < 2.0 || of == 0.0 {
        return 0.0;
    }
    // How far each part is from what the common rate says of it.
    let apart = |[events_here, of_here]: &[f64; 2]| (events_here - events / of * of_here).powi(2);
    let variance = parts.iter().map(apart).sum::<f64>() / (n - 1.0);
    student(n - 1.0) * ((1.0 - sampled).max(0.0) * variance / n).sqrt() / (of / n)
}

/// The quantile of Student's distribution that leaves 2.5 % on either side: the expansion of
/// Abramowitz and Stegun, 26.7.5, right to three digits from nine degrees of freedom on.
fn student(degrees: f64) -> f64 {
    let terms = [
        (Z.powi(3) + Z) / 4.0,
        (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0,
        (3.0 * Z.powi(7) + 19.0 * Z.powi(5) + 17.0 * Z.powi(3) - 15.0 * Z) / 384.0,
    ];
    (1..).zip(terms).fold(Z, |sum, (power, term)| sum + term / degrees.powi(power))
}

/// What was counted between two reports of one run.
pub fn difference(later: &Value, earlier: &Value) -> Value {
    with_rates(combined(later, earlier, |later, earlier| later.saturating_sub(earlier)))
}

/// What was counted in two parts of which the second follows the first.
pub fn sum(first: &Value, second: &Value) -> Value {
    let mut sum = with_rates(combined(second, first, u64::saturating_add));
    // Programs that had ended before the second.
    let own = |value: &Value| value["spaces"].as_array().cloned().unwrap_or_default();
    let (mut spaces, before) = (own(&sum), own(first));
    let gone = before.into_iter().filter(|space| !own(second).iter().any(|s| is_same(s, space)));
    spaces.extend(gone);
    spaces.sort_by_key(|space| space["space"].as_u64());
    sum["spaces"] = spaces.into();
    sum
}

/// The later report with each of its counts joined with that of the other; no count is 0.
fn combined(later: &Value, other: &Value, join: fn(u64, u64) -> u64) -> Value {
    match later {
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                let kept = STATE.contains(&name.as_str());
                let new = if kept { value.clone() } else { combined(value, &other[name], join) };
                (name.clone(), new)
            };
            Value::Object(fields.iter().map(field).collect())
        }
        Value::Array(items) => {
            let item = |(at, item): (usize, &Value)| {
                let named = other.as_array().into_iter().flatten().find(|o| is_same(item, o));
                let same = if item.is_object() { named } else { other.get(at) };
                combined(item, same.unwrap_or(&Value::Null), join)
            };
            Value::Array(items.iter().enumerate().map(item).collect())
        }
        value => value.as_u64().map_or_else(
            || value.clone(),
            |count| join(count, other.as_u64().unwrap_or_default()).into(),
        ),
    }
}

/// Whether both are of the same part of the machine or the same program.
fn is_same(one: &Value, other: &Value) -> bool {
    one["name"] == other["name"] && one["space"] == other["space"]
}

/// The figures per instruction, of counts that have changed.
fn with_rates(mut report: Value) -> Value {
    for space in report["spaces"].as_array_mut().into_iter().flatten() {
        let Ok(costs) = serde_json::from_value::<ProgramCosts>(space.clone()) else { continue };
        let rates = serde_json::to_value(costs.rates()).unwrap_or_default();
        for (name, rate) in rates.as_object().into_iter().flatten() {
            space[name] = rate.clone();
        }
        space["file_hit_ratio"] = costs.file_hit_ratio().into();
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    proptest! {
        #[test]
        fn windows_are_the_whole_trace_once(accesses in any::<u64>(), parts in 1..50_usize, warm_up in any::<u64>()) {
            let mut next = 0;
            for number in 1..=parts {
                let part = TracePart::window(Shard { number, parts }, accesses, warm_up);
                prop_assert_eq!(part.first, next);
                prop_assert!(part.end - part.first <= accesses / parts as u64 + 1);
                prop_assert_eq!(part.from, part.first - warm_up.min(part.first));
                next = part.end;
            }
            prop_assert_eq!(next, accesses);
        }

        #[test]
        fn parts_of_a_sample_are_in_order_and_none_is_run_twice(
            accesses in 0..1_000_000_u64, units in 10..200_u64, length in 1..5000_u64, warm_up in 0..20_000_u64,
        ) {
            let plan = SamplePlan { units, length };
            let Ok(parts) = plan.parts(accesses, warm_up) else {
                prop_assert!(accesses < units * length + units);
                return Ok(());
            };
            prop_assert_eq!(parts.len() as u64, units);
            prop_assert!(parts.iter().all(|part| part.from <= part.first && part.first + length == part.end));
            prop_assert!(parts.windows(2).all(|pair| pair[0].end <= pair[1].from));
            prop_assert!(parts.iter().all(|part| part.end <= accesses));
        }
    }

    #[test]
    fn samples_are_written_as_parts_and_accesses() {
        let read =
            |text: &str| text.parse::<SamplePlan>().ok().map(|plan| (plan.units, plan.length));
        assert_eq!(read("100:50000"), Some((100, 50_000)));
        assert_eq!(read("100:50k"), Some((100, 50_000)));
        assert_eq!(read("64"), Some((64, UNIT)));
        for wrong in ["", "9", "100:", "100:0", "x:5", "100:5:5"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn students_quantiles_are_those_of_tables() {
        for (degrees, quantile) in [(9.0, 2.262), (29.0, 2.045), (120.0, 1.980)] {
            assert!((student(degrees) - quantile).abs() < 0.001, "{degrees}: {}", student(degrees));
        }
    }

    /// Ten thousand parts with a known rate, each rate of a sample in its interval 95 times in 100.
    #[test]
    fn intervals_hold_the_rate_of_the_whole_as_often_as_they_say() {
        let mut state = 1_u64;
        let mut draw = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 40
        };
        let unit = |drawn: u64| drawn as f64 / (1_u64 << 24) as f64;
        let mut part = || {
            let of = 50.0 + 100.0 * unit(draw());
            [of * unit(draw()) * unit(draw()), of]
        };
        let all: Vec<[f64; 2]> = (0..10_000).map(|_| part()).collect();
        let rate = |parts: &[[f64; 2]]| {
            let sum = |at: usize| parts.iter().map(|part| part[at]).sum::<f64>();
            sum(0) / sum(1)
        };
        let mut any = || all[usize::try_from(draw() % 10_000).expect("small")];
        let mut held = 0;
        for _ in 0..1000 {
            let sample: Vec<[f64; 2]> = (0..100).map(|_| any()).collect();
            let apart = (rate(&sample) - rate(&all)).abs();
            held += usize::from(apart <= half_width(&sample, 0.01));
        }
        assert!((920..980).contains(&held), "{held} of 1000");
        assert_eq!(half_width(&all, 1.0), 0.0, "all of it is no sample");
    }

    fn report(misses: u64, cycles: u64, spaces: &[u64]) -> Value {
        let spaces: Vec<Value> = spaces
            .iter()
            .map(|space| {
                let mut costs = serde_json::to_value(ProgramCosts {
                    accesses: 2 * cycles,
                    instructions: cycles,
                    ..ProgramCosts::default()
                })
                .unwrap();
                costs["space"] = (*space).into();
                costs["cycles"] = cycles.into();
                costs["ipc"] = 0.25.into();
                costs["pages"] = 7.into();
                costs
            })
            .collect();
        json!({"machine": "m", "walks": 2 * misses, "frames_used": cycles, "spaces": spaces, "colors": null,
               "caches": [{"name": "L1", "accesses": {"loads": 10 * misses}, "misses": {"loads": misses}}]})
    }

    #[test]
    fn differences_and_sums_undo_each_other() {
        let (early, late) = (report(3, 100, &[0]), report(10, 250, &[0, 1]));
        let part = difference(&late, &early);
        assert_eq!(part["walks"], 14);
        assert_eq!(part["caches"][0]["misses"]["loads"], 7);
        assert_eq!(
            (&part["spaces"][0]["cycles"], &part["spaces"][1]["cycles"]),
            (&150.into(), &250.into())
        );
        assert_eq!((&part["frames_used"], &part["spaces"][0]["pages"]), (&250.into(), &7.into()));
        assert_eq!(part["spaces"][0]["ipc"], 1.0, "worked out anew");
        let both = sum(&early, &part);
        assert_eq!(both["walks"], late["walks"]);
        assert_eq!(both["spaces"][1]["cycles"], late["spaces"][1]["cycles"]);
        assert_eq!(both["caches"], late["caches"]);
        let rates = rates(&part);
        assert_eq!((rates[0].name.as_str(), rates[0].rate()), ("L1 miss rate", 0.1));
        assert_eq!((rates[1].name.as_str(), rates[1].rate()), ("cycles per access", 0.5));
    }

    #[test]
    fn a_program_that_has_ended_stays_in_the_sum() {
        let both = sum(&report(1, 10, &[0, 4]), &report(1, 10, &[2, 4]));
        let cycles: Vec<_> = both["spaces"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| (s["space"].as_u64(), s["cycles"].as_u64()))
            .collect();
        assert_eq!(cycles, [(Some(0), Some(10)), (Some(2), Some(10)), (Some(4), Some(20))]);
    }
}
