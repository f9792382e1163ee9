//! Masks as text: hexadecimal numbers with blanks between, as tables of published hashes have
//! them, and as lists of address bits. Nothing is computed.

use thiserror::Error;

/// Not a list of masks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum NotationError {
    /// A word that is no mask.
    #[error("`{}` is not a mask; write hexadecimal numbers such as 0x1b5f575440", .word.escape_debug())]
    Mask { word: String },
    /// Nothing but blanks.
    #[error("there is no mask in it; write hexadecimal numbers such as 0x1b5f575440")]
    Empty,
}

/// `0x1b5f575440 0x2eb5faa880`.
pub fn masks(masks: &[u64]) -> String {
    masks.iter().map(|mask| format!("{mask:#x}")).collect::<Vec<_>>().join(" ")
}

/// The address bits of a mask, runs joined: `6,10,14-17`.
pub fn bits(mask: u64) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for bit in (0..64).filter(|bit| mask >> bit & 1 == 1) {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == bit => *last = bit,
            _ => runs.push((bit, bit)),
        }
    }
    let run = |&(a, b): &(u32, u32)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    runs.iter().map(run).collect::<Vec<_>>().join(",")
}

/// Reads masks with blanks or commas between them; `0x` may be left out.
///
/// # Errors
/// `Mask` for a word that is no hexadecimal number of 64 bits or is 0, `Empty`.
pub fn parse(text: &str) -> Result<Vec<u64>, NotationError> {
    let words = text.split([' ', ',', '\t', '\n']).filter(|word| !word.is_empty());
    let masks: Vec<u64> = words.map(mask).collect::<Result<_, _>>()?;
    if masks.is_empty() { Err(NotationError::Empty) } else { Ok(masks) }
}

fn mask(word: &str) -> Result<u64, NotationError> {
    let digits = word.strip_prefix("0x").unwrap_or(word);
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let value = u64::from_str_radix(digits, 16).ok().filter(|&mask| plain && mask != 0);
    value.ok_or_else(|| NotationError::Mask { word: word.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_written_as_they_are_read() {
        let text = "0x1b5f575440 0x2eb5faa880";
        assert_eq!(masks(&parse(text).unwrap()), text);
        assert_eq!(parse("1b5f575440,0x2eb5faa880\n").unwrap(), parse(text).unwrap());
    }

    #[test]
    fn what_is_no_mask_is_named() {
        for bad in ["", "  ", "0", "0x", "+1", "xyz", "0x1 2q", "11112222333344445"] {
            let said = parse(bad).unwrap_err().to_string();
            assert!(said.ends_with("such as 0x1b5f575440"), "{bad}: {said}");
        }
    }

    #[test]
    fn bits_are_joined_to_runs() {
        assert_eq!(bits(0b1110_0100_0000), "6,9-11");
        assert_eq!(bits(1 << 63 | 1), "0,63");
    }
}
