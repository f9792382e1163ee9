//! Samples of loads with address, latency and who answered.
//!
//! Intel samples retired loads by their latency (PEBS): the kernel names the event (`mem-loads`) and, from
//! Alder Lake and Sapphire Rapids on, the one that has to run beside it (`mem-loads-aux`). Loads faster than
//! a threshold are left out by the processor, and most that the first level answers are. AMD samples one operation
//! in so many (IBS); what is no load is left out here, and where the kernel can it leaves its own out. IBS's
//! own filters (`l3missonly`, and by latency from 128 cycles on) are not used: they leave out hits, without which
//! nobody can say which share of requests misses. Arm's SPE writes packets of its own beside the ring, which
//! are not read; it is named and refused.

use super::event::{self, Event, PMUS, PRECISE, Pace, Pmu, Which, is_any, that_open};
use super::file::PmuFile;
use super::ring::PmuSample;
use super::sampler::{RING_BYTES, Sampler};
use super::{NO_PMU, PmuError, Wanted};
use crate::kernel::machine::SysRoot;
use huepage_color::CacheLevel;

/// Cycles that a load takes at least to be sampled: a first level answers in 4 to 5, a second in 10 to 17,
/// and a last one in more than 30. The nearer hits are of no use to a cache behind.
const LATENCY: [u64; 2] = [8, 30];
/// CPU time of an interrupt with its sample, at most; what the kernel itself takes for usual is less.
pub const SECONDS_PER_SAMPLE: f64 = 2e-6;
/// At most so many are asked for in a second where the kernel does not say what it allows.
const USUAL_MOST: u64 = 50_000;
/// Below [`crate::kernel::procfs::ProcRoot`].
const MOST_FILE: &str = "sys/kernel/perf_event_max_sample_rate";

/// Who samples loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadSource {
    /// Intel's precise events.
    Pebs,
    /// AMD's instruction-based sampling.
    Ibs,
    /// The file that was named.
    File,
    /// First touches of pages, of which nobody says who answered: for tests.
    #[cfg(test)]
    Faults,
}

impl LoadSource {
    /// For a person.
    pub const fn text(self) -> &'static str {
        match self {
            LoadSource::Pebs => "loads by PEBS",
            LoadSource::Ibs => "loads by IBS",
            LoadSource::File => "loads of the file of a PMU",
            #[cfg(test)]
            LoadSource::Faults => "page faults",
        }
    }

    /// Which samples are of loads; IBS's are of all operations.
    pub(super) fn wanted(self) -> fn(&PmuSample) -> bool {
        match self {
            LoadSource::Pebs | LoadSource::Ibs | LoadSource::File => {
                |sample| sample.source.is_load()
            }
            #[cfg(test)]
            LoadSource::Faults => |_| true,
        }
    }
}

/// The events that sample loads here.
#[derive(Clone, Debug)]
pub struct LoadEvents {
    source: LoadSource,
    events: Vec<Event>,
}

impl LoadEvents {
    /// Those of this machine that tell requests to the cache of a level; opens and closes a few events on
    /// the calling thread to find out.
    ///
    /// # Errors
    /// [`PmuError::Unsupported`] or [`PmuError::Denied`], with the reason.
    pub fn here(level: CacheLevel) -> Result<LoadEvents, PmuError> {
        if PmuFile::named(Wanted::Loads)?.is_some() {
            return Ok(LoadEvents { source: LoadSource::File, events: Vec::new() });
        }
        let LoadEvents { source, events } = LoadEvents::find(&SysRoot::default(), level)?;
        let why =
            |error: &std::io::Error| format!("{} cannot be had here ({error})", source.text());
        let found = that_open(events, Pace::PerSecond(1000));
        let events = found.map_err(|error| PmuError::refused(Wanted::Loads, why, &error))?;
        Ok(LoadEvents { source, events })
    }

    /// What `/sys` says that there is.
    fn find(sys: &SysRoot, level: CacheLevel) -> Result<LoadEvents, PmuError> {
        if let Some(event) = event::ibs(sys) {
            return Ok(LoadEvents { source: LoadSource::Ibs, events: vec![event] });
        }
        let events = pebs(sys, level);
        if !events.is_empty() {
            return Ok(LoadEvents { source: LoadSource::Pebs, events });
        }
        let why = match spe(sys) {
            Some(name) => {
                format!("{name} gives them only as packets of its own, which are not read")
            }
            None if is_any(sys) => {
                "the PMU has no event of loads with their addresses (mem-loads)".to_owned()
            }
            None => NO_PMU.to_owned(),
        };
        Err(PmuError::Unsupported(Wanted::Loads, why))
    }

    /// Samples the loads of a process about so often in a second that a thread of it runs, from now on; less
    /// where the kernel does not allow it, and as often as it says in a file. Takes a file per thread and CPU (two with a helper), and 132 KiB per
    /// CPU.
    ///
    /// # Errors
    /// When the process has ended, the user may not, or there are not enough open files.
    pub fn open(&self, pid: i32, per_second: u64) -> Result<Sampler, PmuError> {
        self.with_pace(pid, Pace::PerSecond(per_second.clamp(1, most())), RING_BYTES)
    }

    pub(crate) fn with_pace(
        &self,
        pid: i32,
        pace: Pace,
        ring_bytes: usize,
    ) -> Result<Sampler, PmuError> {
        if self.source == LoadSource::File {
            return Sampler::of_file(pid, self.source.wanted());
        }
        Sampler::open(Wanted::Loads, pid, &self.events, pace, ring_bytes, self.source.wanted())
    }

    /// Who samples.
    pub fn source(&self) -> LoadSource {
        self.source
    }

    #[cfg(test)]
    pub(crate) fn faults() -> LoadEvents {
        let events = vec![Event::new(Which::PageFaults, event::PLAIN)];
        LoadEvents { source: LoadSource::Faults, events }
    }
}

/// Loads by latency, on each kind of core where there are several.
fn pebs(sys: &SysRoot, level: CacheLevel) -> Vec<Event> {
    let mut found = Vec::new();
    for name in ["cpu_core", "cpu_atom", "cpu"] {
        let Some(pmu) = Pmu::of(sys, name) else { continue };
        let Some(mut config) = pmu.event("mem-loads") else { continue };
        // A processor without a threshold samples all loads.
        let _ = pmu.set(&mut config, "ldlat", LATENCY[usize::from(level.0 > 2)]);
        let helper = pmu.event("mem-loads-aux").map(|config| config[0]);
        let which = Which::Raw { pmu: pmu.number, config };
        found.push(Event { cpus: pmu.cpus(), helper, ..Event::new(which, PRECISE) });
    }
    found
}

/// Arm's unit for it, by its name.
fn spe(sys: &SysRoot) -> Option<String> {
    let all = std::fs::read_dir(sys.path(PMUS)).ok()?;
    let names = all.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with("arm_spe_")).min()
}

/// Samples in a second that the kernel allows an event.
fn most() -> u64 {
    let file = crate::kernel::procfs::ProcRoot::default().0.join(MOST_FILE);
    let said = std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
    said.unwrap_or(USUAL_MOST).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::machine::CpuList;
    use crate::kernel::pmu::event::tests::fake;

    const L3: CacheLevel = CacheLevel(3);
    const INTEL: [(&str, &str); 5] = [
        ("cpu/type", "4\n"),
        ("cpu/format/event", "config:0-7\n"),
        ("cpu/format/umask", "config:8-15\n"),
        ("cpu/format/ldlat", "config1:0-15\n"),
        ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
    ];

    fn find(files: &[(&str, &str)], level: CacheLevel) -> Result<LoadEvents, String> {
        let (_dir, sys) = fake(files);
        LoadEvents::find(&sys, level).map_err(|error| error.to_string())
    }

    fn words(event: &Event) -> (u32, [u64; 3]) {
        let builder = event.sampler(Pace::PerSecond(100));
        let attrs = builder.attrs();
        (attrs.type_, [attrs.config, attrs.config1, attrs.config2])
    }

    #[test]
    fn intel_samples_loads_by_latency() {
        let found = find(&INTEL, CacheLevel::L2).unwrap();
        assert_eq!((found.source, found.events.len()), (LoadSource::Pebs, 1));
        assert_eq!(words(&found.events[0]), (4, [0x1cd, 8, 0]));
        assert!(found.events[0].helper().is_none());
        let builder = found.events[0].sampler(Pace::PerSecond(100));
        let attrs = builder.attrs();
        assert_eq!((attrs.precise_ip(), attrs.exclude_kernel(), attrs.sample_freq), (2, 1, 100));
        let far = find(&INTEL, L3).unwrap();
        assert_eq!(words(&far.events[0]), (4, [0x1cd, 30, 0]));
    }

    #[test]
    fn newer_parts_have_a_helper_and_hybrid_ones_two_kinds_of_cores() {
        let helped = [&INTEL[..], &[("cpu/events/mem-loads-aux", "event=0x03,umask=0x82\n")]];
        let found = find(&helped.concat(), L3).unwrap();
        assert_eq!(found.events[0].helper, Some(0x8203));
        let of = |core: &str, number: &str, cpus: &str| {
            let own = INTEL.map(|(path, text)| (path.replace("cpu/", core), text.to_owned()));
            let more = [(format!("{core}cpus"), cpus.to_owned())];
            let rest = own.into_iter().chain(more).filter(|(path, _)| !path.ends_with("type"));
            rest.chain([(format!("{core}type"), number.to_owned())]).collect::<Vec<_>>()
        };
        let files = [of("cpu_core/", "4", "0-3"), of("cpu_atom/", "10", "4-7")].concat();
        let files: Vec<(&str, &str)> = files.iter().map(|(a, b)| (&a[..], &b[..])).collect();
        let found = find(&files, CacheLevel::L2).unwrap();
        let kinds: Vec<_> = found.events.iter().map(|e| (words(e).0, e.cpus.clone())).collect();
        assert_eq!(kinds, [(4, CpuList::parse("0-3")), (10, CpuList::parse("4-7"))]);
    }

    #[test]
    fn amd_samples_operations_and_has_the_kernel_left_out_where_it_can() {
        let old = [("ibs_op/type", "11"), ("ibs_op/format/cnt_ctl", "config:19\n")];
        let found = find(&old, L3).unwrap();
        assert_eq!(found.source, LoadSource::Ibs);
        assert_eq!(words(&found.events[0]), (11, [1 << 19, 0, 0]));
        assert!(!found.events[0].skips_kernel);
        let filters = [
            ("ibs_op/format/swfilt", "config2:0\n"),
            ("ibs_op/format/ldlat", "config1:0-11\n"),
            ("ibs_op/format/l3missonly", "config:16\n"),
        ];
        let found = find(&[&old[..], &filters[..]].concat(), L3).unwrap();
        assert_eq!(words(&found.events[0]), (11, [1 << 19, 0, 1]));
        assert!(found.events[0].skips_kernel);
    }

    #[test]
    fn what_cannot_be_read_is_named_and_refused() {
        let refused = |files: &[(&str, &str)]| find(files, L3).unwrap_err();
        let arm = refused(&[("arm_spe_0/type", "9"), ("armv8_pmuv3_0/type", "8")]);
        assert!(arm.contains("arm_spe_0 gives them only as packets"), "{arm}");
        assert!(arm.ends_with("; use the residency sensor instead"), "{arm}");
        assert!(refused(&[("cpu/type", "4")]).contains("no event of loads"));
        assert!(refused(&[]).contains("offers no PMU"));
    }

    #[test]
    fn only_loads_are_taken() {
        let sample =
            |source| PmuSample { source: super::super::DataSource(source), ..PmuSample::default() };
        assert!(LoadSource::Ibs.wanted()(&sample(0x02)));
        assert!(!LoadSource::Ibs.wanted()(&sample(0x04)) && !LoadSource::Ibs.wanted()(&sample(1)));
    }
}
