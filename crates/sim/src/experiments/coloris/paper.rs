//! COLORIS's own figures: tables 3 to 5, and what the text of section 4 says of figures 7 to 9,
//! whose bars have no numbers.

/// Instructions in an hour, in 10^11, of povray, tonto, omnetpp, gamess and all: configuration,
/// policy, figures (table 3).
pub const TABLE_3: [(&str, &str, [f64; 5]); 9] = [
    ("C3", "", [102.2, 91.6, 42.2, 123.1, 359.1]),
    ("C1", "Selective Moving", [100.1, 88.9, 46.2, 120.9, 356.1]),
    ("C2", "Selective Moving", [101.8, 90.7, 43.6, 122.8, 358.9]),
    ("C4", "Selective Moving", [100.7, 91.4, 45.8, 119.2, 357.1]),
    ("C1", "Redistribution", [100.2, 90.0, 46.0, 121.1, 357.3]),
    ("C2", "Redistribution", [101.7, 91.4, 44.1, 122.3, 359.5]),
    ("C4", "Redistribution", [100.7, 91.4, 46.0, 119.3, 357.4]),
    ("C6 WIN=1", "Redistribution", [101.7, 91.2, 43.9, 121.3, 358.1]),
    ("C6 WIN=5", "Redistribution", [101.8, 89.9, 43.8, 122.5, 358.0]),
];

/// Pages recoloured (table 4): C1, C2, C4, then WIN of 1 and 5 ms.
pub const TABLE_4: [(&str, &[f64]); 2] = [
    ("Selective Moving", &[10_746.0, 3845.0, 8791.0]),
    ("Redistribution", &[32_749.0, 22_243.0, 33_547.0, 6476.0, 30_174.0]),
];

/// Colours in the end of povray, tonto, omnetpp and gamess, three times each (table 5).
pub const TABLE_5: [(&str, &str, [[f64; 4]; 3]); 8] = [
    (
        "C1",
        "Selective Moving",
        [[4.0, 8.0, 44.0, 8.0], [4.0, 12.0, 40.0, 8.0], [4.0, 8.0, 44.0, 8.0]],
    ),
    (
        "C2",
        "Selective Moving",
        [[8.0, 16.0, 28.0, 12.0], [16.0, 12.0, 24.0, 12.0], [12.0, 12.0, 28.0, 12.0]],
    ),
    (
        "C4",
        "Selective Moving",
        [[4.0, 16.0, 40.0, 4.0], [4.0, 16.0, 40.0, 4.0], [4.0, 16.0, 40.0, 4.0]],
    ),
    (
        "C1",
        "Redistribution",
        [[4.0, 12.0, 40.0, 8.0], [4.0, 12.0, 40.0, 8.0], [4.0, 12.0, 40.0, 8.0]],
    ),
    (
        "C2",
        "Redistribution",
        [[12.0, 16.0, 28.0, 8.0], [8.0, 16.0, 28.0, 12.0], [12.0, 12.0, 28.0, 12.0]],
    ),
    (
        "C4",
        "Redistribution",
        [[4.0, 16.0, 40.0, 4.0], [4.0, 16.0, 40.0, 4.0], [4.0, 16.0, 40.0, 4.0]],
    ),
    (
        "C6 WIN=1",
        "Redistribution",
        [[8.0, 12.0, 28.0, 16.0], [12.0, 16.0, 28.0, 8.0], [16.0, 16.0, 28.0, 4.0]],
    ),
    (
        "C6 WIN=5",
        "Redistribution",
        [[16.0, 8.0, 28.0, 12.0], [16.0, 12.0, 28.0, 8.0], [12.0, 12.0, 28.0, 12.0]],
    ),
];

/// By how much the time of a foreground program varies with its background, percent: with
/// partitions against alone on a quarter, and without against alone on all (section 4.2).
pub const VARIATION: [(&str, [f64; 2]); 3] =
    [("omnetpp", [55.0, 90.0]), ("gobmk", [5.0, 21.0]), ("hmmer", [0.5, 2.0])];

/// Miss rate of omnetpp in a quarter of the cache, percent (section 4.3).
pub const OMNETPP_IN_A_QUARTER: f64 = 77.8;

/// A row of table 3.
pub fn instructions(config: &str, policy: &str) -> Option<[f64; 5]> {
    TABLE_3.iter().find(|row| (row.0, row.1) == (config, policy)).map(|row| row.2)
}

/// A row of table 5.
pub fn colors(config: &str, policy: &str, repetition: usize) -> Option<[f64; 4]> {
    let row = TABLE_5.iter().find(|row| (row.0, row.1) == (config, policy))?;
    row.2.get(repetition).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_and_colours_are_as_the_paper_adds_them() {
        for (config, policy, row) in TABLE_3 {
            let sum: f64 = row[..4].iter().sum();
            assert!((sum - row[4]).abs() < 0.25, "{config} {policy}: {sum}");
        }
        for (config, policy, rows) in TABLE_5 {
            for row in rows {
                assert_eq!(row.iter().sum::<f64>(), 64.0, "{config} {policy}");
            }
        }
        assert_eq!(instructions("C3", "").map(|row| row[2]), Some(42.2));
        assert_eq!(colors("C1", "Redistribution", 3), None);
    }
}
