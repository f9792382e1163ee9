//! The coloured zone: free frames by colour, held as private pages of this process until a file
//! takes them. Between the thread that gathers and the one that places; bounded, and empty again
//! when it is dropped. It does not learn colours and does not know of files.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use huepage_color::{Color, ColorSet, Pfn};
use huepage_frames::{ColorPool, RoundRobin, WhenExhausted};
use serde::Serialize;

use super::FileCacheError;
use crate::color::probe::OwnPages;

/// Pages whose colours are learnt at a time, unless the bound is lower.
pub(super) const BLOCK_PAGES: usize = 2048;
/// Frames that are kept ready at first; doubled whenever somebody had to wait.
const FIRST_TARGET_FRAMES: usize = BLOCK_PAGES;
/// How often who waits looks whether all is to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// A page of this process that holds a frame of known colour.
#[derive(Clone, Debug)]
pub(super) struct PooledFrame {
    pub address: u64,
    pub frame: Pfn,
    /// The memory the page lies in, mapped as long as one of its pages is in stock.
    pub _block: Arc<OwnPages>,
}

/// What the zone took, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ZoneUse {
    /// Bound of the stock when it was last looked up.
    pub limit_pages: usize,
    /// Most that were in stock.
    pub peak_pages: usize,
    /// Pages whose colour was learnt.
    pub examined: u64,
}

#[derive(Debug)]
struct State {
    pool: ColorPool<PooledFrame>,
    order: RoundRobin,
    /// Frames to keep ready.
    target: usize,
    /// The bound of the stock, once it is known.
    limit: Option<usize>,
    used: ZoneUse,
    /// What somebody waits for.
    asked: Option<ColorSet>,
    /// Nothing can be gathered at the moment.
    dry: bool,
    closing: bool,
    /// Nothing will be gathered any more.
    dead: bool,
    /// Why not, until it was told.
    failed: Option<FileCacheError>,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Zone {
    state: Mutex<State>,
    changed: Condvar,
    wanted: ColorSet,
    /// Nobody is to wait, and nothing to be gathered, once it is set.
    stop: Arc<AtomicBool>,
}

/// What the gatherer is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Gather,
    Wait,
    End,
}

impl Zone {
    /// An empty one for the colours that will ever be asked for. Once `stop` is set nobody waits.
    pub fn new(wanted: ColorSet, stop: Arc<AtomicBool>) -> Zone {
        let state = State {
            pool: ColorPool::new(wanted.universe()),
            order: RoundRobin::new(),
            target: FIRST_TARGET_FRAMES,
            limit: None,
            used: ZoneUse::default(),
            asked: None,
            dry: false,
            closing: false,
            dead: false,
            failed: None,
        };
        Zone { state: Mutex::new(state), changed: Condvar::new(), wanted, stop }
    }

    pub fn wanted(&self) -> &ColorSet {
        &self.wanted
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// A panic in a thread that holds the lock leaves the stock in order: nothing is half done.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Up to `n` frames of `want`, as many of each colour. Waits until there are enough of each, for no
    /// longer than `patience` and only while more may come; then some may come of fewer colours.
    ///
    /// # Errors
    /// What the gatherer failed of.
    pub fn take(
        &self,
        n: usize,
        want: &ColorSet,
        patience: Duration,
    ) -> Result<Vec<(Color, PooledFrame)>, FileCacheError> {
        let (mut state, start) = (self.lock(), Instant::now());
        // No more is waited for than the stock may have of these colours beside the others.
        let enough = |state: &State| n.min(self.fair(state, want).max(1));
        let even = |state: &State| {
            let least = want.iter().map(|color| state.pool.count(color)).min().unwrap_or(0);
            least * usize::from(want.len())
        };
        while even(&state) < enough(&state) && !state.dry && !self.is_stopped() {
            let left = patience.saturating_sub(start.elapsed());
            if left.is_zero() {
                // Who comes next need not wait as long again.
                state.dry = !patience.is_zero();
                break;
            }
            if state.asked.is_none() {
                state.target = state.target.saturating_mul(2).min(1 << 30);
            }
            state = self.wait(state, Some(want.clone()), left);
        }
        state.asked = None;
        if state.dead {
            let limit = state.used.limit_pages as u64 / 256;
            return Err(state.failed.take().unwrap_or(FileCacheError::NoFrames { limit }));
        }
        let State { pool, order, dry, .. } = &mut *state;
        let mut taken = pool.interleave(order, want, n, WhenExhausted::Stop);
        if taken.is_empty() || *dry || self.is_stopped() {
            let lacking = n - taken.len();
            taken.extend(pool.interleave(order, want, lacking, WhenExhausted::SkipColor));
        }
        self.changed.notify_all();
        Ok(taken.into_iter().map(|handed| (handed.color, handed.frame)).collect())
    }

    /// Whether frames of some colours are there or may come: if not, or once all is to stop, pages had
    /// better stay where they are.
    pub fn is_hopeful(&self, want: &ColorSet) -> bool {
        let state = self.lock();
        !state.dead && !self.is_stopped() && (!state.dry || state.pool.available(want) > 0)
    }

    /// Half of what the stock may have of some colours if it has as many of all.
    fn fair(&self, state: &State, colors: &ColorSet) -> usize {
        let share = |limit: usize| limit / usize::from(self.wanted.len()).max(1);
        state.limit.map_or(usize::MAX, |limit| share(limit) * usize::from(colors.len()) / 2)
    }

    /// Frames in stock, by colour; after waiting until there are more than `above` of one of
    /// `colors`, or as many as the bound allows, for no longer than `patience` and only while more
    /// may come.
    pub fn stock(&self, colors: &ColorSet, above: usize, patience: Duration) -> Vec<u64> {
        let (mut state, start) = (self.lock(), Instant::now());
        let above = |state: &State| above.min(self.fair(state, colors) / usize::from(colors.len()));
        let lacking = |state: &State| colors.iter().all(|c| state.pool.count(c) <= above(state));
        while lacking(&state) && !state.dry && !self.is_stopped() {
            let left = patience.saturating_sub(start.elapsed());
            if left.is_zero() {
                break;
            }
            state.target = state.target.max(2 * above(&state) * usize::from(colors.len()));
            state = self.wait(state, Some(colors.clone()), left);
        }
        state.asked = None;
        (0..self.wanted.universe()).map(|c| state.pool.count(Color(c)) as u64).collect()
    }

    /// Asks the gatherer for some colours and waits until something changes.
    fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        asked: Option<ColorSet>,
        longest: Duration,
    ) -> MutexGuard<'a, State> {
        state.asked = asked;
        self.changed.notify_all();
        let woken = self.changed.wait_timeout(state, longest.min(STOP_INTERVAL));
        woken.map_or_else(|poisoned| poisoned.into_inner().0, |woken| woken.0)
    }

    /// What it took so far.
    pub fn used(&self) -> ZoneUse {
        self.lock().used
    }

    /// No more frames are wanted: the gatherer ends.
    pub fn close(&self) {
        self.lock().closing = true;
        self.changed.notify_all();
    }

    /// What the gatherer is to do now that the stock may have `limit` pages, and what it is to give
    /// back.
    pub fn task(&self, limit: usize) -> (Task, Vec<PooledFrame>) {
        let mut state = self.lock();
        state.used.limit_pages = limit;
        state.limit = Some(limit);
        let excess = state.pool.len().saturating_sub(limit);
        let dropped = take_fullest(&mut state, excess);
        // A block is taken when at least half of it can be kept.
        let room = state.target.min(limit).saturating_sub(state.pool.len());
        let lacking = state.asked.is_some() || room * 2 >= BLOCK_PAGES.min(limit);
        let task = match (state.closing || self.is_stopped(), lacking) {
            (true, _) => Task::End,
            (false, true) => Task::Gather,
            (false, false) => Task::Wait,
        };
        (task, dropped)
    }

    /// Waits until frames were taken or asked for, for a while.
    pub fn doze(&self, longest: Duration) {
        let state = self.lock();
        if !state.closing && state.asked.is_none() {
            drop(self.changed.wait_timeout(state, longest));
        }
    }

    /// Waits so long, or until no more frames are wanted; whether some are.
    pub fn rest(&self, pause: Duration) -> bool {
        let start = Instant::now();
        let mut state = self.lock();
        while !state.closing && !self.is_stopped() && start.elapsed() < pause {
            let left = pause.saturating_sub(start.elapsed()).min(STOP_INTERVAL);
            let woken = self.changed.wait_timeout(state, left);
            state = woken.map_or_else(|poisoned| poisoned.into_inner().0, |woken| woken.0);
        }
        !state.closing && !self.is_stopped()
    }

    /// Adds frames; those beyond the bound replace others of which there are most, which are to be
    /// given back.
    #[must_use]
    pub fn add(&self, found: Vec<(Color, PooledFrame)>, examined: u64) -> Vec<PooledFrame> {
        let mut state = self.lock();
        state.dry = false;
        state.used.examined += examined;
        found.into_iter().for_each(|(color, page)| state.pool.add(color, page));
        let excess = state.pool.len().saturating_sub(state.limit.unwrap_or(usize::MAX));
        let dropped = take_fullest(&mut state, excess);
        state.used.peak_pages = state.used.peak_pages.max(state.pool.len());
        self.changed.notify_all();
        dropped
    }

    /// Nothing can be gathered now: whoever waits gets what there is.
    pub fn run_dry(&self) {
        self.lock().dry = true;
        self.changed.notify_all();
    }

    /// Gathering has failed for good.
    pub fn fail(&self, error: FileCacheError) {
        let mut state = self.lock();
        state.failed = Some(error);
        (state.dead, state.dry) = (true, true);
        self.changed.notify_all();
    }
}

/// Takes `n` frames of the colours with most, of what is asked for last.
fn take_fullest(state: &mut State, n: usize) -> Vec<PooledFrame> {
    let asked = state.asked.clone();
    let universe = state.pool.universe();
    let mut taken = Vec::with_capacity(n);
    for _ in 0..n {
        let rank = |c: &Color| {
            let kept = asked.as_ref().is_some_and(|asked| asked.contains(*c));
            (!kept && state.pool.count(*c) > 0, state.pool.count(*c))
        };
        let fullest = (0..universe).map(Color).max_by_key(rank);
        let Some(page) = fullest.and_then(|color| state.pool.take(color)) else { break };
        taken.push(page);
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(block: &Arc<OwnPages>, color: u16, n: u64) -> Vec<(Color, PooledFrame)> {
        let page = |i| PooledFrame { address: i, frame: Pfn(i), _block: Arc::clone(block) };
        (0..n).map(|i| (Color(color), page(i))).collect()
    }

    fn zone(limit: usize) -> (Zone, Arc<OwnPages>) {
        let zone = Zone::new(ColorSet::all(4), Arc::default());
        assert_eq!(zone.task(limit).0, Task::Gather);
        (zone, Arc::new(OwnPages::reserve(1).unwrap()))
    }

    fn stock(zone: &Zone) -> Vec<u64> {
        zone.stock(&ColorSet::all(4), 0, Duration::ZERO)
    }

    #[test]
    fn frames_are_taken_in_rotation_and_only_of_wanted_colours() {
        let (zone, block) = zone(100);
        for color in 0..3 {
            assert!(zone.add(frames(&block, color, 3), 5).is_empty());
        }
        let want = ColorSet::parse("0-1", 4).unwrap();
        let none = ColorSet::parse("3", 4).unwrap();
        assert!(zone.is_hopeful(&none), "more may come");
        zone.run_dry();
        assert!(zone.is_hopeful(&want) && !zone.is_hopeful(&none));
        assert_eq!(zone.take(4, &want, Duration::ZERO).unwrap().len(), 4);
        assert_eq!(stock(&zone), [1, 1, 3, 0]);
        assert_eq!(zone.take(4, &want, Duration::from_secs(9)).unwrap().len(), 2, "dry");
        let used = ZoneUse { limit_pages: 100, peak_pages: 9, examined: 15 };
        assert_eq!(zone.used(), used);
    }

    #[test]
    fn a_scarce_colour_is_waited_for_and_not_passed_over() {
        let (zone, block) = zone(1000);
        assert!(zone.add(frames(&block, 0, 100), 100).is_empty());
        assert!(zone.add(frames(&block, 1, 10), 10).is_empty());
        let want = ColorSet::parse("0-1", 4).unwrap();
        let of = |taken: &[(Color, PooledFrame)], color| {
            taken.iter().filter(|(c, _)| c.0 == color).count()
        };
        let taken = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| zone.take(60, &want, Duration::from_secs(20)));
            while zone.lock().asked.is_none() {
                std::thread::yield_now();
            }
            assert!(zone.add(frames(&block, 1, 20), 20).is_empty());
            waiting.join().unwrap().unwrap()
        });
        assert_eq!((of(&taken, 0), of(&taken, 1)), (30, 30));
        let taken = zone.take(60, &want, Duration::from_millis(1)).unwrap();
        assert_eq!((of(&taken, 0), of(&taken, 1)), (60, 0), "none came");
    }

    #[test]
    fn the_stock_keeps_its_bound_and_what_is_asked_for() {
        let (zone, block) = zone(8);
        assert!(zone.add(frames(&block, 1, 7), 7).is_empty());
        assert_eq!(zone.add(frames(&block, 2, 3), 3).len(), 2);
        assert_eq!(stock(&zone), [0, 5, 3, 0]);
        let (task, dropped) = zone.task(4);
        assert_eq!((task, dropped.len()), (Task::Wait, 4));
        assert_eq!(stock(&zone).iter().sum::<u64>(), 4, "the bound went down");
        drop(dropped);
        assert_eq!(Arc::strong_count(&block), 5, "the others were given back");
        zone.close();
        assert_eq!(zone.task(4).0, Task::End);
    }

    #[test]
    fn nobody_waits_once_all_is_to_stop() {
        let stop = Arc::new(AtomicBool::new(false));
        let zone = Zone::new(ColorSet::all(4), Arc::clone(&stop));
        let block = Arc::new(OwnPages::reserve(1).unwrap());
        assert_eq!(zone.task(100).0, Task::Gather);
        assert!(zone.add(frames(&block, 1, 3), 3).is_empty());
        let (want, long) = (ColorSet::parse("0-1", 4).unwrap(), Duration::from_secs(60));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| zone.take(8, &want, long).unwrap().len());
            let resting = scope.spawn(|| zone.rest(long));
            while zone.lock().asked.is_none() {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
            assert_eq!(waiting.join().unwrap(), 3, "what there is");
            assert!(!resting.join().unwrap(), "no more are wanted");
        });
        assert_eq!(zone.task(100).0, Task::End);
        assert!(zone.add(frames(&block, 1, 3), 3).is_empty());
        assert!(!zone.is_hopeful(&want), "nothing is to leave the cache any more");
    }

    #[test]
    fn whoever_waits_is_woken_by_frames_and_by_failure() {
        let (zone, block) = zone(100);
        let want = ColorSet::parse("3", 4).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| zone.take(2, &want, Duration::from_secs(20)));
            while zone.task(100).0 == Task::Wait {}
            assert!(zone.add(frames(&block, 3, 2), 2).is_empty());
            assert_eq!(waiting.join().unwrap().unwrap().len(), 2);
            zone.fail(FileCacheError::NoFrames { limit: 1 });
            assert!(!zone.is_hopeful(&want));
            assert!(zone.take(1, &want, Duration::from_secs(20)).is_err());
            assert!(zone.take(1, &want, Duration::from_secs(20)).is_err(), "it stays failed");
        });
    }
}
