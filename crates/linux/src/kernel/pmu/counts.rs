//! Counts of one process, in user mode: instructions, cycles, and what the cache of a level was asked for and
//! missed, as one group of events for each thread, so that all four are of the same time. Counters that the
//! kernel shared among more events than there are count for the time when they were away as for the time
//! between two readings when they were there.
//!
//! Where a file of a PMU is named, counts are read there. Which events count a level is a table below. Threads that the process starts are counted, processes are
//! not: they have counts of their own. On hybrid processors the large cores stand for all.

use perf_event::events::Hardware;
use perf_event::{Counter, ReadFormat};

pub use super::count_values::PmuCounts;
use super::event::{Event, PLAIN, Pmu, TYPE_RAW, Which, is_any};
use super::file::{FileCounts, PmuFile};
use super::{NO_PMU, PmuError, Wanted};
use crate::kernel::machine::{CpuModel, CpuidFacts, SysRoot, Vendor};
use crate::kernel::procfs::ProcRoot;
use huepage_color::CacheLevel;

/// Intel's demand reads at the second level, all and those that miss: umask and event, the same from Haswell
/// to Granite Rapids, on large cores.
const INTEL_L2: [u64; 2] = [0xe124, 0x2124];
/// AMD's demand fills of the first level from behind the second, all and those from behind the third: umask
/// and event, the same from Zen 3 on.
const AMD_L3: [u64; 2] = [0x5e43, 0x5c43];
/// How the kernel calls PMUs that have [`INTEL_L2`].
const INTEL_L2_CORES: [&str; 8] = [
    "haswell",
    "broadwell",
    "skylake",
    "icelake",
    "sapphire_rapids",
    "granite_rapids",
    "alderlake",
    "meteorlake",
];

/// What counts a cache here.
#[derive(Clone, Debug)]
pub struct CacheEvents {
    how: Counting,
    text: &'static str,
}

#[derive(Clone, Debug)]
enum Counting {
    /// Events, in the order of [`PmuCounts`].
    Events(Box<[Event; 4]>),
    /// The file of a PMU, for a level.
    File(CacheLevel),
}

impl CacheEvents {
    /// Those of this machine for the cache of a level, which is the last one or not; opens and closes a group
    /// on the calling thread to find out.
    ///
    /// # Errors
    /// [`PmuError::Unsupported`] or [`PmuError::Denied`], with the reason.
    pub fn here(level: CacheLevel, is_last: bool) -> Result<CacheEvents, PmuError> {
        if PmuFile::named(Wanted::Counts)?.is_some() {
            let text = "requests in the file of a PMU";
            return Ok(CacheEvents { how: Counting::File(level), text });
        }
        let model = CpuidFacts::read().model;
        let found = CacheEvents::find(&SysRoot::default(), &model, level, is_last)?;
        let why = |error: &std::io::Error| format!("{} cannot be had here ({error})", found.text);
        let opened = found.events().map(|events| Group::open(events, None)).transpose();
        opened.map_err(|error| PmuError::refused(Wanted::Counts, why, &error))?;
        Ok(found)
    }

    /// What the tables say that there is.
    fn find(
        sys: &SysRoot,
        model: &CpuModel,
        level: CacheLevel,
        is_last: bool,
    ) -> Result<CacheEvents, PmuError> {
        let unsupported = |why: String| PmuError::Unsupported(Wanted::Counts, why);
        if !is_any(sys) {
            return Err(unsupported(NO_PMU.to_owned()));
        }
        let generic = [Hardware::CACHE_REFERENCES, Hardware::CACHE_MISSES].map(Which::Generic);
        let pmu = Pmu::of(sys, "cpu_core").or_else(|| Pmu::of(sys, "cpu"));
        let number = pmu.as_ref().map_or(TYPE_RAW, |pmu| pmu.number);
        let raw = |words: [u64; 2]| words.map(|w| Which::Raw { pmu: number, config: [w, 0, 0] });
        let core = pmu.and_then(|pmu| pmu.text("caps/pmu_name")).unwrap_or_default();
        let known = INTEL_L2_CORES.iter().any(|name| core.starts_with(name));
        let (cache, text) = match (model.vendor, level.0) {
            (Vendor::Intel, _) if is_last => (generic, "requests to the last level"),
            (Vendor::Intel, 2) if known => (raw(INTEL_L2), "demand reads of the L2"),
            // The kernel takes the second level for the cache of these.
            (Vendor::Amd, 2) if model.family >= 0x17 => (generic, "requests to the L2"),
            (Vendor::Amd, 3) if model.family >= 0x19 => (raw(AMD_L3), "demand fills from the L3"),
            _ => {
                return Err(unsupported(format!("no event is known that counts the {level} here")));
            }
        };
        let time = [Hardware::INSTRUCTIONS, Hardware::CPU_CYCLES].map(Which::Generic);
        Ok(CacheEvents::of([time[0], time[1], cache[0], cache[1]], text))
    }

    fn of(all: [Which; 4], text: &'static str) -> CacheEvents {
        let events = Box::new(all.map(|which| Event::new(which, PLAIN)));
        CacheEvents { how: Counting::Events(events), text }
    }

    fn events(&self) -> Option<&[Event; 4]> {
        match &self.how {
            Counting::Events(events) => Some(events),
            Counting::File(_) => None,
        }
    }

    /// What is counted, for a person.
    pub fn text(&self) -> &'static str {
        self.text
    }

    /// What every kernel counts, in place of what a processor does, for tests: nanoseconds of CPU time for
    /// instructions and cycles, page faults for requests that all miss.
    pub fn of_the_kernel() -> CacheEvents {
        let (time, faults) = (Which::TaskTime, Which::PageFaults);
        CacheEvents::of([time, time, faults, faults], "what the kernel counts")
    }
}

/// The counters of one thread and of those it starts.
struct Group {
    leader: Counter,
    rest: [Counter; 3],
    raw: Raw,
}

/// What a group says: counts, with nanoseconds that it was wanted and that it was there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Raw {
    counts: [u64; 4],
    enabled: u64,
    running: u64,
}

impl Raw {
    /// What came since, as if the counters had been there all the time; nothing where they never were.
    fn since(self, before: Raw) -> [f64; 4] {
        let running = self.running.saturating_sub(before.running);
        let enabled = self.enabled.saturating_sub(before.enabled);
        let scale = if running == 0 { 0.0 } else { (enabled as f64 / running as f64).max(1.0) };
        let more = |i: usize| self.counts[i].saturating_sub(before.counts[i]) as f64 * scale;
        std::array::from_fn(more)
    }
}

impl Group {
    /// Of a thread, or of this one.
    fn open(events: &[Event; 4], thread: Option<i32>) -> std::io::Result<Group> {
        let format = ReadFormat::GROUP
            | ReadFormat::ID
            | ReadFormat::TOTAL_TIME_ENABLED
            | ReadFormat::TOTAL_TIME_RUNNING;
        let builder = |event: &Event| {
            let mut builder = event.counter();
            match thread {
                Some(thread) => builder.observe_pid(thread).inherit(true).inherit_thread(true),
                None => builder.observe_self(),
            };
            builder.any_cpu().read_format(format);
            builder
        };
        let [first, second, third, fourth] = events.each_ref().map(builder);
        let mut leader = first.build()?;
        let mut rest = [
            second.build_with_group(&mut leader)?,
            third.build_with_group(&mut leader)?,
            fourth.build_with_group(&mut leader)?,
        ];
        rest.iter_mut().try_for_each(Counter::enable)?;
        leader.enable()?;
        Ok(Group { leader, rest, raw: Raw::default() })
    }

    /// What came since the last reading.
    fn read(&mut self) -> std::io::Result<[f64; 4]> {
        let found = self.leader.read_group()?;
        let [second, third, fourth] = &self.rest;
        let all = [&self.leader, second, third, fourth];
        let time = |time: Option<std::time::Duration>| {
            time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        };
        let raw = Raw {
            counts: all.map(|counter| found.get(counter).map_or(0, |entry| entry.value())),
            enabled: time(found.time_enabled()),
            running: time(found.time_running()),
        };
        let before = std::mem::replace(&mut self.raw, raw);
        Ok(raw.since(before))
    }
}

/// The counts of one process. Closed when dropped.
pub struct ProcessCounts {
    groups: Vec<Group>,
    /// In place of these.
    file: Option<FileCounts>,
    counts: PmuCounts,
}

impl ProcessCounts {
    /// Counts from now on. Takes four files per thread.
    ///
    /// # Errors
    /// When the process has ended, the user may not, or there are not enough open files.
    pub fn open(pid: i32, events: &CacheEvents) -> Result<ProcessCounts, PmuError> {
        let counts = PmuCounts::default();
        let events = match &events.how {
            Counting::Events(events) => events,
            Counting::File(level) => {
                let file = Some(FileCounts::open(pid, *level)?);
                return Ok(ProcessCounts { groups: Vec::new(), file, counts });
            }
        };
        let threads = ProcRoot::default().tasks(pid)?;
        let mut groups = Vec::new();
        for &thread in &threads {
            match Group::open(events, Some(thread)) {
                Ok(group) => groups.push(group),
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                Err(source) => {
                    let of = Wanted::Counts;
                    let sizes = [threads.len(), 1];
                    return Err(PmuError::closed(of, "open a counter", sizes, source));
                }
            }
        }
        if groups.is_empty() {
            return Err(PmuError::gone(pid));
        }
        Ok(ProcessCounts { groups, file: None, counts })
    }

    /// What was counted since it began. Costs a system call for each thread that there was then; that the
    /// process has ended does not show.
    ///
    /// # Errors
    /// When a counter cannot be read.
    pub fn read(&mut self) -> Result<PmuCounts, PmuError> {
        if let Some(file) = &mut self.file {
            self.counts += file.more()?;
        }
        for group in &mut self.groups {
            let more = group.read().map_err(|source| PmuError::Kernel {
                of: Wanted::Counts,
                what: "read a counter",
                source,
            })?;
            self.counts.add(more);
        }
        Ok(self.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::pmu::event::tests::fake;
    use crate::kernel::testing::{Anonymous, alone, events};

    fn model(vendor: Vendor, family: u8) -> CpuModel {
        CpuModel { vendor, family, model: 0, stepping: 0, name: String::new() }
    }

    #[test]
    fn each_maker_counts_its_levels() {
        let (_dir, sys) = fake(&[("cpu/type", "4"), ("cpu/caps/pmu_name", "skylake\n")]);
        let find = |vendor, family, level, last| {
            let found = CacheEvents::find(&sys, &model(vendor, family), CacheLevel(level), last);
            let words = |event: &Event| {
                let builder = event.counter();
                (builder.attrs().type_, builder.attrs().config)
            };
            found
                .map(|f| f.events().expect("events").each_ref().map(words))
                .map_err(|e| e.to_string())
        };
        let time = [(0, 1), (0, 0)];
        let of = |cache: [(u32, u64); 2]| Ok([time[0], time[1], cache[0], cache[1]]);
        assert_eq!(find(Vendor::Intel, 6, 3, true), of([(0, 2), (0, 3)]));
        assert_eq!(find(Vendor::Intel, 6, 2, false), of([(4, 0xe124), (4, 0x2124)]));
        assert_eq!(find(Vendor::Amd, 0x17, 2, false), of([(0, 2), (0, 3)]));
        assert_eq!(find(Vendor::Amd, 0x19, 3, true), of([(4, 0x5e43), (4, 0x5c43)]));
        for (vendor, family, level) in
            [(Vendor::Amd, 0x17, 3), (Vendor::Amd, 0x15, 2), (Vendor::Other, 0, 3)]
        {
            let why = find(vendor, family, level, true).unwrap_err();
            assert!(why.contains("no event is known that counts the L"), "{why}");
        }
    }

    #[test]
    fn cores_that_nobody_knows_are_not_guessed_at() {
        let (_dir, sys) = fake(&[("cpu/type", "4"), ("cpu/caps/pmu_name", "gracemont\n")]);
        let find = |sys: &SysRoot| {
            let found = CacheEvents::find(sys, &model(Vendor::Intel, 6), CacheLevel::L2, false);
            found.map(|f| f.text).map_err(|e| e.to_string())
        };
        assert!(find(&sys).unwrap_err().contains("counts the L2 here"));
        let hybrid = [("cpu_core/type", "4"), ("cpu_core/caps/pmu_name", "alderlake_hybrid")];
        let (_dir, sys) = fake(&hybrid);
        assert_eq!(find(&sys), Ok("demand reads of the L2"));
        let (_dir, none) = fake(&[]);
        assert!(find(&none).unwrap_err().contains("offers no PMU"));
    }

    #[test]
    fn counters_that_were_away_are_made_up_for() {
        let before = Raw { counts: [100, 200, 10, 1], enabled: 1000, running: 1000 };
        let after = Raw { counts: [150, 300, 30, 2], enabled: 2000, running: 1250 };
        assert_eq!(after.since(before), [200.0, 400.0, 80.0, 4.0]);
        let never = Raw { enabled: 3000, ..after };
        assert_eq!(never.since(after), [0.0; 4]);
    }

    #[test]
    fn rates_are_of_what_came_since() {
        let counts =
            |i, c, r, m| PmuCounts { instructions: i, cycles: c, references: r, misses: m };
        let step = counts(300.0, 500.0, 40.0, 15.0).since(counts(100.0, 100.0, 20.0, 10.0));
        assert_eq!((step.miss_rate(), step.per_cycle()), (Some(0.25), Some(0.5)));
        assert_eq!(
            (PmuCounts::default().miss_rate(), PmuCounts::default().per_cycle()),
            (None, None)
        );
    }

    /// The whole path by what every kernel counts: time and faults, of old threads and of new ones.
    #[test]
    fn threads_are_counted_that_were_there_and_that_come() {
        let name = "threads_are_counted_that_were_there_and_that_come";
        if !alone(module_path!(), name) {
            return;
        }
        let pid = std::process::id().cast_signed();
        let opened = ProcessCounts::open(pid, &CacheEvents::of_the_kernel());
        let Some(mut counts) = events(name, opened) else { return };
        let before = counts.read().unwrap();
        let touch = || {
            let area = Anonymous::new(500);
            (0..500).for_each(|page| area.touch(page));
        };
        touch();
        std::thread::spawn(touch).join().unwrap();
        let step = counts.read().unwrap().since(before);
        eprintln!("{name}: {step:?}");
        assert!((1000.0..2000.0).contains(&step.misses), "{step:?}");
        assert_eq!((step.references, step.miss_rate()), (step.misses, Some(1.0)));
        assert!(step.cycles > 1e5 && step.per_cycle().is_some_and(|rate| rate > 0.5), "{step:?}");
        let still = counts.read().unwrap();
        assert!(still.misses >= before.misses + step.misses);
    }

    #[test]
    fn a_machine_without_counters_says_why() {
        match CacheEvents::here(CacheLevel(3), true) {
            Ok(events) => {
                let pid = std::process::id().cast_signed();
                let counts = ProcessCounts::open(pid, &events).unwrap().read().unwrap();
                assert!(counts.instructions >= 0.0);
            }
            Err(error) => {
                eprintln!("no counters here: {error}");
                assert!(
                    matches!(error, PmuError::Unsupported(..) | PmuError::Denied(_)),
                    "{error:?}"
                );
            }
        }
    }
}
