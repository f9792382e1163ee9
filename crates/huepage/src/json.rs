//! JSON of reports, in and out, by way of a [`Value`]: the compiler makes what writes and what reads a type once,
//! not once for each form of text.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::exit::CmdError;

/// For a person, and a newline.
///
/// # Errors
/// If keys of the value are no text.
pub fn pretty(value: &impl Serialize) -> Result<String, CmdError> {
    let value = serde_json::to_value(value).map_err(CmdError::internal)?;
    Ok(serde_json::to_string_pretty(&value).map_err(CmdError::internal)? + "\n")
}

/// On one line, without its end.
///
/// # Errors
/// If keys of the value are no text.
pub fn line(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_value(value).map(|value: Value| value.to_string())
}

/// What a text says.
///
/// # Errors
/// If it is no JSON, or says something else.
pub fn parsed<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    serde_json::from_value(serde_json::from_slice(json)?)
}
