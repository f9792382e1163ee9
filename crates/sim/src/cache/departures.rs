//! Which lines leave the last caches before memory: told to who asks whose lines made way for whose.

use super::{Departure, Hierarchy, Path};

impl Hierarchy {
    /// Logs lines that leave caches with nothing below, or ends that. Paths are then not run level by level.
    pub fn log_departures(&mut self, on: bool) {
        self.logged = on.then(Vec::new);
    }

    /// Lines that have left since they were last forgotten, the oldest first.
    #[inline]
    pub fn departures(&self) -> &[Departure] {
        self.logged.as_deref().unwrap_or_default()
    }

    /// Forgets them.
    #[inline]
    pub fn forget_departures(&mut self) {
        self.logged.iter_mut().for_each(Vec::clear);
    }

    /// The number of the last cache of a path.
    pub fn end_of(&self, path: &Path) -> usize {
        let all = std::iter::successors(Some(path.first), |&cache| self.links[cache].next);
        all.last().unwrap_or(path.first)
    }
}
