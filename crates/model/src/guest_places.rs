//! Where things are in the memory of an emulated guest. A guest has holes between its memory, and an emulator may
//! say other addresses than those that the guest has; a *place* counts bytes of memory alone, through all NUMA nodes.
//! The plugin of the lab compiles this file as well; it uses nothing else.

/// Where memory goes on for a guest that does not fit below other things.
const HIGH: u64 = 4 << 30;

/// The memory of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestPlaces {
    /// The first place of each node.
    starts: Vec<u64>,
    /// One past the last place of the first node.
    first: u64,
    /// One past the last place.
    end: u64,
    /// Bytes below other things.
    low: u64,
    /// The emulator says the addresses that the guest has.
    is_physical: bool,
}

impl GuestPlaces {
    /// Memory in nodes of so many bytes, of which the first `low` are below other things. Emulators of before 8.2
    /// say addresses of their own (`is_physical` is false).
    pub fn new(nodes: &[u64], low: u64, is_physical: bool) -> GuestPlaces {
        let starts = nodes.iter().scan(0, |end, bytes| {
            let start = *end;
            *end += bytes;
            Some(start)
        });
        GuestPlaces {
            starts: starts.collect(),
            first: nodes.first().copied().unwrap_or(0),
            end: nodes.iter().sum(),
            low,
            is_physical,
        }
    }

    /// The place of what the emulator says that was accessed; none of what is no memory of the guest's.
    #[inline(always)]
    pub fn of_seen(&self, seen: u64) -> Option<u64> {
        if self.is_physical {
            self.of_physical(seen)
        } else if seen < self.first {
            Some(seen)
        } else {
            self.of_further(seen)
        }
    }

    /// The same behind the first node. The emulator keeps nodes behind each other, but adds to an address where its
    /// node begins for the guest.
    fn of_further(&self, seen: u64) -> Option<u64> {
        let node = self.starts.iter().rposition(|start| seen >= 2 * start)?;
        let end = self.starts.get(node + 1).copied().unwrap_or(self.end);
        Some(seen - self.starts[node]).filter(|place| *place < end)
    }

    /// The place of what has a physical address; none of what is no memory.
    pub fn of_physical(&self, physical: u64) -> Option<u64> {
        let place = match physical.checked_sub(HIGH) {
            None => Some(physical).filter(|place| *place < self.low),
            Some(above) => above.checked_add(self.low),
        };
        place.filter(|place| *place < self.end)
    }

    /// The node that has a place, and where it is in that.
    pub fn in_node(&self, place: u64) -> Option<(usize, u64)> {
        let node = self.starts.iter().rposition(|start| place >= *start)?;
        (place < self.end).then(|| (node, place - self.starts[node]))
    }

    /// Bytes of memory.
    pub const fn bytes(&self) -> u64 {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    #[test]
    fn one_node_is_where_it_is() {
        let places = GuestPlaces::new(&[GIB], GIB, false);
        assert_eq!(
            [0, GIB - 1, GIB].map(|seen| places.of_seen(seen)),
            [Some(0), Some(GIB - 1), None]
        );
        assert_eq!(places.of_seen(u64::MAX), None);
        assert_eq!((places.of_physical(GIB), places.bytes()), (None, GIB));
        assert_eq!((places.in_node(7), places.in_node(GIB)), (Some((0, 7)), None));
    }

    #[test]
    fn nodes_follow_each_other() {
        let places = GuestPlaces::new(&[300 * MIB, 500 * MIB, 200 * MIB], GIB, false);
        let seen = |place: u64, start: u64| places.of_seen(place + start);
        for (place, start) in [(0, 0), (300, 300), (799, 300), (800, 800), (999, 800)] {
            let place = place * MIB + 5;
            assert_eq!(seen(place, start * MIB), Some(place), "{place}");
        }
        assert_eq!([300, 599, 1100, 1599, 1800].map(|mib| seen(mib * MIB, 0)), [None; 5]);
        assert_eq!(places.in_node(799 * MIB), Some((1, 499 * MIB)));
        assert_eq!(places.in_node(800 * MIB), Some((2, 0)));
    }

    #[test]
    fn more_memory_goes_on_above_a_hole() {
        for is_physical in [false, true] {
            let places = GuestPlaces::new(&[3 * GIB], 2 * GIB, is_physical);
            assert_eq!(places.of_physical(2 * GIB - 1), Some(2 * GIB - 1));
            assert_eq!([2 * GIB, 5 * GIB].map(|at| places.of_physical(at)), [None, None]);
            assert_eq!(places.of_physical(4 * GIB + 9), Some(2 * GIB + 9));
            let seen = if is_physical { 4 * GIB + 9 } else { 2 * GIB + 9 };
            assert_eq!(places.of_seen(seen), Some(2 * GIB + 9));
        }
    }
}
