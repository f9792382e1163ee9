//! Quality of service, live: groups of processes that a file names get their parts of a cache, and some of
//! them more or less of it as they need. `config` is the file, `matching` finds processes, `plan` the
//! colours to begin with, `sense` how groups are doing, `limits` how many processes groups may have, `serve` the loop that puts it together, `pending` what is answered later, `state`
//! what a restart begins with; `extras` are the keys about superpages, pollute buffers and files, `helpers`
//! what runs for them, of which `files` is about files. What changes is decided by `huepage_policy::qos`, which knows none of it.

pub mod config;
pub mod extras;
pub mod files;
pub mod helpers;
pub mod journal;
pub mod limits;
pub mod live;
pub mod matching;
pub mod metrics;
pub mod pending;
pub mod plan;
pub mod protocol;
pub mod sense;
pub mod serve;
pub mod state;
