//! The time of the mcolor buddy allocator: a single frame of some colour handed out and one given
//! back, in nanoseconds, over memory and colours.
//!
//! ```sh
//! cargo run --release -p huepage-frames --example mcolor [ROUNDS]
//! ```
//!
//! *pair*: the frame just handed out comes back at once, in memory that is free but for it, so that
//! every time a largest block is halved down to one frame and joined again. *churn*: 65,536 frames
//! are held, and one of them, by chance, comes back for each that is handed out. *scattered*: the
//! same, but the frames that are held at first lie all over the memory. Rounds take all
//! allocators in turns; figures are medians over rounds. Behind the table the same with one colour
//! is divided out.
//!
//! The last line is the churn of single frames in a [`ColorPool`], which is what the live stock is, of 65,536 frames:
//! it makes no larger block and has memory for the frames in it alone, so the memory's size is none of its business.

use std::time::Instant;

use huepage_color::{CacheLevel, Color, ColorMap, LinearColors, Pfn, Provenance};
use huepage_frames::{ColorPool, McolorBuddy};

const SIZES: [(&str, u32); 6] =
    [("1 GiB", 18), ("4 GiB", 20), ("16 GiB", 22), ("64 GiB", 24), ("256 GiB", 26), ("1 TiB", 28)];
const COLOR_BITS: [usize; 6] = [0, 2, 4, 6, 8, 10];
const WORKS: [&str; 3] = ["pair", "churn", "scattered"];
/// Hash bits of three published masks without what lies below 17, and plain bits, in turns.
const MASKS: [u64; 10] = [
    0x1b_5f56_0000,
    1 << 15,
    0x2e_b5fa_0000,
    1 << 16,
    0x3c_ccc8_0000,
    1 << 14,
    1 << 13,
    1 << 12,
    1 << 17,
    1 << 18,
];
const HELD: usize = 1 << 16;
const STEPS: u32 = 100_000;

/// An allocator at work.
struct Bench {
    buddy: McolorBuddy,
    held: Vec<Pfn>,
    dice: fastrand::Rng,
    colors: u64,
    found: Vec<f64>,
}

impl Bench {
    fn new(frame_bits: u32, color_bits: usize, work: &str) -> Bench {
        let colors = LinearColors::new(MASKS[..color_bits].to_vec()).expect("colors");
        let map = ColorMap::linear(CacheLevel(3), colors, Provenance::Declared).expect("a map");
        let zone = [(Pfn(0), 1 << frame_bits)];
        let buddy = McolorBuddy::new(&zone, Some(&map), 10).expect("an allocator");
        let (colors, dice) = (1 << color_bits, fastrand::Rng::with_seed(7));
        let mut bench = Bench { buddy, held: Vec::new(), dice, colors, found: Vec::new() };
        while work != "pair" && bench.held.len() < HELD {
            let frame = if work == "churn" { bench.take() } else { bench.any(frame_bits) };
            bench.held.extend(frame);
        }
        bench
    }

    #[inline]
    fn take(&mut self) -> Option<Pfn> {
        let color = self.dice.u64(..self.colors);
        self.buddy.take(Color(u16::try_from(color).unwrap_or(0)), 0)
    }

    fn any(&mut self, frame_bits: u32) -> Option<Pfn> {
        let frame = Pfn(self.dice.u64(..1 << frame_bits));
        self.buddy.take_exact(frame, 0).then_some(frame)
    }

    /// One round; nanoseconds for a frame out and one back.
    fn round(&mut self) {
        let started = Instant::now();
        for _ in 0..STEPS {
            let frame = self.take().expect("a frame of every color");
            if self.held.is_empty() {
                self.buddy.give(frame, 0);
            } else {
                let at = self.dice.usize(..HELD);
                let other = std::mem::replace(&mut self.held[at], frame);
                self.buddy.give(other, 0);
            }
        }
        self.found.push(started.elapsed().as_secs_f64() * 1e9 / f64::from(STEPS));
    }

    fn median(&self) -> f64 {
        let mut all = self.found.clone();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    }
}

/// Nanoseconds for a frame out of a pool and one back, of `2^color_bits` colours: the median over rounds.
fn pool(color_bits: usize, rounds: usize) -> f64 {
    let (colors, mut dice) = (1_u16 << color_bits, fastrand::Rng::with_seed(7));
    let (mut pool, mut held) = (ColorPool::new(colors), Vec::new());
    for frame in 0..2 * HELD as u64 {
        let color = Color(dice.u16(..colors));
        if held.len() < HELD { held.push((color, frame)) } else { pool.add(color, frame) }
    }
    let round = |_| {
        let started = Instant::now();
        for _ in 0..STEPS {
            let color = Color(dice.u16(..colors));
            let frame = pool.take(color).expect("a frame of every color");
            let at = dice.usize(..HELD);
            let (other, back) = std::mem::replace(&mut held[at], (color, frame));
            pool.add(other, back);
        }
        started.elapsed().as_secs_f64() * 1e9 / f64::from(STEPS)
    };
    let mut all: Vec<f64> = (0..rounds).map(round).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(21);
    for work in WORKS {
        let mut all: Vec<Vec<Bench>> = Vec::new();
        for (_, frame_bits) in SIZES {
            all.push(COLOR_BITS.map(|bits| Bench::new(frame_bits, bits, work)).into());
        }
        for _ in 0..rounds {
            all.iter_mut().flatten().for_each(Bench::round);
        }
        println!("{work}: ns for a frame out and one back (times that of one color)");
        let head = COLOR_BITS.map(|bits| format!("{:>14}", 1 << bits)).concat();
        println!("{:>8}{head}  colors", "");
        for ((name, _), row) in SIZES.iter().zip(&all) {
            let one = row[0].median();
            let cells = row.iter().map(Bench::median);
            let cells: String = cells.map(|ns| format!("{ns:>7.1} ({:.2})", ns / one)).collect();
            println!("{name:>8}{cells}");
        }
        println!();
    }
    let cells = COLOR_BITS.map(|bits| format!("{:>14.1}", pool(bits, rounds))).concat();
    println!("the live stock's pool, churn\n{:>8}{cells}", "");
}
