//! The thread that watches one process for polluting pages: looks, counts, asks the policy and writes
//! its requests into the slot. `sensor` is what it sees with. Ends with the process, or when told to.

use std::time::{Duration, Instant};

use huepage_color::PAGE_BYTES;
use huepage_policy::rocs::weighed::{ConfinementStep, Weighed};

use super::Settings;
use super::request::{ConfineRequest, RequestSlot};
use super::sensor::{PollutionSensor, PollutionSensorError, PollutionSensors};
use crate::kernel::process_memory::thread_time;
use crate::kernel::procfs::{ProcRoot, program_of};

struct Watcher<'a> {
    slot: &'a RequestSlot,
    sensor: Box<dyn PollutionSensor>,
    policy: Weighed,
    began: Instant,
    /// What it executes.
    program: Option<(u64, u64)>,
    /// A profile is being made.
    profiling: bool,
    /// CPU time at the last estimate.
    counted: Duration,
    /// A request is being carried out.
    waiting: bool,
}

/// Watches until the process ends or `slot` says so; whether it goes on as another program.
pub(super) fn run(
    pid: i32,
    settings: &Settings,
    sensors: &PollutionSensors,
    slot: &RequestSlot,
) -> bool {
    let name = ProcRoot::default().status(pid).map(|s| s.name).unwrap_or_default();
    slot.change(|report| report.name = name);
    if let Some(ranges) = &settings.fixed {
        hold(ranges, slot);
        return false;
    }
    let program = program_of(pid);
    let result = sensors.open_for(pid, settings).and_then(|(sensor, because)| {
        slot.change(|report| {
            sensor.kind().text().clone_into(&mut report.sensor);
            (report.sensor_detail, report.sensor_because) = (sensor.detail(), because);
        });
        Watcher::new(slot, sensor, settings, program).care(pid)
    });
    let replaced = !slot.is_stopped() && program.is_some() && is_another(pid, program);
    if let Err(error) = &result {
        let gone = error.is_gone() || !ProcRoot::default().process_exists(pid);
        let what = if gone { "it ended".to_owned() } else { error.to_string() };
        slot.change(|report| report.stage = if gone { "ended".to_owned() } else { what.clone() });
        slot.log_decision(0.0, what);
    }
    replaced && ProcRoot::default().process_exists(pid)
}

/// Whether the process executes another program than that; one that ends executes none.
fn is_another(pid: i32, program: Option<(u64, u64)>) -> bool {
    program_of(pid).is_some_and(|now| Some(now) != program)
}

/// What is confined is said, not found.
fn hold(ranges: &[(u64, u64)], slot: &RequestSlot) {
    slot.change(|report| "confined as asked".clone_into(&mut report.stage));
    slot.post(ConfineRequest { ranges: ranges.to_vec(), elsewhere: Vec::new() });
    while !slot.is_stopped() {
        if let Some(Err(why)) = slot.take_answer() {
            slot.change(|report| report.stage = why);
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl<'a> Watcher<'a> {
    fn new(
        slot: &'a RequestSlot,
        sensor: Box<dyn PollutionSensor>,
        settings: &Settings,
        program: Option<(u64, u64)>,
    ) -> Watcher<'a> {
        let policy = Weighed::new(settings.policy(sensor.kind()));
        let (began, counted) = (Instant::now(), Duration::ZERO);
        let (profiling, waiting) = (false, false);
        Watcher { slot, sensor, policy, began, program, profiling, counted, waiting }
    }

    fn care(&mut self, pid: i32) -> Result<(), PollutionSensorError> {
        while !self.slot.is_stopped() {
            self.sensor.look()?;
            if self.waiting {
                self.hear()?;
            } else if self.profiling {
                self.profile()?;
            } else if self.sensor.ran().saturating_sub(self.counted) >= self.sensor.stretch() {
                if is_another(pid, self.program) {
                    // Nothing that is known is of this program.
                    self.slot.change(|r| "executes another program".clone_into(&mut r.stage));
                    return Ok(());
                }
                self.count()?;
            }
        }
        Ok(())
    }

    /// A stretch of time is over: what it was like goes to the policy.
    fn count(&mut self) -> Result<(), PollutionSensorError> {
        self.counted = self.sensor.ran();
        let wants = self.sensor.count(&mut self.policy)?;
        self.tell();
        self.follow(wants)
    }

    fn follow(&mut self, wants: ConfinementStep) -> Result<(), PollutionSensorError> {
        if wants.moves {
            self.waiting = true;
            let (ranges, elsewhere) = (self.policy.ranges(), self.policy.take_elsewhere());
            let pages: u64 = ranges.iter().map(|(start, end)| (end - start) / PAGE_BYTES).sum();
            let others = match elsewhere.len() {
                0 => String::new(),
                others => format!(", and {others} others to have other colours outside"),
            };
            let stage = self.policy.stage();
            self.note(format!("{pages} pages are to be in the buffer{others}: {stage}"));
            self.slot.post(ConfineRequest { ranges, elsewhere });
        }
        if wants.profile {
            self.sensor.begin_profile()?;
            self.profiling = true;
        }
        Ok(())
    }

    /// Whether the engine has moved pages by now.
    fn hear(&mut self) -> Result<(), PollutionSensorError> {
        let Some(answer) = self.slot.take_answer() else { return Ok(()) };
        self.waiting = false;
        if let Err(why) = &answer {
            self.note(format!("pages cannot be moved: {why}"));
        }
        let wants = self.policy.answered(answer.is_ok());
        self.sensor.forget()?;
        self.counted = self.sensor.ran();
        self.follow(wants)?;
        self.tell_areas();
        Ok(())
    }

    /// Goes on with a profile, until it is over.
    fn profile(&mut self) -> Result<(), PollutionSensorError> {
        let Some(made) = self.sensor.profile(&mut self.policy)? else { return Ok(()) };
        self.profiling = false;
        self.counted = self.sensor.ran();
        self.note(format!("a profile of {}: {}", made.of, self.policy.stage()));
        self.follow(made.wants)?;
        self.tell_areas();
        self.tell();
        Ok(())
    }

    fn note(&self, what: String) {
        self.slot.log_decision(self.began.elapsed().as_secs_f64(), what);
    }

    /// What is known goes into the report.
    fn tell(&self) {
        let (rocs, seconds) = (&self.policy.rocs, self.began.elapsed().as_secs_f64());
        let readings = self.sensor.readings();
        let placed = rocs.stage == huepage_policy::rocs::Stage::Steady && rocs.confined > 0;
        self.slot.change(|report| {
            self.policy.stage().clone_into(&mut report.stage);
            report.fills_per_second = readings.fills_per_second;
            report.miss_rate = readings.miss_rate.map(|(rate, _)| rate);
            report.miss_rate_margin = readings.miss_rate.map(|(_, margin)| margin);
            report.instructions_per_second = readings.instructions_per_second;
            report.instructions_per_cycle = readings.instructions_per_cycle;
            [report.samples, report.samples_lost] = readings.samples;
            report.sampled_miss_rate = readings.sampled_miss_rate.or(report.sampled_miss_rate);
            report.interrupt_seconds = readings.interrupts.as_secs_f64();
            if self.policy.ranges().is_empty() && !self.waiting {
                report.miss_rate_before = report.miss_rate;
            }
            (report.profiles, report.trials) = (rocs.profiles, rocs.trials);
            if placed {
                report.placed_after.get_or_insert(seconds);
            }
            (report.seconds, report.cpu_seconds) = (seconds, thread_time().as_secs_f64());
        });
    }

    /// Which areas are confined, for the report.
    fn tell_areas(&self) {
        let found = self.sensor.areas(&self.policy);
        if !found.is_empty() {
            self.slot.change(|report| report.areas = found);
        }
    }
}
