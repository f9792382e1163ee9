//! SRM-buffer's policy for files that are about to be read: says in which colour each of their
//! pages should come. It translates between the policy's events and runs of pages, and tells it
//! what the stock has; it neither reads files nor places pages. It knows some thousand files at most:
//! those that were placed longest ago are forgotten.

use std::collections::{BTreeMap, HashMap};

use huepage_color::{Color, ColorSet};
use huepage_policy::srm::{SrmBuffer, SrmSettings};
use huepage_policy::{Action, Event, MoveRefusal, Policy};

use crate::kernel::mappers::FileId;

/// Files that are known at most.
const KNOWN_FILES: usize = 4096;
/// What part of them is forgotten when there are more.
const FORGOTTEN_PARTS: usize = 8;

/// Pages of a file in a row that are to come in one colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRun {
    /// The first.
    pub first: u64,
    /// How many.
    pub pages: u64,
    /// Where they belong.
    pub color: Color,
}

/// Blocks of a file that the policy wants in other colours, with the file.
pub type Move = (FileId, u64, Color);

/// The name by which the policy knows a file, and when the file was placed last.
#[derive(Clone, Copy, Debug)]
struct Known {
    number: u64,
    latest: u64,
}

/// The policy and the names by which it knows files.
#[derive(Debug)]
pub struct Sequences {
    policy: SrmBuffer,
    /// Its colours, in order.
    colors: Vec<Color>,
    numbers: HashMap<FileId, Known>,
    files: BTreeMap<u64, FileId>,
    /// Names given and files placed so far.
    clock: u64,
    actions: Vec<Action>,
    moves: Vec<Move>,
}

impl Sequences {
    /// For the colours of a partition, or all of them. `settings.colors` is set to their number.
    ///
    /// # Panics
    /// Without colours, or with a threshold of 0.
    pub fn new(settings: SrmSettings, colors: &ColorSet) -> Sequences {
        let settings = SrmSettings { colors: colors.len(), ..settings };
        Sequences {
            policy: SrmBuffer::new(settings),
            colors: colors.iter().collect(),
            numbers: HashMap::new(),
            files: BTreeMap::new(),
            clock: 0,
            actions: Vec::new(),
            moves: Vec::new(),
        }
    }

    /// The colours for pages that `process` is about to read of a file of `size` pages, in the order
    /// of `pages`. `stock` says how many frames of each colour of the cache are ready; with `true`,
    /// after a refill.
    pub fn place(
        &mut self,
        file: FileId,
        size: u64,
        process: u32,
        pages: impl IntoIterator<Item = u64>,
        mut stock: impl FnMut(bool) -> Vec<u64>,
    ) -> Vec<PageRun> {
        let (number, mut runs) = (self.number(file), Vec::new());
        for block in pages {
            self.tell(Event::FileMiss { file: number, block, process, pages: size }, &mut stock);
            self.collect(number, &mut runs);
        }
        runs
    }

    /// A page of a file was used: moves that the policy asks for are in [`Self::moves`].
    /// `size` is that of the file in pages.
    pub fn used(&mut self, file: FileId, block: u64, size: u64) {
        if let Some(&Known { number, .. }) = self.numbers.get(&file) {
            self.tell(Event::FileUse { file: number, block, pages: size }, &mut |_| Vec::new());
            self.collect(number, &mut Vec::new());
        }
    }

    /// A file was removed, or all of it has left the cache, or it is not looked at any more.
    pub fn gone(&mut self, file: FileId) {
        if let Some(Known { number, .. }) = self.numbers.remove(&file) {
            self.files.remove(&number);
            self.tell(Event::FileGone { file: number }, &mut |_| Vec::new());
        }
    }

    /// A process has ended.
    pub fn ended(&mut self, process: u32) {
        self.policy.forget_process(process);
    }

    /// A move could not be made.
    pub fn refused(&mut self, (file, block, _): Move) {
        if let Some(&Known { number: file, .. }) = self.numbers.get(&file) {
            let why = MoveRefusal::Pinned;
            self.tell(Event::BlockRefused { file, block, why }, &mut |_| Vec::new());
        }
    }

    /// Moves asked for since the last call.
    pub fn moves(&mut self) -> Vec<Move> {
        std::mem::take(&mut self.moves)
    }

    fn number(&mut self, file: FileId) -> u64 {
        self.clock += 1;
        let latest = self.clock;
        if let Some(known) = self.numbers.get_mut(&file) {
            known.latest = latest;
            return known.number;
        }
        if self.numbers.len() >= KNOWN_FILES {
            self.forget_oldest();
        }
        self.numbers.insert(file, Known { number: latest, latest });
        self.files.insert(latest, file);
        latest
    }

    /// Forgets the files that were placed longest ago.
    fn forget_oldest(&mut self) {
        let mut files: Vec<_> = self.numbers.iter().map(|(file, k)| (k.latest, *file)).collect();
        files.sort_unstable();
        files.truncate(KNOWN_FILES / FORGOTTEN_PARTS);
        files.into_iter().for_each(|(_, file)| self.gone(file));
    }

    /// Tells the policy and answers what it asks about the stock.
    fn tell(&mut self, event: Event, stock: &mut impl FnMut(bool) -> Vec<u64>) {
        let from = self.actions.len();
        self.policy.handle(event, &mut self.actions);
        let mut at = from;
        while let Some(action) = self.actions.get(at) {
            let refill = match action {
                Action::TellStock => false,
                Action::RefillStock { .. } => true,
                _ => {
                    at += 1;
                    continue;
                }
            };
            self.actions.remove(at);
            self.tell_stock(&stock(refill));
        }
    }

    fn tell_stock(&mut self, stock: &[u64]) {
        for (color, at) in (0..).map(Color).zip(&self.colors) {
            let frames = stock.get(usize::from(at.0)).copied().unwrap_or(0);
            self.policy.handle(Event::Stock { color, frames }, &mut self.actions);
        }
        self.policy.handle(Event::StockTold, &mut self.actions);
    }

    /// Puts what the policy decided into runs and moves.
    fn collect(&mut self, number: u64, runs: &mut Vec<PageRun>) {
        for action in self.actions.drain(..) {
            match action {
                Action::PlaceBlock { file, block, to } if file == number => {
                    extend(runs, block, self.colors[usize::from(to.0)]);
                }
                Action::RecolourBlock { file, block, to } => {
                    let color = self.colors[usize::from(to.0)];
                    self.moves.extend(self.files.get(&file).map(|&file| (file, block, color)));
                }
                _ => {}
            }
        }
    }
}

fn extend(runs: &mut Vec<PageRun>, block: u64, color: Color) {
    match runs.last_mut() {
        Some(run) if run.first + run.pages == block && run.color == color => run.pages += 1,
        _ => runs.push(PageRun { first: block, pages: 1, color }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { device: 1, inode: 2 };
    const OTHER: FileId = FileId { device: 1, inode: 3 };

    fn sequences() -> Sequences {
        let settings = SrmSettings { threshold: 4, ..SrmSettings::paper(1) };
        Sequences::new(settings, &ColorSet::parse("2,5,7", 8).unwrap())
    }

    #[test]
    fn a_large_file_comes_in_sequences_of_the_partition_s_colours() {
        let runs = sequences().place(FILE, 10, 1, 0..10, |_| vec![9; 8]);
        let lengths: Vec<_> = runs.iter().map(|run| (run.first, run.pages)).collect();
        assert_eq!(lengths, [(0, 4), (4, 4), (8, 2)]);
        let mut colors: Vec<u16> = runs.iter().map(|run| run.color.0).collect();
        colors.sort_unstable();
        assert_eq!(colors, [2, 5, 7]);
    }

    #[test]
    fn small_files_of_a_process_share_a_sequence_and_those_of_another_do_not() {
        let mut sequences = sequences();
        let mut color = |file, process| {
            let runs = sequences.place(file, 2, process, 0..2, |_| vec![9; 8]);
            assert_eq!(runs.len(), 1);
            runs[0].color
        };
        let first = color(FILE, 1);
        assert_eq!(color(OTHER, 1), first);
        assert_ne!(color(FILE, 2), first);
        assert_ne!(color(OTHER, 1), first, "a threshold of pages is over");
    }

    #[test]
    fn many_files_leave_the_books_bounded() {
        let mut sequences = sequences();
        let file = |inode| FileId { device: 1, inode };
        let mut place = |file| _ = sequences.place(file, 9, 1, 0..1, |_| vec![9; 8]);
        let all = 3 * KNOWN_FILES as u64;
        for inode in 0..all {
            place(file(inode));
            // This one is read again and again.
            place(file(0));
        }
        let Sequences { policy, numbers, files, clock, .. } = &sequences;
        assert!(numbers.len() <= KNOWN_FILES && files.len() == numbers.len(), "{}", numbers.len());
        assert!([0, all - 1].iter().all(|&inode| numbers.contains_key(&file(inode))));
        assert!(!numbers.contains_key(&file(1)));
        let known = (0..=*clock).filter(|&number| policy.color_of_file(number).is_some()).count();
        assert_eq!(known, numbers.len(), "the policy knows the same");
        (0..all).for_each(|inode| sequences.gone(file(inode)));
        assert!(sequences.numbers.is_empty() && sequences.files.is_empty());
        assert_eq!(sequences.policy.marked().count(), 0);
    }

    #[test]
    fn a_colour_without_frames_is_not_chosen_and_a_refill_is_asked_for_once() {
        let mut refills = 0;
        let runs = sequences().place(FILE, 4, 1, 0..4, |refill| {
            refills += u32::from(refill);
            if refill { vec![0, 0, 0, 0, 0, 6, 0, 0] } else { vec![0; 8] }
        });
        assert_eq!((runs[0].color, runs[0].pages, refills), (Color(5), 4, 1));
    }
}
