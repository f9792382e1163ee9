//! Colours that are found in the background: what asks for them goes on meanwhile, be it a program that
//! runs already or one that is watched and may never be confined. The source behind is opened by a
//! thread, when the first handle is asked for. Noise does not end that: it tries again, with
//! pauses, for as long as anybody holds a handle. Nothing is measured here.

use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use huepage_color::{Color, ColorSet, Pfn, Provenance};
use rustix::process::setpriority_process;

use crate::color::frame_colors::ColorMethod;
use crate::color::probe::{ProbeError, TimingBench};
use crate::color::sources::{Candidate, ColorSource, ColorUpkeep};

/// Opens what is behind.
type Open = dyn Fn() -> Result<Box<dyn ColorSource>, ProbeError> + Send + Sync;

/// Makes a handle on what is behind.
type MakeHandle = fn(&dyn ColorSource) -> Result<Box<dyn ColorSource>, ProbeError>;

/// Pauses between two tries: whatever was in the way may pass.
const PAUSE_SHORTEST: Duration = Duration::from_millis(200);
const PAUSE_LONGEST: Duration = Duration::from_secs(30);
/// Niceness of the thread: programs run in any colour until it is done.
const NICENESS: i32 = -10;

/// A handle on a source that is opened in the background.
pub struct Deferred {
    opening: Arc<Opening>,
    /// Makes the handle on what is behind.
    handle: MakeHandle,
    /// That handle, once it was needed and could be made.
    behind: Option<Box<dyn ColorSource>>,
}

/// What all handles share.
struct Opening {
    universe: u16,
    /// How colours are known, as far as that is known before.
    assumed: Provenance,
    open: Arc<Open>,
    state: Mutex<State>,
    changed: Condvar,
}

enum State {
    /// Nobody has asked yet.
    Closed,
    /// A thread is at it; why it did not succeed so far.
    Trying(Option<String>),
    /// It succeeded.
    Open(Box<dyn ColorSource>),
    /// It never will.
    Failed(String),
}

impl Opening {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread, unless it was started before.
    fn begin(self: &Arc<Self>) {
        let mut state = self.state();
        if !matches!(*state, State::Closed) {
            return;
        }
        let (waiting, open) = (Arc::downgrade(self), Arc::clone(&self.open));
        let name = thread::Builder::new().name("huepage-colours".into());
        *state = match name.spawn(move || keep_opening(&waiting, &*open)) {
            Ok(_) => State::Trying(None),
            Err(error) => State::Failed(format!("no thread can be started: {error}")),
        };
    }

    /// Takes the outcome of a try; whether there is to be another.
    fn note(&self, opened: Result<Box<dyn ColorSource>, ProbeError>) -> bool {
        let next = match opened {
            Ok(source) if source.universe() == self.universe => State::Open(source),
            Ok(source) => {
                let (found, expected) = (source.universe(), self.universe);
                let why =
                    format!("{found} colours were found and not {expected}; name the colours");
                State::Failed(why)
            }
            Err(error) if passes(&error) => State::Trying(Some(error.to_string())),
            Err(error) => State::Failed(error.to_string()),
        };
        let again = matches!(next, State::Trying(_));
        *self.state() = next;
        self.changed.notify_all();
        again
    }

    /// Waits for the end of the first try, or the success of a later one.
    fn settled(self: &Arc<Self>) -> MutexGuard<'_, State> {
        self.begin();
        let unsettled = |state: &mut State| matches!(state, State::Trying(None));
        let waited = self.changed.wait_while(self.state(), unsettled);
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether it may go better another time.
fn passes(error: &ProbeError) -> bool {
    use ProbeError::{Classes, Defect, Os, Stale};
    matches!(error, Classes { .. } | Stale { .. } | Os { .. } | Defect)
}

/// Opens until that succeeds, cannot succeed, or nobody waits any more.
fn keep_opening(waiting: &Weak<Opening>, open: &Open) {
    // Without the right to it, so be it.
    let _ = setpriority_process(None, NICENESS);
    let mut pause = PAUSE_SHORTEST;
    loop {
        // A panic would leave those who wait without an answer, for good.
        let opened =
            catch_unwind(AssertUnwindSafe(open)).unwrap_or_else(|_| Err(ProbeError::Defect));
        if !waiting.upgrade().is_some_and(|opening| opening.note(opened)) {
            return;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_LONGEST);
    }
}

impl Deferred {
    /// Has as many colours, known in this way as far as can be said before, once `open` was called.
    pub fn new(
        universe: u16,
        assumed: Provenance,
        open: impl Fn() -> Result<Box<dyn ColorSource>, ProbeError> + Send + Sync + 'static,
    ) -> Deferred {
        let (state, changed) = (Mutex::new(State::Closed), Condvar::new());
        let opening = Opening { universe, assumed, open: Arc::new(open), state, changed };
        Deferred { opening: Arc::new(opening), handle: |source| Ok(source.another()), behind: None }
    }

    /// Another handle, not made yet.
    fn with(&self, handle: MakeHandle) -> Deferred {
        self.opening.begin();
        Deferred { opening: Arc::clone(&self.opening), handle, behind: None }
    }

    /// The handle on what is behind, made now if that is open.
    fn make(&mut self, state: &State) -> Result<bool, ProbeError> {
        match state {
            State::Open(source) => self.behind = Some((self.handle)(&**source)?),
            State::Failed(why) => return Err(ProbeError::Later(why.clone())),
            State::Closed | State::Trying(_) => {}
        }
        Ok(self.behind.is_some())
    }

    /// The handle on what is behind; waits for it.
    fn behind(&mut self) -> Result<&mut dyn ColorSource, ProbeError> {
        self.wait()?;
        match &mut self.behind {
            Some(behind) => Ok(&mut **behind),
            None => Err(ProbeError::Later("colours are not known".into())),
        }
    }
}

impl ColorSource for Deferred {
    fn universe(&self) -> u16 {
        self.opening.universe
    }

    fn provenance(&self) -> Provenance {
        match &*self.opening.state() {
            State::Open(source) => source.provenance(),
            _ => self.opening.assumed,
        }
    }

    fn known(&self, frame: Pfn) -> Option<Color> {
        self.behind.as_ref()?.known(frame)
    }

    fn vouched(&self, frame: Pfn) -> Option<Color> {
        self.behind.as_ref()?.vouched(frame)
    }

    fn shown(&self, frame: Pfn) -> Option<Color> {
        self.behind.as_ref()?.shown(frame)
    }

    fn reference(&self) -> Option<(BorrowedFd<'_>, u64)> {
        self.behind.as_ref()?.reference()
    }

    fn measure(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[Candidate],
        wanted: Option<&ColorSet>,
    ) -> Result<Vec<Option<Color>>, ProbeError> {
        self.behind()?.measure(bench, pages, wanted)
    }

    fn measure_again(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[Candidate],
    ) -> Result<Vec<Option<Color>>, ProbeError> {
        self.behind()?.measure_again(bench, pages)
    }

    fn method(&self) -> ColorMethod {
        match &*self.opening.settled() {
            State::Open(source) => source.method(),
            State::Trying(Some(why)) | State::Failed(why) => ColorMethod::Missing(why.clone()),
            State::Closed | State::Trying(None) => {
                ColorMethod::Missing("colours are not known".into())
            }
        }
    }

    fn upkeep(&self) -> Option<Arc<ColorUpkeep>> {
        self.behind.as_ref()?.upkeep()
    }

    fn doubt(&mut self) {
        self.behind.iter_mut().for_each(|behind| behind.doubt());
    }

    fn ready(&mut self) -> Result<bool, ProbeError> {
        if self.behind.is_some() {
            return Ok(true);
        }
        let opening = Arc::clone(&self.opening);
        opening.begin();
        let state = opening.state();
        self.make(&state)
    }

    fn unknown_because(&self) -> Option<String> {
        match &*self.opening.state() {
            State::Trying(why) => why.clone(),
            State::Failed(why) => Some(why.clone()),
            State::Closed | State::Open(_) => None,
        }
    }

    fn wait(&mut self) -> Result<(), ProbeError> {
        if self.behind.is_some() {
            return Ok(());
        }
        let opening = Arc::clone(&self.opening);
        let state = opening.settled();
        match (&*state, self.make(&state)?) {
            (State::Trying(Some(why)), false) => Err(ProbeError::Later(why.clone())),
            _ => Ok(()),
        }
    }

    fn another(&self) -> Box<dyn ColorSource> {
        Box::new(self.with(|source| Ok(source.another())))
    }

    fn for_process(&self) -> Result<Box<dyn ColorSource>, ProbeError> {
        Ok(Box::new(self.with(|source| source.for_process())))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use std::sync::mpsc;

    use huepage_color::{CacheGeometry, CacheKind, CacheLevel, ColorMap};

    use super::*;
    use crate::color::probe::{TimingJob, TimingResult};
    use crate::color::sources::Computed;

    fn computed() -> Computed {
        let cache = CacheGeometry {
            level: CacheLevel::L2,
            kind: CacheKind::Unified,
            size_bytes: 1 << 20,
            line_bytes: 64,
            ways: 16,
            sets: 1024,
            slices: Some(1),
            shared_cpus: 1,
            last_level: false,
        };
        let index = cache.linear_index().expect("a cache of this kind has one");
        Computed(ColorMap::computed(cache.level, &index, Provenance::Declared).expect("colours"))
    }

    struct Nothing;

    impl TimingBench for Nothing {
        fn run(&mut self, _: &TimingJob) -> Result<TimingResult, ProbeError> {
            panic!("nothing is measured")
        }

        fn reference_base(&self) -> u64 {
            0
        }
    }

    fn boxed() -> Result<Box<dyn ColorSource>, ProbeError> {
        Ok(Box::new(computed()))
    }

    fn await_ready(handle: &mut dyn ColorSource) {
        while !handle.ready().expect("it can be opened") {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn it_is_opened_once_and_when_needed() {
        static OPENED: AtomicU32 = AtomicU32::new(0);
        let open = || {
            OPENED.fetch_add(1, Relaxed);
            boxed()
        };
        let colors = computed().universe();
        let source = Deferred::new(colors, Provenance::Probed, open);
        assert_eq!((source.universe(), OPENED.load(Relaxed)), (colors, 0));
        assert_eq!(source.provenance(), Provenance::Probed, "as far as is known");
        let (mut one, mut other) = (source.another(), source.for_process().expect("a handle"));
        await_ready(&mut *one);
        other.wait().expect("it is open");
        assert_eq!(OPENED.load(Relaxed), 1);
        assert_eq!(source.provenance(), Provenance::Declared);
        assert_eq!(one.known(Pfn(5)), computed().known(Pfn(5)));
        assert_eq!(other.known(Pfn(6)), computed().known(Pfn(6)));
    }

    #[test]
    fn it_is_told_why_nothing_is_known() {
        let why = "the memory is gone";
        let failing = move || Err(ProbeError::Later(why.into()));
        let source = Deferred::new(computed().universe(), Provenance::Probed, failing);
        assert_eq!(source.unknown_because(), None, "it was not tried");
        assert!(source.another().wait().is_err());
        assert!(source.unknown_because().is_some_and(|told| told.contains(why)));
    }

    #[test]
    fn nothing_is_known_and_nobody_waits_before_it_is_open() {
        let (go, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let open = move || {
            gate.lock().expect("not poisoned").recv().expect("told to go");
            boxed()
        };
        let source = Deferred::new(computed().universe(), Provenance::Declared, open);
        let mut handle = source.for_process().expect("a handle");
        assert!(!handle.ready().expect("it is being opened"));
        assert_eq!(handle.known(Pfn(5)), None);
        go.send(()).expect("somebody waits");
        await_ready(&mut *handle);
        assert_eq!(handle.known(Pfn(5)), computed().known(Pfn(5)));
    }

    #[test]
    fn noise_costs_time_only() {
        let tries = AtomicU32::new(0);
        let open = move || match tries.fetch_add(1, Relaxed) {
            0 | 1 => Err(ProbeError::Stale { rounds: 7 }),
            _ => boxed(),
        };
        let source = Deferred::new(computed().universe(), Provenance::Declared, open);
        let mut handle = source.another();
        let error = handle.wait().expect_err("who waits hears of the first try");
        assert!(error.to_string().contains('7'), "{error}");
        await_ready(&mut *handle);
    }

    #[test]
    fn a_panic_is_told_and_tried_again() {
        let tries = AtomicU32::new(0);
        let open = move || match tries.fetch_add(1, Relaxed) {
            0 => panic!("on purpose"),
            _ => boxed(),
        };
        let source = Deferred::new(computed().universe(), Provenance::Declared, open);
        let mut handle = source.another();
        let error = handle.wait().expect_err("who waits hears of the first try");
        assert!(error.to_string().contains("report"), "{error}");
        await_ready(&mut *handle);
    }

    #[test]
    fn what_cannot_be_opened_is_said_when_measuring() {
        let page = [Candidate { address: 0x1000, frame: Pfn(1) }];
        let source = Deferred::new(16, Provenance::Probed, || Err(ProbeError::BadJob("x".into())));
        let mut handle = source.another();
        assert_eq!(handle.known(Pfn(1)), None);
        let error = handle.measure(&mut Nothing, &page, None).expect_err("it cannot be opened");
        assert!(error.to_string().contains('x'), "{error}");
        assert!(handle.ready().is_err(), "it never will");
        let other = Deferred::new(7, Provenance::Declared, || Ok(Box::new(computed())));
        let error = other.another().measure(&mut Nothing, &page, None).expect_err("other colours");
        assert!(error.to_string().contains("not 7"), "{error}");
    }
}
