//! What keeps colours true for all processes of a supervisor: the reference pages, which are sorted anew
//! by this process itself, and the budget of what is measured again. When and how much is the business of
//! `huepage_policy::Upkeep`; which pages is that of `keep`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use huepage_policy::{Looked, Upkeep, UpkeepLook, UpkeepSettings};

use crate::color::probe::{Classifier, ColorClasses, LocalBench, OpenedSet, quietest_cpu, update};
use crate::kernel::process_memory::thread_time;

/// CPU time to sort the reference pages.
const HEALING_CPU_TIME: Duration = Duration::from_millis(300);

/// See the module's head.
pub struct ColorUpkeep {
    opened: Arc<OpenedSet>,
    began: Instant,
    upkeep: Mutex<(Upkeep, u64)>,
    classes: Mutex<Arc<ColorClasses>>,
    healer: Mutex<Healer>,
}

struct Healer {
    classifier: Classifier,
    /// All reference pages, those that are in no class at the moment included.
    pages: Vec<u32>,
}

impl ColorUpkeep {
    pub(crate) fn new(opened: Arc<OpenedSet>) -> ColorUpkeep {
        let classes = opened.set.classes.clone();
        let (classifier, pages) = (Classifier::new(classes.clone()), classes.pages().collect());
        ColorUpkeep {
            opened,
            began: Instant::now(),
            upkeep: Mutex::new((Upkeep::new(UpkeepSettings::default()), 0)),
            classes: Mutex::new(Arc::new(classes)),
            healer: Mutex::new(Healer { classifier, pages }),
        }
    }

    /// The classes as they were found last.
    pub(crate) fn classes(&self) -> Arc<ColorClasses> {
        Arc::clone(&lock(&self.classes))
    }

    /// A number for a process whose pages are to be looked at.
    pub(crate) fn admit(&self) -> u64 {
        let mut upkeep = lock(&self.upkeep);
        upkeep.1 += 1;
        upkeep.1
    }

    /// The process has ended.
    pub(crate) fn dismiss(&self, id: u64) {
        lock(&self.upkeep).0.leave(id);
    }

    /// What such a process is to look at now.
    pub(crate) fn due(&self, id: u64) -> Option<UpkeepLook> {
        lock(&self.upkeep).0.due(id, self.began.elapsed())
    }

    /// How long it may sleep before it has to look, as pages were found moved; `None`: for as long as it likes.
    pub(crate) fn hurried(&self, id: u64) -> Option<Duration> {
        lock(&self.upkeep).0.hurried(id, self.began.elapsed())
    }

    /// It has looked.
    pub(crate) fn looked(&self, id: u64, found: Looked) {
        lock(&self.upkeep).0.looked(id, found, self.began.elapsed());
    }

    /// Sorts the reference pages anew if it is time.
    pub(crate) fn heal_if_due(&self) {
        if lock(&self.upkeep).0.references_due(self.began.elapsed()) {
            self.heal();
        }
    }

    /// Sorts the reference pages anew, unless somebody does. What cannot be done now is done later.
    pub(crate) fn heal(&self) {
        let Ok(mut healer) = self.healer.try_lock() else { return };
        let began = thread_time();
        if let Ok(mut bench) = LocalBench::with_reference(quietest_cpu(), &self.opened.set.memory) {
            let Healer { classifier, pages } = &mut *healer;
            let found = classifier.heal_among(&mut bench, pages, HEALING_CPU_TIME);
            if found.is_ok_and(|changed| changed > 0) {
                let classes = classifier.classes().clone();
                let _ = update(&self.opened, &classes);
                *lock(&self.classes) = Arc::new(classes);
            }
        }
        lock(&self.upkeep).0.spent(thread_time().saturating_sub(began));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
