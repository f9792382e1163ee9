//! What a process does with its memory: what is in the cache ([`residency`]), what misses the TLB ([`tlb`]),
//! what is used again and again ([`in_use`]), who runs beside it ([`company`]), how fast it passes through memory (`pace`), every access of it
//! ([`records`]). Sensors say what they saw and what that cost; policies make something of it.

pub mod company;
pub mod in_use;
pub(crate) mod pace;
pub mod pages_between;
pub mod records;
pub mod residency;
pub mod superpage_map;
pub mod tlb;
