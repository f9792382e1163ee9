//! As many rounds of decisions as a day has, in less time: two groups whose metrics change all the time
//! beside a daemon that decides as often as it can. The most memory, files, threads and state that it has at any time
//! of the last tenth must not be more than that of the second.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;

use super::World;
use crate::harness::{Bench, Suite, SuiteFigures};
use crate::launch::{Captured, Huepage, answering};
use crate::mix::Rng;
use crate::verdict::SuiteVerdict;

/// Rounds in a second.
const RATE: f64 = 20.0;

/// What a process has.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Has {
    /// Without pages of files, which the kernel takes and gives back.
    own_kib: u64,
    files: usize,
    threads: usize,
    state_bytes: u64,
}

/// What is run.
#[derive(Args, Clone, Debug)]
pub struct DaemonDay {
    /// Rounds of decisions, 20 in a second
    #[arg(long, default_value_t = 28_800)]
    rounds: u64,
    /// Seed of what is measured of groups
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How colours are known; nothing of this is about timing
    #[arg(long, default_value = "declared")]
    colors_from: String,
}

impl Suite for DaemonDay {
    const FIGURES: SuiteFigures = &[("Q3", &["memory", "files and threads"])];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let (looks, decisions) = day(bench.huepage, &self.colors_from, self.rounds, self.seed)?;
        judge(verdict, &looks, self.rounds, decisions);
        Ok(())
    }
}

fn judge(verdict: &mut SuiteVerdict, looks: &[Has], rounds: u64, decisions: u64) {
    verdict.total("rounds", rounds);
    verdict.total("decisions", decisions);
    // Hysteresis leaves most rounds without any, and lessons learned make them rarer with time.
    verdict.require(decisions > rounds / 1000, || format!("only {decisions} decisions"));
    // The first tenth is for what every daemon gets once.
    let tenths: Vec<Has> = looks.chunks(looks.len().div_ceil(10).max(1)).map(most).collect();
    let [_, first, .., last] = &tenths[..] else { return verdict.miss("nothing was seen") };
    for (when, has) in (1..).zip(&tenths) {
        verdict.row([
            ("tenth of the day", when.into()),
            ("own memory KiB", has.own_kib.into()),
            ("files", has.files.into()),
            ("threads", has.threads.into()),
            ("state bytes", has.state_bytes.into()),
        ]);
    }
    verdict.figure("Q3", "memory", &[last.own_kib as f64 / first.own_kib as f64]);
    let held = |has: &Has| (has.files + has.threads) as f64;
    verdict.figure("Q3", "files and threads", &[held(last) - held(first)]);
    let kept = last.state_bytes <= first.state_bytes + 200;
    verdict.require(kept, || format!("{} bytes of state", last.state_bytes));
}

fn day(
    huepage: &Huepage,
    colors_from: &str,
    rounds: u64,
    seed: u64,
) -> io::Result<(Vec<Has>, u64)> {
    let (world, dir) = (World::new(huepage)?, tempfile::tempdir()?);
    let seconds = rounds as f64 / RATE;
    let names = ["one", "two"];
    let start = || Captured::start(&mut answering(16, seconds + 30.0)?);
    let targets = [start()?, start()?];
    let mut groups = String::new();
    for (name, target) in names.iter().zip(&targets) {
        let file = dir.path().join(format!("{name}.metric"));
        fs::write(&file, "5")?;
        groups += &format!(
            "[[group]]\nname = \"{name}\"\npid = {}\nmetric = {{ command = [\"cat\", \"{}\"], low = 4, high = 6, \
             better = \"lower\", every = 0.1 }}\n",
            target.id(),
            file.display()
        );
    }
    let pace = "interval = 0.05\nrest = 0.2\nrecolor_per_second = 4\ndecisions = 100\n";
    world.write(colors_from, &(pace.to_owned() + &groups))?;
    let daemon = world.start()?;
    let (mut rng, mut looks, began) = (Rng::with_seed(seed), Vec::new(), Instant::now());
    while began.elapsed().as_secs_f64() < seconds {
        for name in names {
            fs::write(dir.path().join(format!("{name}.metric")), rng.usize(..12).to_string())?;
        }
        std::thread::sleep(Duration::from_millis(300));
        looks.extend(look(daemon.id(), &world));
    }
    let status: Value = world.huepage.json(&["ctl", "status", "--json"]).unwrap_or_default();
    let decisions = status["decisions"].as_u64();
    decisions.map(|n| (looks, n)).ok_or_else(|| io::Error::other(world.log()))
}

/// The most of each at any time.
fn most(looks: &[Has]) -> Has {
    let of = |what: fn(&Has) -> u64| looks.iter().map(what).max().unwrap_or_default();
    let count = |what: fn(&Has) -> usize| looks.iter().map(what).max().unwrap_or_default();
    Has {
        own_kib: of(|has| has.own_kib),
        files: count(|has| has.files),
        threads: count(|has| has.threads),
        state_bytes: of(|has| has.state_bytes),
    }
}

fn look(pid: u32, world: &World) -> Option<Has> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some(Has {
        own_kib: of("RssAnon:")?,
        files: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count(),
        threads: usize::try_from(of("Threads:")?).ok()?,
        state_bytes: fs::metadata(world.path("state.json")).ok()?.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missed(last: Has, decisions: u64) -> Vec<String> {
        let first = Has { own_kib: 1000, files: 20, threads: 5, state_bytes: 900 };
        let looks: Vec<Has> = (0..20).map(|at| if at < 18 { first } else { last }).collect();
        let mut verdict = SuiteVerdict::new("daemon-day");
        judge(&mut verdict, &looks, 1000, decisions);
        verdict.missed
    }

    #[test]
    fn what_grows_is_missed() {
        let same = Has { own_kib: 1050, files: 20, threads: 5, state_bytes: 910 };
        assert!(missed(same, 100).is_empty());
        assert_eq!(missed(same, 1).len(), 1);
        let grown = |has| missed(has, 100);
        assert_eq!(grown(Has { own_kib: 1200, ..same }), ["Q3 memory: 1.2 x is not <= 1.10 x"]);
        let more = grown(Has { files: 30, threads: 6, state_bytes: 2000, ..same });
        assert_eq!(more.len(), 2, "{more:?}");
        assert_eq!(more[0], "Q3 files and threads: 11 more is not <= 0 more");
    }
}
