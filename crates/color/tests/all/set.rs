//! `ColorSet` against a plain `BTreeSet`, and the wording of its errors.

use std::collections::BTreeSet;

use huepage_color::{Color, ColorSet, ColorSetError};
use proptest::prelude::*;

fn model() -> impl Strategy<Value = (u16, BTreeSet<u16>)> {
    (1_u16..=300)
        .prop_flat_map(|count| (Just(count), prop::collection::btree_set(0..count, 0..=40)))
}

fn two() -> impl Strategy<Value = (u16, BTreeSet<u16>, BTreeSet<u16>)> {
    (1_u16..=300).prop_flat_map(|count| {
        let set = || prop::collection::btree_set(0..count, 0..=40);
        (Just(count), set(), set())
    })
}

fn make(colors: &BTreeSet<u16>, count: u16) -> ColorSet {
    ColorSet::from_colors(colors.iter().copied().map(Color), count).unwrap()
}

fn back(set: &ColorSet) -> BTreeSet<u16> {
    set.iter().map(|c| c.0).collect()
}

/// The mask form, written independently of the parser.
fn mask(colors: &BTreeSet<u16>) -> String {
    let top = colors.last().copied().unwrap_or(0) / 4;
    let nibble =
        |n: u16| (0..4).fold(0_u32, |v, b| v | u32::from(colors.contains(&(n * 4 + b))) << b);
    let digits: String =
        (0..=top).rev().map(|n| char::from_digit(nibble(n), 16).unwrap()).collect();
    format!("0x{digits}")
}

proptest! {
    #[test]
    fn agrees_with_a_plain_set((count, colors) in model()) {
        let set = make(&colors, count);
        prop_assert_eq!(set.universe(), count);
        prop_assert_eq!(usize::from(set.len()), colors.len());
        prop_assert_eq!(set.is_empty(), colors.is_empty());
        prop_assert_eq!(set.is_full(), colors.len() == usize::from(count));
        prop_assert_eq!(back(&set), colors.clone());
        prop_assert_eq!(set.first_color().map(|c| c.0), colors.first().copied());
        for c in 0..count + 70 {
            prop_assert_eq!(set.contains(Color(c)), colors.contains(&c));
            let next = colors.range(c + 1..).next().or_else(|| colors.first());
            prop_assert_eq!(set.next_after(Color(c)).map(|c| c.0), next.copied());
        }
        let rest: BTreeSet<u16> = (0..count).filter(|c| !colors.contains(c)).collect();
        prop_assert_eq!(back(&set.complement()), rest);
    }

    #[test]
    fn list_mask_and_serde_round_trip((count, colors) in model()) {
        let set = make(&colors, count);
        let json = serde_json::to_string(&set).unwrap();
        prop_assert_eq!(&serde_json::from_str::<ColorSet>(&json).unwrap(), &set);
        if set.is_empty() {
            prop_assert_eq!(set.to_string(), "");
        } else {
            prop_assert_eq!(ColorSet::parse(&set.to_string(), count), Ok(set.clone()));
            prop_assert_eq!(ColorSet::parse(&mask(&colors), count), Ok(set));
        }
    }

    #[test]
    fn operations_agree_with_a_plain_set((count, a, b) in two()) {
        let (x, y) = (make(&a, count), make(&b, count));
        prop_assert_eq!(back(&x.union(&y)), &a | &b);
        prop_assert_eq!(back(&x.intersection(&y)), &a & &b);
        prop_assert_eq!(back(&x.difference(&y)), &a - &b);
        prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
    }

    #[test]
    fn insert_and_remove_agree(count in 1_u16..=200, steps in prop::collection::vec((any::<bool>(), 0_u16..200), 0..100)) {
        let mut set = ColorSet::empty(count);
        let mut plain = BTreeSet::new();
        for (add, color) in steps {
            let color = color % count;
            if add {
                prop_assert_eq!(set.insert(Color(color)), plain.insert(color));
            } else {
                prop_assert_eq!(set.remove(Color(color)), plain.remove(&color));
            }
        }
        prop_assert_eq!(back(&set), plain);
    }

    #[test]
    fn shares_round_down(count in 1_u16..=4096, whole in 0_u32..=100, tenth in 0_u32..10) {
        let text = format!("{whole}.{tenth}%");
        let parts = whole * 10 + tenth;
        let want = parts * u32::from(count) / 1000;
        match ColorSet::share(&text, count) {
            Ok(set) => {
                prop_assert!(want > 0 && parts <= 1000);
                let lowest: BTreeSet<u16> = (0..).take(want as usize).collect();
                prop_assert_eq!(back(&set), lowest);
                prop_assert_eq!(ColorSet::parse(&text, count), Ok(set));
            }
            Err(ColorSetError::ShareTooLarge { .. }) => prop_assert!(parts > 1000),
            Err(ColorSetError::ShareTooSmall { least, .. }) => {
                prop_assert_eq!(want, 0);
                prop_assert_eq!(ColorSet::share(&least, count).unwrap().len(), 1);
            }
            Err(ColorSetError::BadShare { .. }) => prop_assert_eq!(parts, 0),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn any_text_is_read_or_refused_in_one_line(text in "[0-9a-fx,%. \n\r-]{0,12}", count in 1_u16..=70) {
        match ColorSet::parse(&text, count) {
            Ok(set) => prop_assert!(!set.is_empty() && set.universe() == count),
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
        }
    }
}

fn refused(text: &str, count: u16) -> ColorSetError {
    ColorSet::parse(text, count).expect_err(text)
}

#[test]
fn the_three_forms_of_the_design() {
    assert_eq!(ColorSet::parse("0-7,12", 16).unwrap().to_string(), "0-7,12");
    assert_eq!(ColorSet::parse("0xff", 16).unwrap().to_string(), "0-7");
    assert_eq!(ColorSet::parse("25%", 16).unwrap().to_string(), "0-3");
    assert_eq!(ColorSet::parse(" 12 , 0 - 7 ", 16).unwrap().to_string(), "0-7,12");
    assert_eq!(ColorSet::share("25", 16).unwrap().to_string(), "0-3");
    assert_eq!(ColorSet::all(4096).len(), 4096);
}

#[test]
fn each_kind_of_bad_input_has_its_error() {
    assert_eq!(refused("", 16), ColorSetError::Empty { count: 16 });
    assert_eq!(refused("0x0", 16), ColorSetError::Empty { count: 16 });
    assert_eq!(refused("16", 16), ColorSetError::OutOfRange { color: 16, count: 16 });
    assert_eq!(refused("0x10000", 16), ColorSetError::OutOfRange { color: 16, count: 16 });
    assert_eq!(
        refused("0-99999999999", 16),
        ColorSetError::OutOfRange { color: 99_999_999_999, count: 16 }
    );
    assert_eq!(refused("0-3,2", 16), ColorSetError::Overlap { color: 2, text: "0-3,2".into() });
    assert_eq!(refused("7-3", 16), ColorSetError::Reversed { low: 7, high: 3 });
    for text in ["x", "1,", ",1", "1,,2", "0x", "0xg", "-1", "1-", "+1", "1 2", "1-2-3"] {
        assert!(matches!(refused(text, 16), ColorSetError::BadNumber { .. }), "{text}");
    }
    for text in ["%", "-5%", "x%", "1.2.3%", "1.2345%", "1e1%"] {
        assert!(matches!(refused(text, 16), ColorSetError::BadShare { .. }), "{text}");
    }
    assert!(matches!(refused("101%", 16), ColorSetError::ShareTooLarge { .. }));
    assert!(matches!(refused("6%", 16), ColorSetError::ShareTooSmall { .. }));
    assert!(matches!(refused("0%", 16), ColorSetError::BadShare { .. }));
    assert_eq!(ColorSet::parse("0", 0), Err(ColorSetError::BadUniverse { count: 0 }));
    assert_eq!(ColorSet::parse("0", 4097), Err(ColorSetError::BadUniverse { count: 4097 }));
}

/// Found by the fuzzer: what is quoted may have lines of its own.
#[test]
fn shares_with_line_ends_are_refused_in_one_line() {
    for text in ["0\n\n%", "0\r%", "101\n%", "1\n2%"] {
        let said = refused(text, 16).to_string();
        assert!(!said.contains(['\n', '\r']), "{said:?}");
    }
}

#[test]
fn errors_say_what_was_expected_with_an_example() {
    let shown = |text| refused(text, 16).to_string();
    assert_eq!(shown(""), "the colour set is empty; the level has colours 0-15, for example `0-7`");
    assert_eq!(
        shown("20"),
        "colour 20 does not exist: this level has colours 0-15; write for example `0-7`"
    );
    assert_eq!(
        shown("7-3"),
        "the range `7-3` runs backwards; write the smaller colour first: `3-7`"
    );
    assert_eq!(
        shown("3%"),
        "a share of 3% of 16 colours is less than one colour; ask for at least 6.25%"
    );
    assert_eq!(
        refused("", 1).to_string(),
        "the colour set is empty; the level has only colour 0, for example `0`"
    );
}

#[test]
#[should_panic(expected = "two different levels")]
fn sets_of_two_levels_do_not_mix() {
    let _ = ColorSet::all(16).union(&ColorSet::all(32));
}

#[test]
fn the_serialised_form_names_the_universe_and_is_checked() {
    let set = ColorSet::parse("0-7,12", 16).unwrap();
    assert_eq!(serde_json::to_string(&set).unwrap(), r#"{"colors":"0-7,12","of":16}"#);
    let wide = serde_json::from_str::<ColorSet>(r#"{"colors":"16","of":16}"#).unwrap_err();
    assert!(wide.to_string().starts_with("colour 16 does not exist"), "{wide}");
    assert!(serde_json::from_str::<ColorSet>(r#"{"colors":"","of":0}"#).is_err());
}
