//! How an event is asked for, and what `/sys/bus/event_source/devices` says of a PMU: its number, the
//! CPUs it counts on, how its named events and their terms become words of `perf_event_attr`.
//!
//! Which events make a source is decided by those who sample or count; here events are tried, and closed
//! again.

use std::io;

use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Hardware, Raw, Software};
use perf_event::{Builder, Clock, Counter, SampleSkid};

use super::ring::FIELDS;
use crate::kernel::machine::{CpuList, SysRoot};

/// Below [`SysRoot`].
pub(crate) const PMUS: &str = "bus/event_source/devices";
/// `PERF_TYPE_RAW`.
pub(crate) const TYPE_RAW: u32 = 4;
/// With an address comes only what is precise.
pub(crate) const PRECISE: &[SampleSkid] = &[SampleSkid::RequestZero, SampleSkid::Constant];
/// IBS and software events know their address always; what is only counted needs none.
pub(crate) const PLAIN: &[SampleSkid] = &[SampleSkid::Arbitrary];

/// How often a sample is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// One in so many of what the event counts.
    Every(u64),
    /// As many in a second of a thread's time, about: the kernel looks for the period.
    PerSecond(u64),
}

/// What the kernel is to sample or count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// First touches of pages.
    PageFaults,
    /// Time of the thread on a CPU, in nanoseconds, as the kernel counts it.
    TaskTime,
    /// The generic event of the data TLB.
    TlbMisses(CacheOp),
    /// A generic event, which the kernel translates.
    Generic(Hardware),
    /// `perf_event_attr.type` and its three words of configuration.
    Raw { pmu: u32, config: [u64; 3] },
}

/// One event, at the precision at which it opens.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub which: Which,
    /// Precisions to try, the best first.
    pub precise: &'static [SampleSkid],
    /// Counts what the process does, not what the kernel does for it.
    pub skips_kernel: bool,
    /// Where it counts; everywhere if nothing is said.
    pub cpus: Option<CpuList>,
    /// The event without which this one gives no data source, by its first word: it leads the group.
    pub helper: Option<u64>,
}

impl Event {
    pub fn new(which: Which, precise: &'static [SampleSkid]) -> Event {
        Event { which, precise, skips_kernel: true, cpus: None, helper: None }
    }

    /// Asks for it, without saying whom to observe nor what for.
    pub fn counter(&self) -> Builder<'static> {
        let mut builder = match self.which {
            Which::PageFaults => Builder::new(Software::PAGE_FAULTS),
            Which::TaskTime => Builder::new(Software::TASK_CLOCK),
            Which::TlbMisses(operation) => {
                let (which, result) = (CacheId::DTLB, CacheResult::MISS);
                Builder::new(Cache { which, operation, result })
            }
            Which::Generic(hardware) => Builder::new(hardware),
            Which::Raw { config, .. } => Builder::new(Raw::new(config[0])),
        };
        if let Which::Raw { pmu, config } = self.which {
            let attrs = builder.attrs_mut();
            attrs.type_ = pmu;
            (attrs.config1, attrs.config2) = (config[1], config[2]);
        }
        builder.exclude_kernel(self.skips_kernel).exclude_hv(self.skips_kernel);
        builder
    }

    /// The same with samples, closed until it is enabled.
    pub fn sampler(&self, pace: Pace) -> Builder<'static> {
        let mut builder = self.counter();
        builder.sample(FIELDS).clockid(Clock::MONOTONIC);
        match pace {
            Pace::Every(period) => builder.sample_period(period),
            Pace::PerSecond(samples) => builder.sample_frequency(samples),
        };
        builder.precise_ip(self.precise[0]);
        builder
    }

    /// Asks for the helper, if there has to be one: counted, never sampled, by the same clock.
    pub fn helper(&self) -> Option<Builder<'static>> {
        let (Some(first), Which::Raw { pmu, .. }) = (self.helper, self.which) else { return None };
        let which = Which::Raw { pmu, config: [first, 0, 0] };
        let mut builder = Event { which, ..self.clone() }.counter();
        builder.clockid(Clock::MONOTONIC);
        Some(builder)
    }

    /// Opens it for samples with what it needs; `aim` says whom and where to observe.
    pub fn open(
        &self,
        pace: Pace,
        aim: impl Fn(&mut Builder<'static>),
    ) -> io::Result<(Counter, Option<Counter>)> {
        let mut sampler = self.sampler(pace);
        aim(&mut sampler);
        let Some(mut helper) = self.helper() else { return Ok((sampler.build()?, None)) };
        aim(&mut helper);
        let mut leader = helper.build()?;
        Ok((sampler.build_with_group(&mut leader)?, Some(leader)))
    }

    /// The event at the best precision that opens, by trying it on the calling thread.
    pub fn try_out(mut self, pace: Pace) -> io::Result<Event> {
        loop {
            let own = |builder: &mut Builder<'static>| _ = builder.observe_self().any_cpu();
            match self.open(pace, own) {
                Ok(_) => return Ok(self),
                Err(error) if self.precise.len() == 1 => return Err(error),
                Err(_) => self.precise = &self.precise[1..],
            }
        }
    }
}

/// The events that open on this machine; what the kernel said of the last one if none does.
pub(crate) fn that_open(events: Vec<Event>, pace: Pace) -> Result<Vec<Event>, io::Error> {
    let mut refusal = io::Error::from_raw_os_error(libc::ENOENT);
    let mut found = Vec::new();
    for event in events {
        match event.try_out(pace) {
            Ok(event) => found.push(event),
            Err(error) => refusal = error,
        }
    }
    if found.is_empty() { Err(refusal) } else { Ok(found) }
}

/// A PMU as `/sys` shows it.
#[derive(Clone, Debug)]
pub(crate) struct Pmu<'a> {
    sys: &'a SysRoot,
    name: &'a str,
    /// Its number, in `perf_event_attr.type`.
    pub number: u32,
}

impl<'a> Pmu<'a> {
    /// Of a name; `None` if the kernel has no such PMU here.
    pub fn of(sys: &'a SysRoot, name: &'a str) -> Option<Pmu<'a>> {
        let number = sys.text(format!("{PMUS}/{name}/type"))?.parse().ok()?;
        Some(Pmu { sys, name, number })
    }

    /// What one of its files says.
    pub fn text(&self, file: &str) -> Option<String> {
        self.sys.text(format!("{PMUS}/{}/{file}", self.name))
    }

    /// The CPUs it counts on, where it does not on all.
    pub fn cpus(&self) -> Option<CpuList> {
        CpuList::parse(&self.text("cpus")?)
    }

    /// The words of configuration of a named event; `None` if it has none of that name.
    pub fn event(&self, name: &str) -> Option<[u64; 3]> {
        let text = self.text(&format!("events/{name}"))?;
        let mut config = [0; 3];
        for term in text.split(',').map(str::trim).filter(|term| !term.is_empty()) {
            let (term, value) = term.split_once('=').unwrap_or((term, "1"));
            self.set(&mut config, term, number(value)?)?;
        }
        Some(config)
    }

    /// Puts a term into the words of configuration; `None` if the PMU does not have it.
    pub fn set(&self, config: &mut [u64; 3], term: &str, value: u64) -> Option<()> {
        let (word, fields) = fields(&self.text(&format!("format/{term}"))?)?;
        let mut left = value;
        for (low, high) in fields {
            let mask = u64::MAX >> (63 - (high - low));
            config[word] = config[word] & !(mask << low) | (left & mask) << low;
            left = left.checked_shr(high - low + 1).unwrap_or(0);
        }
        Some(())
    }
}

/// `config1:0-15`, or `config:0-7,21`: which word, and which of its bits, from and to, the lowest first.
fn fields(text: &str) -> Option<(usize, Vec<(u32, u32)>)> {
    let (word, bits) = text.trim().split_once(':')?;
    let word = ["config", "config1", "config2"].iter().position(|name| *name == word)?;
    let field = |part: &str| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high): (u32, u32) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
        (low <= high && high < 64).then_some((low, high))
    };
    Some((word, bits.split(',').map(field).collect::<Option<_>>()?))
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// AMD's instruction-based sampling: one operation in so many, or one cycle where the processor cannot count
/// them.
pub(crate) fn ibs(sys: &SysRoot) -> Option<Event> {
    let pmu = Pmu::of(sys, "ibs_op")?;
    let mut config = [0; 3];
    let _ = pmu.set(&mut config, "cnt_ctl", 1);
    // The kernel leaves its own samples out (Linux 6.14); IBS cannot, and they are dropped as they are read.
    let skips_kernel = pmu.set(&mut config, "swfilt", 1).is_some();
    let which = Which::Raw { pmu: pmu.number, config };
    Some(Event { skips_kernel, ..Event::new(which, PLAIN) })
}

/// Whether the kernel has any PMU of a processor here.
pub(crate) fn is_any(sys: &SysRoot) -> bool {
    ["cpu", "cpu_core", "ibs_op"].iter().any(|name| Pmu::of(sys, name).is_some())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::kernel::procfs::fake::Fake;

    /// A `/sys` with these files below its PMUs.
    pub fn fake(files: &[(&str, &str)]) -> (Fake, SysRoot) {
        let fake = Fake::new();
        files.iter().for_each(|(path, text)| _ = fake.put(&format!("{PMUS}/{path}"), text));
        let root = SysRoot(fake.root.0.clone());
        (fake, root)
    }

    #[test]
    fn terms_go_where_the_format_says() {
        let (_dir, sys) = fake(&[
            ("cpu/type", "4\n"),
            ("cpu/format/event", "config:0-7,32-35\n"),
            ("cpu/format/umask", "config:8-15\n"),
            ("cpu/format/ldlat", "config1:0-15\n"),
            ("cpu/format/flag", "config2:63\n"),
            ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
            ("cpu/events/far", "event=0x7cd,flag\n"),
            ("cpu/events/odd", "event=0xcd,other=1\n"),
        ]);
        let pmu = Pmu::of(&sys, "cpu").unwrap();
        assert_eq!(pmu.event("mem-loads"), Some([0x1cd, 3, 0]));
        assert_eq!(pmu.event("far"), Some([0x7_0000_00cd, 0, 1 << 63]));
        assert_eq!((pmu.event("odd"), pmu.event("none")), (None, None));
        let mut config = [0, 0xffff_0003, 0];
        assert_eq!(pmu.set(&mut config, "ldlat", 30), Some(()));
        assert_eq!((config, pmu.set(&mut [0; 3], "period", 1)), ([0, 0xffff_001e, 0], None));
        assert!(Pmu::of(&sys, "cpu_core").is_none() && is_any(&sys));
    }

    #[test]
    fn formats_that_make_no_sense_are_none() {
        for text in ["", "config", "config9:0", "config:7-0", "config:0-64", "config:x"] {
            assert!(fields(text).is_none(), "{text}");
        }
        assert_eq!(fields("config:0-63"), Some((0, vec![(0, 63)])));
    }

    #[test]
    fn a_helper_leads_uncounted_by_the_same_clock() {
        let which = Which::Raw { pmu: 4, config: [0x1cd, 30, 0] };
        let event = Event { helper: Some(0x8203), ..Event::new(which, PRECISE) };
        let (sampler, helper) = (event.sampler(Pace::PerSecond(1000)), event.helper().unwrap());
        let (own, of_helper) = (sampler.attrs(), helper.attrs());
        assert_eq!((own.config, own.config1, own.precise_ip(), own.freq()), (0x1cd, 30, 2, 1));
        assert_eq!((of_helper.config, of_helper.config1, of_helper.type_), (0x8203, 0, 4));
        assert_eq!((of_helper.sample_period, of_helper.sample_type), (0, 0));
        assert_eq!((own.clockid, own.use_clockid()), (of_helper.clockid, of_helper.use_clockid()));
        assert_eq!(own.exclude_kernel() + of_helper.exclude_kernel(), 2);
    }
}
