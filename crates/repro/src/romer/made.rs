//! Streams that are made to have the baseline figures that the thesis prints of a program: where it
//! misses the first-level cache, the L2 and the TLB before any policy. Only accesses that miss the
//! first level are made; instructions between them stand for the rest. They are not the programs:
//! what the thesis prints no baseline of (how many pages conflict and for how long) is chosen once,
//! here, and stays.
//!
//! A stream goes from page to page of a working set, a part of which is in use at a time; sweeps over
//! memory that is larger than the cache; and goes back and forth between two pages that have one colour
//! under page coloring, under bin hopping, or under both.

use huepage_color::VirtAddr;
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::workloads::memory::{HEAP, SplitMix};
use serde::Serialize;

/// Bytes of a line of the thesis's machines.
const LINE: u64 = 32;
/// Bytes of their L2.
const CACHE: u64 = 512 << 10;
/// What shares are counted in: this many accesses.
const WHOLE: usize = 100_000;
/// Pages of a group: 64 KB of pages of 4 KB.
const GROUP: usize = 16;
/// A working set with holes lacks one page of so many, so that all larger superpages have one.
const HOLE: usize = 32;
/// Pages of 4 KB in the largest superpage.
const LARGEST: u64 = 2048;
/// What the stream's choices follow from.
const SEED: u64 = 1998;

/// Pages that a stream comes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MadePages {
    /// All pages.
    pub pages: usize,
    /// Pages in use at a time.
    pub live: usize,
    /// Visits until a group of pages in use makes room for the next; 0: never.
    pub turn: u32,
    /// Of 100,000 visits, those to any page.
    pub far: u32,
    /// Accesses of a visit.
    pub dwell: u32,
    /// Whether pages are visited in order, not at random.
    pub ordered: bool,
    /// Whether one page of 32 is never touched.
    pub holes: bool,
    /// Pages of a piece, each at the start of an 8 MB of its own; 0: all lie in one piece.
    pub piece: u64,
}

/// Memory that is gone through from start to end again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MadeSweep {
    /// Its pages.
    pub pages: usize,
    /// Of 100,000 accesses, those of the sweep.
    pub share: u32,
    /// Lines of a page before the next page.
    pub run: u32,
    /// Pages touched once among its first touches, which bin hopping counts.
    pub idle: usize,
}

/// Pairs of pages of one colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MadePairs {
    /// How many.
    pub count: usize,
    /// Of 100,000 accesses, those to a pair.
    pub share: u32,
}

/// What a stream is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MadeProgram {
    /// log2 of the bytes of a page.
    pub page_bits: u32,
    /// Instructions for each access.
    pub gap: u16,
    /// What is used all the time.
    pub set: MadePages,
    /// What does not fit the cache.
    pub sweep: MadeSweep,
    /// What conflicts under page coloring alone, under bin hopping alone, and under both.
    pub pairs: [MadePairs; 3],
    /// Accesses to a pair before another is chosen.
    pub hold: u32,
    /// Whether pairs use only lines of a page that the working set does not use of its own.
    pub apart: bool,
}

impl MadeProgram {
    /// Lines of a page.
    const fn lines(&self) -> u64 {
        (1 << self.page_bits) / LINE
    }

    /// The same, of a working set without the pages that fill no group.
    pub const fn in_whole_groups(self) -> MadeProgram {
        let pages = self.set.pages / GROUP * GROUP;
        MadeProgram { set: MadePages { pages, ..self.set }, ..self }
    }

    /// The same, of a working set in pieces of so many pages, far from each other.
    pub const fn in_pieces(self, piece: u64) -> MadeProgram {
        MadeProgram { set: MadePages { piece, ..self.set }, ..self }
    }

    /// Colours of the cache.
    const fn colors(&self) -> u64 {
        CACHE >> self.page_bits
    }

    /// Half of them.
    const fn colors_by_half(&self) -> usize {
        1 << (18 - self.page_bits)
    }

    /// In words, for a page.
    pub fn text(&self) -> String {
        let MadePages { pages, live, turn, far, dwell, ordered, holes, .. } = self.set;
        let order = if ordered { "in order" } else { "at random" };
        let holes = if holes { ", one of 32 untouched" } else { "" };
        let mut text = format!(
            "an access in {} instructions; {pages} pages{holes}, {live} at a time {order}, {dwell} accesses a visit, \
             turn {turn}, far {far}",
            self.gap
        );
        let MadeSweep { pages, share, run, idle } = self.sweep;
        if share > 0 {
            text +=
                &format!("; sweep of {pages} pages ({share}), {run} lines a visit, {idle} idle");
        }
        if self.pairs.iter().any(|pairs| pairs.share > 0) {
            let [coloring, bins, both] =
                self.pairs.map(|pairs| format!("{} ({})", pairs.count, pairs.share));
            text += &format!("; pairs {coloring} / {bins} / {both}, held for {}", self.hold);
        }
        text
    }
}

/// Two pages of one colour, and where the stream is between them.
#[derive(Clone, Debug, Default)]
struct PairWalk {
    pages: Vec<[u64; 2]>,
    at: usize,
    step: u64,
    left: u32,
}

/// The accesses of a [`MadeProgram`].
pub struct MadeStream {
    made: MadeProgram,
    random: SplitMix,
    /// First touches that are left, last first.
    first: Vec<u64>,
    /// Page numbers of the working set, and where in each the next access goes.
    set: Vec<u64>,
    cursors: Vec<u16>,
    /// First pages of the groups in use, oldest first, by index of `set`.
    groups: Vec<usize>,
    next_group: usize,
    visits: usize,
    page: usize,
    left: u32,
    sweep_first: u64,
    swept: u64,
    pairs: [PairWalk; 3],
}

impl MadeStream {
    /// From its start.
    pub fn new(made: MadeProgram) -> MadeStream {
        let set = working_set(&made.set);
        let mut place = PairPlacing::above(&made, set.last().copied().unwrap_or_default());
        let pairs = place.pairs(&made);
        let sweep_first = place.next.next_multiple_of(made.colors());
        let first = first_touches(&made, &set, &pairs, sweep_first);
        let in_use = made.set.live.min(made.set.pages);
        let groups = (0..in_use).step_by(GROUP).collect();
        MadeStream {
            made,
            random: SplitMix::new(SEED),
            first: first.into_iter().rev().collect(),
            cursors: vec![0; set.len()],
            set,
            groups,
            next_group: in_use,
            visits: 0,
            page: 0,
            left: 0,
            sweep_first,
            swept: 0,
            pairs: pairs.map(|pages| PairWalk { pages, ..PairWalk::default() }),
        }
    }

    /// The next access: a page and a line of it.
    fn step(&mut self) -> (u64, u64) {
        if let Some(page) = self.first.pop() {
            return (page, 0);
        }
        let mut chance = self.random.below(WHOLE);
        for kind in 0..3 {
            let share = self.made.pairs[kind].share as usize;
            if chance < share {
                return self.conflict(kind);
            }
            chance -= share;
        }
        if chance < self.made.sweep.share as usize { self.sweep() } else { self.visit() }
    }

    /// Two pages in turn, line by line of the same part of both.
    fn conflict(&mut self, kind: usize) -> (u64, u64) {
        let (lines, apart) = (self.made.lines(), u64::from(self.made.apart));
        let (walk, random) = (&mut self.pairs[kind], &mut self.random);
        if walk.left == 0 {
            (walk.at, walk.left) = (random.below(walk.pages.len()), self.made.hold);
        }
        walk.left -= 1;
        walk.step += 1;
        let window = lines * 3 / 8;
        let line = lines * (5 + apart) / 16 + walk.step / 2 % window;
        (walk.pages[walk.at][usize::from(walk.step % 2 == 1)], line)
    }

    fn sweep(&mut self) -> (u64, u64) {
        let MadeSweep { pages, run, .. } = self.made.sweep;
        let (pages, run) = (pages as u64, u64::from(run));
        let (visit, line) = (self.swept / run, self.swept % run);
        self.swept += 1;
        (self.sweep_first + visit % pages, (visit / pages * run + line) % self.made.lines())
    }

    fn visit(&mut self) -> (u64, u64) {
        if self.left == 0 {
            (self.page, self.left) = (self.choose(), self.made.set.dwell);
        }
        self.left -= 1;
        let cursor = &mut self.cursors[self.page];
        *cursor = cursor.wrapping_add(1);
        let window = self.made.lines() * 3 / 8;
        (self.set[self.page], u64::from(*cursor) % window)
    }

    /// The page of the next visit.
    fn choose(&mut self) -> usize {
        let MadePages { pages, live, turn, far, ordered, .. } = self.made.set;
        self.visits += 1;
        if turn > 0 && self.visits.is_multiple_of(turn as usize) {
            self.groups.rotate_left(1);
            if let Some(newest) = self.groups.last_mut() {
                *newest = self.next_group % pages;
            }
            self.next_group = (self.next_group % pages + GROUP) % pages.next_multiple_of(GROUP);
        }
        if far > 0 && self.random.below(WHOLE) < far as usize {
            return self.random.below(pages);
        }
        let live = live.min(pages);
        let at = if ordered { self.visits % live } else { self.random.below(live) };
        (self.groups[at / GROUP] + at % GROUP).min(pages - 1)
    }

    /// Replaces `batch` by up to so many accesses.
    pub fn fill(&mut self, batch: &mut Vec<Record>, count: usize) {
        batch.clear();
        for _ in 0..count {
            let (page, line) = self.step();
            let address = HEAP + (page << self.made.page_bits) + line * LINE;
            let plain = Record::plain(0, AccessKind::Load);
            batch.push(Record { address: VirtAddr(address), instructions: self.made.gap, ..plain });
        }
    }
}

/// Page numbers of a working set, in order.
fn working_set(set: &MadePages) -> Vec<u64> {
    let mut random = SplitMix::new(SEED);
    let (mut pages, mut next, mut hole) = (Vec::with_capacity(set.pages), 0, 0);
    while pages.len() < set.pages {
        if set.piece > 0 && next % LARGEST >= set.piece {
            next = next.next_multiple_of(LARGEST);
        }
        if next % HOLE as u64 == 0 {
            hole = next + random.below(HOLE) as u64;
        }
        if !(set.holes && next == hole) {
            pages.push(next);
        }
        next += 1;
    }
    pages
}

/// Where pairs lie: above the working set, in colours that it leaves free while there are any.
struct PairPlacing {
    next: u64,
    color: u64,
    colors: u64,
    free: u64,
}

impl PairPlacing {
    fn above(made: &MadeProgram, last: u64) -> PairPlacing {
        let colors = made.colors();
        let used = (made.set.live as u64).min(colors / 2);
        let next = (last + 1).next_multiple_of(colors);
        PairPlacing { next, color: 0, colors, free: colors - used }
    }

    /// A page of the next free colour, above all others.
    fn page(&mut self) -> u64 {
        let color = self.colors - 1 - self.color % self.free;
        self.color += 1;
        self.of(color)
    }

    fn of(&mut self, color: u64) -> u64 {
        let page = self.next + color;
        self.next += self.colors;
        page
    }

    fn pairs(&mut self, made: &MadeProgram) -> [Vec<[u64; 2]>; 3] {
        let mut kind = 0;
        made.pairs.map(|MadePairs { count, .. }| {
            let own = kind;
            kind += 1;
            let pair = |place: &mut PairPlacing| {
                let one = place.page();
                let other = if own == 1 { place.page() } else { place.of(one % place.colors) };
                [one, other]
            };
            (0..count).map(|_| pair(self)).collect()
        })
    }
}

/// Pages in the order of their first touches, which is what bin hopping goes by: of the pairs that
/// conflict under it the second page comes as many touches after the first as there are colours.
fn first_touches(
    made: &MadeProgram,
    set: &[u64],
    [coloring, bins, both]: &[Vec<[u64; 2]>; 3],
    sweep_first: u64,
) -> Vec<u64> {
    let half = made.colors_by_half();
    let swept = (0..made.sweep.pages as u64).map(|page| sweep_first + page);
    let idle = (0..).map(|page| sweep_first + made.sweep.pages as u64 + page);
    let mut spare = idle.clone().skip(made.sweep.idle);
    let middle = made.sweep.pages / 4;
    let with_idle =
        swept.clone().take(middle).chain(idle.take(made.sweep.idle)).chain(swept.skip(middle));
    let mut others = coloring.iter().flatten().copied().chain(with_idle);
    let mut all: Vec<u64> = set.to_vec();
    let pairs: Vec<[u64; 2]> = bins.iter().chain(both).copied().collect();
    for batch in pairs.chunks(half) {
        all.extend(batch.iter().map(|pair| pair[0]));
        let between = 2 * half - batch.len();
        let filler: Vec<u64> = others.by_ref().take(between).collect();
        all.extend(&filler);
        all.extend(spare.by_ref().take(between - filler.len()));
        all.extend(batch.iter().map(|pair| pair[1]));
    }
    all.extend(others);
    all
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    const MADE: MadeProgram = MadeProgram {
        page_bits: 13,
        gap: 16,
        set: MadePages {
            pages: 48,
            live: 32,
            turn: 100,
            far: 1000,
            dwell: 4,
            ordered: false,
            holes: true,
            piece: 0,
        },
        sweep: MadeSweep { pages: 128, share: 10_000, run: 256, idle: 5 },
        pairs: [
            MadePairs { count: 3, share: 5_000 },
            MadePairs { count: 4, share: 4_000 },
            MadePairs { count: 40, share: 3_000 },
        ],
        hold: 50,
        apart: false,
    };

    #[test]
    fn pairs_have_one_colour_under_the_mappings_that_they_are_for() {
        let stream = MadeStream::new(MADE);
        let order: BTreeMap<u64, usize> =
            stream.first.iter().rev().enumerate().map(|(at, page)| (*page, at)).collect();
        assert_eq!(order.len(), stream.first.len(), "each page is touched first once");
        for (kind, walk) in stream.pairs.iter().enumerate() {
            assert_eq!(walk.pages.len(), MADE.pairs[kind].count);
            for [one, other] in &walk.pages {
                let colors = MADE.colors();
                let bins = (order[one] as u64, order[other] as u64);
                let same = (one % colors == other % colors, bins.0 % colors == bins.1 % colors);
                assert_eq!(same, [(true, false), (false, true), (true, true)][kind], "{kind}");
            }
        }
    }

    #[test]
    fn accesses_have_their_shares_and_stay_in_their_pages() {
        let (mut stream, mut batch) = (MadeStream::new(MADE), Vec::new());
        let touches = stream.first.len();
        stream.fill(&mut batch, touches);
        let pages: BTreeSet<u64> = batch.iter().map(|record| record.address.0 >> 13).collect();
        assert_eq!(pages.len(), touches);
        let sweep = stream.sweep_first..stream.sweep_first + 128;
        stream.fill(&mut batch, 100_000);
        assert!(batch.iter().all(|record| pages.contains(&(record.address.0 >> 13))));
        let page = |record: &Record| (record.address.0 - HEAP) >> 13;
        let swept = batch.iter().filter(|record| sweep.contains(&page(record))).count();
        assert!((9_500..10_500).contains(&swept), "{swept}");
        let both: BTreeSet<u64> = stream.pairs[2].pages.iter().flatten().copied().collect();
        let paired = batch.iter().filter(|record| both.contains(&page(record))).count();
        assert!((2_800..3_200).contains(&paired), "{paired}");
        let set = batch.iter().filter(|record| page(record) < 64).count();
        assert!((77_000..79_000).contains(&set), "{set}");
    }

    #[test]
    fn one_page_of_each_32_is_a_hole() {
        let set = working_set(&MadePages { pages: 310, ..MADE.set });
        let of = |block: u64| set.iter().filter(|page| **page / 32 == block).count();
        assert!((0..10).all(|block| of(block) == 31), "{set:?}");
        let whole = working_set(&MadePages { pages: 310, holes: false, ..MADE.set });
        assert!(whole.iter().copied().eq(0..310));
    }

    #[test]
    fn pieces_are_far_from_each_other_and_whole_in_themselves() {
        let set = MadePages { pages: 2_000, ..MADE.set };
        let (one, pieces) = (working_set(&set), working_set(&MadePages { piece: 512, ..set }));
        let joined = pieces.iter().map(|page| page / LARGEST * 512 + page % LARGEST);
        assert!(joined.eq(one.iter().copied()), "groups of 64 KB are as they were");
        assert!(pieces.iter().all(|page| page % LARGEST < 512));
        assert_eq!(pieces.last().map(|page| page / LARGEST), Some(4));
    }
}
