//! Figures of ROCS (2008), as read from its text and tables. Its figures 2, 7, 8 and 9 are drawings;
//! only the numbers that the text gives of them are here.

/// A row of a table: the program, and its figures.
pub type Row<const N: usize> = (&'static str, [f64; N]);

/// Table 2: instructions per cycle, L2 misses per thousand instructions, percent of L2 requests that
/// miss.
pub const TABLE_2: [Row<3>; 9] = [
    ("ammp", [0.30, 7.5, 52.0]),
    ("apsi", [0.45, 6.5, 61.0]),
    ("art", [0.10, 69.0, 75.0]),
    ("mcf", [0.05, 68.3, 54.0]),
    ("mgrid", [0.70, 3.0, 25.0]),
    ("swim", [0.10, 22.7, 75.0]),
    ("twolf", [0.22, 9.7, 35.0]),
    ("vpr", [0.33, 5.9, 25.0]),
    ("CG", [0.16, 42.1, 59.0]),
];

/// Table 2: seconds that each takes at 2.3 GHz.
pub const SECONDS: [Row<1>; 9] = [
    ("ammp", [540.0]),
    ("apsi", [329.0]),
    ("art", [190.0]),
    ("mcf", [503.0]),
    ("mgrid", [163.0]),
    ("swim", [1113.0]),
    ("twolf", [551.0]),
    ("vpr", [130.0]),
    ("CG", [1362.0]),
];

/// Cycles in a second.
pub const CLOCK: f64 = 2.3e9;

/// Table 3: pages, pages confined, percent of all.
pub const TABLE_3: [Row<3>; 7] = [
    ("apsi", [44_159.0, 2_676.0, 6.0]),
    ("art", [865.0, 607.0, 70.0]),
    ("mgrid", [14_433.0, 3_157.0, 21.8]),
    ("swim", [45_490.0, 14_335.0, 31.5]),
    ("twolf", [1_530.0, 181.0, 11.8]),
    ("vpr", [812.0, 183.0, 22.0]),
    ("CG", [40_818.0, 7_026.0, 17.2]),
];

/// Section 6.2: percent less time with ROCS, on average of seven and for swim.
pub const GAIN: [f64; 2] = [16.6, 34.2];
/// Section 6.2: percent fewer misses per instruction, on average.
pub const FEWER_MISSES: f64 = 12.2;
/// Section 6.1: percent of the time that monitoring and moving pages take, at worst and on average.
pub const OVERHEAD: [f64; 2] = [3.8, 1.6];
/// Section 6.3 and 3.2.2: art under Linux and with ROCS, percent of requests that miss, and percent of
/// all requests under Linux: the streamed arrays, then the layer.
pub const ART: [Row<3>; 2] = [("weights", [39.0, 81.0, 80.0]), ("layer", [56.0, 42.0, 35.0])];
/// Section 6.4: swim's cycles for a walk under Linux and with ROCS, and percent of stalls that are for
/// TLB misses.
pub const SWIM: [f64; 4] = [443.0, 136.0, 55.0, 29.0];

/// The figures of a program in a table, if it is there.
pub fn find<const N: usize>(table: &[Row<N>], program: &str) -> Option<[f64; N]> {
    table.iter().find(|(name, _)| *name == program).map(|row| row.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_agree_with_each_other() {
        for (name, [pages, confined, percent]) in TABLE_3 {
            assert!((100.0 * confined / pages - percent).abs() < 0.7, "{name}");
            assert!(find(&TABLE_2, name).is_some() && find(&SECONDS, name).is_some(), "{name}");
        }
        // Table 2's time and instructions give its instructions per cycle.
        let [seconds] = find(&SECONDS, "art").unwrap();
        assert!((44e9 / (seconds * CLOCK) - 0.10).abs() < 0.005);
        assert!(find(&TABLE_3, "mcf").is_none());
    }
}
