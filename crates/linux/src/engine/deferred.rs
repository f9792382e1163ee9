//! Colours that are measured only once somebody asks for them: a program that is watched, and may never
//! be confined, does not wait for that when it starts. Nothing is measured here.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use huepage_color::{Color, Pfn, Provenance};

use super::source::{Candidate, ColorSource};
use crate::probe::{ProbeError, TimingBench};
use crate::residency::Sight;

/// Opens what is behind.
type Open = dyn Fn() -> Result<Box<dyn ColorSource>, ProbeError> + Send + Sync;

/// A source that is opened when the first process gets a handle of its own.
pub struct Deferred {
    universe: u16,
    provenance: Provenance,
    open: Arc<Open>,
    opened: Arc<OnceLock<Result<Shared, String>>>,
}

/// Handles are made of it, one after the other.
struct Shared(Mutex<Box<dyn ColorSource>>);

impl Deferred {
    /// Has as many colours, known in this way, once `open` was called.
    pub fn new(
        universe: u16,
        provenance: Provenance,
        open: impl Fn() -> Result<Box<dyn ColorSource>, ProbeError> + Send + Sync + 'static,
    ) -> Deferred {
        let opened = Arc::new(OnceLock::new());
        Deferred { universe, provenance, open: Arc::new(open), opened }
    }

    fn missing(&self, why: String) -> Missing {
        Missing { universe: self.universe, provenance: self.provenance, why }
    }

    fn behind(&self) -> Box<dyn ColorSource> {
        let open = || {
            let source = (self.open)().map_err(|error| error.to_string())?;
            if source.universe() == self.universe {
                return Ok(Shared(Mutex::new(source)));
            }
            let (found, expected) = (source.universe(), self.universe);
            Err(format!("{found} colours were found and not {expected}; name the colours"))
        };
        match self.opened.get_or_init(open) {
            Ok(shared) => shared.0.lock().unwrap_or_else(PoisonError::into_inner).another(),
            Err(why) => Box::new(self.missing(why.clone())),
        }
    }
}

impl ColorSource for Deferred {
    fn universe(&self) -> u16 {
        self.universe
    }

    fn provenance(&self) -> Provenance {
        self.provenance
    }

    fn known(&self, frame: Pfn) -> Option<Color> {
        self.behind().known(frame)
    }

    fn reference(&self) -> Option<(BorrowedFd<'_>, u64)> {
        // Agents have handles of their own.
        None
    }

    fn measure(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[Candidate],
    ) -> Result<Vec<Option<Color>>, ProbeError> {
        self.behind().measure(bench, pages)
    }

    fn measure_again(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[Candidate],
    ) -> Result<Vec<Option<Color>>, ProbeError> {
        self.behind().measure_again(bench, pages)
    }

    fn sight(&self) -> Sight {
        self.behind().sight()
    }

    fn shown(&self, frame: Pfn) -> Option<Color> {
        self.behind().shown(frame)
    }

    fn another(&self) -> Box<dyn ColorSource> {
        self.behind()
    }

    fn for_process(&self) -> Result<Box<dyn ColorSource>, ProbeError> {
        self.behind().for_process()
    }
}

/// What a source that could not be opened has in its place.
struct Missing {
    universe: u16,
    provenance: Provenance,
    why: String,
}

impl ColorSource for Missing {
    fn universe(&self) -> u16 {
        self.universe
    }

    fn provenance(&self) -> Provenance {
        self.provenance
    }

    fn known(&self, _: Pfn) -> Option<Color> {
        None
    }

    fn reference(&self) -> Option<(BorrowedFd<'_>, u64)> {
        None
    }

    fn measure(
        &mut self,
        _: &mut dyn TimingBench,
        _: &[Candidate],
    ) -> Result<Vec<Option<Color>>, ProbeError> {
        Err(ProbeError::Later(self.why.clone()))
    }

    fn measure_again(
        &mut self,
        _: &mut dyn TimingBench,
        _: &[Candidate],
    ) -> Result<Vec<Option<Color>>, ProbeError> {
        Err(ProbeError::Later(self.why.clone()))
    }

    fn sight(&self) -> Sight {
        Sight::Missing(self.why.clone())
    }

    fn another(&self) -> Box<dyn ColorSource> {
        let Missing { universe, provenance, why } = self;
        Box::new(Missing { universe: *universe, provenance: *provenance, why: why.clone() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use huepage_color::{CacheGeometry, CacheKind, CacheLevel, ColorMap};

    use super::*;
    use crate::engine::Computed;
    use crate::probe::{TimingJob, TimingResult};

    static OPENED: AtomicU32 = AtomicU32::new(0);

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

    #[test]
    fn it_is_opened_once_and_when_needed() {
        let open = || {
            OPENED.fetch_add(1, Relaxed);
            Ok(Box::new(computed()) as Box<dyn ColorSource>)
        };
        let colors = computed().universe();
        let source = Deferred::new(colors, Provenance::Declared, open);
        assert_eq!((source.universe(), OPENED.load(Relaxed)), (colors, 0));
        let (one, other) = (source.another(), source.another());
        assert_eq!(OPENED.load(Relaxed), 1);
        assert_eq!(one.known(Pfn(5)), computed().known(Pfn(5)));
        assert_eq!(other.known(Pfn(6)), computed().known(Pfn(6)));
    }

    #[test]
    fn what_cannot_be_opened_is_said_when_measuring() {
        let page = [Candidate { address: 0x1000, frame: Pfn(1) }];
        let source = Deferred::new(16, Provenance::Probed, || Err(ProbeError::BadJob("x".into())));
        let mut handle = source.another();
        assert_eq!(handle.known(Pfn(1)), None);
        let error = handle.measure(&mut Nothing, &page).expect_err("it cannot be opened");
        assert!(error.to_string().contains('x'), "{error}");
        let other = Deferred::new(7, Provenance::Declared, || Ok(Box::new(computed())));
        let error = other.another().measure(&mut Nothing, &page).expect_err("other colours");
        assert!(error.to_string().contains("not 7"), "{error}");
    }
}
