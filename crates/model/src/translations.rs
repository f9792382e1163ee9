//! Which pages an emulated processor uses, by the page tables in the guest's memory, told when they are first used and
//! when they change: what a model of TLBs needs beside the physical addresses of accesses. The table that each
//! processor translates by comes from the guest; a page that is accessed for the first time is looked for in it; and a
//! store to an entry that such a walk has read shows that the page is there no more. Who may access a page, and whether
//! somebody has, changes nothing. The plugin of the lab compiles this file as well; it uses only its neighbours.

use std::collections::HashMap;

use crate::lab::LabPage;
use crate::page_tables::{
    GuestMemory, Leads, PAGE_BITS, PageWalk, TABLE_BITS, TableRoot, leads, translation, walk,
};

/// Processors that are told apart.
const CPUS: usize = 256;
/// Page tables that are told apart; with more all begins anew.
const SPACES: usize = 1 << 14;
const ENTRIES: usize = 1 << TABLE_BITS;
/// What was told of a frame: the page, above it the space, and that something was.
const KNOWN: u64 = 1 << 63;
const SPACE_AT: u32 = LabPage::BITS;
const LEVEL: u64 = 3 << LabPage::NUMBER_BITS;
/// The space of the kernel's pages, which all tables have alike.
const KERNEL: u16 = 0;

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToldPage {
    /// The processor translates by the table with its root in this frame, until another one is told.
    Root(u64),
    /// The access that is told next is to this page.
    Page(LabPage),
    /// A page of that table has lost its frame. The number is of its first base page.
    Gone(LabPage),
}

/// A table that a walk went through.
#[derive(Debug)]
struct ReadTable {
    space: u16,
    /// The first base page below it.
    first: u64,
    level: u32,
    /// What its entries said that walks have read; 0: it was not read.
    entries: Box<[u64; ENTRIES]>,
}

impl ReadTable {
    fn page_of(&self, index: usize) -> u64 {
        self.first + ((index as u64) << (TABLE_BITS * self.level))
    }
}

/// See the module's head. Frames are counted as the memory keeps them.
#[derive(Debug)]
pub struct Translations {
    /// What each frame was told as, or 0.
    told: Vec<u64>,
    /// Frames with tables that were read, a bit each.
    tables: Vec<u64>,
    read: HashMap<u64, ReadTable>,
    /// By space; the kernel's has the latest, which is in use most likely.
    roots: Vec<TableRoot>,
    /// The space of each root.
    spaces: HashMap<u64, u16>,
    current: [u16; CPUS],
    /// Frames whose pages no table had.
    unfound: Vec<usize>,
}

impl Translations {
    /// Of a memory of so many frames, before anything is known.
    pub fn new(frames: usize) -> Translations {
        Translations {
            told: vec![0; frames],
            tables: vec![0; frames.div_ceil(64)],
            read: HashMap::new(),
            roots: Vec::new(),
            spaces: HashMap::new(),
            current: [KERNEL; CPUS],
            unfound: Vec::new(),
        }
    }

    /// A processor translates by another table from now on.
    pub fn switch(&mut self, cpu: usize, root: TableRoot, tell: &mut impl FnMut(ToldPage)) {
        if self.roots.len() == SPACES {
            *self = Translations::new(self.told.len());
        }
        if self.roots.is_empty() {
            self.roots.push(root);
        }
        self.roots[usize::from(KERNEL)] = root;
        let next = u16::try_from(self.roots.len()).unwrap_or(KERNEL);
        let space = *self.spaces.entry(root.physical).or_insert(next);
        if space == next {
            self.roots.push(root);
        }
        self.current[cpu % CPUS] = space;
        self.unfound.drain(..).for_each(|frame| self.told[frame] = 0);
        tell(ToldPage::Root(root.physical >> PAGE_BITS));
    }

    #[inline(always)]
    fn space(&self, cpu: usize, number: u64) -> u16 {
        if LabPage(number).is_kernel() { KERNEL } else { self.current[cpu % CPUS] }
    }

    /// Whether an access by a processor to a frame, as base page `number`, needs nothing more to be told.
    #[inline(always)]
    pub fn is_known(&self, cpu: usize, frame: usize, number: u64) -> bool {
        let Some(told) = self.told.get(frame) else { return true };
        told & !LEVEL == known(self.space(cpu, number), number)
    }

    /// Whether a walk went through a table in a frame.
    #[inline(always)]
    pub fn is_table(&self, frame: usize) -> bool {
        self.tables.get(frame / 64).is_some_and(|bits| bits >> (frame % 64) & 1 == 1)
    }

    /// Looks for a page that is not known, and tells it.
    pub fn look(
        &mut self,
        (cpu, frame, number): (usize, usize, u64),
        memory: &impl GuestMemory,
        tell: &mut impl FnMut(ToldPage),
    ) {
        let Some(_) = self.told.get(frame) else { return };
        let space = self.space(cpu, number);
        let root = self.roots.get(usize::from(space)).copied();
        let fits = |walk: &PageWalk| walk.place >> PAGE_BITS == frame as u64;
        let found = root.and_then(|root| Some((root, walk(memory, root, number).filter(fits)?)));
        match found {
            Some((root, walk)) => self.remember((cpu, space, number), root, &walk, memory, tell),
            None => self.unfound.push(frame),
        }
        let page = LabPage::new(number, found.map(|(_, walk)| walk.level));
        self.told[frame] = known(space, 0) | page.0;
        tell(ToldPage::Page(page));
    }

    /// Notes the entries that a walk has read. Of the kernel's the root's are left out: each table has its own
    /// of them, and none changes.
    fn remember(
        &mut self,
        (cpu, space, number): (usize, u16, u64),
        root: TableRoot,
        walk: &PageWalk,
        memory: &impl GuestMemory,
        tell: &mut impl FnMut(ToldPage),
    ) {
        let below = if space == KERNEL { root.levels - 1 } else { root.levels };
        for (level, step) in walk.steps().filter(|(level, _)| *level < below) {
            let (frame, index) = (step.place >> PAGE_BITS, index_of(step.place));
            let first = number >> (TABLE_BITS * (level + 1)) << (TABLE_BITS * (level + 1));
            let same = |table: &ReadTable| {
                (table.space, table.first, table.level) == (space, first, level)
            };
            if !self.read.get(&frame).is_some_and(same) {
                self.lose(cpu, tell, |all, lost| all.forget_table(frame, memory, lost));
                let entries = Box::new([0; ENTRIES]);
                self.read.insert(frame, ReadTable { space, first, level, entries });
                self.mark_table(frame, true);
            }
            let table = self.read.get_mut(&frame);
            table.into_iter().for_each(|table| table.entries[index] = step.translation);
        }
    }

    fn mark_table(&mut self, frame: u64, is_one: bool) {
        let frame = usize::try_from(frame).unwrap_or(usize::MAX);
        if let Some(bits) = self.tables.get_mut(frame / 64) {
            *bits = *bits & !(1 << (frame % 64)) | u64::from(is_one) << (frame % 64);
        }
    }

    /// The guest has stored so many bytes into a table that a walk went through: tells the pages that
    /// are there no more.
    pub fn stored(
        &mut self,
        cpu: usize,
        (place, bytes): (u64, u64),
        memory: &impl GuestMemory,
        tell: &mut impl FnMut(ToldPage),
    ) {
        let end = (place + bytes).min((place >> PAGE_BITS << PAGE_BITS) + (1 << PAGE_BITS));
        for place in (place / 8 * 8..end).step_by(8) {
            let Some(table) = self.read.get_mut(&(place >> PAGE_BITS)) else { return };
            let (index, level, space) = (index_of(place), table.level, table.space);
            let before = table.entries[index];
            let now = memory.read(place).map_or(0, |entry| translation(entry, level));
            if before != 0 && before != now {
                table.entries[index] = 0;
                let lost = (space, table.page_of(index), level, before);
                self.lose(cpu, tell, |all, pages| all.forget(lost, memory, pages));
            }
        }
    }

    /// Tells all pages that `forget` gives, as those of their tables.
    fn lose(
        &mut self,
        cpu: usize,
        tell: &mut impl FnMut(ToldPage),
        forget: impl FnOnce(&mut Self, &mut Vec<(u16, LabPage)>),
    ) {
        let mut pages = Vec::new();
        forget(self, &mut pages);
        let own = self.current[cpu % CPUS];
        let mut said = own;
        for (space, page) in pages {
            if space != KERNEL && space != said {
                said = space;
                self.tell_root(space, tell);
            }
            tell(ToldPage::Gone(page));
        }
        if said != own {
            self.tell_root(own, tell);
        }
    }

    fn tell_root(&self, space: u16, tell: &mut impl FnMut(ToldPage)) {
        let root = self.roots.get(usize::from(space)).filter(|_| space != KERNEL);
        tell(ToldPage::Root(root.map_or(0, |root| root.physical >> PAGE_BITS)));
    }

    /// Forgets what an entry led to, which is given with its space, first page and level.
    fn forget(
        &mut self,
        (space, number, level, entry): (u16, u64, u32, u64),
        memory: &impl GuestMemory,
        pages: &mut Vec<(u16, LabPage)>,
    ) {
        match leads(entry, level) {
            None => {}
            Some(Leads::Page(physical)) => {
                pages.push((space, LabPage::new(number, Some(level))));
                for base in 0..1_u64 << (TABLE_BITS * level) {
                    let place = memory.place(physical + (base << PAGE_BITS));
                    self.forget_frame(place, known(space, number + base));
                }
            }
            Some(Leads::Table(physical)) => {
                let frame = memory.place(physical).map_or(u64::MAX, |place| place >> PAGE_BITS);
                // A table that is on another level is not this one's: so this ends.
                if self.read.get(&frame).is_some_and(|table| table.level + 1 == level) {
                    self.forget_table(frame, memory, pages);
                }
            }
        }
    }

    /// Forgets a table and what is below it.
    fn forget_table(
        &mut self,
        frame: u64,
        memory: &impl GuestMemory,
        pages: &mut Vec<(u16, LabPage)>,
    ) {
        let Some(table) = self.read.remove(&frame) else { return };
        self.mark_table(frame, false);
        for (index, &entry) in table.entries.iter().enumerate().filter(|(_, entry)| **entry != 0) {
            let lost = (table.space, table.page_of(index), table.level, entry);
            self.forget(lost, memory, pages);
        }
    }

    fn forget_frame(&mut self, place: Option<u64>, known: u64) {
        let frame = place.and_then(|place| usize::try_from(place >> PAGE_BITS).ok());
        let told = frame.and_then(|frame| self.told.get_mut(frame));
        told.into_iter().filter(|told| **told & !LEVEL == known).for_each(|told| *told = 0);
    }
}

/// What says that a base page of a space was told.
#[inline(always)]
const fn known(space: u16, number: u64) -> u64 {
    KNOWN | (space as u64) << SPACE_AT | number
}

const fn index_of(place: u64) -> usize {
    (place >> 3) as usize & (ENTRIES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_tables::tests::{HALF, HIGH, Made, made};

    const ROOT: TableRoot = TableRoot { physical: 0x1000, levels: 4 };
    const OTHER: TableRoot = TableRoot { physical: 0xa000, levels: 4 };
    const LARGE: u64 = 1 << 7;
    /// The frame of page 5 of [`made`].
    const FIFTH: usize = ((HALF + 0x7000) >> 12) as usize;

    struct Watched {
        all: Translations,
        memory: Made,
        told: Vec<ToldPage>,
    }

    impl Watched {
        fn new() -> Watched {
            let all = Translations::new(((2 * HALF) >> 12) as usize);
            let mut watched = Watched { all, memory: made(), told: Vec::new() };
            watched.switch(0, ROOT);
            watched
        }

        fn switch(&mut self, cpu: usize, root: TableRoot) {
            self.all.switch(cpu, root, &mut |told| self.told.push(told));
        }

        /// What is told for an access.
        fn access(&mut self, cpu: usize, frame: usize, number: u64) -> Vec<ToldPage> {
            self.told.clear();
            if !self.all.is_known(cpu, frame, number) {
                self.all.look((cpu, frame, number), &self.memory, &mut |told| self.told.push(told));
            }
            self.told.clone()
        }

        /// What is told when an entry is written.
        fn write(&mut self, cpu: usize, place: u64, entry: u64) -> Vec<ToldPage> {
            self.told.clear();
            self.memory.words.insert(place, entry);
            if self.all.is_table((place >> 12) as usize) {
                self.all.stored(cpu, (place, 8), &self.memory, &mut |told| self.told.push(told));
            }
            self.told.clone()
        }
    }

    fn page(number: u64, level: u32) -> LabPage {
        LabPage::new(number, Some(level))
    }

    #[test]
    fn a_page_is_told_once_and_again_when_its_entry_has_changed() {
        let mut watched = Watched::new();
        assert_eq!(watched.access(0, FIFTH, 5), [ToldPage::Page(page(5, 0))]);
        assert_eq!(watched.access(0, FIFTH, 5), []);
        let entry = watched.memory.words[&0x4028];
        assert_eq!(watched.write(0, 0x4028, entry ^ 0x60), [], "accessed, dirty");
        assert_eq!(watched.write(0, 0x4030, 0x5001), [], "an entry that no walk has read");
        assert_eq!(watched.write(0, 0x4028, 0), [ToldPage::Gone(page(5, 0))]);
        assert_eq!(watched.write(0, 0x4028, HIGH + 0x8001), [], "no longer read");
        assert_eq!(watched.access(0, FIFTH + 1, 5), [ToldPage::Page(page(5, 0))]);
        let moved = watched.write(0, 0x4028, HIGH + 0x9001);
        assert_eq!(moved, [ToldPage::Gone(page(5, 0))], "to another frame at once");
    }

    #[test]
    fn a_superpage_takes_the_place_of_a_table_and_back() {
        let mut watched = Watched::new();
        watched.access(0, FIFTH, 5);
        let built = watched.write(0, 0x3000, (4 << 20) | 1 | LARGE);
        assert_eq!(built, [ToldPage::Gone(page(5, 0))]);
        assert!(!watched.all.is_table(4), "the table is none any more");
        let frame = ((4 << 20) >> 12) + 5;
        assert_eq!(watched.access(0, frame, 5), [ToldPage::Page(page(5, 1))]);
        assert_eq!(watched.access(0, frame + 1, 6), [ToldPage::Page(page(6, 1))]);
        let split = watched.write(0, 0x3000, 0x4001);
        assert_eq!(split, [ToldPage::Gone(page(0, 1))]);
        watched.memory.entry(0x4000, 5, (4 << 20) + 0x5000);
        assert_eq!(watched.access(0, frame, 5), [ToldPage::Page(page(5, 0))], "the same frame");
    }

    #[test]
    fn pages_belong_to_the_table_that_a_processor_uses() {
        let mut watched = Watched::new();
        watched.memory.entry(0xa000, 0, 0x2000);
        watched.switch(1, OTHER);
        assert_eq!(watched.told, [ToldPage::Root(1), ToldPage::Root(0xa)]);
        watched.access(0, FIFTH, 5);
        // Both roots lead to one table here, which belongs to whoever used it last.
        let taken = [
            ToldPage::Root(1),
            ToldPage::Gone(page(5, 0)),
            ToldPage::Root(0xa),
            ToldPage::Page(page(5, 0)),
        ];
        assert_eq!(watched.access(1, FIFTH, 5), taken);
        let gone = [ToldPage::Root(0xa), ToldPage::Gone(page(5, 0)), ToldPage::Root(1)];
        assert_eq!(watched.write(0, 0x4028, 0), gone, "processor 0 goes on with its own");
    }

    #[test]
    fn pages_of_the_kernel_are_the_same_in_every_table() {
        let mut watched = Watched::new();
        for root in [0x1000, 0xa000] {
            watched.memory.entry(root, 0x111, 0x2000);
        }
        let number = 0x1ff << 36 | 0x111 << 27 | 5;
        assert_eq!(watched.access(0, FIFTH, number), [ToldPage::Page(page(number, 0))]);
        watched.switch(0, OTHER);
        assert_eq!(watched.access(0, FIFTH, number), []);
        assert_eq!(watched.write(0, 0x4028, 0), [ToldPage::Gone(page(number, 0))]);
    }

    #[test]
    fn what_no_table_has_is_looked_for_at_the_next_switch() {
        let mut watched = Watched::new();
        let none = ToldPage::Page(LabPage::new(6, None));
        assert_eq!(watched.access(0, FIFTH, 6), [none]);
        assert_eq!(watched.access(0, FIFTH, 6), [], "not with every access");
        assert_eq!(
            watched.access(0, FIFTH + 1, 5),
            [ToldPage::Page(LabPage::new(5, None))],
            "elsewhere"
        );
        watched.switch(0, ROOT);
        assert_eq!(watched.access(0, FIFTH, 6), [none]);
        assert_eq!(watched.access(0, usize::MAX, 5), [], "no memory");
        let mut unknown = Translations::new(100);
        let mut told = Vec::new();
        unknown.look((9, 7, 5), &Made::default(), &mut |one| told.push(one));
        assert_eq!(told, [ToldPage::Page(LabPage::new(5, None))], "nobody has told a table");
    }

    #[test]
    fn tables_in_a_circle_are_forgotten_once() {
        let mut watched = Watched::new();
        // The root is its own table on every level.
        watched.memory.entry(0x1000, 1, 0x1000);
        let number = 1 << 27 | 1 << 18 | 1 << 9 | 1;
        assert_eq!(watched.access(0, 1, number).last(), Some(&ToldPage::Page(page(number, 0))));
        let told = watched.write(0, 0x1008, 0);
        assert!(told.len() <= 1, "{told:?}");
        assert_eq!(watched.write(0, 0x1008, 0x1001), []);
    }

    #[test]
    fn more_tables_than_can_be_told_apart_begin_anew() {
        let mut watched = Watched::new();
        watched.access(0, FIFTH, 5);
        for n in 0..SPACES as u64 + 1 {
            watched.switch(1, TableRoot { physical: n << 20, levels: 4 });
        }
        watched.switch(0, ROOT);
        assert_eq!(watched.access(0, FIFTH, 5), [ToldPage::Page(page(5, 0))]);
        assert_eq!(watched.access(0, FIFTH, 5), []);
    }
}
