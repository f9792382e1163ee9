//! Superpages built from outside in programs that know nothing of it: what is touched is sensed,
//! a policy of `huepage-policy` says what would pay, and the kernel is asked to build or break pages
//! of 2 MiB. Nothing is injected into the program, and nothing has to be undone when huepage goes.
//! In a partition the engine's agents are asked instead, and only where a gate lets it pass.

mod accessed;
mod brain;
mod coarse;
mod confined;
mod credit;
mod ground;
pub(crate) mod hands;
mod keeper;
mod member;
pub mod offline;
pub mod recorder;
mod replay;
pub mod replayed;
mod report;
mod sensor;
pub mod sources;
mod spare;
pub mod tables;
mod tlb;
mod turnover;
pub(crate) mod worker;

pub use brain::Choice;
pub use confined::Partition;
pub use ground::{AreaSizes, Ground, area_sizes};
pub use hands::NotBuilt;
pub use keeper::{Keeper, Settings};
pub use report::Report;
pub use sensor::{SensorError, Source, lacking};
pub use tlb::TlbShape;
pub use worker::Worker;
