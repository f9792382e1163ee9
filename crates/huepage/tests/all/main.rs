//! The tests that need no rights on this machine, but for what they say. One binary, as linking takes
//! longer than most of the tests.

#[path = "../common/mod.rs"]
mod common;

mod cli;
mod docs;
mod experiment_coloris;
mod experiment_rocs;
mod experiment_romer;
mod experiment_scolari;
mod experiment_srm;
mod info;
mod probe_hash;
mod profile;
mod replay;
mod sim;
mod sim_sweeps;
mod trace_record;
mod trace_tools;
