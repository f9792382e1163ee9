//! Samples of data-TLB misses with their addresses: which event of which PMU gives them, and at what precision.
//!
//! The generic dTLB events of Intel count page walks, which its PEBS cannot attach an address to
//! (refused before Ice Lake, of no meaning since); what it can are retired loads and stores that
//! missed the second TLB: event 0xd0 with 0x11 and 0x12, the same from Haswell on and on the small
//! cores. AMD samples one operation in so many (IBS) and tells of each whether the TLB missed. Others
//! get the generic events. Samples say which addresses missed, not how often: a period of 1000 gives one miss
//! in a thousand. Those of the kernel's accesses, of hits and without an address are counted and left out.

use perf_event::events::CacheOp;

use crate::kernel::machine::{CpuidFacts, SysRoot, Vendor};
use crate::kernel::pmu::event::{
    self, Event, PLAIN, PRECISE, Pace, Pmu, TYPE_RAW, Which, is_any, that_open,
};
use crate::kernel::pmu::sampler::RING_BYTES;
use crate::kernel::pmu::{NO_PMU, PmuError, PmuSample, Sampler, Wanted};

/// Retired loads and stores that missed the second TLB: umask and event of Intel.
const STLB_MISS_LOADS: u64 = 0x11d0;
const STLB_MISS_STORES: u64 = 0x12d0;
/// IBS counts in sixteens, and newer kernels refuse less than this.
const IBS_SHORTEST_PERIOD: u64 = 0x90;

/// Where samples come from, and what one period of them counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PmuSource {
    /// Intel's loads and stores that missed the second TLB and retired; a period counts misses.
    RetiredMisses,
    /// AMD's instruction-based sampling (Linux 6.2); a period counts operations (cycles on old
    /// parts), of which those that missed the second TLB are kept.
    Ibs,
    /// The generic dTLB events; a period counts misses.
    CacheEvents,
    /// Page faults: no misses but first touches, on every machine. A period counts faults.
    PageFaults,
}

impl PmuSource {
    /// The best that this machine may have.
    pub(super) fn of_machine(sys: &SysRoot, vendor: Vendor) -> PmuSource {
        match vendor {
            _ if Pmu::of(sys, "ibs_op").is_some() => PmuSource::Ibs,
            Vendor::Intel => PmuSource::RetiredMisses,
            _ => PmuSource::CacheEvents,
        }
    }

    /// The best of this machine.
    pub(super) fn here() -> PmuSource {
        PmuSource::of_machine(&SysRoot::default(), CpuidFacts::read().model.vendor)
    }

    /// That of this machine, if it gives samples of TLB misses with addresses; it opens and closes a few
    /// events on the calling thread to find out.
    pub(super) fn supported() -> Result<PmuSource, PmuError> {
        let source = PmuSource::here();
        source.choose(&SysRoot::default()).map(|_| source)
    }

    /// Samples one in [`PmuSource::period`] of what the source counts, from now on. Takes a file per thread,
    /// CPU and event (two on Intel), and 132 KiB per CPU.
    pub(super) fn open(self, pid: i32, period: u64) -> Result<Sampler, PmuError> {
        self.with_rings(pid, period, RING_BYTES)
    }

    fn with_rings(self, pid: i32, period: u64, ring_bytes: usize) -> Result<Sampler, PmuError> {
        let events = self.choose(&SysRoot::default())?;
        let pace = Pace::Every(self.period(period));
        // IBS samples all operations, and says of each.
        let wanted: fn(&PmuSample) -> bool = match self {
            PmuSource::Ibs => |sample| sample.source.missed_tlb(),
            _ => |_| true,
        };
        Sampler::open(Wanted::TlbMisses, pid, &events, pace, ring_bytes, wanted)
    }

    /// A period that the source can have, not below the one wished for.
    pub(super) fn period(self, wished: u64) -> u64 {
        match self {
            PmuSource::Ibs => wished.clamp(IBS_SHORTEST_PERIOD, 1 << 40).next_multiple_of(16),
            _ => wished.max(1),
        }
    }

    /// What must be opened, the indispensable first on each PMU.
    fn events(self, sys: &SysRoot) -> Vec<Event> {
        match self {
            PmuSource::RetiredMisses => intel(sys),
            PmuSource::Ibs => event::ibs(sys).into_iter().collect(),
            PmuSource::CacheEvents => {
                let of = |op| Event::new(Which::TlbMisses(op), PRECISE);
                vec![of(CacheOp::READ), of(CacheOp::WRITE)]
            }
            PmuSource::PageFaults => vec![Event::new(Which::PageFaults, PLAIN)],
        }
    }

    /// The events that open on this machine, by trying them on the calling thread.
    pub(super) fn choose(self, sys: &SysRoot) -> Result<Vec<Event>, PmuError> {
        let found = that_open(self.events(sys), Pace::Every(self.period(1 << 20)));
        let why = |error: &std::io::Error| match self {
            _ if !is_any(sys) => NO_PMU.to_owned(),
            PmuSource::Ibs => format!("IBS does not sample single processes here ({error})"),
            _ => format!("the PMU gives no addresses of them ({error})"),
        };
        found.map_err(|error| PmuError::refused(Wanted::TlbMisses, why, &error))
    }
}

/// Loads and stores, on each kind of core where there are several.
fn intel(sys: &SysRoot) -> Vec<Event> {
    let mut found = Vec::new();
    for (name, usual) in [("cpu_core", None), ("cpu_atom", None), ("cpu", Some(TYPE_RAW))] {
        let pmu = Pmu::of(sys, name);
        let number = pmu.as_ref().map(|pmu| pmu.number);
        let Some(number) = number.or(usual.filter(|_| found.is_empty())) else { continue };
        let cpus = pmu.and_then(|pmu| pmu.cpus());
        for config in [STLB_MISS_LOADS, STLB_MISS_STORES] {
            let which = Which::Raw { pmu: number, config: [config, 0, 0] };
            found.push(Event { cpus: cpus.clone(), ..Event::new(which, PRECISE) });
        }
    }
    found
}

#[cfg(test)]
mod live;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::machine::CpuList;
    use crate::kernel::pmu::event::tests::fake;

    fn asked(events: &[Event]) -> Vec<(u32, u64, Option<CpuList>)> {
        let attrs = |e: &Event| {
            let builder = e.sampler(Pace::Every(1));
            (builder.attrs().type_, builder.attrs().config)
        };
        events.iter().map(|e| (attrs(e).0, attrs(e).1, e.cpus.clone())).collect()
    }

    #[test]
    fn every_maker_has_its_source() {
        let (_dir, none) = fake(&[]);
        assert_eq!(PmuSource::of_machine(&none, Vendor::Intel), PmuSource::RetiredMisses);
        assert_eq!(PmuSource::of_machine(&none, Vendor::Other), PmuSource::CacheEvents);
        let (_dir, amd) = fake(&[("ibs_op/type", "11\n")]);
        assert_eq!(PmuSource::of_machine(&amd, Vendor::Amd), PmuSource::Ibs);
    }

    #[test]
    fn each_kind_of_core_counts_its_own_misses() {
        let (_dir, sys) = fake(&[("cpu/type", "4\n")]);
        let plain = PmuSource::RetiredMisses.events(&sys);
        assert_eq!(asked(&plain), [(4, 0x11d0, None), (4, 0x12d0, None)]);
        let (_dir, sys) = fake(&[
            ("cpu_core/type", "4\n"),
            ("cpu_core/cpus", "0-3\n"),
            ("cpu_atom/type", "10\n"),
            ("cpu_atom/cpus", "4,5\n"),
        ]);
        let (big, small) = (CpuList::parse("0-3"), CpuList::parse("4-5"));
        let hybrid = asked(&PmuSource::RetiredMisses.events(&sys));
        assert_eq!(hybrid[1..3], [(4, 0x12d0, big), (10, 0x11d0, small)]);
        assert_eq!(hybrid.len(), 4);
    }

    #[test]
    fn ibs_counts_operations_in_sixteens_and_cannot_leave_the_kernel_out() {
        let (_dir, sys) = fake(&[("ibs_op/type", "11"), ("ibs_op/format/cnt_ctl", "config:19\n")]);
        let events = PmuSource::Ibs.events(&sys);
        assert_eq!(asked(&events), [(11, 1 << 19, None)]);
        let builder = events[0].sampler(Pace::Every(PmuSource::Ibs.period(1001)));
        assert_eq!(builder.attrs().exclude_kernel() + builder.attrs().precise_ip(), 0);
        assert_eq!([1, 1001, 4096].map(|p| PmuSource::Ibs.period(p)), [0x90, 1008, 4096]);
        let (_dir, old) = fake(&[("ibs_op/type", "11")]);
        assert_eq!(asked(&PmuSource::Ibs.events(&old)), [(11, 0, None)]);
    }

    #[test]
    fn generic_events_are_read_and_write_misses_of_the_data_tlb() {
        let (_dir, sys) = fake(&[]);
        let events = PmuSource::CacheEvents.events(&sys);
        assert_eq!(asked(&events), [(3, 0x1_00_03, None), (3, 0x1_01_03, None)]);
        assert_eq!(events[0].sampler(Pace::Every(5)).attrs().precise_ip(), 2);
    }

    #[test]
    fn a_machine_without_a_pmu_says_so() {
        let (_dir, sys) = fake(&[]);
        match PmuSource::Ibs.choose(&sys) {
            Err(PmuError::Unsupported(Wanted::TlbMisses, why)) => {
                assert!(why.contains("no PMU"), "{why}")
            }
            other => panic!("{other:?}"),
        }
    }
}
