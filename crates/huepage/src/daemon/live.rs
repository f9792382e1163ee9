//! One group as it runs: its processes under the engine's care, what it announces, how it is watched.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use huepage_color::ColorSet;
use huepage_linux::engine::{Config, Group};
use huepage_linux::procfs::{ProcRoot, ProcessHandle};
use huepage_linux::registry::Registration;
use huepage_policy::qos::utility::{Found, curve};
use huepage_policy::qos::{GroupId, Reading};

use super::config::{GroupConfig, Leaving, Portion, Settings};
use super::helpers::Helpers;
use super::journal::say;
use super::limits::Use;
use super::pending::drop_behind;
use super::plan::Opened;
use super::sense::{Senses, Sensor};
use crate::exit::CmdError;
use crate::partition::internal;

/// Ticks of CPU time in a second, as `/proc` counts them on x86.
const TICKS: f64 = 100.0;
/// A group whose processes take less of a CPU than this does not use the cache.
const IDLE: f64 = 0.01;
/// Another process is watched once it is so much busier.
const BUSIER: f64 = 1.5;

/// That a group is full is said again after this time.
const SAY_AGAIN: Duration = Duration::from_secs(300);

/// Sums over processes that have ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Pages moved.
    pub recolored: u64,
    /// Faults answered.
    pub faults: u64,
}

/// See the module's head.
pub struct Live {
    /// What the file says of it.
    pub config: GroupConfig,
    /// Its processes.
    pub group: Group,
    /// Its colours.
    pub colors: ColorSet,
    /// Of these, those that are kept for pages that pollute.
    pub buffer: Option<ColorSet>,
    /// Whose colours they are.
    pub holder: GroupId,
    /// Its processes when it was looked at last.
    pub members: Vec<i32>,
    /// What ended.
    pub ended: Totals,
    /// What was read last.
    pub reading: Option<Reading>,
    /// Instructions in a second when it was read last, where they are counted.
    pub progress: Option<f64>,
    /// What that was made of.
    pages_found: Vec<Found>,
    /// What is done for it besides.
    pub helpers: Helpers,
    registration: Registration,
    sensor: Option<Sensor>,
    cpu: Usage,
    /// Whether it was said that nobody matches.
    pub lonely: bool,
    /// Processes that it may have now.
    limit: usize,
    /// When it was said last that others are left alone for that.
    said_full: Option<Instant>,
    /// What becomes of pages in colours that it loses.
    shrink: Leaving,
}

impl Live {
    /// Announces a group without processes, and begins to watch it.
    pub fn open(
        config: GroupConfig,
        settings: &Settings,
        opened: &Opened,
        holder: GroupId,
        colors: ColorSet,
    ) -> Result<Live, CmdError> {
        let (rest, buffer) = config.extras.divided(&colors, None);
        let growth = settings.growth.growth(opened.cache.ways);
        let shrink = settings.shrink.shrink();
        let ours = opened.engine.clone();
        let engine = Config { colors: rest, buffer: buffer.clone(), growth, shrink, ..ours };
        let group = Group::new(engine, opened.source.another());
        let (level, how) = (opened.cache.level, opened.provenance);
        let registered = opened.registry.register_part(level, how, colors.clone(), &config.name);
        let sensor = sensor(&config, settings, &opened.senses);
        let helpers = Helpers::start(&config, opened, group.desk(), &colors);
        Ok(Live {
            group,
            buffer,
            helpers,
            colors,
            holder,
            members: Vec::new(),
            ended: Totals::default(),
            reading: None,
            progress: None,
            pages_found: Vec::new(),
            registration: registered.map_err(internal)?,
            sensor,
            cpu: Usage::default(),
            lonely: false,
            limit: 0,
            said_full: None,
            shrink: settings.shrink,
            config,
        })
    }

    /// Is told otherwise from now on.
    pub fn reconfigure(&mut self, config: GroupConfig, settings: &Settings, opened: &Opened) {
        let senses = &opened.senses;
        let portion = &config.portion;
        let same = self.sensor.as_ref().map(Sensor::name) == name(portion, senses);
        if *portion != self.config.portion || !same {
            drop_behind(self.sensor.take());
            self.sensor = sensor(&config, settings, senses);
            (self.reading, self.progress) = (None, None);
        }
        self.group.grow_by(settings.growth.growth(opened.cache.ways));
        if settings.shrink != self.shrink {
            self.shrink = settings.shrink;
            self.group.shrink_by(settings.shrink.shrink());
        }
        if config.extras.buffer != self.config.extras.buffer {
            // What is in it was chosen by somebody who is told otherwise now.
            self.buffer = None;
            self.group.rebuffer(None);
        }
        self.helpers.reconfigure(&config, &self.colors, &self.members);
        (self.config, self.lonely) = (config, false);
        self.divide();
        self.group.forgive();
    }

    /// Has the engine divide the colours as the file says.
    fn divide(&mut self) {
        let (rest, buffer) = self.config.extras.divided(&self.colors, self.buffer.as_ref());
        self.group.retune(rest);
        if buffer != self.buffer {
            self.group.rebuffer(buffer.clone());
            self.buffer = buffer;
        }
    }

    /// Has these colours from now on.
    pub fn retune(&mut self, colors: ColorSet) -> Result<(), CmdError> {
        if colors == self.colors {
            return Ok(());
        }
        self.registration.set_colors(colors.clone()).map_err(internal)?;
        self.helpers.recolor(&colors);
        self.colors = colors;
        self.divide();
        if let Some(sensor) = &self.sensor {
            sensor.start_over();
        }
        self.pages_found.clear();
        Ok(())
    }

    /// The file does not name it any more: everybody is let go, in the background.
    pub fn retire(&mut self) {
        self.group.begin_release_all();
        self.group.invite(Vec::new());
        drop_behind(self.sensor.take());
        self.helpers.end();
        (self.reading, self.progress) = (None, None);
    }

    /// What it has and may have of processes by its own limit.
    pub fn size(&self) -> Use {
        let has = self.group.pids().len() + self.group.releasing().len();
        Use { most: self.config.max_members, has }
    }

    /// Has these processes taken as they come.
    pub fn invite(&mut self, processes: Vec<ProcessHandle>) {
        self.group.invite(processes.into_iter().map(Arc::new).collect());
    }

    /// Says now and then that processes are left alone as it may have no more: who comes and goes all the
    /// time is not to fill the log.
    fn note_limit(&mut self) {
        let lately = self.said_full.is_some_and(|at| at.elapsed() < SAY_AGAIN);
        if self.group.is_full() && !lately {
            self.said_full = Some(Instant::now());
            say(&format!("{}: {}", self.config.name, self.limit_text()));
        }
    }

    fn limit_text(&self) -> String {
        let limit = self.limit;
        format!("{limit} processes are all that max_members allows; further ones are left alone")
    }

    /// Looks after its processes, of which it may have so many; whether others are in it now.
    pub fn tend(&mut self, limit: usize) -> Result<bool, CmdError> {
        self.limit = limit;
        self.group.set_limit(limit);
        self.group.tend();
        self.note_limit();
        self.helpers.tend(&mut self.group, &self.members);
        let ended = self.group.take_ended();
        for member in &ended.members {
            self.ended.recolored += member.recolored;
            self.ended.faults += member.faults_served;
        }
        for (pid, why) in ended.missed {
            say(&format!("{}: process {pid} is left alone: {why}", self.config.name));
        }
        let members = self.group.pids();
        // Nobody else may take those that an agent of ours is still in.
        let held = members.iter().copied().chain(self.group.releasing()).collect();
        self.registration.set_members(held).map_err(internal)?;
        if members == self.members {
            return Ok(false);
        }
        self.helpers.set_members(&members);
        self.members = members;
        Ok(true)
    }

    /// How it is doing, if that can be told now: the first is whether anything can, the second is none
    /// where nobody is there.
    pub fn read(&mut self, root: &ProcRoot) -> Option<Option<Reading>> {
        if self.members.is_empty() {
            (self.reading, self.progress) = (None, None);
            return Some(None);
        }
        let share = self.cpu.of(root, &self.members);
        let sensor = self.sensor.as_ref()?;
        let watches = matches!(self.config.portion, Portion::MissRate(_));
        if watches && share? < IDLE {
            // Too few requests to matter count as none that miss (COLORIS, algorithm 1).
            self.reading = Some(Reading { value: 0.0, margin: 0.0 });
            self.progress = None;
            return Some(self.reading);
        }
        sensor.aim(self.cpu.busiest.map(|(pid, _)| pid), &self.members);
        let sensed = sensor.take()?;
        (self.reading, self.pages_found) = (Some(sensed.reading), sensed.pages);
        self.progress = sensed.progress;
        Some(self.reading)
    }

    /// Miss rates by the number of colours, as foretold from what was read since it was asked last.
    pub fn foretold(&mut self) -> Option<Vec<f64>> {
        let pages = std::mem::take(&mut self.pages_found);
        curve(&pages, self.colors.len(), self.colors.universe())
    }

    /// Why it cannot be told how it is doing, or who is missing.
    pub fn trouble(&self) -> Option<String> {
        let sensor = self.sensor.as_ref().and_then(Sensor::trouble);
        let lonely = || self.lonely.then(|| "no process matches".to_owned());
        let full = || self.group.is_full().then(|| self.limit_text());
        sensor.or_else(|| self.helpers.trouble()).or_else(full).or_else(lonely)
    }

    /// Says what is done for it besides, if anything is.
    pub fn introduce(&self) {
        let name = &self.config.name;
        self.helpers.intentions().iter().for_each(|line| say(&format!("{name}: {line}")));
    }

    /// What was done for it besides, one line each.
    pub fn besides(&self) -> Vec<String> {
        let name = &self.config.name;
        let buffer =
            self.buffer.as_ref().zip(self.buffer_pages()).map(|(colors, [all, inside])| {
                format!("{inside} of {all} polluting pages in the buffer, colours {colors}")
            });
        let untouched = self.untouched().filter(|&pages| pages > 0);
        let untouched = untouched.map(|n| format!("{n} pages left outside until touched"));
        let eager = self.eager().map(|why| format!("colours are not left lazily: {why}"));
        let releasing = self.group.releasing();
        let releasing =
            releasing.iter().map(|pid| format!("process {pid} is let go when it goes on"));
        let done = self.helpers.done().into_iter().chain(buffer).chain(untouched).chain(eager);
        let done = done.chain(releasing);
        done.map(|line| format!("{name}: {line}")).collect()
    }

    /// Who reads, and the CPU seconds that it took; nobody where nothing is read.
    pub fn read_by(&self) -> Option<(&'static str, f64)> {
        let sensor = self.sensor.as_ref()?;
        Some((sensor.name(), sensor.cost().as_secs_f64()))
    }

    /// Movable pages, and those of them in its colours, when they were looked at last.
    pub fn pages(&self) -> [u64; 2] {
        let census = |&pid: &i32| {
            let status = self.group.status(pid)?;
            Some([status.census?.total(), status.buffer.map(|of| of.total()).unwrap_or_default()])
        };
        self.members
            .iter()
            .filter_map(census)
            .flatten()
            .fold([0, 0], |[all, inside], row| [all + row.movable(), inside + row.inside])
    }

    /// Pages that are to be in the buffer, and those of them that are; none where there is none.
    pub fn buffer_pages(&self) -> Option<[u64; 2]> {
        self.buffer.as_ref()?;
        let of = |&pid: &i32| Some(self.group.status(pid)?.buffer?.total());
        let rows = self.members.iter().filter_map(of);
        Some(rows.fold([0, 0], |[all, inside], row| [all + row.movable(), inside + row.inside]))
    }

    /// Pages that stay in colours that it lost until they are touched; none where no page waits for that.
    pub fn untouched(&self) -> Option<u64> {
        let of = |&pid: &i32| self.group.status(pid).map(|status| status.untouched);
        (self.shrink == Leaving::Lazy).then(|| self.members.iter().filter_map(of).sum())
    }

    /// The first of its processes whose pages did not wait, and why.
    pub fn eager(&self) -> Option<String> {
        let of = |&pid: &i32| Some(format!("process {pid}: {}", self.group.status(pid)?.eager?));
        self.members.iter().find_map(of)
    }

    /// Sums over all its processes.
    pub fn totals(&self) -> Totals {
        let running = self.members.iter().filter_map(|&pid| self.group.status(pid));
        running.fold(self.ended, |sum, status| Totals {
            recolored: sum.recolored + status.recolored,
            faults: sum.faults + status.faults_served,
        })
    }
}

fn sensor(config: &GroupConfig, settings: &Settings, senses: &Senses) -> Option<Sensor> {
    match &config.portion {
        Portion::MissRate(_) => Some(senses.sensor(settings.cpu.get_ref() / 100.0)),
        Portion::Metric(metric) if metric.calls.is_some() => Some(Sensor::calls(metric.clone())),
        Portion::Metric(metric) => Some(Sensor::metric(metric.clone())),
        _ => None,
    }
}

/// How the sensor of a group is called that has its colours so.
fn name(portion: &Portion, senses: &Senses) -> Option<&'static str> {
    match portion {
        Portion::MissRate(_) => Some(senses.name()),
        Portion::Metric(metric) if metric.calls.is_some() => Some(Sensor::CALLS),
        Portion::Metric(_) => Some(Sensor::COMMAND),
        _ => None,
    }
}

/// CPU time of processes, to find the busiest.
#[derive(Debug, Default)]
struct Usage {
    /// Ticks of each when they were looked at last.
    ticks: HashMap<i32, u64>,
    at: Option<Instant>,
    /// The busiest, with the ticks that it took.
    busiest: Option<(i32, f64)>,
}

impl Usage {
    /// CPUs that these processes kept busy since the last time; none the first time.
    fn of(&mut self, root: &ProcRoot, pids: &[i32]) -> Option<f64> {
        let now: HashMap<i32, u64> = pids
            .iter()
            .filter_map(|&pid| root.stat(pid).ok().map(|stat| (pid, stat.utime + stat.stime)))
            .collect();
        let took = |pid: &i32, ticks: u64| {
            ticks.saturating_sub(self.ticks.get(pid).copied().unwrap_or(ticks)) as f64
        };
        let spent: Vec<(i32, f64)> = now.iter().map(|(pid, &t)| (*pid, took(pid, t))).collect();
        let most = spent.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
        let old = self.busiest.and_then(|(pid, _)| spent.iter().find(|of| of.0 == pid).copied());
        self.busiest = match (old, most) {
            (Some(old), Some(most)) if most.1 <= old.1 * BUSIER => Some(old),
            (_, most) => most,
        };
        let all: f64 = spent.iter().map(|of| of.1).sum();
        let seconds = self.at.replace(Instant::now()).map(|at| at.elapsed().as_secs_f64());
        self.ticks = now;
        seconds.map(|seconds| all / TICKS / seconds.max(1e-3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(dir: &std::path::Path, pid: i32, ticks: u64) {
        let of = dir.join(pid.to_string());
        std::fs::create_dir_all(&of).unwrap();
        let rest = "0 ".repeat(30);
        let line = format!("{pid} (x) R 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 {rest}\n");
        std::fs::write(of.join("stat"), line).unwrap();
    }

    #[test]
    fn the_busiest_is_kept_until_another_is_much_busier() {
        let dir = tempfile::tempdir().unwrap();
        let (root, mut usage) = (ProcRoot(dir.path().to_owned()), Usage::default());
        let mut look = |ticks: [u64; 2]| {
            put(dir.path(), 7, ticks[0]);
            put(dir.path(), 8, ticks[1]);
            let share = usage.of(&root, &[7, 8, 9]);
            (share.is_some(), usage.busiest.map(|(pid, _)| pid))
        };
        assert_eq!(look([1000, 50]), (false, Some(7)));
        assert_eq!(look([1010, 62]), (true, Some(7)));
        assert_eq!(look([1020, 82]), (true, Some(8)));
        assert_eq!(look([1034, 92]), (true, Some(8)));
    }
}
