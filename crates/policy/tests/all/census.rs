//! The census against counting by hand.

use huepage_color::{Color, ColorSet, Vpn};
use huepage_policy::{AreaKind, Census, MoveRefusal, ResidentPage};
use proptest::prelude::*;

const COLORS: u16 = 8;

fn resident() -> impl Strategy<Value = ResidentPage> {
    let color = prop::option::weighted(0.9, (0..COLORS).prop_map(Color));
    let refusals = MoveRefusal::ALL.map(|(refusal, _)| refusal);
    let obstacle = prop::option::of(prop::sample::select(refusals.to_vec()));
    (color, prop::sample::select(AreaKind::ALL.map(|(kind, _)| kind).to_vec()), obstacle)
        .prop_map(|(color, kind, obstacle)| ResidentPage { page: Vpn(1), color, kind, obstacle })
}

fn count(pages: &[ResidentPage], partition: &ColorSet) -> Census {
    let mut census = Census::new(partition.clone());
    pages.iter().for_each(|page| census.count(page));
    census
}

proptest! {
    #[test]
    fn every_page_is_counted_once(
        pages in prop::collection::vec(resident(), 0..80), mask in 0_u64..256, cut in 0_usize..80,
    ) {
        let chosen = (0..COLORS).filter(|c| mask >> c & 1 == 1).map(Color);
        let partition = ColorSet::from_colors(chosen, COLORS).unwrap();
        let census = count(&pages, &partition);
        let many = |test: &dyn Fn(&ResidentPage) -> bool| pages.iter().filter(|p| test(p)).count() as u64;
        let movable = |p: &ResidentPage| !p.obstacle.is_some_and(MoveRefusal::holds_page);
        let inside = |p: &ResidentPage| p.color.is_some_and(|c| partition.contains(c));

        prop_assert_eq!(census.total().resident(), many(&|_| true));
        prop_assert_eq!(census.total().movable(), many(&movable));
        prop_assert_eq!(census.uncolored, many(&|p| p.color.is_none()));
        for (color, got) in census.colors() {
            prop_assert_eq!(got, many(&|p| p.color == Some(color)));
        }
        for (kind, row) in census.kinds() {
            prop_assert_eq!(row.inside, many(&|p| p.kind == kind && movable(p) && inside(p)));
            prop_assert_eq!(row.unmovable, many(&|p| p.kind == kind && !movable(p)));
            prop_assert_eq!(row.resident(), many(&|p| p.kind == kind));
        }
        for (why, got) in census.obstacles() {
            prop_assert_eq!(got, many(&|p| p.obstacle == Some(why) && !inside(p)));
        }
        let share = many(&|p| movable(p) && inside(p)) as f64 / many(&movable) as f64;
        prop_assert_eq!(census.compliance(), (many(&movable) > 0).then_some(share));

        let (left, right) = pages.split_at(cut.min(pages.len()));
        let mut merged = count(left, &partition);
        merged.merge(&count(right, &partition));
        prop_assert_eq!(merged, census);
    }

    #[test]
    fn excused_pages_only_change_columns(
        pages in prop::collection::vec(resident(), 0..80), excused in 0_u64..100,
    ) {
        let partition = ColorSet::parse("0-3", COLORS).unwrap();
        let before = count(&pages, &partition);
        let mut after = before.clone();
        after.excuse(MoveRefusal::Pinned, excused);
        let (was, is) = (before.total(), after.total());
        let taken = excused.min(was.outside + was.unknown);
        prop_assert_eq!(is.resident(), was.resident());
        prop_assert_eq!(is.inside, was.inside);
        prop_assert_eq!(is.unmovable, was.unmovable + taken);
        let pinned = |c: &Census| c.obstacles().find(|o| o.0 == MoveRefusal::Pinned).map_or(0, |o| o.1);
        prop_assert_eq!(pinned(&after), pinned(&before) + taken);
    }
}

#[test]
fn what_is_outside_by_choice_is_told_and_stays_outside() {
    let partition = ColorSet::parse("0-3", COLORS).unwrap();
    let page = |color: Option<u16>, obstacle| ResidentPage {
        page: Vpn(1),
        color: color.map(Color),
        kind: AreaKind::Heap,
        obstacle,
    };
    let mut pages = vec![page(Some(0), None), page(Some(7), None), page(None, None)];
    pages.push(page(Some(7), Some(MoveRefusal::Superpage)));
    pages.push(page(Some(7), Some(MoveRefusal::Pinned)));
    let before = count(&pages, &partition);
    let mut after = before.clone();
    after.explain(MoveRefusal::Untouched, 9);
    assert_eq!((after.total(), after.compliance()), (before.total(), Some(0.25)));
    let told: Vec<_> = after.obstacles().collect();
    let all = [(MoveRefusal::Pinned, 1), (MoveRefusal::Superpage, 1), (MoveRefusal::Untouched, 2)];
    assert_eq!(told, all, "no more than there are");
    after.explain(MoveRefusal::Untouched, 1);
    assert_eq!(after.obstacles().collect::<Vec<_>>(), told);
}

#[test]
fn held_pages_are_excused_and_pages_not_moved_yet_are_not() {
    let partition = ColorSet::parse("0-3", COLORS).unwrap();
    let page = |color, obstacle| ResidentPage {
        page: Vpn(1),
        color: Some(Color(color)),
        kind: AreaKind::Heap,
        obstacle,
    };
    let mut pages = vec![page(0, None), page(3, None), page(1, None)];
    pages.push(page(7, Some(MoveRefusal::NoFrame)));
    pages.push(page(7, Some(MoveRefusal::Pinned)));
    let mut census = count(&pages, &partition);
    census.count_held(AreaKind::SharedFile, MoveRefusal::File, 9);
    census.count_held(AreaKind::Special, MoveRefusal::Special, 0);
    assert_eq!(census.compliance(), Some(0.75));
    assert_eq!(
        census.obstacles().collect::<Vec<_>>(),
        [(MoveRefusal::Pinned, 1), (MoveRefusal::NoFrame, 1), (MoveRefusal::File, 9)]
    );
    assert_eq!((census.uncolored, census.total().unmovable), (9, 10));
    assert_eq!(Census::new(partition).compliance(), None);
}

#[test]
fn each_kind_and_refusal_has_its_own_words() {
    let kinds = AreaKind::ALL.iter().enumerate().all(|(at, (kind, _))| *kind as usize == at);
    let mut refusals = MoveRefusal::ALL.iter().enumerate();
    assert!(kinds && refusals.all(|(at, (refusal, _))| *refusal as usize == at));
    assert_eq!(
        [AreaKind::HugeTlb.text(), MoveRefusal::Superpage.text()],
        ["hugetlb", "superpage, outside by choice"]
    );
}
