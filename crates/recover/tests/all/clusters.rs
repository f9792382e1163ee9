//! The clusters that Scolari et al. (2016, section 4.1) report come out of their own hash
//! functions by their method, and so do the hash functions out of the clusters.

use fastrand::Rng;
use huepage_color::{IndexFunction, gf2};
use huepage_recover::obs::{Labels, Observations};
use huepage_recover::plan::{self, Reach};
use huepage_recover::{
    Clusters, ConfigureError, HashOutcome, RecoverOptions, cluster, configure, known, recover,
    synth,
};

fn masks(name: &str) -> Vec<u64> {
    let mut all = known::all().into_iter();
    all.find(|(own, _)| *own == name).map(|(_, file)| file.masks()).unwrap()
}

fn observe(name: &str, bits: u32, count: usize, wrong: f64) -> Observations {
    let hash = IndexFunction::xor(6, 11, masks(name)).unwrap();
    let mut dice = Rng::with_seed(1);
    let reach = Reach { bits, line_bits: 6, set_bits: 11 };
    let lines = plan::neighbours(reach, count, &mut dice);
    let mut seen = synth::slices(&hash, lines.into_iter());
    synth::corrupt(&mut seen, wrong, &mut dice);
    seen
}

fn sets(found: &Clusters) -> Vec<Vec<u32>> {
    found.clusters.iter().map(|cluster| cluster.0.clone()).collect()
}

const E5_1410: [&[u32]; 3] =
    [&[17, 20, 22, 24, 26, 28], &[18, 25, 27, 30, 32], &[19, 21, 23, 29, 31]];
const E5_2690: [&[u32]; 7] = [
    &[17, 20, 24, 28, 33],
    &[18, 25, 32],
    &[19, 23, 31, 34, 37],
    &[21],
    &[22, 26, 35],
    &[27, 30, 36],
    &[29],
];

#[test]
fn the_clusters_of_the_paper() {
    for wrong in [0.0, 0.05] {
        let found = cluster(&observe("xeon-e5-1410", 33, 2000, wrong)).unwrap();
        assert_eq!(sets(&found), E5_1410, "{wrong}");
        let found = cluster(&observe("xeon-e5-2690", 38, 4000, wrong)).unwrap();
        assert_eq!(sets(&found), E5_2690, "{wrong}");
        assert!(found.agree > 0.8, "{}", found.agree);
    }
}

#[test]
fn the_configurations_of_the_paper() {
    for (name, bits, ways) in [("xeon-e5-1410", 33, 6), ("xeon-e5-2690", 38, 5040)] {
        let seen = observe(name, bits, 4000, 0.05);
        let found = configure(&cluster(&seen).unwrap().clusters, &seen).unwrap();
        assert_eq!((found.masks, found.tried), (masks(name), ways));
    }
}

#[test]
fn algebra_finds_the_same_in_the_same_observations() {
    let seen = observe("xeon-e5-2690", 38, 4000, 0.05);
    match recover(&seen, &RecoverOptions::default()).outcome {
        HashOutcome::Linear(found) => {
            assert_eq!(gf2::reduce(&found.masks), gf2::reduce(&masks("xeon-e5-2690")));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn bits_that_the_hash_leaves_out_are_in_no_cluster() {
    let hash = IndexFunction::xor(6, 11, vec![0x5_0000_0000, 0xa_0000_0000]).unwrap();
    let reach = Reach { bits: 36, line_bits: 6, set_bits: 24 };
    let lines = plan::neighbours(reach, 400, &mut Rng::with_seed(3));
    let found = cluster(&synth::slices(&hash, lines.into_iter())).unwrap();
    assert_eq!(sets(&found), [[32, 34], [33, 35]]);
    assert_eq!(found.unused, [30, 31]);
}

#[test]
fn what_the_method_cannot_do_it_says() {
    let mut seen = observe("xeon-e5-1410", 33, 2000, 0.0);
    let found = cluster(&seen).unwrap();
    seen.labels = Labels::Free;
    assert_eq!(configure(&found.clusters, &seen), Err(ConfigureError::NoNumbers));
    let hash = IndexFunction::xor(6, 11, masks("xeon-gold-6130")).unwrap();
    let reach = Reach { bits: 37, line_bits: 6, set_bits: 11 };
    let seen =
        synth::slices(&hash, plan::neighbours(reach, 4000, &mut Rng::with_seed(1)).into_iter());
    let many = cluster(&seen).unwrap();
    let refused = configure(&many.clusters, &seen);
    assert!(matches!(refused, Err(ConfigureError::TooMany { .. })), "{refused:?}");
    let random = plan::random(reach, 200, &mut Rng::with_seed(1));
    let none = cluster(&synth::slices(&hash, random.into_iter())).unwrap_err();
    assert!(none.to_string().contains("--method algebra"), "{none}");
}
