//! What sets held before a batch changed them, so that the batch can be taken back.

use super::Cache;

/// What a loop over sets of `W` slots tells before it changes one.
pub(super) trait SetLog<T, const W: usize> {
    fn keep(&mut self, set: usize, ways: &[T; W]);
    /// Nothing more changes.
    fn finish(self);
}

/// Nothing is taken back.
pub(super) struct NoLog;

impl<T, const W: usize> SetLog<T, W> for NoLog {
    #[inline(always)]
    fn keep(&mut self, _: usize, _: &[T; W]) {}

    fn finish(self) {}
}

/// Sets, and what they held, in the order in which they changed.
#[derive(Clone, Debug, Default)]
pub(super) struct UndoLog {
    sets: Vec<u32>,
    words: Vec<u32>,
    len: usize,
    slots: usize,
}

impl UndoLog {
    /// An empty log for at most so many changes to sets of `W` slots.
    pub(super) fn begin<const W: usize>(&mut self, most: usize) -> UndoEnd<'_, W> {
        self.make_room(most, W);
        let UndoLog { sets, words, len, .. } = self;
        UndoEnd { sets, words: words.as_chunks_mut::<W>().0, len: 0, total: len }
    }

    pub(super) fn make_room(&mut self, most: usize, slots: usize) {
        (self.len, self.slots) = (0, slots);
        if self.sets.len() < most {
            self.sets.resize(most, 0);
        }
        if self.words.len() < most * slots {
            self.words.resize(most * slots, 0);
        }
    }

    /// Takes all changes back.
    pub(super) fn undo(&mut self, cache: &mut Cache) {
        for at in (0..self.len).rev() {
            let words = &self.words[at * self.slots..][..self.slots];
            cache.sets.put_back(self.sets[at] as usize, words);
        }
        self.len = 0;
    }
}

/// A log that is being written: what it knows stays in registers.
pub(super) struct UndoEnd<'a, const W: usize> {
    sets: &'a mut [u32],
    words: &'a mut [[u32; W]],
    len: usize,
    total: &'a mut usize,
}

impl<const W: usize> SetLog<u32, W> for UndoEnd<'_, W> {
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "sets of small words are few")]
    fn keep(&mut self, set: usize, ways: &[u32; W]) {
        self.sets[self.len] = set as u32;
        self.words[self.len] = *ways;
        self.len += 1;
    }

    #[inline(always)]
    fn finish(self) {
        *self.total = self.len;
    }
}
