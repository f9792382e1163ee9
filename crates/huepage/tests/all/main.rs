//! The tests that need no rights on this machine, but for what they say. One binary, as linking takes
//! longer than most of the tests.

#[path = "../common/mod.rs"]
mod common;

mod book;
mod cli;
mod docs;
mod house;
mod info;
mod lab;
mod nri;
mod probe_hash;
mod profile;
mod replay;
mod same_actions;
mod sim;
mod sim_parts;
mod sim_sweeps;
mod trace_choice;
mod trace_record;
mod trace_tools;
