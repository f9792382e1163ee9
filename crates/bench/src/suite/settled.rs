//! What huepage costs while there is nothing to do: programs whose pages lie right and that allocate nothing, in a
//! group of a daemon. The CPU time of the daemon and of its agents in the programs, to the nanosecond as the scheduler
//! counts it, and the frames that are kept in stock for each.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use clap::Args;

use super::daemon::World;
use crate::figures::round;
use crate::harness::{Bench, Guard, Suite, SuiteFigures};
use crate::sys::MappedMemory;
use crate::verdict::SuiteVerdict;

/// Groups of so many programs are promised something.
const PROMISED: [usize; 2] = [1, 100];
/// Stock that is promised: this part of a program's memory, or so many MiB if that is more.
const STOCK_PART: f64 = 0.05;
const STOCK_MIB: f64 = 1.0;
/// MiB in a page.
const PAGE_MIB: f64 = 1.0 / 256.0;

/// What is measured.
#[derive(Args, Clone, Debug)]
pub struct Settled {
    /// Programs in the group; may be repeated
    #[arg(long = "programs", default_values_t = PROMISED)]
    programs: Vec<usize>,
    /// Memory of one program, in MiB; of ten and more it is an eighth of that
    #[arg(long, default_value_t = 64)]
    mib: usize,
    /// Seconds between the last page coming to lie right and the measurement
    #[arg(long, default_value_t = 20)]
    rest: u64,
    /// Seconds that are measured
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How colours are known; to keep probed ones true has a promise of its own
    #[arg(long, default_value = "declared")]
    colors_from: String,
    /// The programs compute in their memory all the time, in place of sleeping
    #[arg(long)]
    busy: bool,
}

/// A program of the group.
#[derive(Args, Clone, Debug)]
pub struct SettledTarget {
    /// Its memory, in MiB
    #[arg(long)]
    mib: usize,
    /// It computes, a little every millisecond
    #[arg(long)]
    busy: bool,
}

/// Is such a program: has its memory, says so, and allocates as much again for each line of input, until that ends.
///
/// # Errors
/// When there is not enough memory.
pub fn target(target: &SettledTarget) -> io::Result<()> {
    let (memory, busy) = (filled(target.mib)?, target.busy);
    std::thread::spawn(move || {
        // One that sleeps has its memory all the same.
        loop {
            if busy {
                let words = memory.words().iter().step_by(4096);
                words.for_each(|word| _ = word.fetch_add(1, Relaxed));
                std::thread::sleep(Duration::from_millis(1));
            } else {
                std::thread::park();
            }
        }
    });
    println!("ready");
    let mut more = Vec::new();
    for line in io::stdin().lock().lines() {
        line?;
        more.push(filled(target.mib)?);
        println!("more");
    }
    Ok(())
}

fn filled(mib: usize) -> io::Result<MappedMemory> {
    let memory = MappedMemory::private(mib * 256)?;
    memory.words().iter().step_by(64).for_each(|word| word.store(1, Relaxed));
    Ok(memory)
}

impl Suite for Settled {
    const FIGURES: SuiteFigures =
        &[("P28", &["1 settled", "100 settled", "stock of 1", "stock of 100"])];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        for &count in &self.programs {
            let world = World::new(bench.huepage)?;
            self.group(&world, count, verdict)?;
        }
        Ok(())
    }
}

/// A program, its output held open.
type Running = (Guard, BufReader<ChildStdout>);

impl Settled {
    const fn mib(&self, count: usize) -> usize {
        if count < 10 { self.mib } else { self.mib.div_ceil(8) }
    }

    /// Measures a group of so many programs.
    fn group(&self, world: &World, count: usize, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let programs = (0..count).map(|_| self.start(count)).collect::<io::Result<Vec<_>>>()?;
        let pids: Vec<u32> = programs.iter().map(|program| program.0.0.id()).collect();
        // All are alike.
        let own = pids.first().map_or(Ok(0.0), |&pid| resident(pid))?;
        let list: Vec<String> = pids.iter().map(u32::to_string).collect();
        let group = format!(
            "[[group]]\nname = \"settled\"\nshare = \"50%\"\npid = [{}]\n",
            list.join(", ")
        );
        world.write(&self.colors_from, &group)?;
        let mut daemon = world.start()?;
        let right = pids.iter().all(|&pid| world.settled(&mut daemon, pid).is_some());
        if !right {
            return Err(io::Error::other(format!("not all lie right: {}", world.log())));
        }
        std::thread::sleep(Duration::from_secs(self.rest));
        let (share, of_daemon) = self.cpu(&daemon.0, &programs)?;
        let stock = pids.iter().filter_map(|&pid| stock(world, pid)).fold(0.0, f64::max);
        note(verdict, count, [share, of_daemon], [stock, (own * STOCK_PART).max(STOCK_MIB)]);
        Ok(())
    }

    fn start(&self, count: usize) -> io::Result<Running> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["settled-target", "--mib", &self.mib(count).to_string()]);
        command.args(self.busy.then_some("--busy")).stdin(Stdio::piped());
        Guard::ready(&mut command)
    }

    /// Shares of one CPU, in percent: of the daemon and its agents, and of the daemon alone.
    fn cpu(&self, daemon: &Child, programs: &[Running]) -> io::Result<(f64, f64)> {
        let spent = || -> io::Result<[u64; 2]> {
            let own = run_time(daemon.id(), |_| true)?;
            let agent = |name: &str| name.starts_with("huepage-");
            let agents = programs.iter().map(|program| run_time(program.0.0.id(), agent));
            Ok([own, agents.sum::<io::Result<u64>>()?])
        };
        let (before, began) = (spent()?, Instant::now());
        std::thread::sleep(Duration::from_secs(self.seconds));
        let (after, seconds) = (spent()?, began.elapsed().as_secs_f64());
        let [own, agents] = [0, 1].map(|i| (after[i] - before[i]) as f64 / 1e9 / seconds * 100.0);
        Ok((own + agents, own))
    }
}

fn note(verdict: &mut SuiteVerdict, count: usize, [share, own]: [f64; 2], stock: [f64; 2]) {
    let [stock, most] = stock;
    verdict.row([
        ("programs", count.into()),
        ("cpu_percent", round(share)),
        ("daemon_percent", round(own)),
        ("stock_mib", round(stock)),
        ("most_mib", round(most)),
    ]);
    if PROMISED.contains(&count) {
        verdict.figure("P28", &format!("{count} settled"), &[share]);
        verdict.figure("P28", &format!("stock of {count}"), &[stock / most]);
    }
}

/// MiB of memory that a process has.
fn resident(pid: u32) -> io::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm"))?;
    let pages = text.split(' ').nth(1).and_then(|word| word.parse::<u32>().ok());
    Ok(f64::from(pages.unwrap_or(0)) * PAGE_MIB)
}

/// MiB of stock that a process has.
fn stock(world: &World, pid: u32) -> Option<f64> {
    let found: serde_json::Value =
        world.huepage.json(&["inspect", &pid.to_string(), "--json"]).ok()?;
    Some(found["engine"]["stock"].as_f64()? * PAGE_MIB)
}

/// Nanoseconds that threads of a process have run whose names are as wanted.
fn run_time(pid: u32, wanted: impl Fn(&str) -> bool) -> io::Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = task?.path();
        // A thread that has ended meanwhile has run for a moment.
        let Ok(name) = fs::read_to_string(path.join("comm")) else { continue };
        if wanted(name.trim()) {
            let text = fs::read_to_string(path.join("schedstat")).unwrap_or_default();
            sum += text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_dear_or_too_much_is_missed() {
        for (share, stock, missed) in [(0.09, 3.1, 0), (0.2, 3.1, 1), (0.09, 3.3, 1)] {
            let mut verdict = SuiteVerdict::new("settled");
            note(&mut verdict, 1, [share, share], [stock, 3.2]);
            assert_eq!(verdict.missed.len(), missed, "{:?}", verdict.missed);
            assert_eq!(verdict.figures.len(), 2);
        }
    }

    #[test]
    fn own_threads_have_run() {
        let busy = Instant::now();
        while busy.elapsed() < Duration::from_millis(20) {}
        let own = std::process::id();
        assert!(run_time(own, |_| true).unwrap() > 1_000_000);
        assert_eq!(run_time(own, |_| false).unwrap(), 0);
    }
}
