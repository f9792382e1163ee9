//! How long recovery takes for every published hash, by the share of wrong observations, and
//! what comes of it. Run with `cargo run --release -p huepage-recover --example recovery_speed`.

use std::time::Instant;

use fastrand::Rng;
use huepage_color::{IndexFunction, gf2};
use huepage_recover::plan::{self, Reach};
use huepage_recover::{HashOutcome, RecoverOptions, known, recover, synth};

const PROBES: usize = 2000;
const SEEDS: u64 = 10;

fn main() {
    println!(
        "{:>15} {:>6} {:>6} {:>6} {:>6} {:>9} {:>9}",
        "hash", "wrong", "right", "none", "false", "median ms", "worst ms"
    );
    for (name, file) in known::all().into_iter().filter(|(_, f)| f.address_bits[0] == 6) {
        for wrong in [0.0, 0.05, 0.20, 0.30, 0.35] {
            row(name, &file.masks(), file.address_bits[1] + 1, wrong);
        }
    }
}

/// Ten hidden hashes' worth of probes at one share of wrong ones.
fn row(name: &str, masks: &[u64], bits: u32, wrong: f64) {
    let (mut right, mut none, mut times) = (0, 0, Vec::new());
    for seed in 0..SEEDS {
        let hash = IndexFunction::xor(6, 11, masks.to_vec()).expect("a published hash");
        let mut dice = Rng::with_seed(seed);
        let lines = plan::random(Reach { bits, line_bits: 6, set_bits: 0 }, PROBES, &mut dice);
        let mut seen = synth::slices(&hash, lines.into_iter());
        synth::corrupt(&mut seen, wrong, &mut dice);
        let start = Instant::now();
        let outcome = recover(&seen, &RecoverOptions::default()).outcome;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        match outcome {
            HashOutcome::Linear(f) => {
                right += u64::from(gf2::reduce(&f.masks) == gf2::reduce(masks))
            }
            _ => none += 1,
        }
    }
    times.sort_by(f64::total_cmp);
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    let lost = SEEDS - right - none;
    println!("{name:>15} {wrong:>6} {right:>6} {none:>6} {lost:>6} {median:>9.1} {worst:>9.1}");
}
