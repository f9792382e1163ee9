//! Slices that are no power of two: recognised as not linear, and recovered where the
//! observations cover base sequence and high bits.

use fastrand::Rng;
use huepage_color::{IndexFunction, PhysAddr};
use huepage_recover::obs::Observations;
use huepage_recover::plan::{self, Reach};
use huepage_recover::{HashOutcome, RecoverOptions, recover, recover_permuted, synth};

const REACH: Reach = Reach { bits: 37, line_bits: 6, set_bits: 0 };

/// A base sequence over 26 slices as even as can be, and a random permutation.
fn hidden(index_bits: u32, slices: u8, seed: u64) -> IndexFunction {
    let mut dice = Rng::with_seed(seed);
    let mut base: Vec<u8> = (0..slices).cycle().take(1 << index_bits).collect();
    dice.shuffle(&mut base);
    let masks = (0..index_bits).map(|_| dice.u64(..) & ((1 << 37) - (1 << (6 + index_bits))));
    IndexFunction::permuted(6, 11, base, masks.collect()).unwrap()
}

fn observe(hash: &IndexFunction, lines: Vec<PhysAddr>, wrong: f64, seed: u64) -> Observations {
    let mut seen = synth::slices(hash, lines.into_iter());
    synth::corrupt(&mut seen, wrong, &mut Rng::with_seed(seed));
    seen
}

#[test]
fn twenty_six_slices_are_not_linear() {
    for (seed, wrong) in [(1, 0.0), (2, 0.05), (3, 0.20), (4, 0.35)] {
        let hash = hidden(9, 26, seed);
        let lines = plan::random(REACH, 2000, &mut Rng::with_seed(seed));
        match recover(&observe(&hash, lines, wrong, seed), &RecoverOptions::default()).outcome {
            HashOutcome::NotLinear(found) => assert_eq!((found.groups, found.masks.len()), (26, 0)),
            other => panic!("{wrong}: {other:?}"),
        }
    }
}

#[test]
fn the_linear_part_of_twelve_slices_is_found() {
    // Three slices in each of the four values of two parities.
    let masks = [0x1b5f575440_u64, 0x2eb5faa880 & ((1 << 37) - 1)];
    let third = hidden(9, 3, 5);
    let mut dice = Rng::with_seed(5);
    let lines = plan::random(REACH, 2000, &mut dice);
    let mut seen = Observations::default();
    for line in lines {
        let part = huepage_color::gf2::evaluate(&masks, line.0);
        let slice = third.locate(line).slice * 4 + u16::try_from(part).unwrap();
        seen.member(line, huepage_recover::LineGroupId(slice));
    }
    synth::corrupt(&mut seen, 0.05, &mut dice);
    match recover(&seen, &RecoverOptions::default()).outcome {
        HashOutcome::NotLinear(found) => {
            assert_eq!(found.groups, 12);
            assert_eq!(found.masks, huepage_color::gf2::reduce(&masks));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn base_and_permutation_come_out_of_a_sweep() {
    for (seed, index_bits, slices, wrong) in
        [(1, 9, 26, 0.0), (2, 9, 26, 0.05), (3, 7, 6, 0.10), (4, 12, 28, 0.02)]
    {
        let hash = hidden(index_bits, slices, seed);
        let mut dice = Rng::with_seed(seed);
        let mut lines = plan::sweep(REACH, 12, 5, 64);
        lines.extend(plan::random(REACH, 2000, &mut dice));
        let seen = observe(&hash, lines, wrong, seed);
        let found = recover_permuted(&seen, 6).unwrap_or_else(|| panic!("seed {seed}"));
        assert_eq!(found.base.len(), 1 << index_bits, "seed {seed}");
        assert_eq!(found.known.count_ones(), 31 - index_bits, "seed {seed}");
        let fresh = plan::random(REACH, 1000, &mut dice);
        let same = |line: &&PhysAddr| {
            found.group(line.0).is_some_and(|group| group.0 == hash.locate(**line).slice)
        };
        let right = fresh.iter().filter(same).count();
        let least = if index_bits < 12 { 1000 } else { 990 };
        assert!(right >= least, "seed {seed}: {right} of 1000 right");
        assert_eq!(found.index(11).unwrap().slices(), u32::from(slices));
    }
}

#[test]
fn too_little_gives_nothing_rather_than_something() {
    let hash = hidden(9, 26, 8);
    let random = plan::random(REACH, 20_000, &mut Rng::with_seed(8));
    assert_eq!(recover_permuted(&observe(&hash, random, 0.0, 8), 6), None);
    let linear = IndexFunction::xor(6, 11, vec![0x1b5f575440, 0xeb5faa880]).unwrap();
    let noise = plan::sweep(REACH, 12, 5, 64);
    let mut seen = observe(&linear, noise, 0.0, 8);
    synth::corrupt(&mut seen, 0.75, &mut Rng::with_seed(9));
    assert_eq!(recover_permuted(&seen, 6), None);
}
