//! What must not be claimed: hashes out of repetitions, slices where a group was missed; and
//! what must be found however much there is of it.

use fastrand::Rng;
use huepage_color::{IndexFunction, PhysAddr, gf2};
use huepage_recover::obs::{GroupScope, Labels, LineGroupId, Observation, Observations};
use huepage_recover::plan::{self, Reach};
use huepage_recover::{HashOutcome, RecoverOptions, Undetermined, recover, synth};

const INTEL_8: [u64; 3] = [0x1b5f575440, 0x2eb5faa880, 0x3cccc93100];

fn hidden(masks: &[u64], bits: u32, count: usize, wrong: f64, seed: u64) -> Observations {
    let hash = IndexFunction::xor(6, 11, masks.to_vec()).unwrap();
    let mut dice = Rng::with_seed(seed);
    let lines = plan::random(Reach { bits, line_bits: 6, set_bits: 0 }, count, &mut dice);
    let mut seen = synth::slices(&hash, lines.into_iter());
    seen.labels = Labels::Free;
    synth::corrupt(&mut seen, wrong, &mut dice);
    seen
}

fn span(outcome: &HashOutcome) -> Vec<u64> {
    match outcome {
        HashOutcome::Linear(found) => gf2::reduce(&found.masks),
        other => panic!("{other:?}"),
    }
}

#[test]
fn lines_written_a_hundred_times_are_no_evidence() {
    for seed in 0..20 {
        let mut dice = Rng::with_seed(seed);
        let mut seen = Observations::new(GroupScope::Slice, Labels::Free);
        for _ in 0..24 {
            let (addr, group) = (dice.u64(..) >> 30 << 6, u16::from(dice.f64() < 0.5));
            (0..100).for_each(|_| seen.member(PhysAddr(addr), LineGroupId(group)));
        }
        let outcome = recover(&seen, &RecoverOptions::default()).outcome;
        assert!(matches!(outcome, HashOutcome::Undetermined(_)), "{seed}: {outcome:?}");
    }
}

#[test]
fn all_pairs_among_few_lines_are_no_evidence() {
    for seed in 0..20 {
        let mut dice = Rng::with_seed(seed);
        let mut seen = Observations::new(GroupScope::Set, Labels::Free);
        let lines: Vec<(PhysAddr, bool)> =
            (0..24).map(|_| (PhysAddr(dice.u64(..) >> 30 << 6), dice.f64() < 0.5)).collect();
        for (at, &(a, left)) in lines.iter().enumerate() {
            lines[..at].iter().for_each(|&(b, right)| seen.pair(a, b, left == right));
        }
        let outcome = recover(&seen, &RecoverOptions::default()).outcome;
        assert!(matches!(outcome, HashOutcome::Undetermined(_)), "{seed}: {outcome:?}");
    }
}

#[test]
fn a_hundred_times_the_same_gives_the_same() {
    let seen = hidden(&INTEL_8, 38, 1000, 0.05, 1);
    let mut often = seen.clone();
    (0..99).for_each(|_| often.list.extend_from_slice(&seen.list));
    let (once, often) =
        (recover(&seen, &RecoverOptions::default()), recover(&often, &RecoverOptions::default()));
    assert_eq!(once.outcome, often.outcome);
    assert_eq!(span(&once.outcome), gf2::reduce(&INTEL_8));
}

/// Observations of eight slices of which one was never found, but for errors.
fn without_a_group(wrong: f64, seed: u64) -> Observations {
    let mut seen = hidden(&INTEL_8, 38, 2000, wrong, seed);
    let missed =
        |one: &Observation| matches!(one, Observation::Member { group: LineGroupId(5), .. });
    seen.list.retain(|one| !missed(one));
    seen
}

#[test]
fn seven_groups_of_eight_slices_are_not_seven_slices() {
    for (seed, wrong) in [(1, 0.05), (2, 0.1), (3, 0.2)] {
        let seen = without_a_group(wrong, seed);
        let missed = HashOutcome::Undetermined(Undetermined::Missed { groups: 7, masks: 3 });
        assert_eq!(recover(&seen, &RecoverOptions::default()).outcome, missed, "{wrong}");
        let options = RecoverOptions { slices: Some(8), ..RecoverOptions::default() };
        let other = HashOutcome::Undetermined(Undetermined::OtherSlices { found: 7, given: 8 });
        assert_eq!(recover(&seen, &options).outcome, other, "{wrong}");
    }
    assert_eq!(
        span(&recover(&without_a_group(0.0, 4), &RecoverOptions::default()).outcome),
        gf2::reduce(&INTEL_8)
    );
}

/// Masks of 34 address bits.
fn independent(count: usize, dice: &mut Rng) -> Vec<u64> {
    loop {
        let masks: Vec<u64> = (0..count).map(|_| dice.u64(..) & ((1 << 34) - 64)).collect();
        if gf2::rank(&masks) == count {
            return masks;
        }
    }
}

#[test]
fn many_masks_are_found_without_any_error() {
    for bits in 5..=8_usize {
        let mut dice = Rng::with_seed(bits as u64);
        let masks = independent(bits, &mut dice);
        for wrong in [0.0, 0.02] {
            let seen = hidden(&masks, 34, 64 << bits, wrong, bits as u64);
            let outcome = recover(&seen, &RecoverOptions::default()).outcome;
            assert_eq!(span(&outcome), gf2::reduce(&masks), "{bits} masks, {wrong} wrong");
        }
    }
}

#[test]
fn more_lines_than_are_searched_give_the_same_masks() {
    let seen = hidden(&INTEL_8, 38, 300_000, 0.1, 1);
    let found = recover(&seen, &RecoverOptions::default());
    assert_eq!(span(&found.outcome), gf2::reduce(&INTEL_8));
    let HashOutcome::Linear(linear) = &found.outcome else { panic!("{found:?}") };
    assert!((linear.wrong - 0.1).abs() < 0.01, "{}", linear.wrong);
}
