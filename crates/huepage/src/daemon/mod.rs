//! Quality of service, live: groups of processes that a file names get their parts of a cache, and some of
//! them more or less of it as they need. `config` is the file and `group` a table of it, `matching` finds processes, `division` the
//! colours to begin with, `sense` how groups are doing, `limits` how many processes groups may have, `serve` the loop that puts it together, `pending` releases that are answered later, `state`
//! what a restart begins with. What is done for a group is its [`crate::plan::Plan`]. What changes is decided by `huepage_policy::coloris`, which knows none of it.

pub mod config;
pub mod division;
pub mod figures;
pub mod group;
pub mod journal;
pub mod limits;
pub mod live;
pub mod matching;
pub mod metrics;
pub(crate) mod mistake;
#[cfg(test)]
mod monitoring;
pub mod pending;
pub mod protocol;
pub mod sense;
pub mod serve;
pub mod state;
