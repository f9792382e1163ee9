//! Handing out evenly, against counting.

use huepage_color::{Color, ColorSet};
use huepage_frames::Evenness;
use proptest::prelude::*;

const COLORS: u16 = 12;

proptest! {
    #[test]
    fn no_color_gets_ahead_by_more_than_the_tolerance(
        mask in 1_u16..1 << COLORS, tolerance in 1_u32..9,
        frames in prop::collection::vec(0..COLORS, 0..400),
    ) {
        let partition =
            ColorSet::from_colors((0..COLORS).filter(|c| mask >> c & 1 == 1).map(Color), COLORS)
                .unwrap();
        let mut even = Evenness::new(partition.clone(), tolerance);
        let mut handed = vec![0_u32; usize::from(COLORS)];
        for color in frames.into_iter().map(Color) {
            let of = |c: Color| handed[usize::from(c.0)];
            let least = partition.iter().map(of).min().unwrap();
            let want = partition.contains(color) && of(color) < least + tolerance;
            prop_assert_eq!(even.admits(color), want);
            if want {
                even.note(color);
                handed[usize::from(color.0)] += 1;
            }
        }
    }
}

#[test]
fn a_tolerance_of_one_is_as_even_as_a_rotation() {
    let partition = ColorSet::parse("1,3", 4).unwrap();
    let mut even = Evenness::new(partition, 1);
    let admitted = |even: &Evenness| (0..4).filter(|&c| even.admits(Color(c))).collect::<Vec<_>>();
    assert_eq!(admitted(&even), [1, 3]);
    even.note(Color(3));
    assert_eq!(admitted(&even), [1]);
    even.note(Color(0));
    even.note(Color(1));
    assert_eq!(admitted(&even), [1, 3]);
}
