//! The commands of `huepage`, one module each; every one is `run(args) -> Result<u8, CmdError>`,
//! where the number is the exit status of the process.

pub mod attach;
mod claim;
pub mod ctl;
pub mod daemon;
pub mod demo;
pub mod detach;
pub mod doctor;
pub mod group;
pub mod info;
pub mod inspect;
pub mod lab;
pub mod nri;
pub mod oci_hook;
pub mod pages;
pub mod plan;
pub mod policy;
pub mod probe;
pub mod profile;
pub mod record;
pub mod replay;
pub mod run;
pub mod sim;
pub mod suits;
pub mod superpages;
pub mod top;
pub mod trace;
pub mod verify;
pub mod warm;
