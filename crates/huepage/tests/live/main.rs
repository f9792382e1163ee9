//! The live tests: huepage on real programs of this machine, one after the other (`common::live`). One
//! binary, as linking takes longer than many of the tests. The harness goes by name: those that run alone begin, so
//! that none of them waits for another one to end, and then guests of the lab, which take longest.

#[path = "../common/mod.rs"]
mod common;

mod alone;
mod lab;
mod lab_systemd;
mod live_at_once;
mod live_attach;
mod live_bad_input;
mod live_conflicts;
mod live_container;
mod live_daemon;
mod live_daemon_extras;
mod live_daemon_groups;
mod live_daemon_service;
mod live_daemon_stopped;
mod live_doctor;
mod live_groups;
mod live_hostile;
mod live_kill;
mod live_lazy;
mod live_locked;
mod live_plan;
mod live_pollute;
mod live_programs;
mod live_record;
mod live_record_touches;
mod live_seccomp;
mod live_settled;
mod live_starts;
mod live_storm;
mod live_suits;
mod live_superpages;
mod live_top;
mod live_trace_points;
mod live_unread;
mod live_userfaultfd;
mod live_verify;
