//! The commands of `huepage`, one module each; every one is `run(args) -> Result<u8, CmdError>`,
//! where the number is the exit status of the process.

pub mod attach;
pub mod ctl;
pub mod daemon;
pub mod demo;
pub mod detach;
pub mod doctor;
pub mod experiment;
pub mod group;
pub mod info;
pub mod inspect;
pub mod page_cache;
pub mod probe;
pub mod profile;
pub mod record;
pub mod replay;
pub mod run;
pub mod sim;
pub mod top;
pub mod trace;
pub mod warm;
