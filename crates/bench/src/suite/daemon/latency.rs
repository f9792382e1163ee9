//! What the daemon does to a service: the latency that 99 of 100 requests to redis keep, and how many are
//! answered, beside a program that streams, on the same processor and on another one: without any
//! partition, with half of the cache each, and with the daemon dividing. Rounds begin with new programs and
//! have all variants in turns; medians are compared. Who asks runs on any processor.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::Args;

use super::super::superpages::redis::{obstacle, percentile};
use super::{LONGEST, World};
use crate::harness::{Bench, Guard, NamedSamples, Suite, SuiteFigures, interleaved, tool};
use crate::launch::{Huepage, succeeds};
use crate::sys;
use crate::verdict::SuiteVerdict;

const PERCENTILE: f64 = 99.0;
/// Where the stream runs: redis has the first processor.
const PLACES: [(&str, usize); 2] = [("same CPU", 0), ("other CPU", 1)];
/// Values of the server.
const KEYS: &str = "200000";
/// KiB that pass by, some times a private cache; and longest that they do, in seconds.
const STREAM: [&str; 2] = ["16384", "900"];

/// How the cache is divided.
#[derive(Clone, Copy, PartialEq)]
enum Variant {
    Without,
    Halves,
    Daemon,
}

impl Variant {
    const ALL: [Variant; 3] = [Variant::Without, Variant::Halves, Variant::Daemon];

    const fn name(self) -> &'static str {
        match self {
            Variant::Without => "without",
            Variant::Halves => "halves",
            Variant::Daemon => "the daemon",
        }
    }

    /// The groups of redis and of the stream in the daemon's file; none for nobody.
    fn groups(self, redis: u32, stream: u32) -> Option<String> {
        let [kept, streaming] = match self {
            Variant::Without => return None,
            Variant::Halves => ["share = \"50%\"", "share = \"50%\""],
            Variant::Daemon => [
                "miss_rate = { low = 0.05, high = 0.30 }\npriority = 5",
                "miss_rate = { low = 0.30, high = 0.95 }",
            ],
        };
        Some(format!(
            "[[group]]\nname = \"redis\"\npid = {redis}\n{kept}\n\
             [[group]]\nname = \"stream\"\npid = {stream}\n{streaming}\n"
        ))
    }
}

fn named(variant: Variant, place: &str) -> String {
    format!("{}, {place}", variant.name())
}

/// What is run.
#[derive(Args, Clone, Debug)]
pub struct DaemonLatency {
    /// Repetitions
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Requests of a measurement; fewer are over before the daemon knows who needs what
    #[arg(long, default_value_t = 600_000)]
    requests: usize,
    /// How colours are known: in colours that are not real, what is measured is the daemon's cost alone
    #[arg(long, default_value = "probe")]
    colors_from: String,
}

/// What the figures are of.
const OF: &[&str] = &[PLACES[0].0, PLACES[1].0];

impl Suite for DaemonLatency {
    const FIGURES: SuiteFigures = &[("Q5", OF)];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        if let Some(why) = obstacle() {
            verdict.skip(why);
            return Ok(());
        }
        let (huepage, requests) = (bench.huepage, self.requests);
        let mut samples = [NamedSamples::default(), NamedSamples::default()];
        let outcome = interleaved(self.rounds, PLACES, |(place, cpu)| {
            Variant::ALL.into_iter().try_for_each(|variant| {
                let colors_from = &self.colors_from;
                let found = Round { huepage, colors_from, requests, variant, cpu }.measure();
                let name = named(variant, place);
                let found = found.map_err(|error| io::Error::other(format!("{name}: {error}")))?;
                (0..2).for_each(|i| samples[i].push(&name, found[i]));
                Ok(())
            })
        });
        let [times, rates] = samples;
        times.rows(verdict, "ms, p99");
        rates.rows(verdict, "requests/s");
        judge(verdict, &times);
        outcome.map(drop)
    }
}

fn judge(verdict: &mut SuiteVerdict, times: &NamedSamples) {
    for (place, _) in PLACES {
        let [with, without] = [Variant::Daemon, Variant::Without].map(|one| named(one, place));
        verdict.figure("Q5", place, &times.ratios(&with, &without));
    }
}

/// One measurement.
struct Round<'a> {
    huepage: &'a Huepage,
    colors_from: &'a str,
    requests: usize,
    variant: Variant,
    /// Where the stream runs.
    cpu: usize,
}

impl Round<'_> {
    /// The latency in ms and the requests answered in a second.
    fn measure(&self) -> io::Result<[f64; 2]> {
        let (world, dir) = (World::new(self.huepage)?, tempfile::tempdir()?);
        let server = Server::start(dir.path())?;
        server.pin(0)?;
        let stream = self.stream()?;
        let groups = self.variant.groups(server.0.id(), stream.id());
        let mut daemon = None;
        if let Some(groups) = groups {
            world.write(self.colors_from, &groups)?;
            let mut started = world.start()?;
            let settled = world.settled(&mut started, server.0.id());
            settled
                .ok_or_else(|| io::Error::other(format!("redis was not taken: {}", world.log())))?;
            daemon = Some(started);
        }
        // Also the time in which the daemon finds out what each needs.
        server.latency(self.requests / 4)?;
        let found = server.latency(self.requests);
        drop((daemon, stream));
        found
    }

    fn stream(&self) -> io::Result<Guard> {
        let mut command = Command::new(tool("huepage-stream")?);
        command.args(["--kib", STREAM[0], "--seconds", STREAM[1], "--cpu", &self.cpu.to_string()]);
        Guard::quiet(&mut command)
    }
}

/// A server with values, reached through a socket; killed when dropped.
struct Server(Guard, std::path::PathBuf);

impl Server {
    fn start(dir: &Path) -> io::Result<Server> {
        let socket = dir.join("socket");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--unixsocket"]).arg(&socket).arg("--dir").arg(dir);
        command.args(["--save", "", "--appendonly", "no", "--loglevel", "warning"]);
        let server = Server(Guard::quiet(&mut command)?, socket);
        let fill = ["-q", "-n", KEYS, "-P", "16", "-d", "64", "SET", "key:__rand_int__", "x"];
        for _ in 0..100 {
            if server.1.exists() && server.benchmark(&fill).is_ok() {
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(io::Error::other("redis-server does not answer"))
    }

    fn benchmark(&self, args: &[&str]) -> io::Result<String> {
        let mut command = Command::new("redis-benchmark");
        command.arg("-s").arg(&self.1).args(["-c", "8", "-r", KEYS]).args(args);
        succeeds(&mut command, 5 * LONGEST).map(|end| end.text())
    }

    fn latency(&self, requests: usize) -> io::Result<[f64; 2]> {
        let text = self.benchmark(&["-n", &requests.to_string(), "GET", "key:__rand_int__"])?;
        let found = percentile(&text, PERCENTILE).zip(throughput(&text));
        found.map(<[f64; 2]>::from).ok_or_else(|| io::Error::other("no percentiles"))
    }

    /// All threads of the server stay on one processor from now on.
    fn pin(&self, cpu: usize) -> io::Result<()> {
        for task in std::fs::read_dir(format!("/proc/{}/task", self.0.id()))? {
            let thread = task?.file_name().to_string_lossy().parse();
            sys::pin_thread(thread.map_err(io::Error::other)?, cpu)?;
        }
        Ok(())
    }
}

/// Requests answered in a second, by what redis-benchmark prints.
fn throughput(text: &str) -> Option<f64> {
    let (_, rest) = text.split_once("throughput summary:")?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fiftieth_is_allowed() {
        let missed = |with: f64| {
            let (mut times, mut verdict) =
                (NamedSamples::default(), SuiteVerdict::new("daemon-latency"));
            times.push(&named(Variant::Without, "other CPU"), 1.0);
            times.push(&named(Variant::Daemon, "other CPU"), with);
            judge(&mut verdict, &times);
            verdict.missed
        };
        assert!(missed(1.02).is_empty());
        assert!(missed(1.05)[0].contains("Q5 other CPU: 1.05 x is not"));
    }

    #[test]
    fn what_redis_benchmark_prints_is_understood() {
        let text =
            "Summary:\n  throughput summary: 83857.44 requests per second\n  latency summary";
        assert_eq!(throughput(text), Some(83857.44));
        assert_eq!(throughput("nothing"), None);
    }

    #[test]
    fn each_variant_has_groups_of_its_own() {
        let groups = Variant::ALL.map(|variant| variant.groups(1, 2));
        assert!(groups[0].is_none() && groups[1] != groups[2]);
        assert!(groups[1].as_ref().is_some_and(|text| text.matches("50%").count() == 2));
    }
}
