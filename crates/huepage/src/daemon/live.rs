//! One group as it runs: its processes under the engine's care, what it announces, how it is watched.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use huepage_color::ColorSet;
use huepage_linux::engine::EngineConfig;
use huepage_linux::kernel::procfs::ProcRoot;
use huepage_policy::coloris::forecast::{Found, curve};
use huepage_policy::coloris::{AppId, Reading};

use super::config::{Settings, ShrinkChoice};
use super::division::OpenedCache;
use super::figures::GroupFigures;
use super::group::{GroupConfig, Portion};
use super::journal::say;
use super::limits::GroupSize;
use super::sense::{GroupSensor, GroupSensors};
use crate::deferred_drop::drop_behind;
use crate::exit::CmdError;
use crate::partition;
use crate::plan::Plan;
use crate::supervise::Supervisor;

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
pub struct EndedTotals {
    /// Pages moved.
    pub recolored: u64,
    /// Faults answered.
    pub faults: u64,
}

/// See the module's head.
pub struct LiveGroup {
    /// What the file says of it.
    pub config: GroupConfig,
    /// Its processes, and what is done for them.
    pub supervisor: Supervisor,
    /// Its colours; all where it has none of its own.
    pub colors: ColorSet,
    /// Whose colours they are.
    pub holder: AppId,
    /// What ended.
    pub ended: EndedTotals,
    /// What was read last.
    pub reading: Option<Reading>,
    /// Instructions in a second when it was read last, where they are counted.
    pub progress: Option<f64>,
    /// What that was made of.
    pages_found: Vec<Found>,
    /// The plan that the supervisor has.
    plan: Plan,
    sensor: Option<GroupSensor>,
    cpu: CpuUsage,
    /// Whether it was said that nobody matches.
    pub lonely: bool,
    /// Names of its processes, as they were taken.
    names: BTreeMap<i32, String>,
    /// Processes that it may have now.
    limit: usize,
    /// When it was said last that others are left alone for that.
    said_full: Option<Instant>,
    /// What was said last of what keeps a service from its work.
    said_trouble: Option<String>,
    /// What becomes of pages in colours that it loses.
    shrink: ShrinkChoice,
}

impl LiveGroup {
    /// Announces a group without processes, and begins to watch it.
    pub fn open(
        config: GroupConfig,
        settings: &Settings,
        opened: &OpenedCache,
        holder: AppId,
        colors: ColorSet,
    ) -> Result<LiveGroup, CmdError> {
        let (plan, prepared) = (config.plan_in(&colors), &opened.prepared);
        let engine = EngineConfig {
            growth: settings.growth.growth(prepared.cache.ways),
            shrink: settings.shrink.shrink(),
            ..partition::engine_config(&plan.partition, colors.clone())
        };
        let mut supervisor = Supervisor::open_part(&plan, prepared, engine, &colors, &config.name)?;
        // They are: nothing is measured later.
        supervisor.group.colors_known_by(Instant::now());
        Ok(LiveGroup {
            supervisor,
            plan,
            colors,
            holder,
            ended: EndedTotals::default(),
            reading: None,
            progress: None,
            pages_found: Vec::new(),
            sensor: sensor(&config, settings, &opened.senses),
            cpu: CpuUsage::default(),
            lonely: false,
            names: BTreeMap::new(),
            limit: 0,
            said_full: None,
            said_trouble: None,
            shrink: settings.shrink,
            config,
        })
    }

    /// Is configured anew; what is as before goes on.
    pub fn reconfigure(
        &mut self,
        config: GroupConfig,
        settings: &Settings,
        opened: &OpenedCache,
    ) -> Result<(), CmdError> {
        let senses = &opened.senses;
        let portion = &config.portion;
        let same = self.sensor.as_ref().map(GroupSensor::name) == name(portion, senses);
        if *portion != self.config.portion || !same {
            drop_behind(self.sensor.take());
            self.sensor = sensor(&config, settings, senses);
            (self.reading, self.progress) = (None, None);
        }
        let group = &mut self.supervisor.group;
        group.grow_by(settings.growth.growth(opened.prepared.cache.ways));
        if settings.shrink != self.shrink {
            self.shrink = settings.shrink;
            group.shrink_by(settings.shrink.shrink());
        }
        let plan = config.plan_in(&self.colors);
        self.supervisor.reconfigure(&self.plan, &plan, &opened.prepared)?;
        (self.config, self.plan, self.lonely) = (config, plan, false);
        self.supervisor.group.forgive();
        Ok(())
    }

    /// Has these colours from now on.
    pub fn retune(&mut self, colors: ColorSet) -> Result<(), CmdError> {
        if colors == self.colors {
            return Ok(());
        }
        self.plan = self.config.plan_in(&colors);
        self.supervisor.retune(&self.plan, &colors)?;
        self.colors = colors;
        if let Some(sensor) = &self.sensor {
            sensor.start_over();
        }
        self.pages_found.clear();
        Ok(())
    }

    /// The file does not name it any more: everybody is let go, in the background.
    pub fn retire(&mut self) {
        self.supervisor.begin_release_all();
        drop_behind(self.sensor.take());
        self.supervisor.drop_services();
        // Nothing is done any more: one that comes back begins anew.
        self.plan = Plan::default();
        (self.reading, self.progress) = (None, None);
    }

    /// Its processes when it was looked at last.
    pub fn members(&self) -> &[i32] {
        self.supervisor.admitted()
    }

    /// What it has and may have of processes by its own limit.
    pub fn size(&self) -> GroupSize {
        GroupSize { most: self.config.max_members, has: self.supervisor.members().len() }
    }

    /// Says now and then that processes are left alone as it may have no more: who comes and goes all the
    /// time is not to fill the log.
    fn note_limit(&mut self) {
        let lately = self.said_full.is_some_and(|at| at.elapsed() < SAY_AGAIN);
        if self.supervisor.group.is_full() && !lately {
            self.said_full = Some(Instant::now());
            say(&format!("{}: {}", self.config.name, self.limit_text()));
        }
    }

    /// Says what keeps a service from its work, when that changes.
    fn note_trouble(&mut self) {
        let trouble = self.supervisor.trouble();
        if let Some(why) = trouble.as_ref().filter(|_| trouble != self.said_trouble) {
            say(&format!("{}: {why}", self.config.name));
        }
        self.said_trouble = trouble;
    }

    /// Says who came and who went; `root` is where they are found.
    fn note_members(&mut self, root: &ProcRoot) {
        let group = &self.config.name;
        let members = self.supervisor.admitted();
        let releasing = self.supervisor.group.releasing();
        let gone = self.names.extract_if(.., |pid, _| !members.contains(pid));
        for (pid, name) in gone {
            let ended = !root.process_exists(pid) && !releasing.contains(&pid);
            let fate = if ended { "ended" } else { "was released" };
            say(&format!("{group}: {pid} {name} {fate}"));
        }
        for &pid in members {
            if let Entry::Vacant(place) = self.names.entry(pid) {
                let name = place.insert(root.comm(pid).unwrap_or_default());
                say(&format!("{group}: took {pid} {name}"));
            }
        }
    }

    fn limit_text(&self) -> String {
        let limit = self.limit;
        format!("{limit} processes are all that max_members allows; further ones are left alone")
    }

    /// Looks after its processes, of which it may have so many; whether others are in it now.
    pub fn tend(&mut self, limit: usize, root: &ProcRoot) -> Result<bool, CmdError> {
        self.limit = limit;
        self.supervisor.group.set_limit(limit);
        let changed = self.supervisor.tick()?;
        self.note_limit();
        self.note_trouble();
        let ended = self.supervisor.group.take_ended();
        for member in &ended.members {
            self.ended.recolored += member.recolored;
            self.ended.faults += member.faults_served;
        }
        for (pid, why) in ended.missed {
            say(&format!("{}: process {pid} is left alone: {why}", self.config.name));
        }
        if changed {
            self.note_members(root);
        }
        Ok(changed)
    }

    /// How it is doing, if that can be told now: the first is whether anything can, the second is none
    /// where nobody is there.
    pub fn read(&mut self, root: &ProcRoot) -> Option<Option<Reading>> {
        if self.members().is_empty() {
            (self.reading, self.progress) = (None, None);
            return Some(None);
        }
        let share = self.cpu.of(root, self.supervisor.admitted());
        let sensor = self.sensor.as_ref()?;
        let watches = matches!(self.config.portion, Portion::MissRate(_));
        if watches && share? < IDLE {
            // Too few requests to matter count as none that miss (COLORIS, algorithm 1).
            self.reading = Some(Reading { value: 0.0, margin: 0.0 });
            self.progress = None;
            return Some(self.reading);
        }
        sensor.aim(self.cpu.busiest.map(|(pid, _)| pid), self.supervisor.admitted());
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
        let sensor = self.sensor.as_ref().and_then(GroupSensor::trouble);
        let lonely = || self.lonely.then(|| "no process matches".to_owned());
        let full = || self.supervisor.group.is_full().then(|| self.limit_text());
        sensor.or_else(|| self.supervisor.trouble()).or_else(full).or_else(lonely)
    }

    /// Says what is done for it besides, if anything is.
    pub fn introduce(&self) {
        let name = &self.config.name;
        self.intentions().iter().for_each(|line| say(&format!("{name}: {line}")));
    }

    /// What is asked for besides colours, and what will not be done of it; one line each.
    pub fn intentions(&self) -> Vec<String> {
        let refused = self.supervisor.reports().no_superpages;
        let refused = refused.map(|why| format!("no superpages are built: {why}"));
        self.config.plan.lines().into_iter().chain(refused).collect()
    }

    /// What was done for it besides, one line each.
    pub fn notes(&self) -> Vec<String> {
        let name = &self.config.name;
        let buffer = self.supervisor.buffer().zip(self.buffer_pages());
        let buffer = buffer.map(|(colors, [all, inside])| {
            format!("{inside} of {all} polluting pages in the buffer, colours {colors}")
        });
        let untouched = self.untouched().filter(|&pages| pages > 0);
        let untouched = untouched.map(|n| format!("{n} pages left outside until touched"));
        let eager = self.eager().map(|why| format!("colours are not left lazily: {why}"));
        let releasing = self.supervisor.group.releasing();
        let releasing =
            releasing.iter().map(|pid| format!("process {pid} is let go when it goes on"));
        let done = self.supervisor.reports().summary().into_iter();
        let done = done.chain(buffer).chain(untouched).chain(eager).chain(releasing);
        done.map(|line| format!("{name}: {line}")).collect()
    }

    /// Who reads, and the CPU seconds that it took; nobody where nothing is read.
    pub fn read_by(&self) -> Option<(&'static str, f64)> {
        let sensor = self.sensor.as_ref()?;
        Some((sensor.name(), sensor.cost().as_secs_f64()))
    }

    /// Its figures.
    pub fn figures(&self) -> GroupFigures {
        let reports = self.supervisor.reports();
        let [movable_pages, pages_in_colors] = self.pages();
        let superpages = reports.superpages.as_ref();
        let conflicts = reports.conflicts.as_ref();
        let buffer = self.buffer_pages();
        GroupFigures {
            count: self.colors.len(),
            members: self.members().len() as u64,
            reading: self.reading.map(|reading| reading.value),
            reading_margin: self.reading.map(|reading| reading.margin),
            instructions_per_second: self.progress,
            sensor_cpu_seconds: self.read_by().map(|(_, seconds)| seconds),
            movable_pages,
            pages_in_colors,
            untouched: self.untouched(),
            recolored: self.totals().recolored,
            superpages_built: superpages.map(|report| report.promoted),
            superpages_broken: superpages.map(|report| report.demoted),
            polluting_pages: buffer.map(|[all, _]| all),
            buffer_pages: buffer.map(|[_, inside]| inside),
            conflict_pages: conflicts
                .map(|report| report.processes.iter().map(|process| process.recolored).sum()),
            files_placed: reports.page_cache.as_ref().map(|report| report.gate.files),
        }
    }

    /// Movable pages, and those of them in its colours, when they were looked at last.
    fn pages(&self) -> [u64; 2] {
        let census = |&pid: &i32| {
            let status = self.supervisor.group.status(pid)?;
            Some([status.census?.total(), status.buffer.map(|of| of.total()).unwrap_or_default()])
        };
        self.members()
            .iter()
            .filter_map(census)
            .flatten()
            .fold([0, 0], |[all, inside], row| [all + row.movable(), inside + row.inside])
    }

    /// Pages that are to be in the buffer, and those of them that are; none where there is none.
    fn buffer_pages(&self) -> Option<[u64; 2]> {
        self.supervisor.buffer()?;
        let of = |&pid: &i32| Some(self.supervisor.group.status(pid)?.buffer?.total());
        let rows = self.members().iter().filter_map(of);
        Some(rows.fold([0, 0], |[all, inside], row| [all + row.movable(), inside + row.inside]))
    }

    /// Pages that stay in colours that it lost until they are touched; none where no page waits for that.
    fn untouched(&self) -> Option<u64> {
        let of = |&pid: &i32| self.supervisor.group.status(pid).map(|status| status.untouched);
        (self.shrink == ShrinkChoice::Lazy).then(|| self.members().iter().filter_map(of).sum())
    }

    /// The first of its processes whose pages did not wait, and why.
    pub fn eager(&self) -> Option<String> {
        let of = |&pid: &i32| {
            Some(format!("process {pid}: {}", self.supervisor.group.status(pid)?.eager?))
        };
        self.members().iter().find_map(of)
    }

    /// Sums over all its processes.
    fn totals(&self) -> EndedTotals {
        let running = self.members().iter().filter_map(|&pid| self.supervisor.group.status(pid));
        running.fold(self.ended, |sum, status| EndedTotals {
            recolored: sum.recolored + status.recolored,
            faults: sum.faults + status.faults_served,
        })
    }
}

fn sensor(config: &GroupConfig, settings: &Settings, senses: &GroupSensors) -> Option<GroupSensor> {
    match &config.portion {
        Portion::MissRate(_) => Some(senses.sensor(settings.cpu.get_ref() / 100.0)),
        Portion::Metric(metric) if metric.calls.is_some() => {
            Some(GroupSensor::calls(metric.clone()))
        }
        Portion::Metric(metric) => Some(GroupSensor::metric(metric.clone())),
        _ => None,
    }
}

/// How the sensor of a group is called that has its colours so.
fn name(portion: &Portion, senses: &GroupSensors) -> Option<&'static str> {
    match portion {
        Portion::MissRate(_) => Some(senses.name()),
        Portion::Metric(metric) if metric.calls.is_some() => Some(GroupSensor::CALLS),
        Portion::Metric(_) => Some(GroupSensor::COMMAND),
        _ => None,
    }
}

/// CPU time of processes, to find the busiest.
#[derive(Debug, Default)]
struct CpuUsage {
    /// Ticks of each when they were looked at last.
    ticks: HashMap<i32, u64>,
    at: Option<Instant>,
    /// The busiest, with the ticks that it took.
    busiest: Option<(i32, f64)>,
}

impl CpuUsage {
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
        let (root, mut usage) = (ProcRoot(dir.path().to_owned()), CpuUsage::default());
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
