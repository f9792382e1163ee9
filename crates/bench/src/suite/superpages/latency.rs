//! What promoting does to latency: redis under redis-benchmark, first without large pages, then
//! while huepage, attached just before, builds them; and the longest stall of a thread that wakes
//! every 100 us. The second is reported only: a virtual machine and its neighbours stall it too.

use std::io;
use std::time::Duration;

use clap::Args;

use super::programs::{held, workload};
use super::redis::{self, RedisServer, percentile};
use super::target::{LargePages, wished};
use super::{SuperpageBench, SuperpageSetup, with_large_pages};
use crate::harness::{Bench, NamedSamples, Suite, SuiteFigures, interleaved, word};
use crate::launch::Captured;
use crate::superpages::heartbeat::HeartbeatResult;
use crate::sys;
use crate::verdict::SuiteVerdict;

/// Requests of which the latency is promised to grow little, in per cent.
const PERCENTILE: f64 = 99.9;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct SuperpageLatency {
    /// Values of redis, in MiB of its memory; 0 leaves redis out
    #[arg(long, default_value_t = 2048)]
    pub redis_mib: usize,
    /// Requests of a measurement
    #[arg(long, default_value_t = 500_000)]
    pub requests: usize,
    /// Table beside the heartbeat, in MiB
    #[arg(long, default_value_t = 512)]
    pub mib: usize,
    /// Seconds of the heartbeat; 0 leaves it out
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Repetitions
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// How huepage is asked for superpages.
    #[command(flatten)]
    pub wish: SuperpageSetup,
}

const WITHOUT: &str = "redis p99.9 without";
const DURING: &str = "redis p99.9 while promoting";
const BUILT: &str = "redis in large pages then";

impl Suite for SuperpageLatency {
    const FIGURES: SuiteFigures = &[("U5", &[""])];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        with_large_pages(bench, &self.wish, verdict, |bench, verdict| {
            all(verdict, bench, self);
            Ok(())
        })
    }
}

fn all(verdict: &mut SuiteVerdict, bench: SuperpageBench<'_>, setting: &SuperpageLatency) {
    let (mut times, mut pages) = (NamedSamples::default(), NamedSamples::default());
    let obstacle = redis::obstacle().filter(|_| setting.redis_mib > 0);
    if setting.redis_mib > 0 && obstacle.is_none() {
        let one = |()| redis_round(bench, setting, &mut times, &mut pages);
        verdict.attempt("redis", interleaved(setting.rounds, [()], one));
    }
    if setting.seconds > 0.0 {
        let variants = [LargePages::Never, LargePages::Always, LargePages::Huepage];
        let one = |variant| beat(bench, setting, variant, &mut times);
        verdict.attempt("heartbeat", interleaved(setting.rounds, variants, one));
    }
    if let Some(why) = obstacle {
        verdict.skip(why);
    }
    times.rows(verdict, "ms");
    pages.rows(verdict, "MiB");
    judge(verdict, &times, &pages);
}

fn judge(verdict: &mut SuiteVerdict, times: &NamedSamples, pages: &NamedSamples) {
    let growth = times.ratios(DURING, WITHOUT);
    if growth.is_empty() {
        return;
    }
    verdict.figure("U5", "", &growth);
    // Where nothing was built, nothing was measured.
    verdict.require(pages.median(BUILT) > 0.0, || "nothing was promoted in redis".to_owned());
}

/// The same server without and then with huepage; what it has been read for warms it.
fn redis_round(
    bench: SuperpageBench<'_>,
    setting: &SuperpageLatency,
    times: &mut NamedSamples,
    pages: &mut NamedSamples,
) -> io::Result<()> {
    let server = RedisServer::start(bench, LargePages::Never, setting.redis_mib)?;
    let latency = || {
        let text = server.read(setting.requests, &[])?;
        percentile(&text, PERCENTILE).ok_or_else(|| io::Error::other("no percentiles"))
    };
    latency()?;
    times.push(WITHOUT, latency()?);
    bench.thp.set(&bench.wish.beside)?;
    let attached = attach(bench, server.pid)?;
    times.push(DURING, latency()?);
    pages.push(BUILT, server.memory()?.huge_mib());
    // As Ctrl-C does, so that it leaves in good order.
    sys::kill(attached.id(), libc::SIGINT)?;
    attached.end(Duration::from_secs(2))?;
    server.end().map(|_| ())
}

/// huepage, attached and in the foreground.
fn attach(bench: SuperpageBench<'_>, pid: u32) -> io::Result<Captured> {
    let mut command = bench.huepage.command(["attach", "--foreground", "--quiet"]);
    let mut attached = Captured::start(command.args(wished(bench)).arg(pid.to_string()))?;
    std::thread::sleep(Duration::from_millis(100));
    if attached.alive() {
        return Ok(attached);
    }
    Err(io::Error::other(format!("attach ended: {}", attached.wait()?.last())))
}

fn beat(
    bench: SuperpageBench<'_>,
    setting: &SuperpageLatency,
    variant: LargePages,
    times: &mut NamedSamples,
) -> io::Result<()> {
    let command = workload("heartbeat", "--mib", setting.mib, setting.seconds)?;
    let found: HeartbeatResult = held(bench, variant, &command)?.found;
    let name = |what: &str| format!("heartbeat, {what}: {}", word(variant));
    times.push(&name("longest stall"), found.longest_us / 1e3);
    times.push(&name("p99.9"), found.p999_us / 1e3);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missed(during: f64, built: f64) -> Vec<String> {
        let (mut times, mut pages) = (NamedSamples::default(), NamedSamples::default());
        times.push(WITHOUT, 2.0);
        times.push(DURING, during);
        pages.push(BUILT, built);
        let mut verdict = SuiteVerdict::new("superpage-latency");
        judge(&mut verdict, &times, &pages);
        verdict.missed
    }

    #[test]
    fn latency_may_grow_a_little_and_something_must_be_built() {
        assert!(missed(2.3, 100.0).is_empty());
        assert!(missed(2.5, 100.0)[0].contains("U5: 1.25 x is not <= 1.2 x"));
        assert!(missed(2.0, 0.0)[0].contains("nothing was promoted"));
    }
}
