//! What the simulator and the live side share: a record of an access ([`record`]), the sets of a cache with the
//! ways they replace ([`sets`]), and a TLB of them ([`tlb`]); and what an emulated machine tells ([`lab`]). No I/O.

mod entry;
mod full;
pub mod hint;
pub mod lab;
pub mod lanes;
pub mod record;
mod searched;
pub mod sets;
pub mod tlb;
