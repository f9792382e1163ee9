//! What everything begins with. Sections of equal size, one for each core; or one for each group: everybody
//! gets its floor, and the rest goes round. Colours that groups had before stay theirs as far as they may.

use huepage_color::{Color, ColorSet};
use huepage_frames::Sections;

use super::Spec;

/// The colours of a pool in sections of equal size.
pub fn equal(pool: &ColorSet, sections: Sections) -> Vec<ColorSet> {
    let mut all = vec![ColorSet::empty(pool.universe()); usize::from(sections.cores())];
    for (at, color) in (0..).zip(pool.iter()) {
        all[usize::from(sections.core_of(Color(at)))].insert(color);
    }
    all
}

/// The sections of some groups, the section of each, and the colours that each begins with. With a `count`,
/// groups that may be changed are in as many sections, one after the other. None if floors do not fit.
pub(super) fn of_groups(
    pool: &ColorSet,
    specs: &[Spec],
    before: &[Option<ColorSet>],
    count: u16,
) -> Option<(Vec<ColorSet>, Vec<usize>, Vec<ColorSet>)> {
    if count == 0 {
        let all = divide(pool, specs, before)?;
        return Some((divide(pool, specs, &[])?, (0..specs.len()).collect(), all));
    }
    let still: Vec<Spec> = specs.iter().filter(|spec| spec.bounds.is_none()).cloned().collect();
    let kept: Vec<_> = specs.iter().zip(before).filter(|(spec, _)| spec.bounds.is_none()).collect();
    let kept: Vec<Option<ColorSet>> = kept.into_iter().map(|(_, before)| before.clone()).collect();
    let still = divide(pool, &still, &kept)?;
    let rest = still.iter().fold(pool.clone(), |rest, own| rest.difference(own));
    let mut sections = equal(&rest, Sections::new(count, rest.len())?);
    let (mut own, mut all, mut still) = (Vec::new(), Vec::new(), still.into_iter());
    let mut turns = (0..usize::from(count)).cycle();
    for (at, spec) in specs.iter().enumerate() {
        if spec.bounds.is_none() {
            own.push(sections.len());
            sections.push(still.next()?);
            all.extend(sections.last().cloned());
            continue;
        }
        let section = turns.next()?;
        let had = before.get(at).and_then(Option::as_ref).map(|had| had.intersection(&rest));
        let had = had.filter(|had| had.len() >= spec.floor);
        let colors = first_of(had.as_ref().unwrap_or(&sections[section]), spec.ceiling);
        (colors.len() >= spec.floor).then_some(())?;
        own.push(section);
        all.push(colors);
    }
    Some((sections, own, all))
}

/// Disjoint colours of `pool` for each group: within its limits, of those that it had `before` where that
/// is known. Groups that are never changed get their floor; the others share the rest evenly. Nothing if
/// the floors do not fit.
pub fn divide(
    pool: &ColorSet,
    specs: &[Spec],
    before: &[Option<ColorSet>],
) -> Option<Vec<ColorSet>> {
    let floors: u32 = specs.iter().map(|spec| u32::from(spec.floor)).sum();
    if floors > u32::from(pool.len()) {
        return None;
    }
    let mut free = pool.clone();
    let mut all = held(&mut free, specs, before);
    while let Some(at) = (0..specs.len()).find(|&at| all[at].len() < specs[at].floor) {
        if free.is_empty() {
            let rich =
                (0..specs.len()).max_by_key(|&at| all[at].len().saturating_sub(specs[at].floor))?;
            let color = all[rich].iter().last()?;
            all[rich].remove(color);
            free.insert(color);
        }
        give(&mut free, &mut all[at])?;
    }
    // Who was there before has what it came to have; the rest is for newcomers.
    let is_new = |at: usize| before.get(at).is_none_or(Option::is_none);
    let grows = |at: &usize, all: &[ColorSet]| {
        specs[*at].bounds.is_some() && is_new(*at) && all[*at].len() < specs[*at].ceiling
    };
    while !free.is_empty()
        && let Some(at) =
            (0..specs.len()).filter(|at| grows(at, &all)).min_by_key(|&at| all[at].len())
    {
        give(&mut free, &mut all[at])?;
    }
    Some(gathered(pool, specs, before, all))
}

/// What each had before, as far as it is free and may be had; it is free no more.
fn held(free: &mut ColorSet, specs: &[Spec], before: &[Option<ColorSet>]) -> Vec<ColorSet> {
    let universe = free.universe();
    let mut own = |(at, spec): (usize, &Spec)| {
        let old = before.get(at).and_then(Option::as_ref);
        let old = old.filter(|old| old.universe() == universe);
        let own = old.map_or_else(|| ColorSet::empty(universe), |old| old.intersection(free));
        let own = first_of(&own, spec.ceiling);
        *free = free.difference(&own);
        own
    };
    specs.iter().enumerate().map(&mut own).collect()
}

/// Where nobody had colours before, everybody gets a run of them.
fn gathered(
    pool: &ColorSet,
    specs: &[Spec],
    before: &[Option<ColorSet>],
    all: Vec<ColorSet>,
) -> Vec<ColorSet> {
    if before.iter().any(Option::is_some) || specs.is_empty() {
        return all;
    }
    let mut rest = pool.iter();
    let run = |own: &ColorSet| {
        let mut run = ColorSet::empty(pool.universe());
        rest.by_ref().take(usize::from(own.len())).for_each(|color| _ = run.insert(color));
        run
    };
    all.iter().map(run).collect()
}

fn first_of(colors: &ColorSet, n: u16) -> ColorSet {
    let mut first = ColorSet::empty(colors.universe());
    colors.iter().take(usize::from(n)).for_each(|color| _ = first.insert(color));
    first
}

/// One colour of those that are free: beside one of its own if there is one.
fn give(free: &mut ColorSet, own: &mut ColorSet) -> Option<()> {
    let beside = |color: Color| {
        let below = color.0.checked_sub(1).map(Color);
        own.contains(Color(color.0.saturating_add(1))) || below.is_some_and(|c| own.contains(c))
    };
    let color = free.iter().find(|&color| beside(color)).or_else(|| free.first_color())?;
    free.remove(color);
    own.insert(color);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::super::Bounds;
    use super::*;
    use proptest::prelude::*;

    fn spec(floor: u16, ceiling: u16, dynamic: bool) -> Spec {
        let bounds = dynamic.then_some(Bounds { low: 0.1, high: 0.4 });
        Spec { name: "x".to_owned(), floor, ceiling, priority: 1, bounds, measure: "miss rate" }
    }

    fn set(text: &str) -> ColorSet {
        ColorSet::parse(text, 16).unwrap()
    }

    #[test]
    fn everybody_gets_a_run() {
        let specs = [spec(4, 4, false), spec(1, 16, true), spec(1, 3, true), spec(2, 16, true)];
        let all = divide(&ColorSet::all(16), &specs, &[]).unwrap();
        assert_eq!(all, [set("0-3"), set("4-8"), set("9-11"), set("12-15")]);
        assert_eq!(divide(&set("0-6"), &specs, &[]), None);
    }

    #[test]
    fn what_was_held_before_is_held_again() {
        let specs = [spec(2, 2, false), spec(1, 16, true), spec(1, 16, true)];
        let before = [Some(set("14-15")), Some(set("0-9")), Some(set("11"))];
        let all = divide(&ColorSet::all(16), &specs, &before).unwrap();
        assert_eq!(all, [set("14-15"), set("0-9"), set("11")]);
        let before = [None, Some(set("0-15")), None];
        let all = divide(&ColorSet::all(16), &specs, &before).unwrap();
        assert_eq!(all.iter().map(ColorSet::len).collect::<Vec<_>>(), [2, 13, 1]);
    }

    proptest! {
        #[test]
        fn divisions_are_disjoint_and_within_limits(
            mask in 1_u32..(1 << 16),
            limits in proptest::collection::vec((1_u16..5, 0_u16..12, any::<bool>()), 1..6),
            held in proptest::collection::vec(proptest::option::of(1_u32..(1 << 16)), 6),
        ) {
            let pool = ColorSet::parse(&format!("{mask:#x}"), 16).unwrap();
            let specs: Vec<Spec> = limits.iter().map(|&(floor, more, dynamic)| {
                spec(floor, if dynamic { floor + more } else { floor }, dynamic)
            }).collect();
            let before: Vec<Option<ColorSet>> = held.iter().map(|mask| {
                mask.map(|mask| ColorSet::parse(&format!("{mask:#x}"), 16).unwrap())
            }).collect();
            let floors: u16 = specs.iter().map(|spec| spec.floor).sum();
            match divide(&pool, &specs, &before) {
                None => prop_assert!(floors > pool.len()),
                Some(all) => {
                    let mut union = ColorSet::empty(16);
                    for (own, spec) in all.iter().zip(&specs) {
                        prop_assert!((spec.floor..=spec.ceiling).contains(&own.len()));
                        prop_assert!(union.intersection(own).is_empty() && own.is_subset(&pool));
                        union = union.union(own);
                    }
                }
            }
        }
    }
}
