//! `kill -9` of the daemon at random moments, some times over the life of two programs that check their
//! memory: both must end with the right answer, and the daemon that is started last must have the
//! groups, processes and colours that the killed ones had.

use std::io;
use std::time::Duration;

use clap::Args;

use super::{World, trouble};
use crate::harness::{Bench, Guard, Suite, SuiteFigures};
use crate::launch::{Captured, Huepage, answering};
use crate::mix::Rng;
use crate::verdict::SuiteVerdict;

/// Kills, as promised.
const TIMES: u32 = 100;
/// Kills over the life of one pair of programs.
const A_LIFE: u32 = 5;
/// Seconds that a pair computes, and how many more for each kill.
const SECONDS: (f64, f64) = (6.0, 2.0);
/// Longest time that a daemon lives, in microseconds.
const LONGEST_LIFE: usize = 1_500_000;

/// What is run.
#[derive(Args, Clone, Debug)]
pub struct DaemonKill {
    /// Daemons
    #[arg(long, default_value_t = TIMES)]
    times: u32,
    /// Seed of the moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How colours are known; nothing of this is about timing
    #[arg(long, default_value = "declared")]
    colors_from: String,
}

impl Suite for DaemonKill {
    const FIGURES: SuiteFigures = &[("Q4", &[""])];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let mut rng = Rng::with_seed(self.seed);
        let (mut killed, mut right, mut taken_up, mut lives) = (0, 0, 0, 0);
        while killed < self.times {
            let kills = A_LIFE.min(self.times - killed);
            lives += 1;
            killed += kills;
            let fate = life(bench.huepage, &self.colors_from, kills, &mut rng);
            let Some(fate) = verdict.attempt(&format!("life {lives}"), fate) else { continue };
            right += 2 - fate.troubles.len().min(2);
            taken_up += usize::from(fate.again.is_none());
            let troubles = fate.troubles.into_iter().chain(fate.again);
            troubles.for_each(|what| verdict.miss(format!("life {lives}: {what}")));
        }
        verdict.total("daemons killed", killed);
        verdict.total("programs", 2 * lives);
        verdict.total("programs right", right);
        verdict.total("states", lives);
        verdict.total("states taken up again", taken_up);
        if verdict.missed.is_empty() && self.times == TIMES {
            verdict.figure("Q4", "", &[f64::from(killed)]);
        }
        Ok(())
    }
}

/// What became of a pair of programs.
struct Fate {
    troubles: Vec<String>,
    /// What is wrong with the last daemon.
    again: Option<String>,
}

fn life(huepage: &Huepage, colors_from: &str, kills: u32, rng: &mut Rng) -> io::Result<Fate> {
    let world = World::new(huepage)?;
    let seconds = SECONDS.0 + f64::from(kills) * SECONDS.1;
    let start = || Captured::start(&mut answering(16, seconds)?);
    let targets = [start()?, start()?];
    let [one, two] = [targets[0].id(), targets[1].id()];
    let groups = format!(
        "look = 0.1\n[[group]]\nname = \"one\"\npid = {one}\nshare = 4\n\
         [[group]]\nname = \"two\"\npid = {two}\nmiss_rate = {{ low = 0.1, high = 0.9 }}\nceiling = 4\n"
    );
    world.write(colors_from, &groups)?;
    for _ in 0..kills {
        let mut daemon = world.start()?;
        std::thread::sleep(Duration::from_micros(rng.usize(..LONGEST_LIFE) as u64));
        daemon.0.kill()?;
        daemon.0.wait()?;
    }
    let before = ["one", "two"].map(|name| world.kept(name));
    let mut daemon = world.start()?;
    let again = check(&world, &mut daemon, [one, two], &before);
    daemon.0.kill()?;
    daemon.0.wait()?;
    let troubles = targets.into_iter().filter_map(trouble).collect();
    Ok(Fate { troubles, again })
}

/// What is wrong with the daemon that runs, given what the state was before.
fn check(
    world: &World,
    daemon: &mut Guard,
    pids: [u32; 2],
    before: &[Option<serde_json::Value>; 2],
) -> Option<String> {
    let settled = pids.map(|pid| world.settled(daemon, pid));
    let [Some(one), Some(two)] = &settled else {
        return Some(format!("not taken up again: {settled:?}; it said {:?}", world.log()));
    };
    if one == two {
        return Some(format!("both have the colours {one}"));
    }
    let after = ["one", "two"].map(|name| world.kept(name));
    // A daemon that was killed before it wrote anything leaves nothing to take up.
    let same = |(old, new): (&Option<_>, &Option<_>)| old.is_none() || old == new;
    let kept = before.iter().zip(&after).all(same);
    (!kept).then(|| format!("other colours than before: {before:?}, {after:?}"))
}
