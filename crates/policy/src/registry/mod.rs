//! Every policy by its name. `NAME:key=value,…` is read here and nowhere else, so the simulator,
//! `huepage replay` and the live engines make the same policy of the same words. The table says of each
//! policy its paper, what it needs to hear of and its keys; `places` says by the needs where it runs; an engine
//! says what it knows of the machine ([`Host`]). What turns sensors on and carries actions out is elsewhere.

mod describe;
mod keys;
mod make;
mod places;
mod table;

use std::fmt;
use std::str::FromStr;

use huepage_color::ColorSet;
use serde::{Deserialize, Serialize};

pub use describe::{keys_table, listing, markdown};
use keys::CYCLES;
pub use keys::{Key, Kind, Usual, Value, count};
pub use places::{LiveOption, ORDER_ON_REQUEST, live, replay};
pub use table::{Family, POLICIES, PolicyEntry};

use crate::Prices;
use crate::coloris::Manager;
use crate::conflict::CacheShape;
use crate::event::Policy;
use crate::superpage::{OfflinePlan, PageSizes};

/// Why a policy cannot be made, in one line that ends with what to do. Keys and values are as they were written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum Error {
    /// There is no such policy; the hint says what may have been meant.
    #[error("no policy `{name}`; {hint}")]
    Unknown { name: String, hint: String },
    /// The policy has no such key; the hint says what may have been meant.
    #[error("{policy} has no key `{key}`; {hint}")]
    UnknownKey { policy: &'static str, key: String, hint: String },
    /// A key has a value that it cannot have.
    #[error("`{key}={value}` of {policy}: expected {expected}")]
    Value { policy: &'static str, key: String, value: String, expected: String },
    /// A key is given twice.
    #[error("`{key}` of {policy} is given twice; leave one out")]
    Twice { policy: &'static str, key: &'static str },
    /// The option does not take the policy; the hint says what to write instead.
    #[error("{policy} {why}; {hint}")]
    NotHere { policy: &'static str, why: String, hint: String },
    /// The machine or the engine lacks what the policy is about.
    #[error("{policy} needs {what}")]
    Lacks { policy: &'static str, what: &'static str },
}

/// What an engine knows of the machine that a policy is made for.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// The cache whose colours count; none if it has one colour.
    pub cache: Option<CacheShape>,
    /// The colours that the program is to keep to, if any.
    pub partition: Option<ColorSet>,
    /// Colours that pages are not moved to, if any; who has no say in that moves them anyway.
    pub keep_off: Option<ColorSet>,
    /// Cores that share the cache.
    pub cores: u16,
    /// Page sizes.
    pub sizes: PageSizes,
    /// What TLB misses and superpages cost.
    pub prices: Prices,
    /// Whether the engine can say what a superpage would take, and is asked.
    pub quotes: bool,
    /// Whether programs run unattended, and readings of them are estimates.
    pub live: bool,
    /// TLB misses that each one told stands for, at least 1.
    pub weight: u64,
    /// The superpages that the whole stream of accesses is worth, where that is known.
    pub plan: Option<OfflinePlan>,
}

/// A policy with its parameters, made from `NAME:key=value,…`.
#[derive(Clone, PartialEq)]
pub struct Settings {
    entry: &'static PolicyEntry,
    /// In the order of the entry's keys.
    given: Vec<Option<Value>>,
}

impl Settings {
    /// Reads `NAME` or `NAME:key=value,…`.
    ///
    /// # Errors
    /// For a name or key that there is not, and a value that a key cannot have.
    pub fn parse(text: &str) -> Result<Settings, Error> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let entry = POLICIES.iter().find(|entry| entry.name == name).ok_or_else(|| {
            let hint = hint(name, POLICIES.iter().map(|entry| entry.name));
            Error::Unknown { name: name.escape_debug().to_string(), hint }
        })?;
        let mut settings = Settings { entry, given: vec![None; entry.keys.len()] };
        for pair in rest.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let at = settings.place(key)?;
            if settings.given[at].is_some() {
                return Err(Error::Twice { policy: entry.name, key: entry.keys[at].name });
            }
            settings.set(key, value)?;
        }
        Ok(settings)
    }

    /// The policy that usually divides a cache.
    pub fn usual() -> Settings {
        let entry = POLICIES.iter().find(|entry| entry.family == Family::Division);
        let entry = entry.unwrap_or(&POLICIES[0]);
        Settings { entry, given: vec![None; entry.keys.len()] }
    }

    /// Gives a key a value, whether it has one or not.
    ///
    /// # Errors
    /// For a key that there is not, and a value that it cannot have.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), Error> {
        let at = self.place(key)?;
        let read = self.entry.keys[at].read(value.trim());
        self.given[at] = Some(read.map_err(|expected| Error::Value {
            policy: self.entry.name,
            key: key.to_owned(),
            value: value.escape_debug().to_string(),
            expected,
        })?);
        Ok(())
    }

    /// Whether a key was given a value.
    pub fn is_given(&self, key: &str) -> bool {
        self.place(key).is_ok_and(|at| self.given[at].is_some())
    }

    fn place(&self, key: &str) -> Result<usize, Error> {
        let keys = self.entry.keys;
        keys.iter().position(|known| known.name == key).ok_or_else(|| Error::UnknownKey {
            policy: self.entry.name,
            key: key.escape_debug().to_string(),
            hint: match keys {
                [] => "it has none".to_owned(),
                _ => hint(key, keys.iter().map(|key| key.name)),
            },
        })
    }

    /// What the table says of the policy.
    pub const fn entry(&self) -> &'static PolicyEntry {
        self.entry
    }

    /// The policy's name.
    pub const fn name(&self) -> &'static str {
        self.entry.name
    }

    /// The value of a count, given or usual; none where it follows from the machine.
    pub fn count(&self, key: &str) -> Option<u64> {
        match self.value(key)? {
            Value::Count(n) => Some(n),
            _ => None,
        }
    }

    /// The same of any other number.
    pub fn ratio(&self, key: &str) -> Option<f64> {
        match self.value(key)? {
            Value::Ratio(n) => Some(n),
            _ => None,
        }
    }

    /// The same of a word.
    pub fn word(&self, key: &str) -> Option<&'static str> {
        match self.value(key)? {
            Value::Word(word) => Some(word),
            _ => None,
        }
    }

    fn value(&self, key: &str) -> Option<Value> {
        let at = self.entry.keys.iter().position(|known| known.name == key)?;
        self.given[at].or(match self.entry.keys[at].usual {
            Usual::Is(value) => Some(value),
            Usual::Host(_) => None,
        })
    }

    /// The shortest of its times in cycles that is not zero: an engine tells the time several times in it.
    pub fn shortest_cycles(&self) -> Option<u64> {
        let in_cycles = |key: &&Key| matches!(key.kind, Kind::Count { unit: CYCLES, .. });
        let times = self.entry.keys.iter().filter(in_cycles);
        times.filter_map(|key| self.count(key.name)).filter(|n| *n > 0).min()
    }

    /// The policy of one address space, or of all of them where [`Family::is_shared`].
    ///
    /// # Errors
    /// When the machine lacks what the policy is about.
    pub fn make(&self, host: &Host) -> Result<Box<dyn Policy + Send>, Error> {
        make::policy(self, host)
    }

    /// Who divides the cache among programs; none if the policy is about one program.
    ///
    /// # Errors
    /// When the machine lacks what the policy is about.
    pub fn make_division(&self, host: &Host) -> Result<Option<Manager>, Error> {
        make::division(self, host)
    }
}

/// What may have been meant, or all that there is.
fn hint<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    /// Names that are at least so alike (Jaro and Winkler's measure, 0 to 1) are taken for each other.
    const ALIKE: f64 = 0.75;
    let rated = known.clone().map(|other| (strsim::jaro_winkler(other, name), other));
    match rated.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|best| best.0 >= ALIKE) {
        Some((_, other)) => format!("did you mean `{other}`?"),
        None => format!("choose {}", known.collect::<Vec<_>>().join(", ")),
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry.name)?;
        let pairs = self.entry.keys.iter().zip(&self.given);
        let given = pairs.filter_map(|(key, value)| Some((key.name, value.as_ref()?)));
        for (at, (key, value)) in given.enumerate() {
            write!(f, "{}{key}={value}", if at == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Settings({self})")
    }
}

impl FromStr for Settings {
    type Err = Error;

    fn from_str(text: &str) -> Result<Settings, Error> {
        Settings::parse(text)
    }
}

impl Serialize for Settings {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Settings, D::Error> {
        let text = String::deserialize(deserializer)?;
        Settings::parse(&text).map_err(serde::de::Error::custom)
    }
}
