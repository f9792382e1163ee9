//! Benchmarks of huepage, and the programs it is tormented with.
//!
//! The stress targets (`torture`, `walk`) are engine-independent: they verify their own
//! memory and would pass on any correct system. The benchmarks run them, and real programs,
//! natively and under the `huepage` binary, and compare. Nothing here links the engine.

pub mod cgroup;
pub mod conflict;
pub mod figures;
pub mod harness;
pub mod host_machine;
pub mod hostile;
pub mod launch;
pub mod mix;
pub mod observe;
pub mod pagecache;
pub mod pollute;
pub mod programs;
pub mod promises;
pub mod residency;
pub mod rights;
pub mod spec;
pub mod state;
pub mod suite;
pub mod superpages;
pub mod sys;
pub mod torture;
pub mod verdict;
pub mod walk;

/// How a program of this crate ends: what failed, if anything, is said with what to do about it.
pub fn ended(program: &str, result: std::io::Result<()>, advice: &str) -> std::process::ExitCode {
    let Err(error) = result else { return std::process::ExitCode::SUCCESS };
    eprintln!("{program}: {error}; {advice}");
    std::process::ExitCode::FAILURE
}
