//! Pages, where TLBs are modelled: which one each access is to, and how large it is by the guest's page tables, which
//! are read in the guest's memory, a file that the emulator shares. A page is told when it is first accessed, and
//! again once it has changed (see `translations`).
//! Only where processors take turns: one thread at a time is in here.

use std::cell::UnsafeCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::guest_places::GuestPlaces;
use crate::lab::{LabMark, LabPage, LabWord, ROOT_AT};
use crate::page_tables::{GuestMemory, PAGE_BITS, TableRoot};
use crate::translations::{ToldPage, Translations};
use crate::{stream, turn_page, turns};

static PAGES: Alone = Alone(UnsafeCell::new(None));

/// What is used by one thread at a time.
struct Alone(UnsafeCell<Option<Pages>>);

// SAFETY: it is filled before processors run, and used only where they take turns, so by the thread that they share.
unsafe impl Sync for Alone {}

struct Pages {
    memory: SharedMemory,
    all: Translations,
}

/// The guest's memory, a file for each node.
struct SharedMemory {
    files: Vec<File>,
    places: GuestPlaces,
}

impl GuestMemory for SharedMemory {
    fn place(&self, physical: u64) -> Option<u64> {
        self.places.of_physical(physical)
    }

    fn read(&self, place: u64) -> Option<u64> {
        let (node, at) = self.places.in_node(place)?;
        let mut bytes = [0; 8];
        self.files.get(node)?.read_exact_at(&mut bytes, at).ok()?;
        Some(u64::from_le_bytes(bytes))
    }
}

/// Pages are told. The guest's memory is in files, one for each node.
///
/// # Safety
/// Nothing of the guest runs yet.
pub unsafe fn begin(paths: &[String], places: GuestPlaces) -> io::Result<()> {
    let files = paths.iter().map(File::open).collect::<io::Result<_>>()?;
    let frames = usize::try_from(places.bytes() >> PAGE_BITS).unwrap_or(0);
    let memory = SharedMemory { files, places };
    // SAFETY: as promised by the caller; see `Alone`.
    unsafe { *PAGES.0.get() = Some(Pages { memory, all: Translations::new(frames) }) };
    Ok(())
}

/// An access is told next, to an address as the processor has it.
#[inline]
pub fn note(word: LabWord, address: u64) {
    if !turns::are_given() {
        return;
    }
    // SAFETY: see `Alone`; nobody else has it while `note` runs, which does not come back here.
    if let Some(pages) = unsafe { &mut *PAGES.0.get() } {
        pages.note(word, address);
    }
}

impl Pages {
    #[inline(always)]
    fn note(&mut self, word: LabWord, address: u64) {
        let (cpu, place) = (word.cpu(), word.address());
        let frame = (place >> PAGE_BITS) as usize;
        if word.is_kernel() && word.is_store() {
            self.stored(word, frame);
        }
        let number = address >> PAGE_BITS & ((1 << LabPage::NUMBER_BITS) - 1);
        if !self.all.is_known(cpu, frame, number) {
            self.all.look((cpu, frame, number), &self.memory, &mut |told| tell(cpu, told));
        }
    }

    /// The kernel has stored something: into a page table, perhaps, or where the next one is.
    #[inline(always)]
    fn stored(&mut self, word: LabWord, frame: usize) {
        let (cpu, place) = (word.cpu(), word.address());
        if self.all.is_table(frame) {
            let what = (place, word.bytes());
            self.all.stored(cpu, what, &self.memory, &mut |told| tell(cpu, told));
        }
        if turn_page::stored(word) == Some(ROOT_AT) {
            let root = self.memory.read(place).and_then(TableRoot::of_kernel);
            root.into_iter()
                .for_each(|root| self.all.switch(cpu, root, &mut |told| tell(cpu, told)));
        }
    }
}

fn tell(cpu: usize, told: ToldPage) {
    let (mark, number) = match told {
        ToldPage::Root(frame) => (LabMark::Root, frame),
        ToldPage::Page(page) => (LabMark::Page, page.0),
        ToldPage::Gone(page) => (LabMark::Gone, page.0),
    };
    stream::push(LabWord::told(cpu as u32, mark, number));
}
