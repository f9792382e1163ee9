//! Keys of policies: their names, units, ranges and usual values, and how a value is read. The same
//! table makes `parse`, the list of a policy's keys and the documentation.

use std::fmt;

/// The unit of times: cycles; live, nanoseconds of the program's CPU time.
pub(super) const CYCLES: &str = "cycles";

/// Which values a key takes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "the variant says what the fields are")]
pub enum Kind {
    /// A whole number of this unit, within bounds; `10k`, `5M` and `1G` are thousands, millions and billions.
    Count { unit: &'static str, least: u64, most: u64 },
    /// A part of a whole, 0 to 1; `12%` and `1/8` are read as well.
    Share,
    /// Any number from 0 on, of this unit.
    Ratio(&'static str),
    /// One of these words.
    Word(&'static [&'static str]),
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// A share, or any number.
    Ratio(f64),
    /// A word.
    Word(&'static str),
}

/// The value of a key that is not given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Usual {
    /// This one.
    Is(Value),
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

const MOST: u64 = 1 << 52;

type Words = &'static str;

impl Key {
    pub(super) const fn count(name: Words, unit: Words, usual: u64, what: Words) -> Key {
        let kind = Kind::Count { unit, least: 0, most: MOST };
        Key { name, kind, usual: Usual::Is(Value::Count(usual)), what }
    }

    pub(super) const fn share(name: Words, usual: f64, what: Words) -> Key {
        Key { name, kind: Kind::Share, usual: Usual::Is(Value::Ratio(usual)), what }
    }

    pub(super) const fn ratio(name: Words, unit: Words, usual: f64, what: Words) -> Key {
        Key { name, kind: Kind::Ratio(unit), usual: Usual::Is(Value::Ratio(usual)), what }
    }

    pub(super) const fn word(
        name: Words,
        words: &'static [Words],
        usual: Words,
        what: Words,
    ) -> Key {
        Key { name, kind: Kind::Word(words), usual: Usual::Is(Value::Word(usual)), what }
    }

    pub(super) const fn switch(name: Words, usual: bool, what: Words) -> Key {
        Key::word(name, &["on", "off"], if usual { "on" } else { "off" }, what)
    }

    /// With another least value, of a count.
    pub(super) const fn least(self, least: u64) -> Key {
        self.within(least, MOST)
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
            Kind::Share => ratio(text).filter(|n| (0.0..=1.0).contains(n)).map(Value::Ratio),
            Kind::Ratio(_) => ratio(text).filter(|n| (0.0..=1e15).contains(n)).map(Value::Ratio),
            Kind::Word(words) => words.iter().find(|word| **word == text).copied().map(Value::Word),
        };
        found.ok_or_else(|| self.kind.to_string())
    }
}

/// A whole number, alone or with `k`, `M` or `G` for thousands, millions or billions; `None` where it is none, or
/// beyond 64 bits.
pub fn count(text: &str) -> Option<u64> {
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
                write!(f, "a whole number ({unit}) from {least}, such as 10k")
            }
            Kind::Count { unit, least, most } => {
                write!(f, "a whole number ({unit}) from {least} to {most}")
            }
            Kind::Share => f.write_str("a share from 0 to 1, such as 0.25, 25% or 1/4"),
            Kind::Ratio(unit) => write!(f, "a number ({unit}) from 0"),
            Kind::Word(words) => f.write_str(&words.join(" or ")),
        }
    }
}

impl fmt::Display for Usual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Usual::Is(value) => value.fmt(f),
            Usual::Host(words) => f.write_str(words),
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
        let key = Key::count("n", "cache misses", 1, "").within(1, 10_000);
        assert_eq!(key.read("10k"), Ok(Value::Count(10_000)));
        assert!(key.read("0").is_err() && key.read("11k").is_err() && key.read("-1").is_err());
        assert!(key.read("1M2").unwrap_err().contains("cache misses"));
        let share = Key::share("s", 0.5, "");
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
