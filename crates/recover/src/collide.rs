//! Observations by evictions: from a source that says whether loading some lines evicts
//! another, to groups of lines that compete and the group of any line. Groups are found by
//! reducing a pool of lines to minimal eviction sets, dropping lines chunk by chunk (Vila et
//! al. 2019, "Theory and practice of finding eviction sets": linear in the pool); a line then
//! belongs to the group that evicts it most clearly. One probe is one line classified. How
//! lines are loaded, and whether addresses mean anything, the source knows.

use huepage_color::PhysAddr;
use thiserror::Error;

use crate::obs::{GroupScope, Labels, LineGroupId, Observations};

/// Failed reductions of one victim after which another is tried.
const ATTEMPTS: u32 = 5;
/// Lines of a new eviction set that are tried: on the others of the set, of which these must
/// be evicted, and on each group there is, where so many say that the set is nothing new.
const CHECKED: usize = 8;
const HOLD: usize = 5;
const KNOWN: usize = 5;
/// Victims in a row that give no new group before the search for groups ends.
const BARREN: usize = 48;

/// A source of evictions.
pub trait Collider {
    /// Why it cannot answer.
    type Error: std::error::Error;

    /// Whether the line of `victim`, just loaded, is gone after `lines` were. All are in the
    /// same set of some slice or other. The answer may be wrong at times.
    ///
    /// # Errors
    /// What keeps the source from answering at all.
    fn evicts(&mut self, victim: PhysAddr, lines: &[PhysAddr]) -> Result<bool, Self::Error>;

    /// How clearly it is gone: 0 if it is not, otherwise more for a longer latency. Latencies
    /// drift, so that the longest says more than any that is long.
    ///
    /// # Errors
    /// As [`Self::evicts`].
    fn pressure(&mut self, victim: PhysAddr, lines: &[PhysAddr]) -> Result<u32, Self::Error> {
        self.evicts(victim, lines).map(u32::from)
    }
}

/// How to gather.
#[derive(Clone, Copy, Debug)]
pub struct GatherSettings {
    /// Ways of a set: the lines that a minimal eviction set has.
    pub ways: usize,
    /// Times that each question is put; the majority counts. Odd.
    pub votes: u32,
}

/// Groups of competing lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gathered {
    /// A minimal eviction set for each group.
    pub groups: Vec<Vec<PhysAddr>>,
    /// Questions put to the source.
    pub tests: u64,
    /// Lines that no group evicts.
    pub strays: u64,
}

/// Why there are no groups.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum CollideError<E: std::error::Error> {
    /// The source fails.
    #[error(transparent)]
    Source(#[from] E),
    /// The pool evicts nothing: too small, or the answers are noise.
    #[error(
        "{lines} lines evict none of their own; give more lines of one set, or wait until the machine is quieter"
    )]
    NoEvictions { lines: usize },
}

/// A source with the questions counted and put several times.
struct Asked<'a, C> {
    source: &'a mut C,
    how: GatherSettings,
    tests: u64,
}

impl<C: Collider> Asked<'_, C> {
    fn evicts(&mut self, victim: PhysAddr, lines: &[PhysAddr]) -> Result<bool, C::Error> {
        let mut yes = 0;
        for asked in 0..self.how.votes {
            self.tests += 1;
            yes += u32::from(self.source.evicts(victim, lines)?);
            let (no, most) = (asked + 1 - yes, self.how.votes / 2);
            if yes > most || no > most {
                break;
            }
        }
        Ok(2 * yes > self.how.votes)
    }

    /// A minimal eviction set out of `lines`, which evict `victim` as they are; `None` if the
    /// source contradicts itself.
    fn reduce(
        &mut self,
        victim: PhysAddr,
        mut lines: Vec<PhysAddr>,
    ) -> Result<Option<Vec<PhysAddr>>, C::Error> {
        while lines.len() > self.how.ways {
            // One part more than lines are needed: some part holds none of them.
            let parts = self.how.ways + 1;
            let bounds =
                (0..parts).map(|at| at * lines.len() / parts..(at + 1) * lines.len() / parts);
            let mut shorter = None;
            for part in bounds.filter(|part| !part.is_empty()) {
                let without = [&lines[..part.start], &lines[part.end..]].concat();
                if self.evicts(victim, &without)? {
                    shorter = Some(without);
                    break;
                }
            }
            let Some(shorter) = shorter else { return Ok(None) };
            lines = shorter;
        }
        Ok(self.evicts(victim, &lines)?.then_some(lines))
    }

    /// The group that evicts a line most clearly; `None` if none does, or two alike.
    fn group(
        &mut self,
        line: PhysAddr,
        groups: &[Vec<PhysAddr>],
    ) -> Result<Option<usize>, C::Error> {
        let (mut best, mut tied) = ((0, 0), false);
        for (at, group) in groups.iter().enumerate() {
            if group.contains(&line) {
                return Ok(Some(at));
            }
            let mut sum = 0;
            for _ in 0..self.how.votes {
                self.tests += 1;
                sum += self.source.pressure(line, group)?;
            }
            tied = if sum == best.0 { sum > 0 } else { tied && sum < best.0 };
            best = best.max((sum, at));
        }
        Ok((best.0 > 0 && !tied).then_some(best.1))
    }

    /// Whether the lines of a set and its victim evict each other: noise can leave a set of
    /// lines that do not belong together.
    fn holds(&mut self, victim: PhysAddr, set: &[PhysAddr]) -> Result<bool, C::Error> {
        let (mut evicted, tried) = (0, CHECKED.min(set.len()));
        for at in 0..tried {
            let others = [&set[..at], &set[at + 1..], &[victim]].concat();
            evicted += usize::from(self.evicts(set[at], &others)?);
        }
        Ok(evicted + CHECKED - HOLD >= tried)
    }

    /// Whether a new eviction set is one of a group that is there already.
    fn is_known(&mut self, set: &[PhysAddr], groups: &[Vec<PhysAddr>]) -> Result<bool, C::Error> {
        for group in groups {
            let mut evicted = 0;
            for &line in set.iter().take(CHECKED) {
                evicted += usize::from(self.evicts(line, group)?);
            }
            if evicted >= KNOWN.min(set.len()) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Finds the groups that lines of `pool` fall into. It has to hold more than `ways` lines of
/// each; three times as many as slices times ways will do.
///
/// # Errors
/// `Source`, or `NoEvictions` if there is no group at all.
pub fn groups<C: Collider>(
    source: &mut C,
    pool: &[PhysAddr],
    how: GatherSettings,
) -> Result<Gathered, CollideError<C::Error>> {
    let mut asked = Asked { source, how, tests: 0 };
    let mut found = Gathered::default();
    let mut rest = pool.to_vec();
    let mut barren = 0;
    while rest.len() > how.ways && barren < BARREN {
        let Some(set) = one(&mut asked, &mut rest)? else {
            barren += 1;
            continue;
        };
        barren = 0;
        rest.retain(|line| !set.contains(line));
        let mut left = Vec::new();
        for line in rest {
            if !asked.evicts(line, &set)? {
                left.push(line);
            }
        }
        rest = left;
        if !asked.is_known(&set, &found.groups)? {
            found.groups.push(set);
        }
    }
    found.tests = asked.tests;
    if found.groups.is_empty() {
        return Err(CollideError::NoEvictions { lines: pool.len() });
    }
    Ok(found)
}

/// An eviction set for the next line of `rest` that the others evict; it is put last if they
/// do not.
fn one<C: Collider>(
    asked: &mut Asked<'_, C>,
    rest: &mut Vec<PhysAddr>,
) -> Result<Option<Vec<PhysAddr>>, C::Error> {
    let victim = rest.remove(0);
    for _ in 0..ATTEMPTS {
        if !asked.evicts(victim, rest)? {
            break;
        }
        if let Some(set) = asked.reduce(victim, rest.clone())?
            && asked.holds(victim, &set)?
        {
            return Ok(Some(set));
        }
        let turn = rest.len() / 3;
        rest.rotate_left(turn);
    }
    rest.push(victim);
    Ok(None)
}

/// Classifies lines into the groups of `found`; `each` is told after every line and ends the
/// work by returning false.
///
/// # Errors
/// `Source`.
pub fn classify<C: Collider>(
    source: &mut C,
    found: &mut Gathered,
    lines: impl Iterator<Item = PhysAddr>,
    how: GatherSettings,
    mut each: impl FnMut() -> bool,
) -> Result<Observations, CollideError<C::Error>> {
    let mut seen = Observations::new(GroupScope::Set, Labels::Free);
    let mut asked = Asked { source, how, tests: 0 };
    for line in lines {
        match asked.group(line, &found.groups)?.and_then(|group| u16::try_from(group).ok()) {
            Some(group) => seen.member(line, LineGroupId(group)),
            None => found.strays += 1,
        }
        if !each() {
            break;
        }
    }
    found.tests += asked.tests;
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::synth;
    use fastrand::Rng;
    use huepage_color::IndexFunction;

    /// A cache of `ways` ways that forgets the oldest line, and errs at a given share.
    struct Model {
        hash: IndexFunction,
        ways: usize,
        errs: f64,
        dice: Rng,
    }

    impl Collider for Model {
        type Error = Infallible;

        fn evicts(&mut self, victim: PhysAddr, lines: &[PhysAddr]) -> Result<bool, Infallible> {
            let home = self.hash.locate(victim);
            let rivals = lines.iter().filter(|&&line| self.hash.locate(line) == home).count();
            Ok((rivals >= self.ways) != (self.dice.f64() < self.errs))
        }
    }

    fn gathered(errs: f64, votes: u32) -> (Gathered, Observations, IndexFunction) {
        let hash = IndexFunction::xor(6, 11, vec![0x1b5f575440, 0x2eb5faa880]).unwrap();
        let mut dice = Rng::with_seed(3);
        let mut lines = synth::lines(38, 6, 11, PhysAddr(0x5540), &mut dice);
        let pool: Vec<PhysAddr> = lines.by_ref().take(3 * 4 * 20).collect();
        let probes: Vec<PhysAddr> = lines.take(300).collect();
        let mut model = Model { hash: hash.clone(), ways: 20, errs, dice: Rng::with_seed(5) };
        let how = GatherSettings { ways: 20, votes };
        let mut found = groups(&mut model, &pool, how).unwrap();
        let seen = classify(&mut model, &mut found, probes.into_iter(), how, || true).unwrap();
        (found, seen, hash)
    }

    fn right(found: &Gathered, seen: &Observations, hash: &IndexFunction) -> usize {
        let home = |group: LineGroupId| hash.locate(found.groups[usize::from(group.0)][0]);
        seen.members().filter(|&(addr, group)| hash.locate(addr) == home(group)).count()
    }

    #[test]
    fn a_source_that_never_errs_gives_every_group_once_and_all_lines_their_own() {
        let (found, seen, hash) = gathered(0.0, 1);
        assert_eq!((found.groups.len(), found.strays), (4, 0));
        for set in &found.groups {
            assert_eq!(set.len(), 20);
            assert!(set.iter().all(|&line| hash.locate(line) == hash.locate(set[0])));
        }
        assert_eq!(right(&found, &seen, &hash), 300);
    }

    #[test]
    fn votes_bear_errors() {
        let (found, seen, hash) = gathered(0.02, 5);
        assert_eq!(found.groups.len(), 4);
        assert!(right(&found, &seen, &hash) >= 295, "{}", right(&found, &seen, &hash));
    }

    #[test]
    fn noise_gives_no_groups() {
        let hash = IndexFunction::linear(6, 11).unwrap();
        let mut model = Model { hash, ways: 1000, errs: 0.0, dice: Rng::with_seed(5) };
        let pool: Vec<PhysAddr> = (0..200).map(|n| PhysAddr(n << 17)).collect();
        let none = groups(&mut model, &pool, GatherSettings { ways: 20, votes: 1 });
        assert_eq!(none, Err(CollideError::NoEvictions { lines: 200 }));
    }
}
