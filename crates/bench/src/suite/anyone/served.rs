//! What huepage costs a service that has settled: redis, PostgreSQL and nginx under load, in half of the colours and let
//! go, in turns. Both times it is the same processes, whose pages were brought into the same colours before, so that
//! nothing differs but whether huepage is there. The service runs on one CPU, who asks on another.

use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;

use super::services::{Place, SERVICES, Service, members};
use super::{COMPLIANT, LONGEST, Matrix};
use crate::harness::{Bench, NamedSamples, Suite, SuiteFigures, bounded, interleaved, wanted};
use crate::observe;
use crate::verdict::SuiteVerdict;

/// How many of the services are measured: the first.
const MEASURED: usize = 3;
/// Where the service runs, and where who asks.
const CPUS: [&str; 2] = ["0", "1"];
/// Longest wait for its pages to be in their colours, and for nothing to be done for it any more.
const SETTLED: Duration = Duration::from_secs(120);

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct ServiceCost {
    /// Only this service; may be repeated
    #[arg(long)]
    pub only: Vec<String>,
    /// Pairs of measurements of each service
    #[arg(long, default_value_t = 10)]
    pub rounds: usize,
    /// Seconds of a measurement
    #[arg(long, default_value_t = 30)]
    pub seconds: u32,
    /// Seconds of load before each
    #[arg(long, default_value_t = 10)]
    pub before: u32,
}

impl Suite for ServiceCost {
    const FIGURES: SuiteFigures = &[(
        "P30",
        &[
            "postgresql rate",
            "postgresql p99",
            "redis rate",
            "redis p99",
            "nginx rate",
            "nginx p99",
        ],
    )];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let matrix = Matrix { huepage: bench.huepage, with: bench.options };
        let mut samples = NamedSamples::default();
        for service in SERVICES[..MEASURED].iter().filter(|one| wanted(&self.only, one.name)) {
            match matrix.served(service, self, &mut samples) {
                Ok(true) => judge(verdict, service.name, &samples),
                Ok(false) => {
                    let what = service.name;
                    verdict.skip(format!(
                        "{what} or its client is not installed; run scripts/setup-programs.sh --services"
                    ));
                }
                Err(error) => verdict.miss(format!("{}: {error}", service.name)),
            }
        }
        samples.rows(verdict, "requests/s, ms");
        Ok(())
    }
}

/// Whether huepage is there.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    LetGo,
    Settled,
}

impl Way {
    const ALL: [Way; 2] = [Way::LetGo, Way::Settled];

    /// The name of what is measured of a service this way.
    fn name(self, service: &str, what: &str) -> String {
        let way = if self == Way::Settled { "settled" } else { "let go" };
        format!("{service}, {way}, {what}")
    }
}

/// The figures of a service: settled over let go, pair by pair.
fn judge(verdict: &mut SuiteVerdict, service: &str, samples: &NamedSamples) {
    for what in ["rate", "p99"] {
        let [let_go, settled] = Way::ALL.map(|way| way.name(service, what));
        verdict.figure("P30", &format!("{service} {what}"), &samples.ratios(&settled, &let_go));
    }
}

/// Requests a second and the time that 99 of 100 take at most, in ms, as a script prints them.
fn parse(text: &str) -> Option<[f64; 2]> {
    let mut numbers = text.split_whitespace().map(|word| word.parse::<f64>().ok());
    let found = [numbers.next()??, numbers.next()??];
    (numbers.next().is_none() && found.iter().all(|number| *number > 0.0)).then_some(found)
}

impl Matrix<'_> {
    /// Measures a service; false where it cannot run here.
    fn served(
        &self,
        service: &Service,
        setting: &ServiceCost,
        samples: &mut NamedSamples,
    ) -> io::Result<bool> {
        let place = Place::new(service)?;
        if !place.does("needs")? || !place.does("clients")? {
            return Ok(false);
        }
        place.call("prepare", 0)?;
        let mut leader = place.start(&["taskset", "-c", CPUS[0]].map(str::to_owned))?;
        place.load()?.end(LONGEST)?;
        // Its clients are there from now on, and their processes settle with the others.
        measured(&place, &ServiceCost { seconds: 1, ..setting.clone() })?;
        let mut settled = false;
        self.settle(leader.id())?;
        self.let_go(leader.id())?;
        interleaved(setting.rounds, Way::ALL, |way| {
            if (way == Way::Settled) != settled {
                settled = way == Way::Settled;
                if settled { self.settle(leader.id())? } else { self.let_go(leader.id())? }
            }
            let [rate, p99] = measured(&place, setting)?;
            samples.push(&way.name(service.name, "rate"), rate);
            samples.push(&way.name(service.name, "p99"), p99);
            Ok(())
        })?;
        self.let_go(leader.id())?;
        place.stop(&mut leader)?;
        Ok(true)
    }

    /// Confines a service to half of the colours, and waits until its pages are there and it rests.
    fn settle(&self, leader: u32) -> io::Result<()> {
        let mut attach = self.huepage.command(["attach", "--quiet", "--share", "50%"]);
        bounded(attach.args(self.with).arg(leader.to_string()), LONGEST)?
            .done()
            .map_err(io::Error::other)?;
        let started = Instant::now();
        while !members(self, leader, true).into_iter().all(|pid| self.is_settled(pid)) {
            if started.elapsed() > SETTLED {
                return Err(io::Error::other(format!("it has not settled after {SETTLED:?}")));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// Whether its pages are inside, and its supervisor has nothing to do for it.
    fn is_settled(&self, pid: u32) -> bool {
        let inspection = self.huepage.inspect(pid).unwrap_or_default();
        let found = observe::confined(pid, &inspection);
        found.is_some_and(|(_, share)| share >= COMPLIANT)
            && inspection["engine"]["resting"] == true
    }

    /// Releases all its processes. Of those that come and go some are released already, so that what counts is that
    /// none is confined after it.
    fn let_go(&self, leader: u32) -> io::Result<()> {
        for pid in members(self, leader, true) {
            bounded(self.huepage.command(["detach"]).arg(pid.to_string()), LONGEST)?;
        }
        let confined = |pid: &u32| {
            observe::confined(*pid, &self.huepage.inspect(*pid).unwrap_or_default()).is_some()
        };
        match members(self, leader, true).iter().find(|pid| confined(pid)) {
            Some(pid) => Err(io::Error::other(format!("process {pid} is still confined"))),
            None => Ok(()),
        }
    }
}

/// One measurement.
fn measured(place: &Place, setting: &ServiceCost) -> io::Result<[f64; 2]> {
    let mut command = Command::new("taskset");
    command.args(["-c", CPUS[1]]).args(place.words("measure"));
    command.env("BEFORE", setting.before.to_string());
    command.env("SECONDS_LONG", setting.seconds.to_string());
    let end = bounded(place.dress(&mut command, 0), LONGEST)?;
    parse(&end.text()).ok_or_else(|| io::Error::other(format!("no figures: {end}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_numbers_are_what_a_script_prints() {
        assert_eq!(parse("1234.5 0.25\n"), Some([1234.5, 0.25]));
        for text in ["", "12", "12 x", "1 2 3", "0 1"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_service_that_settled_is_compared_with_itself_let_go() {
        let mut samples = NamedSamples::default();
        for (way, rates, times) in
            [(Way::LetGo, [100.0, 200.0], [1.0, 2.0]), (Way::Settled, [99.0, 200.0], [1.1, 2.0])]
        {
            rates.iter().for_each(|&rate| samples.push(&way.name("redis", "rate"), rate));
            times.iter().for_each(|&time| samples.push(&way.name("redis", "p99"), time));
        }
        let mut verdict = SuiteVerdict::new("served");
        judge(&mut verdict, "redis", &samples);
        judge(&mut verdict, "nginx", &samples);
        let given: Vec<_> =
            verdict.figures.iter().map(|own| (own.of.as_str(), own.figure)).collect();
        assert_eq!(given, [("redis rate", 0.995), ("redis p99", 1.05)]);
        assert_eq!(verdict.missed, ["P30 redis p99: 1.05 x is not <= 1.01 x"]);
    }
}
