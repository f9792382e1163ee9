//! The simulator beside others, on the same accesses: how many accesses each does in a second of CPU
//! time, and whether all miss as often where their models coincide.
//!
//! All accesses are loads, so that every model of LRU caches is the same one: what becomes of dirty
//! lines differs between them. pycachesim and Dinero IV simulate the three levels of a server;
//! libCacheSim has one set of as many objects as it is given, and so has the machine that it is
//! compared with. Pages get frames in the order of their first use; peers, which know no pages, are
//! given the addresses that come of that. Their reading of files does not count, but for Dinero's,
//! which cannot be told apart; ours counts all of it.
//!
//! ChampSim and DynamoRIO's drcachesim are not among them: they replay instructions, and have no
//! model of caches alone. What is absent is named. `scripts/setup-peers.sh` installs those that are
//! in a registry; `dineroIV` is run where it is on the path.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use huepage_sim::generators::{Mix, MixStream};
use serde::Deserialize;
use serde_json::Value;

use crate::figures::{median, round};
use crate::harness::{Bench, Suite, SuiteFigures, bounded, interleaved};
use crate::launch::{Huepage, succeeds};
use crate::verdict::SuiteVerdict;

/// The streams, by what most of their accesses do.
const STREAMS: [(&str, Mix); 2] = [("misses", Mix::MissHeavy), ("hits", Mix::Hot)];
/// Sets and ways of the three levels, nearest first; lines are of 64 bytes.
const LEVELS: [(u64, u64); 3] = [(64, 8), (1024, 16), (16384, 16)];
/// Lines of the cache of one set.
const ONE_SET: u64 = 64;
/// Ticks of a second in `/proc`: on x86-64 the same in every kernel.
const TICKS: f64 = 100.0;
/// No run takes as long.
const LONGEST: Duration = Duration::from_secs(1800);

/// What is measured.
#[derive(Args, Clone, Debug)]
pub struct SimPeers {
    /// Accesses of each stream
    #[arg(long, default_value_t = 4_000_000)]
    accesses: usize,
    /// Runs of each simulator, in turns
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// Who simulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Simulator {
    Own,
    OwnOneSet,
    Pycachesim,
    Dinero,
    Libcachesim,
}

/// The peers, each with who simulates the same machine.
const PEERS: [(Simulator, Simulator); 3] = [
    (Simulator::Pycachesim, Simulator::Own),
    (Simulator::Dinero, Simulator::Own),
    (Simulator::Libcachesim, Simulator::OwnOneSet),
];

/// What a run came to.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
struct SimulatorRun {
    /// Of CPU time.
    seconds: f64,
    /// Of each level, nearest first.
    misses: Vec<u64>,
}

/// What the figures are of.
const OF: &[&str] = &[
    "pycachesim, misses",
    "pycachesim, hits",
    "Dinero IV, misses",
    "Dinero IV, hits",
    "libCacheSim, misses",
    "libCacheSim, hits",
];

impl Suite for SimPeers {
    const FIGURES: SuiteFigures = &[("S16", OF)];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let absent: Vec<&str> = PEERS
            .iter()
            .filter(|(peer, _)| !peer.is_there())
            .map(|(peer, _)| peer.name())
            .collect();
        for name in &absent {
            verdict.skip(format!("{name} is absent; see scripts/setup-peers.sh"));
        }
        verdict.total("absent", absent.join(", "));
        for (stream, mix) in STREAMS {
            let place = StreamFiles::write(bench, stream, mix, self.accesses)?;
            self.stream(stream, &place, verdict)?;
            place.remove()?;
        }
        Ok(())
    }
}

impl SimPeers {
    fn stream(
        &self,
        stream: &str,
        place: &StreamFiles<'_>,
        verdict: &mut SuiteVerdict,
    ) -> io::Result<()> {
        use Simulator::{Dinero, Libcachesim, Own, OwnOneSet, Pycachesim};
        let all = [Own, OwnOneSet, Pycachesim, Dinero, Libcachesim];
        let there = all.map(Simulator::is_there);
        let one = |simulator: Simulator| {
            let known = all.iter().zip(there).any(|(one, is)| *one == simulator && is);
            known.then(|| simulator.run(place)).transpose()
        };
        let runs = interleaved(self.rounds, all, one)?;
        let of = |simulator: Simulator| -> Vec<SimulatorRun> {
            let at = all.iter().position(|one| *one == simulator).unwrap_or_default();
            runs[at].iter().flatten().cloned().collect()
        };
        for (peer, own) in PEERS {
            if !of(peer).is_empty() {
                self.compare(stream, peer, [&of(own), &of(peer)], verdict);
            }
        }
        Ok(())
    }

    /// A row for a peer, against the runs of the same machine.
    fn compare(
        &self,
        stream: &str,
        peer: Simulator,
        [own, other]: [&[SimulatorRun]; 2],
        verdict: &mut SuiteVerdict,
    ) {
        let name = peer.name();
        let equal = own.iter().chain(other).all(|run| run.misses == own[0].misses);
        verdict.require(equal, || {
            format!("{name}, {stream}: {:?} misses, not {:?}", other[0].misses, own[0].misses)
        });
        let speed = |runs: &[SimulatorRun]| {
            median(runs.iter().map(|run| self.accesses as f64 / run.seconds / 1e6))
        };
        let times: Vec<f64> =
            own.iter().zip(other).map(|(own, other)| other.seconds / own.seconds).collect();
        verdict.row([
            ("stream", stream.into()),
            ("peer", name.into()),
            ("its M/s", round(speed(other))),
            ("ours M/s", round(speed(own))),
            ("times", round(median(&times))),
            ("misses", format!("{:?}", other[0].misses).into()),
            ("equal", equal.into()),
        ]);
        verdict.figure("S16", &format!("{name}, {stream}"), &times);
    }
}

impl Simulator {
    const fn name(self) -> &'static str {
        match self {
            Simulator::Own | Simulator::OwnOneSet => "huepage",
            Simulator::Pycachesim => "pycachesim",
            Simulator::Dinero => "Dinero IV",
            Simulator::Libcachesim => "libCacheSim",
        }
    }

    fn is_there(self) -> bool {
        let found = |command: &mut Command| {
            bounded(command, LONGEST).is_ok_and(|end| end.status == 0 && !end.hung)
        };
        let module =
            |name: &str| found(Command::new("python3").args(["-c", &format!("import {name}")]));
        match self {
            Simulator::Own | Simulator::OwnOneSet => true,
            Simulator::Pycachesim => module("cachesim"),
            Simulator::Libcachesim => module("libcachesim"),
            Simulator::Dinero => found(Command::new("dineroIV").arg("-help")),
        }
    }

    fn run(self, place: &StreamFiles<'_>) -> io::Result<SimulatorRun> {
        match self {
            Simulator::Own => place.own("levels.toml"),
            Simulator::OwnOneSet => place.own("one-set.toml"),
            Simulator::Pycachesim => {
                let shapes = LEVELS.map(|(sets, ways)| format!("{sets}x{ways}"));
                let words = [vec![place.file("u64")], shapes.map(PathBuf::from).to_vec()].concat();
                python(include_str!("sim_peers/pycachesim.py"), &words)
            }
            Simulator::Libcachesim => {
                let words = [place.file("oracle"), ONE_SET.to_string().into()];
                python(include_str!("sim_peers/libcachesim.py"), &words)
            }
            Simulator::Dinero => place.dinero(),
        }
    }
}

/// Runs a script that prints what it came to.
fn python(script: &str, words: &[PathBuf]) -> io::Result<SimulatorRun> {
    let mut command = Command::new("python3");
    succeeds(command.args(["-c", script]).args(words), LONGEST)?.json()
}

/// The files of a stream, one for each form.
struct StreamFiles<'a> {
    huepage: &'a Huepage,
    dir: PathBuf,
}

impl StreamFiles<'_> {
    fn write<'a>(
        bench: Bench<'a>,
        stream: &str,
        mix: Mix,
        accesses: usize,
    ) -> io::Result<StreamFiles<'a>> {
        let dir = bench.dir.join("peers").join(stream);
        std::fs::create_dir_all(&dir)?;
        let place = StreamFiles { huepage: bench.huepage, dir };
        let addresses: Vec<u64> =
            MixStream::new(mix).take(accesses).map(|record| record.address.0).collect();
        let bytes = |all: &[u64]| all.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
        std::fs::write(place.file("raw"), bytes(&addresses))?;
        let mut import = place.huepage.command(["trace", "import", "--force", "--format"]);
        import.arg("raw-loads").arg(place.file("raw")).arg("-o").arg(place.file("trace"));
        succeeds(&mut import, LONGEST)?;
        let physical = in_order(&addresses);
        std::fs::write(place.file("u64"), bytes(&physical))?;
        std::fs::write(
            place.file("oracle"),
            physical.iter().flat_map(oracle).collect::<Vec<u8>>(),
        )?;
        let mut din = io::BufWriter::new(std::fs::File::create(place.file("din"))?);
        physical.iter().try_for_each(|address| writeln!(din, "0 {address:x}"))?;
        din.flush()?;
        std::fs::write(place.dir.join("levels.toml"), machine(&LEVELS))?;
        std::fs::write(place.dir.join("one-set.toml"), machine(&[(1, ONE_SET)]))?;
        Ok(place)
    }

    fn file(&self, form: &str) -> PathBuf {
        self.dir.join(format!("stream.{form}"))
    }

    fn remove(self) -> io::Result<()> {
        std::fs::remove_dir_all(&self.dir)
    }

    fn own(&self, machine: &str) -> io::Result<SimulatorRun> {
        let mut command = self.huepage.command(["sim", "--json", "--mapping", "in-order", "-m"]);
        command.arg(self.dir.join(machine)).arg(self.file("trace"));
        let before = children_seconds()?;
        let row: Value = succeeds(&mut command, LONGEST)?.json()?;
        let seconds = children_seconds()? - before;
        let levels = row["report"]["caches"].as_array().into_iter().flatten();
        let misses = levels.map(|level| level["misses"]["loads"].as_u64().unwrap_or_default());
        Ok(SimulatorRun { seconds, misses: misses.collect() })
    }

    fn dinero(&self) -> io::Result<SimulatorRun> {
        let mut command = Command::new("dineroIV");
        command.args(["-informat", "d"]);
        for ((sets, ways), level) in LEVELS.into_iter().zip(1..) {
            let kind = if level == 1 { 'd' } else { 'u' };
            let option = |name: &str| format!("-l{level}-{kind}{name}");
            let words = [("size", sets * ways * 64), ("bsize", 64), ("assoc", ways)];
            for (name, value) in words {
                command.args([option(name), value.to_string()]);
            }
        }
        // The harness gives programs no input.
        let input = format!("exec \"$0\" \"$@\" < '{}'", self.file("din").display());
        let mut shell = Command::new("sh");
        shell.args(["-c", &input]).arg(command.get_program()).args(command.get_args());
        let before = children_seconds()?;
        let end = succeeds(&mut shell, LONGEST)?;
        let seconds = children_seconds()? - before;
        Ok(SimulatorRun { seconds, misses: demand_misses(&end.text()) })
    }
}

/// The totals of Dinero's lines, a level each.
fn demand_misses(text: &str) -> Vec<u64> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("Demand Misses"));
    lines.filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect()
}

/// Addresses with pages in the order of their first use.
fn in_order(addresses: &[u64]) -> Vec<u64> {
    let mut frames = HashMap::new();
    let mut frame = |page: u64| {
        let next = frames.len() as u64;
        *frames.entry(page).or_insert(next)
    };
    addresses.iter().map(|address| frame(address >> 12) << 12 | address & 4095).collect()
}

/// A use of a line as libCacheSim reads it: time, object, size, next use.
fn oracle(address: &u64) -> impl Iterator<Item = u8> + use<> {
    let (time, size, next) = (0_u32.to_le_bytes(), 1_u32.to_le_bytes(), (-2_i64).to_le_bytes());
    time.into_iter().chain((address >> 6).to_le_bytes()).chain(size).chain(next)
}

/// A machine of caches alone.
fn machine(levels: &[(u64, u64)]) -> String {
    let mut text = "name = \"peers\"\nmemory = \"16G\"\nmemory_latency = 200\n".to_owned();
    for ((sets, ways), level) in levels.iter().zip(1..) {
        let size = sets * ways * 64;
        text +=
            &format!("\n[[cache]]\nlevel = {level}\nsize = {size}\nways = {ways}\nlatency = 4\n");
    }
    text
}

/// CPU seconds of all processes that have ended and were waited for.
fn children_seconds() -> io::Result<f64> {
    let text = std::fs::read_to_string(Path::new("/proc/self/stat"))?;
    // The name may hold anything, and ends with the last bracket.
    let (_, fields) = text.rsplit_once(')').unwrap_or_default();
    let ticks = fields.split_whitespace().skip(13).take(2);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dineros_misses_are_the_totals_of_its_levels() {
        let text = "l1-dcache\n Demand Fetches\t\t 9 0\n Demand Misses\t\t  114480\t 0\n  Demand miss \
                    rate\t 0.5\nl2-ucache\n Demand Misses\t 24925 0\n";
        assert_eq!(demand_misses(text), [114_480, 24_925]);
        assert!(demand_misses("").is_empty());
    }

    #[test]
    fn pages_are_numbered_as_they_come() {
        assert_eq!(in_order(&[0x9008, 0x1ff0, 0x9010]), [0x8, 0x1ff0, 0x10]);
    }

    #[test]
    fn a_use_is_24_bytes() {
        let bytes: Vec<u8> = oracle(&0x1040).collect();
        assert_eq!((bytes.len(), bytes[4], bytes[12], bytes[16]), (24, 0x41, 1, 0xfe));
    }

    #[test]
    fn a_peer_that_misses_otherwise_or_is_as_fast_is_told() {
        let suite = SimPeers { accesses: 1000, rounds: 1 };
        let run = |seconds, misses| vec![SimulatorRun { seconds, misses: vec![misses] }];
        let verdict = |own: &[SimulatorRun], other: &[SimulatorRun]| {
            let mut verdict = SuiteVerdict::new("sim-peers");
            suite.compare("hits", Simulator::Dinero, [own, other], &mut verdict);
            verdict.missed
        };
        assert!(verdict(&run(1.0, 7), &run(6.0, 7)).is_empty());
        assert!(verdict(&run(1.0, 7), &run(6.0, 8))[0].contains("[8] misses, not [7]"));
        assert!(
            verdict(&run(1.0, 7), &run(2.0, 7))[0]
                .contains("S16 Dinero IV, hits: 2 x is not >= 5 x")
        );
    }

    #[test]
    fn the_machines_are_understood() {
        for levels in [&LEVELS[..], &[(1, ONE_SET)]] {
            let machine =
                huepage_sim::machine::Machine::parse(&machine(levels)).expect("a machine");
            assert_eq!(machine.cache.len(), levels.len());
        }
    }
}
