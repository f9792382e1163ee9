//! Where to move a page that conflicts (Romer 1998, section 5.6.3). Says nothing about which
//! page to move.

use huepage_color::{Color, ColorSet, Vpn};
use huepage_frames::RoundRobin;

/// How the colour of the new frame is chosen. The thesis finds none much better than another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetChoice {
    /// The colour after the one that was chosen last; the thesis's own choice.
    #[default]
    Sequential,
    /// The colour with the fewest references; needs [`crate::Event::ColorReferences`].
    ColdestRef,
    /// The colour of the page in the CML buffer that misses least.
    ColdestMiss,
    /// By chance.
    Random,
    /// The colour of the fewest pages that the program is known to have touched: beyond the
    /// thesis. A program whose pages fit has colours to itself after a move for each conflict.
    Emptiest,
}

impl TargetChoice {
    /// The words of [`Self::text`], the thesis's own first.
    pub const WORDS: &'static [&'static str] =
        &["sequential", "coldest-ref", "coldest-miss", "random", "emptiest"];

    /// The word for it.
    pub const fn text(self) -> &'static str {
        TargetChoice::WORDS[self as usize]
    }

    /// The one that is called so.
    pub fn named(word: &str) -> Option<TargetChoice> {
        use TargetChoice::{ColdestMiss, ColdestRef, Emptiest, Random, Sequential};
        let all = [Sequential, ColdestRef, ColdestMiss, Random, Emptiest];
        all.into_iter().find(|target| target.text() == word)
    }
}

/// What is known when a colour is chosen; empty where it is not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clues<'a> {
    /// The pages of the CML buffer with their colours and misses.
    pub misses: &'a [(Vpn, Color, u64)],
    /// References by colour.
    pub references: &'a [u64],
    /// Pages by colour.
    pub pages: &'a [u64],
}

/// Chooses colours, never one to be avoided.
#[derive(Clone, Debug)]
pub struct Targets {
    how: TargetChoice,
    all: ColorSet,
    order: RoundRobin,
    random: Random,
}

impl Targets {
    /// Over so many colours; `seed` is for [`TargetChoice::Random`].
    pub fn new(how: TargetChoice, colors: u16, seed: u64) -> Targets {
        let (all, order) = (ColorSet::all(colors), RoundRobin::new());
        Targets { how, all, order, random: Random::new(seed) }
    }

    /// A colour outside `avoid`; none if all are to be avoided. Where the clue that it goes by is
    /// missing, the next colour in turn is taken. Time in proportion to the colours.
    pub fn pick(&mut self, avoid: &ColorSet, clues: Clues<'_>) -> Option<Color> {
        let free = self.all.difference(avoid);
        let chosen = match self.how {
            TargetChoice::Sequential => None,
            TargetChoice::ColdestRef => coldest(&free, clues.references),
            TargetChoice::Emptiest => self.emptiest(&free, clues.pages),
            TargetChoice::ColdestMiss => {
                let held = clues.misses.iter().filter(|&&(_, color, _)| free.contains(color));
                held.min_by_key(|&&(page, _, misses)| (misses, page)).map(|&(_, color, _)| color)
            }
            TargetChoice::Random => self.random.of(&free),
        };
        match chosen {
            Some(color) => Some(color),
            None => self.order.next(&free),
        }
    }

    /// The colours of the fewest pages take turns.
    fn emptiest(&mut self, free: &ColorSet, pages: &[u64]) -> Option<Color> {
        let count = |color: Color| pages.get(usize::from(color.0)).copied().unwrap_or(0);
        let least = free.iter().map(count).min()?;
        let mut best = self.all.clone();
        free.iter().filter(|&color| count(color) > least).for_each(|color| _ = best.remove(color));
        self.order.next(&best.intersection(free))
    }
}

fn coldest(free: &ColorSet, references: &[u64]) -> Option<Color> {
    let counted = free.iter().filter_map(|c| Some((*references.get(usize::from(c.0))?, c)));
    counted.min_by_key(|&(count, color)| (count, color.0)).map(|(_, color)| color)
}

/// xorshift64*: policies have to be the same in every run, on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Any seed will do.
    pub const fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// 64 random bits.
    pub const fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`, which is at least 1; the bias is below 2^-32 for `n` below 2^32.
    pub const fn below(&mut self, n: u64) -> u64 {
        ((self.word() as u128 * n as u128) >> 64) as u64
    }

    /// An index below `n`, which is at least 1.
    #[expect(clippy::cast_possible_truncation, reason = "below n")]
    pub const fn index(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }

    fn of(&mut self, set: &ColorSet) -> Option<Color> {
        let n = usize::from(set.len());
        if n == 0 { None } else { set.iter().nth(self.index(n)) }
    }
}
