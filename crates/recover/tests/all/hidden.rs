//! Random hidden hashes: whatever is claimed is right, at any share of wrong observations.

use fastrand::Rng;
use huepage_color::{IndexFunction, PhysAddr, gf2};
use huepage_recover::obs::{GroupScope, Labels, LineGroupId, Observations};
use huepage_recover::plan::{self, Reach};
use huepage_recover::{HashOutcome, RecoverOptions, Recovery, recover, synth};
use proptest::prelude::*;

/// A share of a second in all: the search gives up early here, and says so.
const FAST: RecoverOptions =
    RecoverOptions { slices: None, trials: 2000, seed: 3, ln_doubt: -13.8 };

fn hash(slice_bits: usize, bits: u32, dice: &mut Rng) -> Vec<u64> {
    loop {
        let masks: Vec<u64> = (0..slice_bits).map(|_| dice.u64(..) & ((1 << bits) - 64)).collect();
        if gf2::rank(&masks) == slice_bits {
            return masks;
        }
    }
}

/// Whether the masks claimed are the hidden ones, but for parities said not to be known and
/// bits that never varied.
fn right(recovery: &Recovery, claimed: &[u64], hidden: &[u64]) -> bool {
    let with = |masks: &[u64]| {
        let seen: Vec<u64> = masks.iter().map(|mask| mask & recovery.varied).collect();
        gf2::reduce(&[&seen, recovery.blind.as_slice()].concat())
    };
    with(claimed) == with(hidden)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn nothing_wrong_is_claimed(
        seed in any::<u64>(), slice_bits in 1_usize..5, bits in 18_u32..40, below in 0_u32..6,
        wrong in 0.0_f64..0.35, count in 200_usize..3000,
    ) {
        let mut dice = Rng::with_seed(seed);
        let hidden = hash(slice_bits, bits, &mut dice);
        let function = IndexFunction::xor(6, 0, hidden.clone()).unwrap();
        // The hash may use bits above those that the lines have.
        let reach = Reach { bits: bits - below, line_bits: 6, set_bits: 0 };
        let lines = plan::random(reach, count, &mut dice);
        let mut seen = synth::slices(&function, lines.into_iter());
        seen.labels = Labels::Free;
        synth::corrupt(&mut seen, wrong, &mut dice);
        let recovery = recover(&seen, &FAST);
        match &recovery.outcome {
            HashOutcome::Linear(found) => {
                prop_assert!(found.ln_doubt <= FAST.ln_doubt);
                prop_assert!(right(&recovery, &found.masks, &hidden),
                    "{:x?} for {hidden:x?}", found.masks);
            }
            HashOutcome::NotLinear(found) => {
                prop_assert!(!found.groups.is_power_of_two());
                prop_assert!(false, "{found:?} for {hidden:x?}");
            }
            HashOutcome::Undetermined(_) => {}
        }
        prop_assert_eq!(recovery.varied >> reach.bits, 0);
    }

    #[test]
    fn bits_that_seldom_vary_are_not_guessed(
        seed in any::<u64>(), slice_bits in 1_usize..4, rare in 0.0_f64..0.1,
        wrong in 0.0_f64..0.3,
    ) {
        let mut dice = Rng::with_seed(seed);
        let hidden = hash(slice_bits, 30, &mut dice);
        let function = IndexFunction::xor(6, 0, hidden.clone()).unwrap();
        let reach = Reach { bits: 30, line_bits: 6, set_bits: 0 };
        let mut lines = plan::random(reach, 2000, &mut dice);
        for line in &mut lines {
            // Two bits nearly constant, and one nearly the sum of two others.
            let odd = dice.f64() < rare;
            let sum = (line.0 >> 12 ^ line.0 >> 15 ^ u64::from(dice.f64() < rare)) & 1;
            line.0 = line.0 & !(1 << 29 | 1 << 28 | 1 << 20) | u64::from(odd) << 29 | sum << 20;
            line.0 |= u64::from(dice.f64() >= rare) << 28;
        }
        let mut seen = synth::slices(&function, lines.into_iter());
        seen.labels = Labels::Free;
        synth::corrupt(&mut seen, wrong, &mut dice);
        let recovery = recover(&seen, &FAST);
        if let HashOutcome::Linear(found) = &recovery.outcome {
            prop_assert!(right(&recovery, &found.masks, &hidden),
                "{:x?} for {hidden:x?}, blind {:x?}", found.masks, recovery.blind);
        }
    }

    #[test]
    fn noise_is_no_hash(seed in any::<u64>(), groups in 2_u16..20, count in 64_usize..2000) {
        let mut dice = Rng::with_seed(seed);
        let mut seen = Observations::new(GroupScope::Set, Labels::Free);
        for _ in 0..count {
            let group = LineGroupId(u16::try_from(dice.usize(..usize::from(groups))).unwrap());
            seen.member(PhysAddr(dice.u64(..) >> 30 << 6), group);
        }
        let outcome = recover(&seen, &FAST).outcome;
        prop_assert!(!matches!(outcome, HashOutcome::Linear(_)), "{outcome:?}");
    }

    #[test]
    fn a_base_sequence_is_not_taken_for_its_linear_approximation(
        seed in any::<u64>(), slice_bits in 1_u32..4, index_bits in 3_u32..7,
        wrong in 0.0_f64..0.2,
    ) {
        let mut dice = Rng::with_seed(seed);
        let mut base: Vec<u8> =
            (0..1_u8 << slice_bits).cycle().take(1 << index_bits.max(slice_bits + 1)).collect();
        dice.shuffle(&mut base);
        let bits = base.len().trailing_zeros();
        let masks = (0..bits).map(|_| dice.u64(..) & ((1 << 36) - (1 << (6 + bits)))).collect();
        let function = IndexFunction::permuted(6, 0, base, masks).unwrap();
        let reach = Reach { bits: 36, line_bits: 6, set_bits: 0 };
        let lines = plan::random(reach, 2000, &mut dice);
        let mut seen = synth::slices(&function, lines.into_iter());
        seen.labels = Labels::Free;
        synth::corrupt(&mut seen, wrong, &mut dice);
        if let HashOutcome::Linear(found) = recover(&seen, &FAST).outcome {
            // A shuffle may leave the sequence linear: then the masks are right on every line.
            seen = synth::slices(&function, plan::random(reach, 500, &mut dice).into_iter());
            let all = 1 << found.masks.len();
            let fit = huepage_recover::verify(&seen, all, huepage_recover::verify::parities(&found.masks));
            prop_assert_eq!(fit.agree, fit.seen, "{:x?} for {:?}", found.masks, function);
        }
    }
}
