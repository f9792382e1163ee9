//! Four live groups under `huepage daemon`, of which one is hungry for the cache: a walk by chance over as much
//! as fits only if it gets most colours, beside a stream, a tiny loop and a sleeper. How long it takes until
//! who has what stays so, what moves after that, who has what in the end, and whether every change was explained.

use std::collections::BTreeMap;
use std::io;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use huepage_color::{CacheLevel, ColorSet, MAX_COLORS};
use serde_json::Value;

use super::World;
use crate::figures::round;
use crate::harness::{Bench, Guard, Suite, SuiteFigures, tool};
use crate::host_machine::cache;
use crate::launch::Huepage;
use crate::verdict::SuiteVerdict;

/// Within so many seconds assignments settle.
const SETTLE: f64 = 60.0;
/// From then on fewer colours than this change hands in a minute.
const CALM: u32 = 4;
const MINUTE: f64 = 60.0;
/// Sixteenths of the cache that the hungry one walks over.
const HOT: u64 = 13;
/// Longest time until the daemon answers: colours may be measured first.
const READY: Duration = Duration::from_secs(120);
/// Colours that every group keeps.
const FLOOR: u16 = 1;
/// Bytes that a kernel goes through at most.
const WORK: u64 = 1 << 44;
const HUNGRY: &str = "hungry";

/// What is run, for how long.
#[derive(Args, Clone, Debug)]
pub struct DaemonSettle {
    /// Seconds that the daemon runs
    #[arg(long, default_value_t = 240.0)]
    pub seconds: f64,
    /// How colours are known; declared ones need not be real, and then nothing depends on them
    #[arg(long, default_value = "probe")]
    pub colors_from: String,
    /// Who decides
    #[arg(long, default_value = "coloris")]
    pub engine: String,
    /// The CPU that the programs share
    #[arg(long, default_value_t = 0)]
    pub cpu: usize,
    /// More lines for the daemon's table of its file
    #[arg(long, value_name = "LINE")]
    pub daemon: Vec<String>,
}

/// Colours that changed hands.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Move {
    /// Seconds since the daemon answered.
    at: f64,
    colors: u32,
}

/// What was seen.
#[derive(Clone, Debug, Default)]
struct Seen {
    moves: Vec<Move>,
    /// Changes that the log does not explain.
    unexplained: Vec<String>,
    /// Colours of each group at first and at last, and its last reading.
    groups: BTreeMap<String, (u16, u16, Option<f64>)>,
    seconds: f64,
    decisions: usize,
}

impl Suite for DaemonSettle {
    const FIGURES: SuiteFigures = &[("Q9", &["settled", "moved", "right"])];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        judge(verdict, &watch(bench.huepage, self)?);
        Ok(())
    }
}

fn judge(verdict: &mut SuiteVerdict, seen: &Seen) {
    for (name, (first, last, reading)) in &seen.groups {
        verdict.row([
            ("group", name.as_str().into()),
            ("colours at first", (*first).into()),
            ("at last", (*last).into()),
            ("miss rate", reading.map_or(Value::Null, round)),
        ]);
    }
    let settled = settled(&seen.moves);
    let later = busiest(&seen.moves, settled.max(SETTLE));
    verdict.total("seconds watched", round(seen.seconds));
    verdict.figure("Q9", "settled", &[settled]);
    verdict.figure("Q9", "moved", &[f64::from(later)]);
    let right = seen.groups.iter().filter(|(name, sizes)| is_right(name, **sizes)).count();
    verdict.figure("Q9", "right", &[right as f64]);
    verdict.total("colours that changed hands", seen.moves.iter().map(|of| of.colors).sum::<u32>());
    verdict.total("decisions", seen.decisions);
    verdict.require(seen.seconds > settled + MINUTE, || "no quiet minute was seen".to_owned());
    let unexplained = seen.unexplained.join("; ");
    verdict.require(unexplained.is_empty(), || format!("not explained: {unexplained}"));
}

/// Whether a group ends with as many colours as it should: the hungry one with more, others with their floor.
fn is_right(name: &str, (first, last, _): (u16, u16, Option<f64>)) -> bool {
    if name == HUNGRY { last > first } else { last == FLOOR }
}

/// The first moment from which on no minute has as many moves as [`CALM`].
fn settled(moves: &[Move]) -> f64 {
    let starts = std::iter::once(0.0).chain(moves.iter().map(|of| of.at + 1e-3));
    starts.into_iter().find(|&start| busiest(moves, start) < CALM).unwrap_or(0.0)
}

/// Most colours that changed hands within a minute that begins at `from` or later.
fn busiest(moves: &[Move], from: f64) -> u32 {
    let later = || moves.iter().filter(|of| of.at >= from);
    let within = |start: f64| {
        later()
            .filter(|of| of.at - start >= 0.0 && of.at - start < MINUTE)
            .map(|of| of.colors)
            .sum()
    };
    later().map(|of| within(of.at)).max().unwrap_or(0)
}

fn kernel(setting: &DaemonSettle, name: &str, kib: u64) -> io::Result<Guard> {
    // As many rounds as it takes: it ends after some seconds, or is ended.
    let workload = format!("{name}:size={kib}K,rounds={}", WORK / (kib << 10));
    let mut command = Command::new(tool("huepage-kernel")?);
    let seconds = setting.seconds + READY.as_secs_f64() + MINUTE;
    command.arg(workload).arg("--cpu").arg(setting.cpu.to_string());
    let mut guard = Guard::quiet(command.arg("--seconds").arg(seconds.to_string()))?;
    // It has its memory by then, or ended since it cannot.
    std::thread::sleep(Duration::from_millis(300));
    let ended = || io::Error::other(format!("{name} ended"));
    if guard.alive() { Ok(guard) } else { Err(ended()) }
}

/// The programs with the names of their groups and what is said of these.
fn programs(setting: &DaemonSettle) -> io::Result<Vec<(&'static str, Guard, &'static str)>> {
    let kib = cache(CacheLevel::L2)?.size_bytes / 1024;
    let (hot, far) = (kib / 16 * HOT, kib * 16);
    let hungry = kernel(setting, "random", hot)?;
    let stream = kernel(setting, "sequential", far)?;
    let tiny = kernel(setting, "random", 32)?;
    let sleeper = Guard::quiet(Command::new("sleep").arg("100000"))?;
    Ok(vec![
        (HUNGRY, hungry, "miss_rate = { low = 0.01, high = 0.03 }\npriority = 5"),
        ("stream", stream, "miss_rate = { low = 0.5, high = 1.0 }"),
        ("tiny", tiny, "miss_rate = { low = 0.1, high = 0.4 }"),
        ("sleeper", sleeper, "miss_rate = { low = 0.1, high = 0.4 }"),
    ])
}

fn watch(huepage: &Huepage, setting: &DaemonSettle) -> io::Result<Seen> {
    let (world, programs) = (World::new(huepage)?, programs(setting)?);
    let mut text = format!("engine = \"{}\"\ndecisions = 100000\n", setting.engine);
    setting.daemon.iter().for_each(|line| text += &format!("{line}\n"));
    for (name, program, what) in &programs {
        let pid = program.id();
        text += &format!("[[group]]\nname = \"{name}\"\npid = {pid}\nfloor = {FLOOR}\n{what}\n");
    }
    world.write(&setting.colors_from, &text)?;
    let mut daemon = world.start()?;
    let seen = observe(&world, &mut daemon, setting);
    seen.map_err(|error| io::Error::other(format!("{error}; it said {:?}", world.log())))
}

fn observe(world: &World, daemon: &mut Guard, setting: &DaemonSettle) -> io::Result<Seen> {
    let asked = Instant::now();
    let first = loop {
        match sizes(world) {
            Some(sizes) => break sizes,
            None if asked.elapsed() > READY || !daemon.alive() => {
                return Err(io::Error::other("the daemon does not answer"));
            }
            None => std::thread::sleep(Duration::from_millis(100)),
        }
    };
    let (began, from) = (Instant::now(), now());
    std::thread::sleep(Duration::try_from_secs_f64(setting.seconds).unwrap_or(READY));
    let last = sizes(world).ok_or_else(|| io::Error::other("the daemon has ended"))?;
    let decisions = ["ctl", "decisions", "--last", "100000", "--json"];
    let said = world.huepage.json(&decisions).unwrap_or_default();
    let mut seen = of(&said, &world.log(), from);
    seen.seconds = began.elapsed().as_secs_f64();
    for (name, (count, reading)) in last {
        let before = first.get(&name).map_or(0, |of| of.0);
        seen.groups.insert(name, (before, count, reading));
    }
    Ok(seen)
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// Colours and readings of the groups now.
fn sizes(world: &World) -> Option<BTreeMap<String, (u16, Option<f64>)>> {
    let groups: Value = world.huepage.json(&["ctl", "groups", "--json"]).ok()?;
    let of = |group: &Value| {
        let count = u16::try_from(group["count"].as_u64()?).ok()?;
        Some((group["name"].as_str()?.to_owned(), (count, group["reading"].as_f64())))
    };
    groups["groups"].as_array()?.iter().map(of).collect()
}

/// Moves, and what is not explained, of decisions as the daemon remembers them, the latest first.
fn of(said: &Value, log: &str, from: f64) -> Seen {
    let mut seen = Seen::default();
    let none = Vec::new();
    let entries = said["decisions"].as_array().unwrap_or(&none);
    seen.decisions = entries.len();
    for entry in entries.iter().rev() {
        let text = |key: &str| entry[key].as_str().unwrap_or_default();
        let (group, before, after, reason) =
            (text("group"), text("from"), text("to"), text("reason"));
        let told = log.lines().any(|line| line.contains(group) && line.ends_with(reason));
        if reason.is_empty() || !told {
            seen.unexplained.push(format!("{group}: {before} -> {after}"));
        }
        let gained = colors(after)
            .zip(colors(before))
            .map_or(0, |(after, before)| u32::from(after.difference(&before).len()));
        if gained > 0 {
            let at = (entry["at"].as_f64().unwrap_or(0.0) - from).max(0.0);
            seen.moves.push(Move { at, colors: gained });
        }
    }
    seen
}

fn colors(text: &str) -> Option<ColorSet> {
    ColorSet::parse(text, MAX_COLORS).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn moves(all: &[(f64, u32)]) -> Vec<Move> {
        all.iter().map(|&(at, colors)| Move { at, colors }).collect()
    }

    fn seen(all: &[(f64, u32)], hungry: u16, tiny: u16) -> Seen {
        let group = |last| (4, last, Some(0.5));
        Seen {
            moves: moves(all),
            groups: [(HUNGRY, hungry), ("tiny", tiny), ("stream", FLOOR), ("sleeper", FLOOR)]
                .map(|(name, last)| (name.to_owned(), group(last)))
                .into(),
            seconds: 200.0,
            ..Seen::default()
        }
    }

    fn missed(seen: &Seen) -> Vec<String> {
        let mut verdict = SuiteVerdict::new("daemon-settle");
        judge(&mut verdict, seen);
        verdict.missed
    }

    #[test]
    fn it_settles_when_no_later_minute_is_busy() {
        let quiet = moves(&[(10.0, 2), (20.0, 2), (30.0, 2), (100.0, 1), (170.0, 1)]);
        assert!((10.0..10.1).contains(&settled(&quiet)) || settled(&quiet) < 20.1);
        assert_eq!(busiest(&quiet, 60.0), 1);
        assert_eq!(busiest(&quiet, 0.0), 6);
        let busy = moves(&[(10.0, 2), (150.0, 2), (160.0, 2)]);
        assert!((150.0..151.0).contains(&settled(&busy)));
        assert!(settled(&[]) < 1e-9);
    }

    #[test]
    fn what_does_not_settle_or_goes_to_the_wrong_one_is_missed() {
        let good = seen(&[(10.0, 2), (20.0, 2), (30.0, 2)], 10, 1);
        assert!(missed(&good).is_empty(), "{:?}", missed(&good));
        let late = seen(&[(100.0, 2), (120.0, 2), (130.0, 2)], 10, 1);
        assert!(
            missed(&late)[0].contains("Q9 settled: 120.001 s is not <= 60 s"),
            "{:?}",
            missed(&late)
        );
        assert_eq!(missed(&seen(&[], 4, 4)), ["Q9 right: 2 groups is not = 4 groups"]);
        let short = Seen { seconds: 50.0, ..good.clone() };
        assert!(missed(&short)[0].contains("no quiet minute"));
        let silent = Seen { unexplained: vec!["tiny: 0-3 -> 0".to_owned()], ..good };
        assert!(missed(&silent)[0].contains("not explained"));
    }

    #[test]
    fn decisions_are_counted_by_what_is_gained_and_looked_up_in_the_log() {
        let said = json!({ "decisions": [
            { "at": 30.0, "group": "b", "from": "4-7", "to": "6-7", "reason": "below" },
            { "at": 30.0, "group": "a", "from": "0-3", "to": "0-5", "reason": "above" },
            { "at": 20.0, "group": "a", "from": "0-3", "to": "0-3", "reason": "nobody" },
        ] });
        let log = "huepage: a: 0-3 -> 0-5: above\nhuepage: b: 4-7 -> 6-7: below\n";
        let seen = of(&said, log, 10.0);
        assert_eq!(seen.moves, moves(&[(20.0, 2)]));
        assert_eq!((seen.decisions, seen.unexplained.len()), (3, 1));
    }
}
