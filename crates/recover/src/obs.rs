//! Observations: what some source has seen of which lines compete. Two forms cover all sources.
//! *Member*: a line was found in one of the groups that the source tells apart (an eviction
//! set that evicts it; the slice whose counter counted it). *Pair*: two lines do or do not
//! evict each other. Nothing here judges whether they are right.

use huepage_color::PhysAddr;

/// A group of lines that compete, by the number its source gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineGroupId(pub u16);

/// One thing seen; it may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants say what the fields are")]
pub enum Observation {
    /// The line of `addr` was found in `group`.
    Member { addr: PhysAddr, group: LineGroupId },
    /// The lines of `a` and `b` were timed against each other; whether they evict each other.
    Pair { a: PhysAddr, b: PhysAddr, conflict: bool },
}

/// What lines of one group have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupScope {
    /// Slice and set, as evictions show it. All observed lines have the same set bits; which of
    /// these the hash uses cannot be seen, and makes no difference to who competes.
    #[default]
    Set,
    /// The slice, as counters and latencies show it, whatever the set.
    Slice,
}

/// What the numbers of groups mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Labels {
    /// Nothing: the groups were numbered as they were found.
    #[default]
    Free,
    /// The number is the slice's own: a counter or the nearest core told it.
    Numbered,
}

/// All that one source has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observations {
    /// What groups have in common.
    pub scope: GroupScope,
    /// What their numbers mean.
    pub labels: Labels,
    /// What was seen, in the order of seeing.
    pub list: Vec<Observation>,
}

impl Observations {
    /// Nothing seen yet.
    pub const fn new(scope: GroupScope, labels: Labels) -> Observations {
        Observations { scope, labels, list: Vec::new() }
    }

    /// Adds a classified line.
    pub fn member(&mut self, addr: PhysAddr, group: LineGroupId) {
        self.list.push(Observation::Member { addr, group });
    }

    /// Adds a timed pair.
    pub fn pair(&mut self, a: PhysAddr, b: PhysAddr, conflict: bool) {
        self.list.push(Observation::Pair { a, b, conflict });
    }

    /// The classified lines.
    pub fn members(&self) -> impl Iterator<Item = (PhysAddr, LineGroupId)> + '_ {
        self.list.iter().filter_map(|seen| match *seen {
            Observation::Member { addr, group } => Some((addr, group)),
            Observation::Pair { .. } => None,
        })
    }

    /// The timed pairs, as the difference of their addresses and whether they conflict.
    pub fn differences(&self) -> impl Iterator<Item = (u64, bool)> + '_ {
        self.list.iter().filter_map(|seen| match *seen {
            Observation::Pair { a, b, conflict } => Some((a.0 ^ b.0, conflict)),
            Observation::Member { .. } => None,
        })
    }

    /// Address bits in which classified lines differ, or the two lines of a pair: nothing was
    /// seen of any other.
    pub fn varied(&self) -> u64 {
        let first = self.members().next().map_or(0, |(addr, _)| addr.0);
        let lines = self.members().map(|(addr, _)| addr.0 ^ first);
        lines.chain(self.differences().map(|pair| pair.0)).fold(0, |all, one| all | one)
    }
}
