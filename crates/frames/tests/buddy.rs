//! The buddy allocator against a plain array of owners.

use huepage_color::Pfn;
use huepage_frames::Buddy;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Take(u32),
    Exact(u64, u32),
    Give(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u32..6).prop_map(Step::Take),
        (0_u64..220, 0_u32..4)
            .prop_map(|(frame, order)| Step::Exact(frame >> order << order, order)),
        (0_usize..64).prop_map(Step::Give),
    ]
}

/// The naive model: who owns each frame.
struct Naive(Vec<bool>);

fn at(frame: u64) -> usize {
    usize::try_from(frame).unwrap_or(usize::MAX)
}

impl Naive {
    fn free(&self, first: u64, order: u32) -> bool {
        (first..first + (1 << order)).all(|f| self.0.get(at(f)) == Some(&false))
    }

    /// Aligned runs of free frames of this order or larger: what a buddy system can hand out.
    fn has(&self, order: u32) -> bool {
        (0..self.0.len() as u64).step_by(1 << order).any(|first| self.free(first, order))
    }

    fn set(&mut self, first: u64, order: u32, owned: bool) {
        (first..first + (1 << order)).for_each(|f| self.0[at(f)] = owned);
    }
}

proptest! {
    #[test]
    fn every_frame_has_one_owner_and_free_neighbours_join(
        total in 1_u64..200,
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let (mut buddy, mut naive, mut held) = (Buddy::new(total, 5), Naive(vec![false; at(total)]), vec![]);
        for step in steps {
            match step {
                Step::Take(order) => {
                    let possible = naive.has(order) && order <= 5;
                    let got = buddy.take(order);
                    prop_assert_eq!(got.is_some(), possible, "order {}", order);
                    if let Some(Pfn(first)) = got {
                        prop_assert!(naive.free(first, order) && first % (1 << order) == 0);
                        naive.set(first, order, true);
                        held.push((first, order));
                    }
                }
                Step::Exact(first, order) => {
                    let possible = naive.free(first, order);
                    prop_assert_eq!(buddy.is_free(Pfn(first), order), possible);
                    prop_assert_eq!(buddy.take_exact(Pfn(first), order), possible);
                    if possible {
                        naive.set(first, order, true);
                        held.push((first, order));
                    }
                }
                Step::Give(which) if !held.is_empty() => {
                    let (first, order) = held.swap_remove(which % held.len());
                    buddy.give(Pfn(first), order);
                    naive.set(first, order, false);
                }
                Step::Give(_) => {}
            }
            let free = naive.0.iter().filter(|owned| !**owned).count() as u64;
            prop_assert_eq!(buddy.available(), free);
            let listed: u64 = buddy.blocks().iter().zip(0..).map(|(n, order)| n << order).sum();
            prop_assert_eq!(listed, free);
        }
    }
}

#[test]
fn in_order_from_the_start_and_again_after_all_came_back() {
    let mut buddy = Buddy::new(1 << 12, 10);
    for _ in 0..2 {
        let taken: Vec<_> = (0..3000).map(|_| buddy.take(0).expect("frames are left")).collect();
        assert_eq!(taken, (0..3000).map(Pfn).collect::<Vec<_>>());
        taken.into_iter().for_each(|frame| buddy.give(frame, 0));
        assert_eq!(buddy.blocks()[10], 4, "all in largest blocks again");
    }
}

#[test]
fn fragmentation_is_what_was_asked_for() {
    for (share, low, high) in [(0.0, 0, 0), (0.5, 450, 574), (1.0, 1024, 1024)] {
        let mut buddy = Buddy::new(1 << 20, 10);
        let taken = buddy.fragment(share, 7);
        let spoilt = 1024 - buddy.blocks()[10];
        assert!((low..=high).contains(&spoilt), "{spoilt} of 1024 blocks at {share}");
        assert_eq!(taken.len() as u64, spoilt);
        taken.into_iter().for_each(|frame| buddy.give(frame, 0));
        assert_eq!(buddy.blocks()[10], 1024);
    }
}

#[test]
#[should_panic(expected = "given back twice")]
fn giving_back_twice_is_noticed() {
    let mut buddy = Buddy::new(64, 5);
    let frame = buddy.take(0).expect("a frame");
    buddy.give(frame, 0);
    buddy.give(frame, 0);
}
