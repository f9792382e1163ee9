//! A policy on the command line: `NAME:key=value,…`, `list` for all that there are, `NAME:help` for the keys
//! of one. What a name stands for is in `huepage_policy::registry`.

use std::str::FromStr;

use huepage_policy::registry::{self, Settings};

/// What was asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyChoice {
    /// A policy.
    Policy(Settings),
    /// Text about policies; nothing is to be run.
    Text(String),
}

impl FromStr for PolicyChoice {
    type Err = registry::Error;

    fn from_str(text: &str) -> Result<PolicyChoice, registry::Error> {
        if text == "list" {
            return Ok(PolicyChoice::Text(registry::listing()));
        }
        match text.strip_suffix(":help") {
            Some(name) => registry::keys_table(name).map(PolicyChoice::Text),
            None => Settings::parse(text).map(PolicyChoice::Policy),
        }
    }
}
