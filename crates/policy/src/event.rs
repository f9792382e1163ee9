//! The words that policies and engines exchange. An event says what a sensor or the engine
//! itself has seen; an action says what the policy wants done. Neither says how.

use std::fmt;

use huepage_color::{Color, Vpn};
use serde::{Deserialize, Serialize};

use crate::prices::Prices;

/// What the area around a page is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AreaKind {
    /// The brk heap.
    Heap,
    /// The stack of the first thread.
    MainStack,
    /// A stack of another thread, where it can be told.
    ThreadStack,
    /// Private memory without a file.
    Anonymous,
    /// Zero-initialised data of a program or library.
    Bss,
    /// A private mapping of a file.
    PrivateFile,
    /// A shared mapping of a file.
    SharedFile,
    /// Memory shared without a lasting file.
    SharedMemory,
    /// The kernel's own mappings.
    Special,
    /// Pages of hugetlbfs.
    HugeTlb,
}

impl AreaKind {
    /// Every kind, in the order in which tables list them, with the words for a person.
    pub const ALL: [(AreaKind, &'static str); 10] = [
        (AreaKind::Heap, "heap"),
        (AreaKind::MainStack, "main stack"),
        (AreaKind::ThreadStack, "thread stack"),
        (AreaKind::Anonymous, "anonymous"),
        (AreaKind::Bss, "bss"),
        (AreaKind::PrivateFile, "private file"),
        (AreaKind::SharedFile, "shared file"),
        (AreaKind::SharedMemory, "shared memory"),
        (AreaKind::Special, "special"),
        (AreaKind::HugeTlb, "hugetlb"),
    ];

    /// The words for a person.
    pub const fn text(self) -> &'static str {
        AreaKind::ALL[self as usize].1
    }
}

impl fmt::Display for AreaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

/// Why a page cannot be, or was not, given another frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveRefusal {
    /// Somebody holds the frame, for instance for input or output in flight.
    Pinned,
    /// Shared with a parent or child until one of them writes.
    CopyOnWrite,
    /// The page changed or vanished while it was about to be moved.
    Raced,
    /// No frame of the colour was in stock.
    NoFrame,
    /// Refused for a reason that is not among these.
    Other,
    /// Shared memory, which other processes map too.
    Shared,
    /// A page of a file, which the page cache owns.
    File,
    /// A mapping of the kernel's own.
    Special,
    /// A huge page that may not be split, such as one of hugetlbfs.
    Huge,
    /// Part of a superpage that was built on purpose, though it lies outside the partition.
    Superpage,
    /// In a colour that was lost, and not touched since.
    Untouched,
    /// Anonymous memory that may be executed, such as compiled code.
    Executable,
    /// Anonymous memory that may not be read and written.
    WriteProtected,
    /// Locked in memory: the program was promised that nothing touches it.
    Locked,
    /// Wiped in a forked child, which a copy for the child would undo.
    WipedOnFork,
    /// Holds a word that the kernel writes when a thread ends, without waiting for the page.
    ClearChildTid,
    /// Registered with a userfaultfd of the program's own, which decides what lies there.
    Userfaultfd,
}

impl MoveRefusal {
    /// Every refusal, those that pass first, in the order in which tables list them, with the words for a person.
    pub const ALL: [(MoveRefusal, &'static str); 17] = [
        (MoveRefusal::Pinned, "pinned"),
        (MoveRefusal::CopyOnWrite, "copy on write"),
        (MoveRefusal::Raced, "changed meanwhile"),
        (MoveRefusal::NoFrame, "no frame in stock"),
        (MoveRefusal::Other, "other"),
        (MoveRefusal::Shared, "shared memory"),
        (MoveRefusal::File, "file page"),
        (MoveRefusal::Special, "kernel mapping"),
        (MoveRefusal::Huge, "huge page"),
        (MoveRefusal::Superpage, "superpage, outside by choice"),
        (MoveRefusal::Untouched, "left until touched"),
        (MoveRefusal::Executable, "executable memory"),
        (MoveRefusal::WriteProtected, "write-protected memory"),
        (MoveRefusal::Locked, "locked in memory"),
        (MoveRefusal::WipedOnFork, "wiped on fork"),
        (MoveRefusal::ClearChildTid, "holds the word that the kernel clears at a thread's end"),
        (MoveRefusal::Userfaultfd, "served by the program's own userfaultfd"),
    ];

    /// Whether the page stays where it is because of what it is or because somebody holds its
    /// frame: such a page does not count as movable. With the other refusals it is only not
    /// moved *yet*, or left outside by choice, and it counts against compliance.
    pub const fn holds_page(self) -> bool {
        use MoveRefusal::{NoFrame, Other, Raced, Superpage, Untouched};
        !matches!(self, Raced | NoFrame | Other | Superpage | Untouched)
    }

    /// The words for a person.
    pub const fn text(self) -> &'static str {
        MoveRefusal::ALL[self as usize].1
    }
}

impl fmt::Display for MoveRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

/// A resident page as an audit sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidentPage {
    /// The page.
    pub page: Vpn,
    /// The colour of its frame; `None` if nobody knows it.
    pub color: Option<Color>,
    /// The area it lies in.
    pub kind: AreaKind,
    /// What is known to keep it where it is, before any attempt to move it.
    pub obstacle: Option<MoveRefusal>,
}

/// What building a superpage would take (Romer 1998, section 3.8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the variants say it")]
pub enum Construction {
    /// Its pages lie as they have to, or the frames in between are reserved or free: no copy.
    InPlace,
    /// So many mapped base pages have to be copied to a free block.
    Copy { pages: u64 },
    /// Memory is fragmented: a block has to be vacated first, of so many base pages of others, and so many of
    /// its own copied there.
    Vacate { pages: u64, others: u64 },
    /// It cannot be built now.
    Impossible(MoveRefusal),
}

/// What has been seen. Pages belong to the one address space that the policy is for. What has a `page` and an
/// `order` is a page of 2^`order` base pages, by the first of them; otherwise `page` is a base page. A `color` is
/// that of the frame of the page, `None` if nobody knows it. A `block` is a page of a `file`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields of the same name mean the same everywhere, as said above")]
#[non_exhaustive]
pub enum Event {
    /// An audit begins: every resident page, or every one outside the partition, will be told.
    Audit,
    /// A page was found resident.
    Resident(ResidentPage),
    /// A recolouring that the policy had asked for was carried out.
    Moved { page: Vpn },
    /// A recolouring that the policy had asked for was not carried out.
    Refused { page: Vpn, why: MoveRefusal },
    /// A page was touched for the first time and has a frame now.
    Faulted { page: Vpn, color: Option<Color> },
    /// No TLB had the translation of a page (Romer 1998, chapters 3 and 4). The victim, by its first base page
    /// and order, made way for it in the last TLB that was asked.
    TlbMiss { page: Vpn, order: u32, victim: Option<(Vpn, u32)> },
    /// A superpage was built, asked for or not. No TLB has translations of its parts any more,
    /// nor of itself yet.
    Promoted { page: Vpn, order: u32 },
    /// A superpage that the policy had asked for was not built.
    NotPromoted { page: Vpn, order: u32, why: MoveRefusal },
    /// The engine says what a superpage would take now; answers `Action::Quote`.
    Quoted { page: Vpn, order: u32, construction: Construction },
    /// What TLB misses and superpages cost from now on: prices that the engine measures while it builds.
    /// Matters to policies that ask what superpages take.
    Priced { prices: Prices },
    /// A superpage was broken into base pages, because the policy wanted it or because the
    /// protection, frame or presence of one base page changed (Romer 1998, section 3.7). The page is
    /// the base page that stood in the way, or any if the policy wanted it.
    Demoted {
        page: Vpn,
        order: u32,
        /// Whether that page stands in the way of a superpage from now on.
        interfering: bool,
    },
    /// A base page that stood in the way of a superpage is as its neighbours are again.
    Restored { page: Vpn },
    /// All translations of the address space were dropped, because the policy wanted it.
    TlbFlushed,
    /// A counter of cache misses ran over; misses since it was started.
    MissOverflow { misses: u64 },
    /// A load or store was sampled (ROCS 2008, section 3).
    Sample {
        page: Vpn,
        /// How many cache levels it missed.
        missed: u32,
        /// Whether it came from memory.
        memory: bool,
    },
    /// A page of a profile that the sensor made itself: how often it was requested of the cache, at least
    /// once, and missed, on a scale that is the same for all pages. `AccessedOver` ends the profile.
    Profiled { page: Vpn, requests: u64, misses: u64 },
    /// A look at the accessed bits begins; pages touched since the last one are told.
    AccessScan,
    /// A page was touched since the last look.
    Accessed { page: Vpn, order: u32 },
    /// A page has another frame than the one last told of, though nobody asked to recolour it:
    /// it became part of a superpage, or made way for one. No TLB has its translation any more.
    Placed { page: Vpn, color: Option<Color> },
    /// The cache miss look-aside buffer is read: a page that it holds (Romer 1998, section 5.2), and its misses
    /// since it entered the buffer.
    CmlEntry { page: Vpn, misses: u64 },
    /// References to a colour that reached the cache since the cache miss look-aside buffer was cleared; no
    /// hardware counts them, so only a simulator can tell (Romer 1998, section 5.6.3).
    ColorReferences { color: Color, references: u64 },
    /// A page in the cache miss look-aside buffer has reached the threshold at which it
    /// interrupts (Romer 1998, section 5.2). All that the buffer holds was told just before.
    Conflict { page: Vpn, misses: u64 },
    /// A block of a file was not in the page cache (SRM-buffer 2011).
    FileMiss {
        file: u64,
        block: u64,
        /// Who asks for it.
        process: u32,
        /// Pages that the file has, as far as is known.
        pages: u64,
    },
    /// Time has passed: sums since the beginning.
    Progress { cycles: u64, instructions: u64 },
    /// Every page that this audit tells of was told.
    AuditOver,
    /// A page that the policy had trapped is touched; it is no longer trapped.
    Trapped { page: Vpn },
    /// Every page that was accessed was told; answers `Action::ReadAccessed`.
    AccessedOver,
    /// A block of a file, which has so many pages as far as is known, was in the page cache and is used; pieces
    /// of it that are read one after the other are one use. Told only where it was asked for.
    FileUse { file: u64, block: u64, pages: u64 },
    /// A file was deleted, and its pages with it.
    FileGone { file: u64 },
    /// Frames of a colour that can be had without taking a page that is in use: free ones, and
    /// those of the coloured zone (SRM-buffer 2011, figure 6). Told of each colour.
    Stock { color: Color, frames: u64 },
    /// `Stock` was told of every colour.
    StockTold,
    /// A recolouring of a file's block that the policy had asked for was carried out.
    BlockMoved { file: u64, block: u64 },
    /// A recolouring of a file's block that the policy had asked for was not carried out.
    BlockRefused { file: u64, block: u64, why: MoveRefusal },
}

/// Why a page outside its partition is left there for now; `why` is what it refused with last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the variants say it")]
pub enum LeaveReason {
    /// It cannot be moved, because of what it is or what is known of it.
    Obstacle(MoveRefusal),
    /// It refused lately; it will be tried again after so many audits, at least 1.
    BackingOff { why: MoveRefusal, audits: u32 },
    /// It refused too often and is not tried any more.
    GivenUp { why: MoveRefusal },
    /// The partition has no colour to move it to.
    EmptyPartition,
}

impl LeaveReason {
    /// The refusal behind it, if there is one.
    pub const fn refusal(self) -> Option<MoveRefusal> {
        match self {
            LeaveReason::Obstacle(why)
            | LeaveReason::BackingOff { why, .. }
            | LeaveReason::GivenUp { why } => Some(why),
            LeaveReason::EmptyPartition => None,
        }
    }
}

/// What a policy wants done. Fields are named as those of [`Event`]; with an `order`, `page` is any base page of the
/// superpage. `to` is the colour that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields of the same name mean the same everywhere, as said above")]
#[non_exhaustive]
pub enum Action {
    /// Nothing: the page lies where it should.
    Keep { page: Vpn },
    /// Give the page a frame of another colour; answer with `Moved` or `Refused`.
    Recolour { page: Vpn, to: Color },
    /// Nothing, although the page lies where it should not.
    Leave { page: Vpn, reason: LeaveReason },
    /// Make one page of 2^`order` base pages; answer with `Promoted` or `NotPromoted`.
    Promote { page: Vpn, order: u32 },
    /// Break the superpage that a page is in into base pages.
    Demote { page: Vpn },
    /// Drop all translations of this address space from the TLBs; answer with `TlbFlushed`.
    FlushTlb,
    /// Drop the translation of one page from the TLBs.
    ForgetTranslation { page: Vpn },
    /// Set the counts of the cache miss look-aside buffer to zero.
    ClearCml,
    /// Keep a count for a page in the fixed segment of the cache miss look-aside buffer, where
    /// no other page pushes it out; the page that is there longest makes way.
    FixInCml { page: Vpn },
    /// Say what a superpage would take; answer with `Quoted`.
    Quote { page: Vpn, order: u32 },
    /// Tell of TLB misses, or stop it and take its cost off the handler. Engines tell until told.
    TellTlbMisses(bool),
    /// Switch the prefetchers of the machine on or off.
    Prefetch(bool),
    /// Begin to tell of samples, or stop it and what it costs. Engines tell until told.
    TellSamples(bool),
    /// Tell of the next touch of a page with `Trapped`, once (COLORIS 2014, section 3.2: its
    /// present bit is cleared).
    Trap { page: Vpn },
    /// Clear the accessed bits of all pages; what is accessed from now on is remembered.
    ClearAccessed,
    /// Tell which pages were accessed since `ClearAccessed`: `AccessScan`, `Accessed` for each, and
    /// `AccessedOver`.
    ReadAccessed,
    /// The block of a file that is missing gets a frame of this colour, which a page that is
    /// not in use gives up where none is free.
    PlaceBlock { file: u64, block: u64, to: Color },
    /// Say which frames are in stock; answer with `Stock` for each colour, then `StockTold`.
    TellStock,
    /// Take the oldest inactive pages of files into stock until there are more than `above`
    /// frames of each colour, now and from now on whenever a colour has run out; answer as
    /// to `TellStock`.
    RefillStock { above: u64 },
    /// Give a cached block of a file a frame of another colour; answer with `BlockMoved` or
    /// `BlockRefused`.
    RecolourBlock { file: u64, block: u64, to: Color },
}

/// A state machine that turns events into actions.
pub trait Policy {
    /// Takes notice of one event and appends what is to be done, if anything. Engines pass
    /// the same vector again and again, so that a million events need no allocation.
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>);
}

impl<P: Policy + ?Sized> Policy for Box<P> {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        (**self).handle(event, actions);
    }
}
