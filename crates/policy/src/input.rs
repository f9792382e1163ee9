//! What policies need to hear of: each declares its inputs as `NEEDS`, with the unit in which each is
//! told. Engines turn sensors on by it, and the registry says by it where a policy can run.

use crate::event::Event;

/// A kind of feedback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InputKind {
    /// Pages touched for the first time, with their colours.
    Faults,
    /// Resident pages with their colours, from the first to the last: an audit.
    Audits,
    /// Translations that no TLB had, each with the entry that made way.
    TlbMisses,
    /// What a superpage would take, on request.
    Quotes,
    /// The whole stream of accesses, before the run.
    Stream,
    /// Time passed.
    Cycles,
    /// Work done.
    Instructions,
    /// Misses of the last cache, counted.
    CacheMisses,
    /// Sampled loads that missed the nearest cache, with the level that answered.
    Loads,
    /// Pages in the cache miss look-aside buffer, by their misses.
    CmlBuffer,
    /// The first touch of a page after it was asked for.
    Traps,
    /// Pages accessed in a stretch of time, on request.
    AccessedBits,
    /// Misses and requests of the last cache, by program.
    Counters,
    /// Lines requested of the last cache, of a sample.
    RequestedLines,
    /// Blocks of files that were not in the page cache, and files that went.
    FileMisses,
    /// Blocks of files that were.
    FileUses,
    /// Frames in stock by colour, on request.
    Stock,
}

impl InputKind {
    /// What it is, for a person, and the unit in which it is told.
    pub const fn words(self) -> (&'static str, &'static str) {
        match self {
            InputKind::Faults => ("page faults", "pages"),
            InputKind::Audits => ("audits of resident pages", "pages"),
            InputKind::TlbMisses => ("TLB misses with their victims", "pages"),
            InputKind::Quotes => ("quotes for superpages", "pages to copy"),
            InputKind::Stream => ("the stream of accesses beforehand", "accesses"),
            InputKind::Cycles => ("time", "cycles"),
            InputKind::Instructions => ("work done", "instructions"),
            InputKind::CacheMisses => ("cache misses", "misses"),
            InputKind::Loads => ("sampled loads", "pages"),
            InputKind::CmlBuffer => ("a cache miss look-aside buffer", "misses"),
            InputKind::Traps => ("touches of trapped pages", "pages"),
            InputKind::AccessedBits => ("accessed bits", "pages"),
            InputKind::Counters => ("misses and requests by program", "misses and requests"),
            InputKind::RequestedLines => ("sampled requests of the last cache", "lines"),
            InputKind::FileMisses => ("misses of the page cache", "blocks"),
            InputKind::FileUses => ("uses of the page cache", "blocks"),
            InputKind::Stock => ("frames in stock", "frames by colour"),
        }
    }

    /// What an event tells of: nothing, if it answers what the policy asked for or says what became of a
    /// page that every policy hears of.
    pub const fn of(event: &Event) -> &'static [InputKind] {
        match event {
            Event::Faulted { .. } => &[InputKind::Faults],
            Event::Audit | Event::Resident(_) | Event::AuditOver => &[InputKind::Audits],
            Event::TlbMiss { .. } => &[InputKind::TlbMisses],
            Event::Quoted { .. } => &[InputKind::Quotes],
            Event::Progress { .. } => &[InputKind::Cycles, InputKind::Instructions],
            Event::MissOverflow { .. } => &[InputKind::CacheMisses],
            Event::Sample { .. } | Event::Profiled { .. } => &[InputKind::Loads],
            Event::CmlEntry { .. } | Event::ColorReferences { .. } | Event::Conflict { .. } => {
                &[InputKind::CmlBuffer]
            }
            Event::Trapped { .. } => &[InputKind::Traps],
            Event::AccessScan | Event::Accessed { .. } | Event::AccessedOver => {
                &[InputKind::AccessedBits]
            }
            Event::FileMiss { .. } | Event::FileGone { .. } => &[InputKind::FileMisses],
            Event::FileUse { .. } => &[InputKind::FileUses],
            Event::Stock { .. } | Event::StockTold => &[InputKind::Stock],
            _ => &[],
        }
    }
}
