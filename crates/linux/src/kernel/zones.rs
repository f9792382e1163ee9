//! Zones: ranges of frames that the kernel keeps apart. Pages of programs and files come from the highest zone of the
//! CPU's node that has enough left; a frame of another zone, or of another node, is not handed out again as long as
//! that is so.

use std::ops::Range;

/// The order of a huge page: 2^9 pages of 4 KiB.
const HUGE_ORDER: usize = 9;

/// What `/proc/zoneinfo` says of a zone, in frames.
#[derive(Clone, Copy, Debug, Default)]
struct FrameZone {
    node: usize,
    free: u64,
    /// Below it the kernel begins to make room, up to its mark `high`, and looks at lower zones.
    low: u64,
    spanned: u64,
    managed: u64,
    start: u64,
}

/// The frames that pages come from on a node, by the text of `/proc/zoneinfo`; `None` if no zone has enough left.
pub fn usual_frames(zoneinfo: &str, node: usize) -> Option<Range<u64>> {
    let enough = |zone: &FrameZone| zone.node == node && zone.managed > 0 && zone.free > zone.low;
    let highest = zones(zoneinfo).into_iter().filter(enough).max_by_key(|zone| zone.start)?;
    Some(highest.start..highest.start + highest.spanned)
}

/// Free blocks of at least a huge page on a node, in huge pages, by the text of `/proc/buddyinfo`. Where there are few,
/// asking for one has the kernel move pages of others to make one.
pub fn free_huge_pages(buddyinfo: &str, node: usize) -> u64 {
    buddyinfo.lines().filter_map(|line| huge_blocks(line, node)).sum()
}

/// Orders of 2 MiB and more in a line like `Node 0, zone Normal 1 0 2 …`, which has a number for each order from 0 on.
fn huge_blocks(line: &str, node: usize) -> Option<u64> {
    let mut words = line.split_whitespace();
    let own = words.nth(1)?.trim_end_matches(',').parse() == Ok(node);
    let larger = words.skip(2 + HUGE_ORDER).enumerate();
    let pages = larger.map(|(order, blocks)| blocks.parse().unwrap_or(0) << order);
    own.then(|| pages.sum())
}

fn zones(zoneinfo: &str) -> Vec<FrameZone> {
    let mut zones = Vec::new();
    for line in zoneinfo.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["Node", node, "zone", _] = words[..] {
            let node = node.trim_end_matches(',').parse().unwrap_or(0);
            zones.push(FrameZone { node, ..FrameZone::default() });
        }
        let Some(zone) = zones.last_mut() else { continue };
        let (field, number) = match words[..] {
            ["pages", "free", number] => (&mut zone.free, number),
            ["low", number] => (&mut zone.low, number),
            ["spanned", number] => (&mut zone.spanned, number),
            ["managed", number] => (&mut zone.managed, number),
            ["start_pfn:", number] => (&mut zone.start, number),
            _ => continue,
        };
        *field = number.parse().unwrap_or(0);
    }
    zones
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes; the first has a low zone, too.
    fn text(normal_free: u64) -> String {
        let zone = |node, name, free, managed, start| {
            format!(
                "Node {node}, zone {name:>8}\n  per-node stats\n      nr_inactive_anon 12\n  pages free     {free}\n        \
                 boost    0\n        min      10\n        low      15\n        high     20\n        spanned  {managed}\n        \
                 managed  {managed}\n  pagesets\n    cpu: 0\n              high:     240\n  start_pfn:           {start}\n"
            )
        };
        zone(0, "DMA32", 1000, 4000, 4096)
            + &zone(0, "Normal", normal_free, 9000, 1 << 20)
            + &zone(0, "Movable", 0, 0, 0)
            + &zone(1, "Normal", 700, 5000, 1 << 21)
            + &zone(1, "Device", 0, 0, 1 << 22)
    }

    #[test]
    fn pages_come_from_the_highest_zone_that_has_any() {
        let of = |free, node| usual_frames(&text(free), node);
        assert_eq!(of(16, 0), Some(1 << 20..(1 << 20) + 9000));
        assert_eq!(of(15, 0), Some(4096..8096), "the high one is short");
        assert_eq!(of(21, 1), Some(1 << 21..(1 << 21) + 5000));
        assert_eq!((of(21, 2), usual_frames("", 0)), (None, None));
    }

    #[test]
    fn huge_pages_are_counted_in_larger_blocks_too() {
        let text = "Node 0, zone    DMA32      9      9     17     15     17     14     14      9      8     10    744 \n\
                    Node 0, zone   Normal      1      1      1      1      1      1      1      1      1      3      2 \n\
                    Node 1, zone   Normal      1      1      1      1      1      1      1      1      1      0      0 \n";
        let of = |node| free_huge_pages(text, node);
        assert_eq!([of(0), of(1), of(2)], [10 + 2 * 744 + 3 + 2 * 2, 0, 0]);
        assert_eq!(free_huge_pages("Node\nNode 0, zone\n", 0), 0);
    }

    #[test]
    fn this_kernel_says_it_for_some_node() {
        let text = std::fs::read_to_string("/proc/zoneinfo").unwrap();
        let frames = (0..64).find_map(|node| usual_frames(&text, node));
        assert!(frames.is_some_and(|frames| frames.end > frames.start), "{text}");
    }
}
