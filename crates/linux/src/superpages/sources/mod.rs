//! Where the superpage sensor learns which pages a process touched, or missed in the data TLB.
//!
//! Three sources, the better ones first: samples of TLB misses with their addresses from a PMU
//! ([`PmuSampler`]), accessed bits summed up per area by the kernel ([`AreaReferences`]), and pages
//! sent to swap to see who comes back ([`PageOutSampler`]). Each only reports; none decides what
//! becomes of the pages, and none moves a page to another frame.

mod events;
mod pageout;
mod pmu;
pub(crate) mod smaps;
#[cfg(test)]
pub(crate) mod testing;

pub use crate::pmu::{Drained, PmuError, Sample as MissSample};
pub use events::PmuSource;
pub use pageout::{
    MOST_PER_CALL, PageOut, PageOutError, PageOutSampler, Refusals, Returned, Returns,
};
pub use pmu::PmuSampler;
pub use smaps::{AreaReference, AreaReferences, SmapsError};
