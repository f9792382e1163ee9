//! The published hashes come out of 2,000 probes with 5 % of them wrong, exactly, and after few
//! trials. How long those take is measured by the example `recovery_speed`.

use fastrand::Rng;
use huepage_color::{IndexFunction, PhysAddr, gf2};
use huepage_recover::obs::Observations;
use huepage_recover::plan::{self, Reach};
use huepage_recover::{HashOutcome, RecoverOptions, known, recover, synth, verify};

const PROBES: usize = 2000;

/// Masks, as FINDINGS has them, and the address bits that they reach.
fn published() -> Vec<(String, Vec<u64>, u32)> {
    let files = known::all().into_iter().filter(|(_, file)| file.address_bits[0] == 6);
    files.map(|(name, f)| (name.to_owned(), f.masks(), f.address_bits[1] + 1)).collect()
}

fn probes(masks: &[u64], bits: u32, wrong: f64, seed: u64) -> Observations {
    let hash = IndexFunction::xor(6, 11, masks.to_vec()).unwrap();
    let mut dice = Rng::with_seed(seed);
    let lines = plan::random(Reach { bits, line_bits: 6, set_bits: 0 }, PROBES, &mut dice);
    let mut seen = synth::slices(&hash, lines.into_iter());
    synth::corrupt(&mut seen, wrong, &mut dice);
    seen
}

fn solved(seen: &Observations) -> HashOutcome {
    recover(seen, &RecoverOptions::default()).outcome
}

#[test]
fn every_published_hash_with_5_percent_wrong() {
    for (name, masks, bits) in published() {
        for seed in 0..3 {
            let recovery = recover(&probes(&masks, bits, 0.05, seed), &RecoverOptions::default());
            let HashOutcome::Linear(found) = &recovery.outcome else {
                panic!("{name}: {recovery:?}")
            };
            assert!(found.labelled, "{name} {seed}");
            assert_eq!(found.masks, masks, "{name} {seed}");
            assert!(found.ln_doubt < -50.0, "{name} {seed}: {}", found.ln_doubt);
            assert!((found.wrong - 0.05).abs() < 0.05, "{name} {seed}: {}", found.wrong);
            assert!(recovery.trials < 2000, "{name} {seed}: {} trials", recovery.trials);
        }
    }
}

#[test]
fn without_numbers_the_span_is_found() {
    for (name, masks, bits) in published() {
        let mut seen = probes(&masks, bits, 0.05, 7);
        seen.labels = huepage_recover::Labels::Free;
        let HashOutcome::Linear(found) = solved(&seen) else { panic!("{name}") };
        assert_eq!(found.masks, gf2::reduce(&masks), "{name}");
        let agreement = verify(&seen, 1 << masks.len(), verify::parities(&found.masks));
        assert_eq!(agreement.verdict, verify::HashVerdict::Agrees, "{name}");
    }
}

#[test]
fn a_fifth_wrong_is_recovered_or_refused() {
    let with_seed = |seed: u64| -> usize {
        let outcomes = published().into_iter().map(|(name, masks, bits)| {
            match solved(&probes(&masks, bits, 0.20, seed)) {
                HashOutcome::Linear(found) => {
                    assert_eq!(found.masks, masks, "{name} {seed}");
                    true
                }
                HashOutcome::Undetermined(_) => false,
                HashOutcome::NotLinear(_) => panic!("{name} {seed}"),
            }
        });
        outcomes.filter(|&recovered| recovered).count()
    };
    let recovered = std::thread::scope(|scope| {
        let other = scope.spawn(|| with_seed(1));
        with_seed(0) + other.join().unwrap()
    });
    assert!(recovered > 0, "a fifth wrong is never recovered");
}

#[test]
fn evictions_show_all_but_the_bits_that_choose_the_set() {
    for (name, masks, bits) in published() {
        let hash = IndexFunction::xor(6, 11, masks.to_vec()).unwrap();
        let mut dice = Rng::with_seed(5);
        let lines = plan::random(Reach { bits, line_bits: 6, set_bits: 11 }, PROBES, &mut dice);
        let mut seen = synth::slices(&hash, lines.into_iter());
        seen.labels = huepage_recover::Labels::Free;
        synth::corrupt(&mut seen, 0.05, &mut dice);
        let recovery = recover(&seen, &RecoverOptions::default());
        assert_eq!(recovery.varied, (1 << bits) - (1 << 17), "{name}");
        let HashOutcome::Linear(found) = recovery.outcome else { panic!("{name}") };
        let cut: Vec<u64> = masks.iter().map(|mask| mask >> 17 << 17).collect();
        assert_eq!(found.masks, gf2::reduce(&cut), "{name}");
    }
}

#[test]
fn pairs_suffice_for_few_slices() {
    for (name, masks, bits) in published().into_iter().filter(|p| p.1.len() <= 2) {
        let hash = IndexFunction::xor(6, 0, masks.to_vec()).unwrap();
        let mut dice = Rng::with_seed(6);
        let mut line = || PhysAddr(dice.u64(..) & ((1 << bits) - 64));
        let lines: Vec<_> = (0..PROBES).map(|_| (line(), line())).collect();
        let mut seen = synth::pairs(&hash, lines.into_iter());
        synth::corrupt(&mut seen, 0.05, &mut dice);
        let HashOutcome::Linear(found) = solved(&seen) else { panic!("{name}") };
        assert_eq!(found.masks, gf2::reduce(&masks), "{name}");
    }
}
