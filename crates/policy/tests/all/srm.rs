//! SRM-buffer driven step by step by an engine that has a stock of frames and nothing else.

use std::collections::BTreeMap;

use huepage_color::Color;
use huepage_policy::{Action, Event, MoveRefusal, Policy, Rescan, SrmBuffer, SrmSettings};
use proptest::prelude::*;

const COLORS: u16 = 8;

/// Answers what the policy asks, and notes where blocks go.
struct Engine {
    policy: SrmBuffer,
    stock: Vec<u64>,
    /// Inactive pages by colour that a refill can take.
    inactive: Vec<u64>,
    placed: Vec<(u64, u64, Color)>,
    moved: Vec<(u64, u64, Color)>,
    refills: usize,
    /// Moves are refused.
    refuses: bool,
}

impl Engine {
    fn new(settings: SrmSettings, stock: u64) -> Engine {
        let stock = vec![stock; usize::from(settings.colors)];
        let inactive = vec![0; stock.len()];
        let (placed, moved) = (Vec::new(), Vec::new());
        let policy = SrmBuffer::new(settings);
        Engine { policy, stock, inactive, placed, moved, refills: 0, refuses: false }
    }

    fn paper(threshold: u64, stock: u64) -> Engine {
        Engine::new(SrmSettings { threshold, ..SrmSettings::paper(COLORS) }, stock)
    }

    fn tell(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.policy.handle(event, &mut actions);
        actions.into_iter().for_each(|action| self.act(action));
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::PlaceBlock { file, block, to } => {
                let stock = &mut self.stock[usize::from(to.0)];
                *stock = stock.saturating_sub(1);
                self.placed.push((file, block, to));
            }
            Action::TellStock => self.tell_stock(),
            Action::RefillStock { above } => {
                self.refills += 1;
                for (stock, inactive) in self.stock.iter_mut().zip(&mut self.inactive) {
                    let wanted = (above + 1).saturating_sub(*stock).min(*inactive);
                    (*stock, *inactive) = (*stock + wanted, *inactive - wanted);
                }
                self.tell_stock();
            }
            Action::RecolourBlock { file, block, to } => {
                self.moved.push((file, block, to));
                self.tell(match self.refuses {
                    true => Event::BlockRefused { file, block, why: MoveRefusal::NoFrame },
                    false => Event::BlockMoved { file, block },
                });
            }
            other => panic!("{other:?}"),
        }
    }

    fn tell_stock(&mut self) {
        for (color, frames) in (0..).map(Color).zip(self.stock.clone()) {
            self.tell(Event::Stock { color, frames });
        }
        self.tell(Event::StockTold);
    }

    fn miss(&mut self, process: u32, file: u64, block: u64, pages: u64) -> Color {
        let before = self.placed.len();
        self.tell(Event::FileMiss { file, block, process, pages });
        assert_eq!(self.placed.len(), before + 1, "one place for each miss");
        let (placed_file, placed_block, color) = self.placed[before];
        assert_eq!((placed_file, placed_block), (file, block));
        color
    }

    /// Misses of a whole file; the colours in which its blocks are.
    fn read(&mut self, process: u32, file: u64, pages: u64) -> Vec<u16> {
        (0..pages).map(|block| self.miss(process, file, block, pages).0).collect()
    }

    fn marked(&self) -> Vec<u16> {
        self.policy.marked().map(|color| color.0).collect()
    }
}

/// Figure 7: a file above the threshold is a sequence, in parts of the threshold.
#[test]
fn a_large_file_takes_one_colour_after_the_other() {
    let mut engine = Engine::paper(4, 100);
    assert_eq!(engine.read(1, 7, 10), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
    assert_eq!(engine.marked(), [2], "only where it goes on");
    assert_eq!(engine.policy.color_of_file(7), Some(Color(2)));
    assert_eq!(engine.refills, 0);
}

/// Section 3.2: files of at most the threshold go by who asks for them.
#[test]
fn small_files_of_a_process_are_one_sequence() {
    let mut engine = Engine::paper(4, 100);
    let colors: Vec<u16> = (0..3).flat_map(|file| engine.read(1, file, 3)).collect();
    assert_eq!(colors, [0, 0, 0, 0, 1, 1, 1, 1, 2]);
    assert_eq!(engine.read(2, 9, 4), [3; 4], "another process has a sequence of its own");
    assert_eq!(engine.read(1, 10, 2), [2; 2]);
    assert_eq!(engine.policy.color_of_file(9), None);
    assert_eq!(engine.read(1, 11, 5), [4, 4, 4, 4, 5], "one more block than the threshold");
}

#[test]
fn no_two_sequences_share_a_colour_and_ends_give_it_back() {
    let mut engine = Engine::paper(4, 100);
    let colors: Vec<u16> = (0..7).map(|file| engine.miss(1, file, 0, 100).0).collect();
    assert_eq!(colors, [0, 1, 2, 3, 4, 5, 6]);
    engine.tell(Event::FileGone { file: 3 });
    assert_eq!(engine.marked(), [0, 1, 2, 4, 5, 6]);
    assert_eq!([engine.miss(1, 20, 0, 100).0, engine.miss(1, 21, 0, 100).0], [7, 3]);
    // All are marked: the one that was marked first makes room, and goes on where it was.
    assert_eq!(engine.miss(1, 22, 0, 100).0, 0);
    assert_eq!(engine.miss(1, 0, 1, 100).0, 0);
    engine.miss(5, 99, 0, 1);
    assert_eq!(engine.marked().len(), 8);
    engine.policy.forget_process(5);
    assert_eq!(engine.marked(), [0, 2, 3, 4, 5, 6, 7], "the mark of a process that ended is free");
}

/// Files that were read keep their marks until as many sequences began as there are colours: who goes on
/// finds others than the colour that it has just left.
#[test]
fn files_that_were_read_keep_nobody_in_few_colours() {
    let mut engine = Engine::paper(4, 1_000_000);
    let mut blocks = [0; COLORS as usize];
    for file in 0..400 {
        // One above the threshold after each four that go by who asks.
        let pages = if file % 5 == 0 { 6 } else { 3 };
        let colors = engine.read(1, file, pages);
        colors.into_iter().for_each(|color| blocks[usize::from(color)] += 1);
    }
    let [least, most] =
        [blocks.iter().min(), blocks.iter().max()].map(|count| *count.expect("some"));
    assert!(most < 3 * least && engine.refills == 0, "{blocks:?}");
}

#[test]
fn stock_is_refilled_when_no_colour_has_enough_and_only_then() {
    let mut engine = Engine::paper(4, 5);
    engine.inactive = vec![3; 8];
    assert_eq!(engine.read(1, 1, 32), (0..8).flat_map(|c| [c; 4]).collect::<Vec<_>>());
    assert_eq!(engine.refills, 0);
    assert_eq!(engine.stock, [1; 8]);
    // A refill gives 3 more of each, which is not enough: the most there is.
    assert_eq!(engine.miss(1, 2, 0, 100).0, 0);
    assert_eq!(engine.refills, 1);
    let mut engine = Engine::paper(4, 4);
    engine.inactive[6] = 1;
    assert_eq!(engine.miss(1, 1, 0, 100).0, 6, "the one that can be refilled");
    assert_eq!(engine.refills, 1);
    engine.stock = vec![0, 0, 0, 2, 0, 0, 0, 0];
    assert_eq!(engine.miss(1, 2, 0, 100).0, 3, "the one that has any");
}

fn rescanned(cache_pages: u64) -> Engine {
    let rescan = Some(Rescan::new(cache_pages));
    let settings = SrmSettings { threshold: 16, rescan, ..SrmSettings::paper(COLORS) };
    Engine::new(settings, 1000)
}

fn scan(engine: &mut Engine, file: u64, blocks: impl Iterator<Item = u64>, pages: u64) {
    blocks.for_each(|block| engine.tell(Event::FileUse { file, block, pages }));
}

/// Blocks of a file by colour after its moves.
fn crowd(engine: &Engine, file: u64) -> Vec<usize> {
    let mut at = BTreeMap::new();
    let all = engine.placed.iter().chain(&engine.moved);
    all.filter(|(own, ..)| *own == file)
        .for_each(|(_, block, color)| _ = at.insert(*block, *color));
    let count = |color| at.values().filter(|own| own.0 == color).count();
    (0..COLORS).map(count).collect()
}

#[test]
fn a_file_that_is_scanned_again_and_again_is_spread_once() {
    let mut engine = rescanned(64);
    engine.read(1, 7, 40);
    assert_eq!(crowd(&engine, 7), [16, 16, 8, 0, 0, 0, 0, 0]);
    scan(&mut engine, 7, 0..40, 40);
    assert_eq!(engine.moved, [], "read twice is not yet again and again");
    for _ in 0..5 {
        scan(&mut engine, 7, 0..40, 40);
    }
    assert_eq!(crowd(&engine, 7), [5; 8]);
    assert_eq!(engine.moved.len(), 11 + 11 + 3, "no more than it takes");
    // What comes back goes where fewest are.
    assert_eq!(engine.miss(1, 7, 3, 40), Color(0), "all have as many: the first");
}

#[test]
fn nothing_is_moved_that_would_not_fit_or_is_no_scan() {
    // Larger than the cache.
    let mut engine = rescanned(64);
    engine.read(1, 1, 65);
    (0..6).for_each(|_| scan(&mut engine, 1, 0..65, 65));
    // Half of it each time.
    engine.read(1, 2, 40);
    (0..6).for_each(|_| scan(&mut engine, 2, 0..20, 40));
    // In no order: uses jump back before a scan is whole.
    engine.read(1, 3, 40);
    (0..20).for_each(|_| scan(&mut engine, 3, (0..40).map(|at| at * 17 % 40), 40));
    // Another file's blocks in between, so that it would be pushed out in any case.
    engine.read(1, 4, 40);
    for _ in 0..6 {
        scan(&mut engine, 4, 0..40, 40);
        scan(&mut engine, 1, 0..60, 65);
    }
    assert_eq!(engine.moved, []);
    // Every second time.
    scan(&mut engine, 4, 0..40, 40);
    assert_eq!(engine.moved, []);
}

#[test]
fn refused_moves_are_not_believed() {
    let mut engine = rescanned(64);
    engine.refuses = true;
    engine.read(1, 7, 40);
    (0..4).for_each(|_| scan(&mut engine, 7, 0..40, 40));
    assert_eq!(engine.moved.len(), 25);
    // Its blocks are still in the first colours: one that comes back goes to another.
    let color = engine.miss(1, 7, 39, 40);
    assert!(color.0 > 2, "{color}");
    engine.tell(Event::FileGone { file: 7 });
    scan(&mut engine, 7, 0..40, 40);
    assert_eq!(engine.moved.len(), 25);
}

#[derive(Clone, Debug)]
enum Step {
    Miss { process: u32, file: u64, block: u64 },
    Gone(u64),
    Use { file: u64, block: u64 },
    Fill(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0_u64..12, 0_u64..30);
    prop_oneof![
        20 => (0_u32..4, place()).prop_map(|(process, (file, block))| Step::Miss { process, file, block }),
        2 => (0_u64..12).prop_map(Step::Gone),
        10 => place().prop_map(|(file, block)| Step::Use { file, block }),
        2 => (0..COLORS).prop_map(Step::Fill),
    ]
}

proptest! {
    /// Whatever happens, every miss has one place, and what is moved would fit the cache.
    #[test]
    fn every_miss_has_a_place(
        steps in prop::collection::vec(step(), 0..400),
        threshold in 1_u64..20,
        stock in 0_u64..30,
        detector in any::<bool>(),
    ) {
        let rescan = detector.then(|| Rescan::new(16));
        let settings = SrmSettings { colors: COLORS, threshold, rescan };
        let mut engine = Engine::new(settings, stock);
        engine.inactive = vec![50; usize::from(COLORS)];
        for step in steps {
            match step {
                Step::Miss { process, file, block } => {
                    // Files have 1 to 34 pages.
                    let pages = 1 + 3 * file;
                    let color = engine.miss(process, file, block % pages, pages);
                    prop_assert!(color.0 < COLORS);
                }
                Step::Gone(file) => engine.tell(Event::FileGone { file }),
                Step::Use { file, block } => {
                    let pages = 1 + 3 * file;
                    engine.tell(Event::FileUse { file, block: block % pages, pages });
                }
                Step::Fill(color) => engine.stock[usize::from(color)] += 40,
            }
            prop_assert!(engine.marked().len() <= usize::from(COLORS));
        }
        for (file, block, to) in &engine.moved {
            prop_assert!(3 * file < 16 && to.0 < COLORS, "{file} {block}");
        }
    }

    /// With frames enough, sequences that are open at the same time never share a colour, but for those that
    /// began nothing while as many began as there are colours; and each goes on in another after as many
    /// blocks as the threshold says.
    #[test]
    fn open_sequences_have_colours_of_their_own(
        order in prop::collection::vec(0_u64..7, 1..300),
        threshold in 1_u64..9,
    ) {
        let mut engine = Engine::paper(threshold, 1_000_000);
        let mut latest: BTreeMap<u64, (u16, usize)> = BTreeMap::new();
        let mut begun = 0;
        let mut blocks = [0_u64; 7];
        for file in order {
            let block = &mut blocks[usize::try_from(file).expect("small")];
            let color = engine.miss(1, file, *block, 1000).0;
            let stays = *block % threshold != 0;
            *block += 1;
            begun += usize::from(!stays);
            let since = latest.get(&file).map_or(begun, |before| if stays { before.1 } else { begun });
            let before = latest.insert(file, (color, since));
            // An old mark may be another's by now, and a new one where it was before.
            let marked = |since| begun - since < usize::from(COLORS);
            let goes_on = before.is_none_or(|(before, since)| {
                (before == color) == stays || !stays && !marked(since + 1)
            });
            prop_assert!(goes_on);
            let mut colors: Vec<u16> =
                latest.values().filter(|(_, since)| marked(*since)).map(|(color, _)| *color).collect();
            let open = colors.len();
            colors.sort_unstable();
            colors.dedup();
            prop_assert_eq!(colors.len(), open);
        }
        prop_assert_eq!(engine.refills, 0);
    }
}
