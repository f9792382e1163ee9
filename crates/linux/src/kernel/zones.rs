//! Zones: ranges of frames that the kernel keeps apart. Pages of programs and files come from the highest zone of the
//! CPU's node that has enough left; a frame of another zone, or of another node, is not handed out again as long as
//! that is so.

use std::ops::Range;

/// What `/proc/zoneinfo` says of a zone, in frames.
#[derive(Clone, Copy, Debug, Default)]
struct FrameZone {
    node: usize,
    free: u64,
    /// Below it the kernel begins to make room, and looks at lower zones.
    high: u64,
    spanned: u64,
    managed: u64,
    start: u64,
}

/// The frames that pages come from on a node, by the text of `/proc/zoneinfo`; `None` if no zone has enough left.
pub fn usual_frames(zoneinfo: &str, node: usize) -> Option<Range<u64>> {
    let enough = |zone: &FrameZone| zone.node == node && zone.managed > 0 && zone.free > zone.high;
    let highest = zones(zoneinfo).into_iter().filter(enough).max_by_key(|zone| zone.start)?;
    Some(highest.start..highest.start + highest.spanned)
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
            ["high", number] => (&mut zone.high, number),
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
        assert_eq!(of(21, 0), Some(1 << 20..(1 << 20) + 9000));
        assert_eq!(of(20, 0), Some(4096..8096), "the high one is short");
        assert_eq!(of(21, 1), Some(1 << 21..(1 << 21) + 5000));
        assert_eq!((of(21, 2), usual_frames("", 0)), (None, None));
    }

    #[test]
    fn this_kernel_says_it_for_some_node() {
        let text = std::fs::read_to_string("/proc/zoneinfo").unwrap();
        let frames = (0..64).find_map(|node| usual_frames(&text, node));
        assert!(frames.is_some_and(|frames| frames.end > frames.start), "{text}");
    }
}
