//! A stock of frames by colour. Frames are added as they become known and taken in rotation
//! over the colours of a partition; the pool says what is there and what is missing. It never
//! makes, checks or frees a frame.

use huepage_color::{Color, ColorSet};

use crate::order::RoundRobin;

/// What to do when the colour that is due has no frame left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WhenExhausted {
    /// Hand out nothing: the rotation stays exact and the caller waits or fails.
    Stop,
    /// Go on with the next colour of the partition that has a frame.
    SkipColor,
    /// As `SkipColor`, and when the whole partition is exhausted take any other colour.
    AnyColor,
}

/// A frame handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handed<T> {
    /// Its colour.
    pub color: Color,
    /// The caller's handle of it.
    pub frame: T,
    /// Whether the colour lies outside the partition: to be counted and warned about.
    pub outside: bool,
}

/// A stock of frames for each colour of one cache level.
///
/// # Panics
/// Methods that take a colour or a [`ColorSet`] panic if it belongs to another universe than
/// the pool was made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColorPool<T> {
    stocks: Vec<Vec<T>>,
    /// The colours with at least one frame.
    stocked: ColorSet,
    len: usize,
}

impl<T> ColorPool<T> {
    /// An empty pool for a level of `colors` colours, 1 to 4096.
    pub fn new(colors: u16) -> ColorPool<T> {
        let stocks = (0..colors).map(|_| Vec::new()).collect();
        ColorPool { stocks, stocked: ColorSet::empty(colors), len: 0 }
    }

    /// How many colours the level has.
    pub const fn universe(&self) -> u16 {
        self.stocked.universe()
    }

    /// How many frames there are, of all colours.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no frame at all.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many frames of one colour there are.
    pub fn count(&self, color: Color) -> usize {
        self.stocks[usize::from(color.0)].len()
    }

    /// Every colour with its number of frames, ascending.
    pub fn counts(&self) -> impl Iterator<Item = (Color, usize)> + '_ {
        (0..).map(Color).zip(self.stocks.iter().map(Vec::len))
    }

    /// How many frames a partition can be served with.
    pub fn available(&self, partition: &ColorSet) -> usize {
        self.same(partition);
        partition.iter().map(|color| self.count(color)).sum()
    }

    /// The colours that have a frame.
    pub const fn stocked(&self) -> &ColorSet {
        &self.stocked
    }

    /// How many frames each colour of a partition lacks to have `depth`; colours that lack
    /// none are left out.
    pub fn missing(&self, partition: &ColorSet, depth: usize) -> Vec<(Color, usize)> {
        self.same(partition);
        let lack = |color| (color, depth.saturating_sub(self.count(color)));
        partition.iter().map(lack).filter(|&(_, lack)| lack > 0).collect()
    }

    /// Adds a frame. The pool does not notice if it is added twice.
    pub fn add(&mut self, color: Color, frame: T) {
        self.stocks[usize::from(color.0)].push(frame);
        self.stocked.insert(color);
        self.len += 1;
    }

    /// Takes a frame of exactly this colour, the one added last: its lines and its
    /// translation are the most likely to be cached still.
    pub fn take(&mut self, color: Color) -> Option<T> {
        let stock = &mut self.stocks[usize::from(color.0)];
        let frame = stock.pop()?;
        self.len -= 1;
        if stock.is_empty() {
            self.stocked.remove(color);
        }
        Some(frame)
    }

    /// All frames, by colour.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.stocks.iter().flatten()
    }

    /// Takes the frame that is due in the rotation over a partition. If there is none, the
    /// rotation does not move.
    pub fn take_next(
        &mut self,
        order: &mut RoundRobin,
        partition: &ColorSet,
        exhausted: WhenExhausted,
    ) -> Option<Handed<T>> {
        self.same(partition);
        let color = self.due(order, partition, exhausted)?;
        let frame = self.take(color)?;
        order.advance(color);
        Some(Handed { color, frame, outside: !partition.contains(color) })
    }

    fn due(
        &self,
        order: &RoundRobin,
        partition: &ColorSet,
        exhausted: WhenExhausted,
    ) -> Option<Color> {
        let first = order.peek(partition).filter(|&color| self.stocked.contains(color));
        match exhausted {
            WhenExhausted::Stop => first,
            WhenExhausted::SkipColor => {
                first.or_else(|| order.peek(&self.stocked.intersection(partition)))
            }
            WhenExhausted::AnyColor => self
                .due(order, partition, WhenExhausted::SkipColor)
                .or_else(|| order.peek(&self.stocked)),
        }
    }

    /// Takes up to `n` frames in rotation, for a fault served together with its neighbours.
    /// Fewer come back when [`Self::take_next`] has none left to give.
    pub fn interleave(
        &mut self,
        order: &mut RoundRobin,
        partition: &ColorSet,
        n: usize,
        exhausted: WhenExhausted,
    ) -> Vec<Handed<T>> {
        let next = || self.take_next(order, partition, exhausted);
        std::iter::from_fn(next).take(n).collect()
    }

    /// Keeps only the frames for which `keep` answers yes, and returns the others: for frames
    /// found to have another colour, and for a stock that is to shrink.
    pub fn reject(&mut self, mut keep: impl FnMut(Color, &T) -> bool) -> Vec<(Color, T)> {
        let mut rejected = Vec::new();
        for (color, stock) in (0..).map(Color).zip(&mut self.stocks) {
            rejected.extend(stock.extract_if(.., |frame| !keep(color, frame)).map(|f| (color, f)));
            if stock.is_empty() {
                self.stocked.remove(color);
            }
        }
        self.len -= rejected.len();
        rejected
    }

    /// Empties the pool.
    pub fn drain(&mut self) -> Vec<(Color, T)> {
        self.reject(|_, _| false)
    }

    fn same(&self, partition: &ColorSet) {
        assert_eq!(partition.universe(), self.universe(), "a partition of another cache level");
    }
}

impl<T> Extend<(Color, T)> for ColorPool<T> {
    fn extend<I: IntoIterator<Item = (Color, T)>>(&mut self, frames: I) {
        frames.into_iter().for_each(|(color, frame)| self.add(color, frame));
    }
}
