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
    WaitingPages,
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
    /// What it is, for a person.
    pub const fn text(self) -> &'static str {
        match self {
            InputKind::Faults => "page faults",
            InputKind::Audits => "audits of resident pages",
            InputKind::TlbMisses => "TLB misses with their victims",
            InputKind::Quotes => "quotes for superpages",
            InputKind::Stream => "the stream of accesses beforehand",
            InputKind::Cycles => "time",
            InputKind::Instructions => "work done",
            InputKind::CacheMisses => "cache misses",
            InputKind::Loads => "sampled loads",
            InputKind::CmlBuffer => "a cache miss look-aside buffer",
            InputKind::WaitingPages => "touches of trapped pages",
            InputKind::AccessedBits => "accessed bits",
            InputKind::Counters => "misses and requests by program",
            InputKind::RequestedLines => "sampled requests of the last cache",
            InputKind::FileMisses => "misses of the page cache",
            InputKind::FileUses => "uses of the page cache",
            InputKind::Stock => "frames in stock",
        }
    }

    /// The unit in which it is told.
    pub const fn unit(self) -> &'static str {
        match self {
            InputKind::Faults
            | InputKind::Audits
            | InputKind::TlbMisses
            | InputKind::WaitingPages => "pages",
            InputKind::AccessedBits | InputKind::Loads => "pages",
            InputKind::Quotes => "pages to copy",
            InputKind::Stream => "accesses",
            InputKind::Cycles => "cycles",
            InputKind::Instructions => "instructions",
            InputKind::CacheMisses | InputKind::CmlBuffer => "misses",
            InputKind::Counters => "misses and requests",
            InputKind::RequestedLines => "lines",
            InputKind::FileMisses | InputKind::FileUses => "blocks",
            InputKind::Stock => "frames by colour",
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
            Event::Trapped { .. } => &[InputKind::WaitingPages],
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
