//! `ColorPool` against a plain list of frames.

use huepage_color::{Color, ColorSet};
use huepage_frames::{ColorPool, Handed, RoundRobin, WhenExhausted};
use proptest::prelude::*;

const COLORS: u16 = 7;

/// The model: every frame in the order in which it was added.
#[derive(Clone, Default)]
struct Naive {
    frames: Vec<(Color, u32)>,
    last: Option<Color>,
}

impl Naive {
    fn take(&mut self, color: Color) -> Option<u32> {
        let at = self.frames.iter().rposition(|f| f.0 == color)?;
        Some(self.frames.remove(at).1)
    }

    /// All colours, in the order in which the rotation would visit them.
    fn round(&self) -> Vec<Color> {
        let start = self.last.map_or(0, |c| c.0 + 1);
        (start..start + COLORS).map(|c| Color(c % COLORS)).collect()
    }

    fn take_next(&mut self, set: &ColorSet, exhausted: WhenExhausted) -> Option<Handed<u32>> {
        let inside: Vec<Color> = self.round().into_iter().filter(|&c| set.contains(c)).collect();
        let tried: Vec<Color> = match exhausted {
            WhenExhausted::Stop => inside.into_iter().take(1).collect(),
            WhenExhausted::SkipColor => inside,
            WhenExhausted::AnyColor => inside.into_iter().chain(self.round()).collect(),
        };
        let color = tried.into_iter().find(|c| self.frames.iter().any(|f| f.0 == *c))?;
        let frame = self.take(color)?;
        self.last = Some(color);
        Some(Handed { color, frame, outside: !set.contains(color) })
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(Color, u32),
    Take(Color),
    Next(ColorSet, WhenExhausted),
    Interleave(ColorSet, usize, WhenExhausted),
    Reject(u32),
}

fn color() -> impl Strategy<Value = Color> {
    (0..COLORS).prop_map(Color)
}

fn set() -> impl Strategy<Value = ColorSet> {
    prop::collection::vec(color(), 0..=6).prop_map(|c| ColorSet::from_colors(c, COLORS).unwrap())
}

fn exhausted() -> impl Strategy<Value = WhenExhausted> {
    prop::sample::select(vec![
        WhenExhausted::Stop,
        WhenExhausted::SkipColor,
        WhenExhausted::AnyColor,
    ])
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (color(), any::<u32>()).prop_map(|(c, f)| Step::Add(c, f)),
        1 => color().prop_map(Step::Take),
        3 => (set(), exhausted()).prop_map(|(s, e)| Step::Next(s, e)),
        1 => (set(), 0_usize..12, exhausted()).prop_map(|(s, n, e)| Step::Interleave(s, n, e)),
        1 => (2_u32..5).prop_map(Step::Reject),
    ]
}

fn same(pool: &ColorPool<u32>, naive: &Naive, asked: &ColorSet) -> Result<(), TestCaseError> {
    prop_assert_eq!(pool.len(), naive.frames.len());
    prop_assert_eq!(pool.is_empty(), naive.frames.is_empty());
    let count = |color| naive.frames.iter().filter(|f| f.0 == color).count();
    for (color, frames) in pool.counts() {
        prop_assert_eq!(frames, count(color));
        prop_assert_eq!(pool.count(color), frames);
        prop_assert_eq!(pool.stocked().contains(color), frames > 0);
    }
    let inside = naive.frames.iter().filter(|f| asked.contains(f.0)).count();
    prop_assert_eq!(pool.available(asked), inside);
    for (color, lack) in pool.missing(asked, 2) {
        prop_assert!(asked.contains(color) && lack > 0);
        prop_assert_eq!(count(color) + lack, 2);
    }
    let lacking = asked.iter().filter(|&c| count(c) < 2).count();
    prop_assert_eq!(pool.missing(asked, 2).len(), lacking);
    Ok(())
}

proptest! {
    #[test]
    fn agrees_with_a_plain_list(steps in prop::collection::vec(step(), 0..120), asked in set()) {
        let mut pool = ColorPool::new(COLORS);
        let (mut naive, mut order) = (Naive::default(), RoundRobin::new());
        for step in steps {
            match step {
                Step::Add(color, frame) => {
                    pool.add(color, frame);
                    naive.frames.push((color, frame));
                }
                Step::Take(color) => prop_assert_eq!(pool.take(color), naive.take(color)),
                Step::Next(set, e) => {
                    prop_assert_eq!(pool.take_next(&mut order, &set, e), naive.take_next(&set, e));
                }
                Step::Interleave(set, n, e) => {
                    let want: Vec<_> = (0..n).map_while(|_| naive.take_next(&set, e)).collect();
                    prop_assert_eq!(pool.interleave(&mut order, &set, n, e), want);
                }
                Step::Reject(modulus) => {
                    let mut got = pool.reject(|_, frame| frame % modulus != 0);
                    got.sort_unstable();
                    let out = |f: &(Color, u32)| f.1.is_multiple_of(modulus);
                    let mut want: Vec<_> = naive.frames.iter().copied().filter(out).collect();
                    want.sort_unstable();
                    prop_assert_eq!(got, want);
                    naive.frames.retain(|f| !out(f));
                }
            }
            same(&pool, &naive, &asked)?;
        }
        let mut rest = pool.drain();
        rest.sort_unstable();
        naive.frames.sort_unstable();
        prop_assert_eq!(rest, naive.frames);
        prop_assert!(pool.is_empty() && pool.stocked().is_empty());
    }

    #[test]
    fn a_rotation_over_full_stocks_is_even(asked in set(), rounds in 1_usize..5, depth in 5_u32..9) {
        let mut pool = ColorPool::new(COLORS);
        pool.extend((0..COLORS).flat_map(|c| (0..depth).map(move |f| (Color(c), f))));
        let n = rounds * usize::from(asked.len());
        let handed = pool.interleave(&mut RoundRobin::new(), &asked, n, WhenExhausted::Stop);
        prop_assert_eq!(handed.len(), n);
        for round in handed.chunks(usize::from(asked.len()).max(1)) {
            let colors: Vec<Color> = round.iter().map(|h| h.color).collect();
            prop_assert_eq!(colors, asked.iter().collect::<Vec<_>>());
        }
    }
}

#[test]
fn stopping_skipping_and_falling_back_differ_as_documented() {
    let partition = ColorSet::parse("0-2", COLORS).unwrap();
    let mut full = ColorPool::new(COLORS);
    full.extend([(Color(0), 'a'), (Color(0), 'b'), (Color(2), 'c'), (Color(5), 'd')]);
    let hand = |exhausted| {
        let mut pool = full.clone();
        let all = pool.interleave(&mut RoundRobin::new(), &partition, 9, exhausted);
        all.iter().map(|h| (h.color.0, h.frame, h.outside)).collect::<Vec<_>>()
    };
    assert_eq!(hand(WhenExhausted::Stop), [(0, 'b', false)]);
    let skipped = [(0, 'b', false), (2, 'c', false), (0, 'a', false)];
    assert_eq!(hand(WhenExhausted::SkipColor), skipped);
    assert_eq!(hand(WhenExhausted::AnyColor)[..3], skipped);
    assert_eq!(hand(WhenExhausted::AnyColor)[3..], [(5, 'd', true)]);
}

#[test]
fn a_stopped_rotation_waits_for_its_colour() {
    let partition = ColorSet::parse("0-2", COLORS).unwrap();
    let (mut pool, mut order) = (ColorPool::new(COLORS), RoundRobin::after(Color(0)));
    pool.add(Color(2), 2);
    assert_eq!(pool.take_next(&mut order, &partition, WhenExhausted::Stop), None);
    pool.add(Color(1), 1);
    let handed = pool.interleave(&mut order, &partition, 9, WhenExhausted::Stop);
    assert_eq!(handed.iter().map(|h| h.frame).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn an_order_survives_a_change_of_its_set() {
    let set = |text| ColorSet::parse(text, COLORS).unwrap();
    let mut order = RoundRobin::new();
    assert_eq!(order.next(&set("2-4")), Some(Color(2)));
    assert_eq!(order.next(&set("0,5,6")), Some(Color(5)));
    assert_eq!(order.next(&set("0,5,6")), Some(Color(6)));
    assert_eq!(order.next(&set("0,5,6")), Some(Color(0)));
    assert_eq!(order.next(&ColorSet::empty(COLORS)), None);
    assert_eq!(order.peek(&set("3")), Some(Color(3)));
}

#[test]
#[should_panic(expected = "another cache level")]
fn a_partition_of_another_level_is_refused() {
    ColorPool::<u32>::new(COLORS).available(&ColorSet::all(16));
}

#[test]
fn all_frames_are_told_once() {
    let mut pool = ColorPool::new(COLORS);
    [(3, 30), (0, 1), (3, 31)].into_iter().for_each(|(color, frame)| pool.add(Color(color), frame));
    assert_eq!(pool.iter().copied().collect::<Vec<u32>>(), [1, 30, 31]);
    pool.take(Color(3));
    assert_eq!(pool.iter().count(), pool.len());
}
