//! Which part of a process a partition is for: all of it, or only some ranges, as when pages that
//! pollute the cache are confined and the rest stays where it is. Knows addresses, moves nothing.

use crate::kernel::procfs::Area;

/// Ranges of addresses, in bytes, ascending and apart; whole pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    ranges: Vec<(u64, u64)>,
}

impl Scope {
    /// Of ranges `[start, end)` in any order; those that meet become one.
    pub fn new(mut ranges: Vec<(u64, u64)>) -> Scope {
        ranges.retain(|&(start, end)| start < end);
        ranges.sort_unstable();
        let mut scope = Scope::default();
        for (start, end) in ranges {
            match scope.ranges.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => scope.ranges.push((start, end)),
            }
        }
        scope
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// Whether there is no page in it.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether an address lies in it.
    pub fn holds(&self, address: u64) -> bool {
        let next = self.ranges.partition_point(|&(_, end)| end <= address);
        self.ranges.get(next).is_some_and(|&(start, _)| start <= address)
    }

    /// What is in this one and not in the other.
    #[must_use]
    pub fn without(&self, other: &Scope) -> Scope {
        let mut left = Vec::new();
        for &(first, end) in &self.ranges {
            let mut start = first;
            for &(from, to) in other.ranges.iter().filter(|&&(from, to)| from < end && first < to) {
                left.push((start, from.min(end)));
                start = to;
            }
            left.push((start, end));
        }
        Scope::new(left)
    }

    /// The parts of areas that lie in it, each as an area of its own.
    pub fn cut(&self, areas: &[Area]) -> Vec<Area> {
        let mut parts = Vec::new();
        for area in areas {
            let first = self.ranges.partition_point(|&(_, end)| end <= area.start);
            let inside = self.ranges[first..].iter().take_while(|&&(start, _)| start < area.end);
            parts.extend(inside.map(|&(start, end)| {
                let mut part = area.clone();
                (part.start, part.end) = (start.max(area.start), end.min(area.end));
                part
            }));
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::kernel::procfs::parse_maps;

    #[test]
    fn areas_are_cut() {
        let text = b"\
10000-20000 rw-p 00000000 00:00 0
30000-50000 rw-p 00000000 00:00 0 [heap]
";
        let areas = parse_maps(text, Path::new("maps")).expect("well formed");
        let scope =
            Scope::new(vec![(0x4_8000, 0x9_0000), (0x1_8000, 0x3_4000), (0x3_4000, 0x3_5000)]);
        assert_eq!(scope.ranges().len(), 2);
        let parts = scope.cut(&areas);
        let bounds: Vec<(u64, u64)> = parts.iter().map(|a| (a.start, a.end)).collect();
        assert_eq!(bounds, [(0x1_8000, 0x2_0000), (0x3_0000, 0x3_5000), (0x4_8000, 0x5_0000)]);
        assert_eq!(parts[1].kind(), areas[1].kind());
        assert!(Scope::default().cut(&areas).is_empty());
    }

    fn ranges() -> impl Strategy<Value = Vec<(u64, u64)>> {
        let range = (0..60_u64, 0..9_u64).prop_map(|(start, length)| (start, start + length));
        proptest::collection::vec(range, 0..8)
    }

    proptest! {
        #[test]
        fn sets_of_addresses(one in ranges(), other in ranges()) {
            let holds = |ranges: &[(u64, u64)], at: u64| ranges.iter().any(|r| r.0 <= at && at < r.1);
            let (a, b) = (Scope::new(one.clone()), Scope::new(other.clone()));
            let left = a.without(&b);
            for at in 0..80 {
                prop_assert_eq!(holds(a.ranges(), at), holds(&one, at));
                prop_assert_eq!(a.holds(at), holds(&one, at));
                prop_assert_eq!(holds(left.ranges(), at), holds(&one, at) && !holds(&other, at));
            }
            prop_assert!(left.ranges().windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }
}
