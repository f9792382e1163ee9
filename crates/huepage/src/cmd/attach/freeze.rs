//! `huepage attach --freeze`: pages are moved, looked at once more, and nothing of huepage stays. For
//! programs that must not wait for anybody once they run, and so neither share their memory with an agent.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::{Duration, Instant};

use huepage_linux::engine::MemberStatus;
use huepage_linux::inject::launch::relay::SignalRelay;
use huepage_linux::inject::longest_stop;
use huepage_policy::Census;

use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;
use crate::supervise::Supervisor;

/// How long pages may take to be in their places.
const LIMIT: Duration = Duration::from_secs(60);
/// How long the agents may take to leave.
const LEAVE_LIMIT: Duration = Duration::from_secs(10);

/// What was found of the processes when all of their pages were in place.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct FrozenPages {
    movable: u64,
    inside: u64,
    /// Longest that a page was away, seconds.
    away: f64,
}

impl FrozenPages {
    fn add(&mut self, status: &MemberStatus) {
        let total = status.census.as_ref().map(Census::total).unwrap_or_default();
        self.movable += total.movable();
        self.inside += total.inside;
        self.away = self.away.max(status.longest_out_seconds);
    }

    const fn is_placed(&self) -> bool {
        self.movable > 0 && self.inside == self.movable
    }
}

/// Waits until all pages lie right, and lets go of the processes; 0 if that came about, also if they ended.
pub fn run(
    supervisor: &mut Supervisor,
    pids: &[i32],
    relay: &SignalRelay,
    quiet: bool,
) -> Result<u8, CmdError> {
    let start = Instant::now();
    let mut found = FrozenPages::default();
    let mut interrupted = false;
    while !supervisor.is_empty() && !found.is_placed() && !interrupted && start.elapsed() < LIMIT {
        supervisor.turn(&[relay.as_fd().as_raw_fd()])?;
        found = FrozenPages::default();
        let statuses = pids.iter().filter_map(|&pid| supervisor.group.status(pid));
        statuses.for_each(|status| found.add(&status));
        while let Some(signal) = relay.next().map_err(internal)? {
            interrupted |= [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].contains(&signal.signal);
        }
    }
    let ended = supervisor.is_empty();
    let has_left = leave(supervisor, relay)?;
    if let Some(what) = found.failure(ended, has_left) {
        return Err(CmdError::new(ExitCode::Internal, what));
    }
    if !quiet {
        eprintln!("huepage: {}", found.text());
    }
    Ok(ExitCode::Ok.status())
}

/// Lets go of all, and waits until that is done; whether it is.
fn leave(supervisor: &mut Supervisor, relay: &SignalRelay) -> Result<bool, CmdError> {
    let start = Instant::now();
    supervisor.release_all();
    while !supervisor.is_empty() && start.elapsed() < LEAVE_LIMIT {
        supervisor.turn(&[relay.as_fd().as_raw_fd()])?;
    }
    Ok(supervisor.is_empty())
}

impl FrozenPages {
    /// What is not as it should be, if anything is not.
    fn failure(&self, ended: bool, has_left: bool) -> Option<String> {
        let FrozenPages { inside, movable, .. } = self;
        let left = match has_left {
            true => "nothing of huepage is left; run it again, or give a larger share",
            false => "its threads have not left yet; they leave when they get the CPU",
        };
        let failed = !has_left || !ended && !self.is_placed();
        failed.then(|| format!("{inside} of {movable} movable pages are inside and {left}"))
    }

    fn text(&self) -> String {
        let FrozenPages { movable, inside, away } = self;
        let stop = longest_stop().as_secs_f64() * 1e3;
        format!(
            "{inside} of {movable} movable pages are inside; nothing of huepage is left in the program, whose threads stood still for {stop:.2} ms at most, and waited {:.2} ms at most for a page",
            away * 1e3
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pages_have_to_be_inside_and_there_has_to_be_one() {
        let found = |inside, movable| FrozenPages { movable, inside, away: 0.0002 };
        assert!(!found(0, 0).is_placed() && !found(8, 9).is_placed());
        assert!(found(9, 9).is_placed());
        assert_eq!(found(9, 9).failure(false, true), None);
        assert_eq!(found(0, 0).failure(true, true), None, "it ended");
        let failure = found(8, 9).failure(false, true).expect("one is outside");
        assert!(failure.starts_with("8 of 9 movable pages are inside and nothing"), "{failure}");
        let failure = found(9, 9).failure(false, false).expect("threads are left");
        assert!(failure.contains("its threads have not left yet"), "{failure}");
        assert!(found(9, 9).text().starts_with("9 of 9 movable pages are inside; nothing"));
        assert!(found(9, 9).text().ends_with("0.20 ms at most for a page"));
    }
}
