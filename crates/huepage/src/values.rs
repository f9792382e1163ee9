//! Values that options and keys of files have in common: sizes, percentages, shares of a CPU. Each reader says
//! what was expected.

use std::time::Duration;

use huepage_sim::bytes::Bytes;

/// Reads a size in bytes: a whole number, alone or with K, M, G or T (powers of 1024), written as in a machine file or
/// as reports print it.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let bytes = Bytes::parse(text).map_or(0, |bytes| bytes.0);
    let expected = || format!("`{text}` is not a size; write for instance 512K, 32M or 1G");
    if bytes == 0 { Err(expected()) } else { Ok(bytes) }
}

/// Reads a number of accesses, instructions or cycles: a whole number, alone or with k, M or G (powers of 1000, as in
/// the settings of policies).
pub fn parse_count(text: &str) -> Result<u64, String> {
    let expected = || format!("`{text}` is no whole number; write for instance 20000000 or 20M");
    huepage_policy::registry::count(text).ok_or_else(expected)
}

/// A share; above 100 % is one of memory that grows beyond itself.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let expected = || format!("`{text}` is no percentage; write for instance 4%");
    let number: f64 =
        text.strip_suffix('%').unwrap_or(text).trim().parse().map_err(|_| expected())?;
    if (0.0..=100_000.0).contains(&number) { Ok(number / 100.0) } else { Err(expected()) }
}

/// A share of one CPU that watching may take.
pub fn parse_cpu(text: &str) -> Result<f64, String> {
    let share = parse_percent(text)?;
    if (0.0001..=1.0).contains(&share) { Ok(share) } else { Err("choose 0.01% to 100%".to_owned()) }
}

/// How long a program may wait at a time: a number with `us` or `ms`.
pub fn parse_stall(text: &str) -> Result<Duration, String> {
    let expected =
        || format!("`{text}` is no time from 10us to 10000ms; write for instance 500us or 2ms");
    let units = [("us", 1.0), ("ms", 1000.0)];
    let found = units.into_iter().find_map(|(unit, us)| Some((text.strip_suffix(unit)?, us)));
    let (digits, us) = found.ok_or_else(expected)?;
    let us = us * digits.trim().parse::<f64>().map_err(|_| expected())?;
    let time = (10.0..=1e7).contains(&us).then(|| Duration::try_from_secs_f64(us / 1e6).ok());
    time.flatten().ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_suffixes() {
        assert_eq!(parse_size("32M"), Ok(32 << 20));
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("2g"), Ok(2 << 30));
        assert_eq!(parse_size("64 MiB"), Ok(64 << 20));
    }

    #[test]
    fn bad_sizes_say_what_was_expected() {
        for bad in ["", "M", "0", "-1M", "1.5G", "99999999999G", "é"] {
            let error = parse_size(bad).unwrap_err();
            assert!(error.contains("32M"), "{bad}: {error}");
        }
    }

    #[test]
    fn counts_are_of_thousands() {
        assert_eq!(parse_count("80M"), Ok(80_000_000));
        assert_eq!(parse_count("0"), Ok(0));
        for bad in ["", "M", "-1", "1.5M", "99999999999G", "1m"] {
            assert!(parse_count(bad).unwrap_err().contains("20M"), "{bad}");
        }
    }

    #[test]
    fn shares_have_their_bounds() {
        assert_eq!(parse_percent("4%"), Ok(0.04));
        assert_eq!(parse_percent("250"), Ok(2.5));
        assert!(parse_percent("-1%").is_err() && parse_percent("x").is_err());
        assert!(parse_cpu("0").is_err() && parse_cpu("101%").is_err());
    }

    #[test]
    fn stalls_have_a_unit_and_bounds() {
        assert_eq!(parse_stall("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(parse_stall("1.5ms"), Ok(Duration::from_micros(1500)));
        for wrong in ["500", "us", "9us", "10001ms", "-1ms", "nanms", "1e400ms", "2s"] {
            assert!(parse_stall(wrong).unwrap_err().contains("500us"), "{wrong}");
        }
    }
}
