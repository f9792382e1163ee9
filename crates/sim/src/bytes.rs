//! Sizes as people write them.

use serde::{Deserialize, Serialize};

/// A number of bytes: `32K`, `1M`, `16G`, or a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "BytesText", into = "u64")]
pub struct Bytes(pub u64);

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "this is not a size; write a number of bytes, or `32K`, `1M`, `16G` in quotes"
)]
enum BytesText {
    Number(u64),
    Text(String),
}

impl TryFrom<BytesText> for Bytes {
    type Error = String;

    fn try_from(written: BytesText) -> Result<Bytes, String> {
        match written {
            BytesText::Number(n) => Ok(Bytes(n)),
            BytesText::Text(text) => Bytes::parse(&text),
        }
    }
}

impl From<Bytes> for u64 {
    fn from(bytes: Bytes) -> u64 {
        bytes.0
    }
}

impl Bytes {
    /// Reads `64`, `32K`, `1M`, `2MiB`, `16G`.
    ///
    /// # Errors
    /// What was expected.
    pub fn parse(text: &str) -> Result<Bytes, String> {
        let wrong = || {
            format!(
                "`{}` is not a size; write a number of bytes, or `32K`, `1M`, `16G`",
                text.escape_debug()
            )
        };
        let text = text.trim();
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let factor = match text[digits.len()..].to_ascii_lowercase().trim_end_matches("ib") {
            "" | "b" => 1,
            "k" | "kb" => 1 << 10,
            "m" | "mb" => 1 << 20,
            "g" | "gb" => 1 << 30,
            "t" | "tb" => 1_u64 << 40,
            _ => return Err(wrong()),
        };
        let number: u64 = digits.trim().parse().map_err(|_| wrong())?;
        number.checked_mul(factor).map(Bytes).ok_or_else(wrong)
    }
}
