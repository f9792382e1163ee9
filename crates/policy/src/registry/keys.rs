//! Keys of policies: their names, units, ranges and usual values, and how a value is read. The same
//! table makes `parse`, the list of a policy's keys and the documentation.

use std::fmt;

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Cycles; live, nanoseconds of the program's CPU time.
    Cycles,
    /// Instructions.
    Instructions,
    /// Cache misses.
    Misses,
    /// TLB misses.
    TlbMisses,
    /// Cache misses per thousand instructions.
    Mpki,
    /// Cycles per instruction.
    Cpi,
    /// TLB misses per instruction.
    TlbMpi,
    /// Cycles per KiB.
    CyclesPerKib,
    /// Samples.
    Samples,
    /// Pages.
    Pages,
    /// log2 of base pages.
    Order,
    /// Colours.
    Colors,
    /// Ways of the cache.
    Ways,
    /// Audits.
    Audits,
    /// Attempts.
    Attempts,
    /// Moves of pages.
    Moves,
    /// Requests of the last cache.
    Requests,
    /// Intervals.
    Intervals,
    /// Steps.
    Steps,
    /// Scans of a file.
    Scans,
    /// Entries of a buffer.
    Entries,
    /// A part of a whole, 0 to 1.
    Share,
    /// Percent.
    Percent,
    /// Readings of how a program is doing.
    Readings,
    /// Seconds; in the simulator, the paper's.
    Seconds,
    /// Colours a second.
    ColorsPerSecond,
    /// Sections of the colours.
    Sections,
    /// Nothing: it begins random numbers.
    Seed,
}

impl Unit {
    /// The word for a person.
    pub const fn text(self) -> &'static str {
        match self {
            Unit::Cycles => "cycles",
            Unit::Instructions => "instructions",
            Unit::Misses => "cache misses",
            Unit::TlbMisses => "TLB misses",
            Unit::Mpki => "misses per 1000 instructions",
            Unit::Cpi => "cycles per instruction",
            Unit::TlbMpi => "TLB misses per instruction",
            Unit::CyclesPerKib => "cycles per KiB",
            Unit::Samples => "samples",
            Unit::Pages => "pages",
            Unit::Order => "log2 of pages",
            Unit::Colors => "colours",
            Unit::Ways => "ways",
            Unit::Audits => "audits",
            Unit::Attempts => "attempts",
            Unit::Moves => "moves",
            Unit::Requests => "requests",
            Unit::Intervals => "intervals",
            Unit::Steps => "steps",
            Unit::Scans => "scans",
            Unit::Entries => "entries",
            Unit::Share => "share",
            Unit::Percent => "percent",
            Unit::Readings => "readings",
            Unit::Seconds => "seconds",
            Unit::ColorsPerSecond => "colours a second",
            Unit::Sections => "sections",
            Unit::Seed => "seed",
        }
    }
}

/// Which values a key takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A whole number; `10k`, `5M` and `1G` are thousands, millions and billions.
    Count {
        /// Of what.
        unit: Unit,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// Any number from 0 on; `12%` and `1/8` are read as well.
    Ratio {
        /// Of what.
        unit: Unit,
        /// The most.
        most: f64,
    },
    /// One of these words.
    Word(&'static [&'static str]),
}

/// The value of a key that is not given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Usual {
    /// A whole number.
    Count(u64),
    /// A number.
    Ratio(f64),
    /// A word.
    Word(&'static str),
    /// It follows from the machine, in these words.
    Host(&'static str),
}

/// A key of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its values.
    pub kind: Kind,
    /// The value where none is given.
    pub usual: Usual,
    /// What it decides.
    pub what: &'static str,
}

/// A value that was given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    Count(u64),
    Ratio(f64),
    Word(&'static str),
}

const MOST: u64 = 1 << 52;

impl Key {
    pub(super) const fn count(
        name: &'static str,
        unit: Unit,
        usual: u64,
        what: &'static str,
    ) -> Key {
        let kind = Kind::Count { unit, least: 0, most: MOST };
        Key { name, kind, usual: Usual::Count(usual), what }
    }

    pub(super) const fn ratio(
        name: &'static str,
        unit: Unit,
        usual: f64,
        what: &'static str,
    ) -> Key {
        let most = if matches!(unit, Unit::Share) { 1.0 } else { 1e15 };
        Key { name, kind: Kind::Ratio { unit, most }, usual: Usual::Ratio(usual), what }
    }

    pub(super) const fn word(
        name: &'static str,
        words: &'static [&'static str],
        usual: &'static str,
        what: &'static str,
    ) -> Key {
        Key { name, kind: Kind::Word(words), usual: Usual::Word(usual), what }
    }

    /// With a narrower range, of a count.
    pub(super) const fn within(self, least: u64, most: u64) -> Key {
        match self.kind {
            Kind::Count { unit, .. } => Key { kind: Kind::Count { unit, least, most }, ..self },
            _ => self,
        }
    }

    /// With a usual value that follows from the machine.
    pub(super) const fn by_host(self, usual: &'static str) -> Key {
        Key { usual: Usual::Host(usual), ..self }
    }

    /// Reads a value; else what was expected.
    pub(super) fn read(&self, text: &str) -> Result<Value, String> {
        let found = match self.kind {
            Kind::Count { least, most, .. } => {
                count(text).filter(|n| (least..=most).contains(n)).map(Value::Count)
            }
            Kind::Ratio { most, .. } => {
                ratio(text).filter(|n| (0.0..=most).contains(n)).map(Value::Ratio)
            }
            Kind::Word(words) => words.iter().find(|word| **word == text).copied().map(Value::Word),
        };
        found.ok_or_else(|| self.kind.to_string())
    }
}

/// A whole number with a suffix for thousands, millions or billions.
fn count(text: &str) -> Option<u64> {
    let units = [('k', 1_000), ('M', 1_000_000), ('G', 1_000_000_000)];
    let of = |(suffix, factor)| Some((text.strip_suffix::<char>(suffix)?, factor));
    let (number, factor) = units.into_iter().find_map(of).unwrap_or((text, 1));
    number.parse::<u64>().ok()?.checked_mul(factor)
}

fn ratio(text: &str) -> Option<f64> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|n| n.is_finite());
    match (text.split_once('/'), text.strip_suffix('%')) {
        (Some((part, whole)), _) => Some(number(part)? / number(whole).filter(|n| *n > 0.0)?),
        (_, Some(percent)) => Some(number(percent)? / 100.0),
        _ => number(text),
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Kind::Count { unit, least, most: MOST } => {
                write!(f, "a whole number ({}) from {least}, such as 10k", unit.text())
            }
            Kind::Count { unit, least, most } => {
                write!(f, "a whole number ({}) from {least} to {most}", unit.text())
            }
            Kind::Ratio { unit: Unit::Share, .. } => {
                f.write_str("a share from 0 to 1, such as 0.25, 25% or 1/4")
            }
            Kind::Ratio { unit, .. } => write!(f, "a number ({}) from 0", unit.text()),
            Kind::Word(words) => f.write_str(&words.join(" or ")),
        }
    }
}

impl fmt::Display for Usual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Usual::Count(n) => n.fmt(f),
            Usual::Ratio(n) => n.fmt(f),
            Usual::Word(word) | Usual::Host(word) => f.write_str(word),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Count(n) => n.fmt(f),
            Value::Ratio(n) => n.fmt(f),
            Value::Word(word) => f.write_str(word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_suffixes_shares_and_ranges() {
        let key = Key::count("n", Unit::Misses, 1, "").within(1, 10_000);
        assert_eq!(key.read("10k"), Ok(Value::Count(10_000)));
        assert!(key.read("0").is_err() && key.read("11k").is_err() && key.read("-1").is_err());
        assert!(key.read("1M2").unwrap_err().contains("cache misses"));
        let share = Key::ratio("s", Unit::Share, 0.5, "");
        for text in ["0.125", "12.5%", "1/8"] {
            assert_eq!(share.read(text), Ok(Value::Ratio(0.125)), "{text}");
        }
        for text in ["2", "1/0", "nan", "inf", "x", "", "-0.1"] {
            assert!(share.read(text).is_err(), "{text}");
        }
        let word = Key::word("w", &["on", "off"], "on", "");
        assert_eq!(
            (word.read("off"), word.read("x")),
            (Ok(Value::Word("off")), Err("on or off".into()))
        );
    }
}
