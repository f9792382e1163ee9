//! Batches level by level where a level can tell another what to do: an inclusive one takes lines out
//! of those above, an exclusive one gets what leaves the level above unless another has it.
//!
//! That is rare. So a batch runs as if it did not happen, with all that changes written down. Then
//! every line that left an inclusive level is looked for above, where it was at that time or not: it
//! is there at the end, or it left during the batch, or it was not there. If one was, or may have
//! been, the batch is taken back, what came before goes again, and that access goes by itself
//! ([`Hierarchy::access`]). Counts and contents come out as one by one; tests compare.

use std::ops::Range;

use super::batch::{LOGGED, LineRequest, List, Logged, MOST_DEPTHS, RequestTally, run_logged};
use super::exchange::{Exchange, Filter};
use super::repeats::{SetBits, leave_out_repeats, number_all};
use super::undo::UndoLog;
use super::{CacheCounts, Hierarchy, Inclusion, Path};

/// Accesses that run until it is asked whether they may.
const LONGEST: usize = 512;
/// Fewest: where even so few have to be taken back often, most goes one by one.
const SHORTEST: usize = 16;

/// What a level did in a batch.
#[derive(Clone, Debug, Default)]
struct Stage {
    /// What it asks of the next.
    out: List,
    /// Lines that left it.
    gone: List,
    undo: UndoLog,
    /// What `out` is.
    passed: RequestTally,
    counts: CacheCounts,
}

/// Room for batches, used again and again.
#[derive(Clone, Debug)]
pub struct Stages {
    /// Accesses that the nearest level is asked for, but those that change nothing there.
    asked: List,
    stages: Vec<Stage>,
    /// Lines that have left or reached the levels above.
    moved: Filter,
    exchange: Exchange,
    /// Accesses to try at once.
    length: usize,
    /// Whether what changes nothing in the nearest level is left out before.
    sifted: bool,
}

impl Stages {
    /// For accesses from which those are left out that change nothing in the nearest level.
    pub fn for_sifted() -> Stages {
        Stages { sifted: true, ..Stages::default() }
    }

    /// Takes accesses in, numbered from `first` on; gives the hits that are left out.
    fn take(&mut self, asked: &[LineRequest], first: usize, sets: SetBits) -> RequestTally {
        if self.sifted {
            number_all(asked, first, &mut self.asked);
            return RequestTally::default();
        }
        leave_out_repeats(asked, sets, Some(first), &mut self.asked)
    }
}

impl Default for Stages {
    fn default() -> Stages {
        let (stages, moved) = (vec![Stage::default(); MOST_DEPTHS], Filter::default());
        let (asked, exchange) = (List::default(), Exchange::default());
        Stages { asked, stages, moved, exchange, length: LONGEST, sifted: false }
    }
}

impl Hierarchy {
    /// Whether a path can go level by level and be taken back, by lines of so many bits.
    pub fn is_optimistic(&self, path: &Path, line_bits: u32) -> bool {
        let mut along = std::iter::successors(Some(path.first), |&at| self.links[at].next);
        let fits = |at: usize| {
            let (cache, link) = (&self.caches[at], &self.links[at]);
            let exclusive = link.inclusion == Inclusion::Exclusive;
            let sets = &cache.sets;
            let loops = sets.is_narrow() && LOGGED.contains(&sets.plain_slots());
            let same = |&upper: &usize| self.caches[upper].line_bits == line_bits;
            cache.line_bits == line_bits
                && link.above.iter().all(same)
                && cache.is_simple()
                && loops
                && (!exclusive || link.next.is_none() && at != path.first)
        };
        let unseen = self.watched.is_none() && self.logged.is_none();
        path.levels() < MOST_DEPTHS && unseen && along.all(fits)
    }

    /// Runs accesses through the caches of a path that [`Self::is_optimistic`]. `found` and `note`
    /// are as [`Self::run_further`] has them.
    pub fn run_optimistic(
        &mut self,
        path: &Path,
        asked: &[LineRequest],
        room: &mut Stages,
        found: &mut [u64; MOST_DEPTHS],
        mut note: impl FnMut(&[LineRequest], usize),
    ) {
        self.begin_once(path.first);
        let mut from = 0;
        while from < asked.len() {
            let mut to = asked.len().min(from + room.length);
            let whole = to;
            while let Err(stopped) = self.try_levels(path, asked, from..to, room) {
                self.take_back(path, room);
                to = stopped;
            }
            self.commit(path, room, found, &mut note);
            from = to;
            if to < whole {
                self.go_alone(path, &asked[to], found, &mut note);
                from += 1;
                room.length = SHORTEST.max(room.length / 2);
            } else {
                room.length = LONGEST.min(room.length + room.length / 8);
            }
        }
    }

    fn go_alone(
        &mut self,
        path: &Path,
        request: &LineRequest,
        found: &mut [u64; MOST_DEPTHS],
        note: &mut impl FnMut(&[LineRequest], usize),
    ) {
        let address = request.line() << self.caches[path.first].line_bits;
        let depth = self.access(path, address, request.access_kind());
        found[depth] += u64::from(depth > 0);
        (1..=depth).for_each(|depth| note(std::slice::from_ref(request), depth));
    }

    /// Runs accesses as if no level told another what to do; else the access in which one may have.
    fn try_levels(
        &mut self,
        path: &Path,
        asked: &[LineRequest],
        part: Range<usize>,
        room: &mut Stages,
    ) -> Result<(), usize> {
        room.exchange.given.clear(0);
        room.stages.iter_mut().for_each(|stage| stage.undo.make_room(0, 0));
        let hits = room.take(&asked[part.clone()], part.start, self.nearest_sets(path));
        let (mut number, mut depth) = (path.first, 0);
        loop {
            let next = self.links[number].next;
            let exclusive = next.filter(|&n| self.links[n].inclusion == Inclusion::Exclusive);
            let (above, rest) = room.stages.split_at_mut(depth);
            let Stage { out, gone, undo, passed, counts } = &mut rest[0];
            let asked = above.last().map_or(&room.asked, |above| &above.out).all();
            out.clear(2 * asked.len());
            gone.clear(asked.len() + 1);
            let (nearest, all) = (depth == 0, exclusive.is_some());
            let what = Logged { asked, nearest, all, out, gone, undo };
            (*passed, *counts) = run_logged(&mut self.caches[number], what);
            if nearest {
                hits.count_hits(counts);
            }
            if self.links[number].inclusion == Inclusion::Inclusive {
                self.look_above(number, depth, room)?;
            }
            if let Some(last) = exclusive {
                return self.try_exclusive(last, number, depth + 1, room);
            }
            let Some(next) = next else { return Ok(()) };
            (number, depth) = (next, depth + 1);
        }
    }

    /// Whether no line that left an inclusive cache was above it then; else the access.
    fn look_above(&self, number: usize, depth: usize, room: &mut Stages) -> Result<(), usize> {
        let Stages { stages, moved, .. } = room;
        let (above, gone) = (&stages[..depth], stages[depth].gone.all());
        if gone.is_empty() {
            return Ok(());
        }
        let left = || above.iter().flat_map(|stage| stage.gone.all());
        moved.set_to(left().map(|left| left.line()));
        for victim in gone {
            let line = victim.line();
            let was = || left().any(|left| left.line() == line);
            if self.is_held_above(number, line) || moved.may_have(line) && was() {
                return Err(victim.number());
            }
        }
        Ok(())
    }

    /// Whether a cache above has a line, all lines being of one size.
    #[inline(always)]
    fn is_held_above(&self, number: usize, line: u64) -> bool {
        self.links[number].busy.iter().any(|&upper| self.caches[upper].has_line(line))
    }

    /// Runs what the level above asks of an exclusive cache, the last of a path, which cannot be taken
    /// back any more.
    fn try_exclusive(
        &mut self,
        number: usize,
        upper: usize,
        depth: usize,
        room: &mut Stages,
    ) -> Result<(), usize> {
        let Stages { stages, exchange, moved, .. } = room;
        let (above, rest) = stages.split_at_mut(depth);
        let (nearer, last) = above.split_at_mut(depth - 1);
        let asked = last[0].out.all();
        exchange.clear(asked.len());
        // What has come to a nearer cache, or left it, was there at one time and not at another.
        let all = || nearer.iter().flat_map(|stage| stage.out.all().iter().chain(stage.gone.all()));
        moved.set_to(all().map(|request| request.line()));
        for &request in asked {
            let line = request.line();
            if !request.is_access() {
                let moves = || all().any(|moved| moved.line() == line);
                if moved.may_have(line) && moves() {
                    return Err(request.number());
                }
                if self.is_held_beside(number, upper, line) {
                    exchange.refused.push(request);
                    continue;
                }
            }
            exchange.kept.push(request);
        }
        let Stage { out, passed, counts, .. } = &mut rest[0];
        out.clear(asked.len());
        let soiled;
        (*passed, *counts, soiled) = exchange.run(&mut self.caches[number], out);
        last[0].passed.writes += soiled;
        last[0].counts.writes_out += soiled;
        Ok(())
    }

    /// Whether a cache above has a line that has just left `upper`.
    #[inline(always)]
    fn is_held_beside(&self, number: usize, upper: usize, line: u64) -> bool {
        let mut others = self.links[number].busy.iter().filter(|&&other| other != upper);
        others.any(|&other| self.caches[other].has_line(line))
    }

    fn take_back(&mut self, path: &Path, room: &mut Stages) {
        let mut number = Some(path.first);
        for stage in &mut room.stages {
            let Some(at) = number else { return };
            stage.undo.undo(&mut self.caches[at]);
            number = self.links[at].next;
        }
    }

    /// What was tried holds: it is counted.
    fn commit(
        &mut self,
        path: &Path,
        room: &Stages,
        found: &mut [u64; MOST_DEPTHS],
        note: &mut impl FnMut(&[LineRequest], usize),
    ) {
        let mut number = Some(path.first);
        for (depth, stage) in room.stages.iter().enumerate().take(path.levels()) {
            let Some(at) = number else { break };
            self.caches[at].counts.add(&stage.counts);
            if depth > 0 {
                let asked = room.stages[depth - 1].passed.accesses();
                found[depth] += asked - stage.passed.accesses();
            }
            note(stage.out.all(), depth + 1);
            number = self.links[at].next;
        }
        let last = &room.stages[path.levels() - 1];
        found[path.levels()] += last.passed.accesses();
        self.memory_reads += last.passed.accesses();
        self.memory_writes += last.passed.writes;
        self.soil_given(path, room);
    }

    /// What an exclusive cache gave up dirty is dirty above.
    fn soil_given(&mut self, path: &Path, room: &Stages) {
        let along = std::iter::successors(Some(path.first), |&at| self.links[at].next);
        let Some(upper) = along.take(path.levels().saturating_sub(1)).last() else { return };
        let cache = &mut self.caches[upper];
        for given in room.exchange.given.all() {
            let set = cache.placing.set_of(given.line());
            let there = cache.sets.soil(set, given.line());
            debug_assert!(there, "a line that was given up and has left again");
        }
    }
}
