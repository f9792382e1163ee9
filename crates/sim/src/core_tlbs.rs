//! How a core asks its TLBs, from the nearest on, and what it costs where none has a page: for the simulator and for
//! the machine below a guest of the lab, so that both count alike.

use crate::cache::{Hierarchy, Path};
use crate::machine::{Machine, TlbFill};
use crate::record::AccessKind;
use crate::tlb::{Tlb, TlbPage};

/// What TLBs behind the nearest answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Further {
    /// What asking took: all levels that take pages of the size, up to the one that had it.
    pub cycles: u64,
    /// The levels that were asked and had nothing, a bit each by their depth.
    pub missed: u64,
    /// The depth of the one that had it.
    pub found: Option<usize>,
    /// What made way for the page in the farthest that was asked.
    pub victim: Option<TlbPage>,
    /// The farthest level that takes pages of the size.
    last: Option<usize>,
}

/// The nearest TLB of a path has entered a page in place of `victim`; the others are asked in turn. Levels that do
/// not take pages of its size take no time.
#[inline]
pub(crate) fn ask_further(
    machine: &Machine,
    tlbs: &mut [Tlb],
    path: &[usize],
    page: TlbPage,
    victim: Option<TlbPage>,
) -> Further {
    let mut told = Further { cycles: 0, missed: 0, found: None, victim, last: None };
    for (depth, &level) in path.iter().enumerate() {
        if !tlbs[level].takes(page.order) {
            continue;
        }
        told.last = Some(level);
        told.cycles += machine.tlb[level].latency;
        if depth > 0 {
            match tlbs[level].access(page) {
                Ok(()) => {
                    told.found = Some(depth);
                    return told;
                }
                Err(gone) => told.victim = gone,
            }
        }
        told.missed |= 1 << depth;
    }
    // A page that no level takes is filled in as the farthest level has it.
    told.last = told.last.or(path.last().copied());
    told
}

impl Further {
    /// Whether software fills in what was found nowhere.
    pub fn is_by_software(&self, machine: &Machine) -> bool {
        self.last.is_some_and(|at| machine.tlb[at].fill == TlbFill::Software)
    }
}

/// The cycles in which a walker reads entries one after the other, by its way through the caches, which may pass by
/// nearer ones. `reads`: those of a read by the depth from there on that answers.
pub(crate) fn read_entries(
    hierarchy: &mut Hierarchy,
    (path, aside): (&Path, bool),
    reads: &[u64],
    entries: impl Iterator<Item = u64>,
) -> u64 {
    let mut cycles = 0;
    for entry in entries {
        let depth = if aside {
            hierarchy.read_aside(path, entry)
        } else {
            hierarchy.access(path, entry, AccessKind::Load)
        };
        let read = reads[depth];
        hierarchy.now += read;
        cycles += read + hierarchy.take_extra();
    }
    cycles
}
