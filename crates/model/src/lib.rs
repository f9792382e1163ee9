//! What the simulator and the live side share: a record of an access ([`record`]), the sets of a cache with the
//! ways they replace ([`sets`]), and a TLB of them ([`tlb`]); and what an emulated machine tells ([`lab`]), also
//! of how a PMU would see it ([`pmu_file`]), of its memory ([`guest_places`]), and of its page tables
//! ([`page_tables`], [`translations`]). No I/O.

mod entry;
mod full;
pub mod guest_places;
pub mod hint;
pub mod lab;
pub mod lanes;
pub mod page_tables;
pub mod pmu_file;
pub mod record;
mod searched;
pub mod sets;
pub mod tlb;
pub mod translations;
