//! The mcolor buddy allocator against a plain array of owners, under as many random operations as
//! time allows: millions in a release build.

use fastrand::Rng;
use huepage_color::{
    CacheLevel, Color, ColorMap, ColorSet, IndexFunction, LinearColors, Pfn, Provenance, hash_aware,
};
use huepage_frames::{McolorBuddy, McolorError, RoundRobin};

const LARGEST: u32 = 6;
const STEPS: usize = if cfg!(debug_assertions) { 300_000 } else { 3_000_000 };

fn at(frame: u64) -> usize {
    usize::try_from(frame).expect("small")
}

/// Who owns each frame, and what colour it has: everything is found by looking everywhere.
struct Naive {
    zones: Vec<(Pfn, u64)>,
    owned: Vec<bool>,
    colors: Vec<Option<Color>>,
}

impl Naive {
    fn new(zones: &[(Pfn, u64)], map: &ColorMap) -> Naive {
        let end = zones.iter().map(|zone| zone.0.0 + zone.1).max().expect("a zone");
        let mut owned = vec![true; at(end)];
        for &(Pfn(first), frames) in zones {
            owned[at(first)..at(first + frames)].fill(false);
        }
        let colors = (0..end).map(|frame| map.color(Pfn(frame))).collect();
        Naive { zones: zones.to_vec(), owned, colors }
    }

    fn free(&self, first: u64, order: u32) -> bool {
        // A block lies in one zone, even where another follows it directly.
        let one = self.zones.iter().any(|&(Pfn(zone), frames)| {
            (zone..zone + frames).contains(&first) && first + (1 << order) <= zone + frames
        });
        one && (first..first + (1 << order)).all(|f| !self.owned[at(f)])
    }

    fn blocks(&self, order: u32) -> impl Iterator<Item = u64> + '_ {
        (0..self.owned.len() as u64)
            .step_by(1 << order)
            .filter(move |&first| self.free(first, order))
    }

    fn holds(&self, first: u64, order: u32, color: Color) -> bool {
        (first..first + (1 << order)).any(|f| self.colors[at(f)] == Some(color))
    }

    fn inside(&self, first: u64, order: u32, set: &ColorSet) -> bool {
        (first..first + (1 << order)).all(|f| self.colors[at(f)].is_some_and(|c| set.contains(c)))
    }

    fn set(&mut self, first: u64, order: u32, owned: bool) {
        let block = at(first)..at(first + (1 << order));
        assert!(self.owned[block.clone()].iter().all(|own| *own != owned), "{first:#x} {order}");
        self.owned[block].fill(owned);
    }
}

struct Run {
    buddy: McolorBuddy,
    naive: Naive,
    held: Vec<(u64, u32)>,
    dice: Rng,
}

impl Run {
    fn new(zones: &[(Pfn, u64)], map: &ColorMap, seed: u64) -> Run {
        let buddy = McolorBuddy::new(zones, Some(map), LARGEST).expect("an allocator");
        Run { buddy, naive: Naive::new(zones, map), held: Vec::new(), dice: Rng::with_seed(seed) }
    }

    fn order(&mut self) -> u32 {
        // Small blocks more often.
        self.dice.u64(..1 << LARGEST).max(1).trailing_zeros()
    }

    fn own(&mut self, got: Option<Pfn>, order: u32, possible: bool, what: &str) {
        assert_eq!(got.is_some(), possible, "{what} of order {order}");
        if let Some(Pfn(first)) = got {
            assert!(
                first % (1 << order) == 0 && self.naive.free(first, order),
                "{what}: {first:#x}"
            );
            self.naive.set(first, order, true);
            self.held.push((first, order));
        }
    }

    fn step(&mut self) {
        let (order, colors) = (self.order(), u64::from(self.buddy.colors()));
        let color = Color(u16::try_from(self.dice.u64(..colors)).expect("a color"));
        match self.dice.u64(..12) {
            0..=3 => {
                let possible = self.naive.blocks(order).any(|b| self.naive.holds(b, order, color));
                let got = self.buddy.take(color, order);
                assert!(got.is_none_or(|b| self.naive.holds(b.0, order, color)), "no {color}");
                self.own(got, order, possible, "take");
            }
            4 => {
                let possible = self.naive.blocks(order).next().is_some();
                let got = self.buddy.take_any(order);
                self.own(got, order, possible, "take_any");
            }
            5 => {
                let first = self.dice.u64(..self.naive.owned.len() as u64) >> order << order;
                let possible = self.naive.free(first, order);
                let got = self.buddy.take_exact(Pfn(first), order).then_some(Pfn(first));
                self.own(got, order, possible, "take_exact");
            }
            6 => {
                let half = ColorSet::first((self.buddy.colors() / 2).max(1), self.buddy.colors());
                let possible = self.naive.blocks(order).any(|b| self.naive.inside(b, order, &half));
                let got = self.buddy.take_within(&half, order);
                assert!(got.is_none_or(|b| self.naive.inside(b.0, order, &half)), "outside");
                self.own(got, order, possible, "take_within");
            }
            _ if !self.held.is_empty() => {
                let which = self.dice.u64(..self.held.len() as u64);
                let (first, order) = self.held.swap_remove(at(which));
                self.give(first, order);
            }
            _ => {}
        }
    }

    /// Some blocks come back in parts.
    fn give(&mut self, first: u64, order: u32) {
        self.naive.set(first, order, false);
        if order > 0 && self.dice.u64(..4) == 0 {
            (first..first + (1 << order)).for_each(|frame| self.buddy.give(Pfn(frame), 0));
        } else {
            self.buddy.give(Pfn(first), order);
        }
    }

    fn check(&self) {
        let free = self.naive.owned.iter().filter(|owned| !**owned).count() as u64;
        assert_eq!(self.buddy.available(), free);
        assert!(self.buddy.sound(), "lists, marks and counts agree");
    }

    /// All comes back; then every block is as large as it can be.
    fn finish(mut self) {
        while let Some((first, order)) = self.held.pop() {
            self.give(first, order);
        }
        self.check();
        self.buddy.settle();
        assert_eq!(self.buddy.available(), self.buddy.total());
        let fresh = Run::fresh(&self.naive.zones);
        assert_eq!(self.buddy.blocks(), fresh, "as before anything was taken");
    }

    fn fresh(zones: &[(Pfn, u64)]) -> Vec<u64> {
        McolorBuddy::new(zones, None, LARGEST).expect("an allocator").blocks()
    }
}

fn exercise(zones: &[(Pfn, u64)], map: &ColorMap, steps: usize, seed: u64) {
    let mut run = Run::new(zones, map, seed);
    for step in 0..steps {
        run.step();
        if step % 997 == 0 {
            run.check();
        }
    }
    assert!(run.naive.owned.len() > 100);
    run.finish();
}

fn linear(masks: &[u64]) -> ColorMap {
    let colors = LinearColors::new(masks.iter().map(|mask| mask << 12).collect()).expect("colors");
    ColorMap::linear(CacheLevel(3), colors, Provenance::Declared).expect("a map")
}

fn paper() -> ColorMap {
    let last = IndexFunction::xor(6, 11, vec![0x1b_5f57_5440, 0x2e_b5fa_a880]).expect("an index");
    let private = IndexFunction::linear(6, 9).expect("an index");
    let colors = hash_aware(&last, Some(&private)).expect("colors");
    ColorMap::linear(CacheLevel(3), colors, Provenance::Declared).expect("a map")
}

/// Two zones with a gap, neither of them aligned.
const ZONES: [(Pfn, u64); 2] = [(Pfn(37), 300), (Pfn(411), 229)];

#[test]
fn every_frame_has_one_owner_and_every_color_is_found_for_the_papers_hash() {
    exercise(&ZONES, &paper(), STEPS, 3);
}

#[test]
fn and_for_any_linear_function() {
    let mut dice = Rng::with_seed(77);
    let mut tried = 0;
    while tried < 12 {
        let masks: Vec<u64> = (0..dice.u64(..6)).map(|_| dice.u64(..1 << 9)).collect();
        if LinearColors::new(masks.iter().map(|mask| mask << 12).collect()).is_err() {
            continue;
        }
        exercise(&ZONES, &linear(&masks), STEPS / 12, dice.u64(..1 << 40));
        tried += 1;
    }
}

#[test]
fn and_where_colors_are_measured_and_some_frames_have_none() {
    let mut map = ColorMap::probed(CacheLevel(2), 5).expect("a map");
    let mut dice = Rng::with_seed(5);
    for frame in (0..640).filter(|frame| frame % 11 != 3) {
        map.record(Pfn(frame), Color(u16::try_from(dice.u64(..5)).expect("a color")));
    }
    exercise(&ZONES, &map, STEPS / 20, 9);
}

#[test]
fn a_base_sequence_is_looked_up_by_table() {
    let base = (0..64_u8).map(|line| line % 3).collect();
    let index = IndexFunction::permuted(6, 9, base, vec![1 << 15]).expect("an index");
    let map = ColorMap::computed(CacheLevel(3), &index, Provenance::Declared).expect("a map");
    assert!(map.masks().is_none() && map.colors() > 1, "{} colors", map.colors());
    exercise(&ZONES, &map, STEPS / 20, 11);
}

#[test]
fn colors_take_turns_until_all_are_used_up() {
    let mut buddy = McolorBuddy::new(&[(Pfn(0), 64)], Some(&linear(&[1, 2])), 5).expect("one");
    let set = ColorSet::parse("1,3", 4).expect("a set");
    let mut turns = RoundRobin::new();
    let handed: Vec<u16> =
        std::iter::from_fn(|| buddy.take_next(&mut turns, &set)).map(|h| h.color.0).collect();
    assert_eq!(handed.len(), 32);
    assert!(handed.chunks(2).all(|pair| pair == [1, 3]), "{handed:?}");
    assert_eq!(buddy.available(), 32);
    buddy.give(Pfn(1), 0);
    assert_eq!(buddy.take_next(&mut turns, &set).map(|h| h.frame), Some(Pfn(1)));
    assert!(buddy.take_next(&mut turns, &ColorSet::empty(4)).is_none());
}

#[test]
fn in_order_from_the_start_and_earlier_zones_first() {
    let zones = [(Pfn(4096), 700), (Pfn(64), 100)];
    let mut buddy = McolorBuddy::new(&zones, Some(&paper()), 10).expect("an allocator");
    let taken: Vec<u64> = (0..800).map(|_| buddy.take_any(0).expect("a frame").0).collect();
    assert_eq!(taken, (4096..4796).chain(64..164).collect::<Vec<_>>());
    assert_eq!((buddy.take_any(0), buddy.available()), (None, 0));
}

#[test]
fn a_terabyte_costs_nothing_before_it_is_used() {
    let mut buddy = McolorBuddy::new(&[(Pfn(0), 1 << 28)], Some(&paper()), 10).expect("one");
    let first = buddy.take(Color(13), 0).expect("a frame");
    assert_eq!(paper().color(first), Some(Color(13)));
    assert_eq!((buddy.available(), buddy.total()), ((1 << 28) - 1, 1 << 28));
}

#[test]
fn zones_that_cannot_be_are_refused() {
    let new = |zones: &[(Pfn, u64)], order| McolorBuddy::new(zones, None, order).map(drop);
    assert_eq!(new(&[(Pfn(0), 8)], 15), Err(McolorError::Order { order: 15 }));
    assert_eq!(new(&[(Pfn(0), 1 << 30)], 9), Err(McolorError::TooLarge { frames: 1 << 30 }));
    let overlap = Err(McolorError::Overlap { frame: Pfn(7) });
    assert_eq!(new(&[(Pfn(7), 2), (Pfn(0), 8)], 3), overlap);
    assert_eq!(new(&[(Pfn(8), 2), (Pfn(0), 8)], 3), Ok(()));
}

#[test]
#[should_panic(expected = "given back twice")]
fn giving_back_twice_is_noticed() {
    let mut buddy = McolorBuddy::new(&[(Pfn(0), 64)], None, 5).expect("an allocator");
    let frame = buddy.take_any(0).expect("a frame");
    buddy.give(frame, 0);
    buddy.give(frame, 0);
}

#[test]
#[should_panic(expected = "in no zone")]
fn a_frame_of_nowhere_is_not_taken_back() {
    McolorBuddy::new(&[(Pfn(0), 64)], None, 5).expect("an allocator").give(Pfn(64), 0);
}

/// The last frame of a zone of odd length has no other half, and nothing else is forgotten for it.
#[test]
fn a_frame_without_another_half_hides_none_that_waits() {
    let mut buddy = McolorBuddy::new(&[(Pfn(0), 9)], Some(&linear(&[1, 2])), 3).expect("small");
    assert_eq!(buddy.take(Color(0), 0), Some(Pfn(0)));
    buddy.give(Pfn(0), 0);
    let threes: Vec<_> = (0..3).map(|_| buddy.take(Color(3), 0)).collect();
    assert_eq!(threes, [Some(Pfn(3)), Some(Pfn(7)), None]);
    assert!(buddy.sound());
    let pairs: Vec<_> = (0..2).filter_map(|_| buddy.take(Color(0), 1)).collect();
    assert_eq!(pairs.len(), 2, "4 and 5, 0 and 1: {pairs:?}");
    pairs.into_iter().for_each(|first| buddy.give(first, 1));
    threes.into_iter().flatten().for_each(|frame| buddy.give(frame, 0));
    buddy.settle();
    assert_eq!(buddy.blocks(), [1, 0, 0, 1]);
}

/// Frames taken by number out of untouched memory are cut out later: nobody can tell.
#[test]
fn frames_that_are_only_noted_come_out_as_if_cut_at_once() {
    let new = || McolorBuddy::new(&ZONES, Some(&paper()), LARGEST).expect("an allocator");
    for seed in 0..20 {
        let (mut later, mut at_once, mut dice) = (new(), new(), Rng::with_seed(seed));
        for _ in 0..dice.u64(1..400) {
            let frame = Pfn(dice.u64(..700));
            let taken = later.take_exact(frame, 0);
            assert_eq!(at_once.take_exact(frame, 0), taken, "{frame}");
            at_once.settle();
        }
        assert_eq!(later.available(), at_once.available());
        for order in 0..=LARGEST {
            let mut firsts = (0..700_u64).step_by(1 << order).map(Pfn);
            assert!(firsts.all(|at| later.is_free(at, order) == at_once.is_free(at, order)));
        }
        assert!(later.sound() && later.blocks() == at_once.blocks());
        let rest = |buddy: &mut McolorBuddy| -> Vec<Pfn> {
            (0..640).map_while(|n| buddy.take(Color(n % buddy.colors()), 0)).collect()
        };
        assert_eq!(rest(&mut later), rest(&mut at_once));
    }
}
