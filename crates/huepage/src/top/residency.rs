//! A thread that looks at what processes have in the cache, one after the other, within a share of a
//! CPU; the one that the user looks at has most of the time. Others read what it found.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use huepage_linux::sensors::residency::Watch;

use super::snapshot::ResidencyNow;

/// Looks of a turn before what it found replaces what the turn before did.
const ENOUGH: u64 = 1000;
/// How often what was found is handed on.
const HAND_ON: Duration = Duration::from_millis(250);
/// A process that did not run for so long has its turn later.
const PATIENCE: Duration = Duration::from_millis(400);
/// A break between turns, at most: then the share of a CPU is overdrawn.
const LONGEST_REST: Duration = Duration::from_secs(5);

/// How the thread goes about it.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Bytes of the private cache.
    pub cache_bytes: u64,
    /// Share of one CPU.
    pub budget: f64,
    pub turn: Duration,
    /// Length of a turn of the process that the user looks at, or that is alone.
    pub long_turn: Duration,
}

/// What is known of a process: what was found, or why nothing is.
type Known = Result<ResidencyNow, String>;

#[derive(Debug, Default)]
struct Shared {
    wanted: Mutex<Wanted>,
    known: Mutex<HashMap<i32, Known>>,
    stop: AtomicBool,
}

#[derive(Debug, Default)]
struct Wanted {
    pids: Vec<i32>,
    focus: Option<i32>,
    /// Whose turn was last.
    last: Option<i32>,
    /// Whose turn was last of those that the user does not look at.
    other: Option<i32>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A way to ask the thread, from any other.
#[derive(Clone, Debug)]
pub struct Asking(Arc<Shared>);

impl Asking {
    /// Which processes to look at; what was known of others is forgotten.
    pub fn want(&self, pids: &[i32]) {
        pids.clone_into(&mut lock(&self.0.wanted).pids);
        lock(&self.0.known).retain(|pid, _| pids.contains(pid));
    }

    /// Which of them the user looks at.
    pub fn focus(&self, pid: Option<i32>) {
        lock(&self.0.wanted).focus = pid;
    }

    /// What is known of a process; `None` before its first turn.
    pub fn known(&self, pid: i32) -> Option<Known> {
        lock(&self.0.known).get(&pid).cloned()
    }
}

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub struct Looks {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Looks {
    /// Starts it; it looks at nothing before it is asked to.
    pub fn start(habits: Habits) -> Looks {
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        let thread = thread::spawn(move || work(&own, habits));
        Looks { shared, thread: Some(thread) }
    }

    /// A way to ask it.
    pub fn asking(&self) -> Asking {
        Asking(self.shared.clone())
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // It panics only if the process does, which has been told by then.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Wanted {
    /// Whose turn is next, and whether it is a long one. Every other turn is that of the process the
    /// user looks at.
    fn next(&mut self) -> Option<(i32, bool)> {
        let focus = self.focus.filter(|pid| self.pids.contains(pid));
        let others: Vec<i32> = self.pids.iter().copied().filter(|&p| Some(p) != focus).collect();
        let after = others.iter().position(|&pid| self.other == Some(pid));
        let other = others.get(after.map_or(0, |at| (at + 1) % others.len())).copied();
        let long = focus.filter(|_| self.last != focus || other.is_none());
        self.last = long.or(other);
        if long.is_none() {
            self.other = other;
        }
        Some((self.last?, long.is_some() || self.pids.len() == 1))
    }
}

fn work(shared: &Shared, habits: Habits) {
    while !shared.stop.load(Ordering::Relaxed) {
        let next = lock(&shared.wanted).next();
        let Some((pid, long)) = next else {
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        let turn = if long { habits.long_turn } else { habits.turn };
        let rest = match take_turn(shared, pid, habits, turn) {
            Ok(rest) => rest,
            Err(why) => {
                let mut known = lock(&shared.known);
                known.entry(pid).and_modify(|old| *old = Err(why.clone())).or_insert(Err(why));
                Duration::from_millis(100)
            }
        };
        pause(shared, rest);
    }
}

/// Looks at a process for a while; how long to rest then.
fn take_turn(
    shared: &Shared,
    pid: i32,
    habits: Habits,
    turn: Duration,
) -> Result<Duration, String> {
    let (begin, mut handed_on) = (Instant::now(), Instant::now());
    let mut watch =
        Watch::open(pid, habits.cache_bytes, habits.budget).map_err(|e| e.to_string())?;
    let mut looks = 0_u64;
    while begin.elapsed() < turn && goes_on(shared, pid) {
        looks += watch.look().map_err(|e| e.to_string())?.len() as u64;
        if looks == 0 && begin.elapsed() >= PATIENCE {
            break;
        }
        if handed_on.elapsed() >= HAND_ON {
            hand_on(shared, pid, &watch, false);
            handed_on = Instant::now();
        }
    }
    hand_on(shared, pid, &watch, true);
    let report = watch.report();
    let due = report.cpu_seconds / habits.budget.max(1e-4) - report.seconds;
    Ok(Duration::try_from_secs_f64(due).unwrap_or_default().min(LONGEST_REST))
}

/// Another process that the user turns to need not wait for the end of a turn.
fn goes_on(shared: &Shared, pid: i32) -> bool {
    let wanted = lock(&shared.wanted);
    let turned_away = wanted.focus.is_some_and(|focus| {
        focus != pid && wanted.pids.contains(&focus) && lock(&shared.known).get(&focus).is_none()
    });
    !turned_away && wanted.pids.contains(&pid) && !shared.stop.load(Ordering::Relaxed)
}

fn hand_on(shared: &Shared, pid: i32, watch: &Watch, ended: bool) {
    let report = watch.report();
    let mut known = lock(&shared.known);
    let new = match (report.samples, report.latencies) {
        (0, None) => Err("it hardly runs".to_owned()),
        (0, Some(_)) => Err("the cache cannot be told from what is behind it just now".to_owned()),
        _ => Ok(ResidencyNow::of(
            &report.areas,
            watch.sampled_pages(),
            watch.estimate(),
            report.private_only,
        )),
    };
    let better = match (known.get(&pid), &new) {
        (Some(Ok(_)), Ok(_)) => ended || report.samples >= ENOUGH,
        (Some(Ok(_)), Err(_)) => false,
        (_, Ok(_)) => true,
        (_, Err(_)) => ended,
    };
    if better {
        known.insert(pid, new);
    }
}

fn pause(shared: &Shared, rest: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < rest && !shared.stop.load(Ordering::Relaxed) {
        thread::sleep(rest.min(Duration::from_millis(20)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(wanted: &mut Wanted, n: usize) -> Vec<(i32, bool)> {
        (0..n).filter_map(|_| wanted.next()).collect()
    }

    #[test]
    fn everybody_has_turns() {
        let mut wanted = Wanted { pids: vec![1, 2, 3], ..Wanted::default() };
        assert_eq!(turns(&mut wanted, 4), [(1, false), (2, false), (3, false), (1, false)]);
        wanted.pids = vec![2];
        assert_eq!(turns(&mut wanted, 2), [(2, true), (2, true)]);
        wanted.pids.clear();
        assert_eq!(wanted.next(), None);
    }

    #[test]
    fn who_is_looked_at_has_every_other_turn() {
        let mut wanted = Wanted { pids: vec![1, 2, 3], focus: Some(2), ..Wanted::default() };
        let order = turns(&mut wanted, 8);
        assert_eq!(order.iter().filter(|turn| **turn == (2, true)).count(), 4, "{order:?}");
        assert!(order.contains(&(1, false)) && order.contains(&(3, false)), "{order:?}");
    }
}
