//! The form in which observations are recorded: lines of text, to be read and written by
//! anything. A first line names the form; `scope set|slice` and `labels free|numbered` say
//! what groups are; then one observation a line: `m ADDRESS GROUP` for a classified line,
//! `p ADDRESS ADDRESS 0|1` for a timed pair (1: they conflict). Addresses are physical and
//! hexadecimal. `#` begins a remark. Files are opened elsewhere.

use std::fmt::Write as _;

use huepage_color::PhysAddr;
use thiserror::Error;

use crate::obs::{GroupScope, Labels, LineGroupId, Observation, Observations};

/// The first line.
const MAGIC: &str = "huepage observations 1";
/// The longest word that an error repeats, in characters.
const SHOWN: usize = 24;

/// Why a text is no recording.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum TextError {
    /// The first line is another.
    #[error(
        "this is no recording of observations; its first line has to be `huepage observations 1`"
    )]
    Magic,
    /// A line that cannot be read.
    #[error(
        "line {line}: `{text}` is no observation; write `m ADDRESS GROUP` or `p ADDRESS ADDRESS 0|1`"
    )]
    Line { line: usize, text: String },
    /// An unknown setting.
    #[error(
        "line {line}: `{text}` is no setting; write `scope set|slice` or `labels free|numbered`, before the first observation"
    )]
    Setting { line: usize, text: String },
}

/// Reads a recording.
///
/// # Errors
/// The first line that cannot be read.
pub fn parse(text: &str) -> Result<Observations, TextError> {
    let mut lines = text.lines().zip(1..).filter_map(|(line, number)| {
        let line = line.split('#').next().unwrap_or("").trim();
        (!line.is_empty()).then_some((line, number))
    });
    if lines.next().is_none_or(|(line, _)| line != MAGIC) {
        return Err(TextError::Magic);
    }
    let mut seen = Observations::default();
    for (line, number) in lines {
        let words: Vec<&str> = line.split_whitespace().take(5).collect();
        match (setting(&words, &mut seen), observation(&words)) {
            (Some(true), _) if seen.list.is_empty() => {}
            (Some(_), _) => return Err(TextError::Setting { line: number, text: cut(line) }),
            (None, Some(one)) => seen.list.push(one),
            (None, None) => return Err(TextError::Line { line: number, text: cut(line) }),
        }
    }
    Ok(seen)
}

/// Whether a line that begins as a setting is one; `None` if it does not begin so.
fn setting(words: &[&str], seen: &mut Observations) -> Option<bool> {
    match *words {
        ["scope", "set"] => seen.scope = GroupScope::Set,
        ["scope", "slice"] => seen.scope = GroupScope::Slice,
        ["labels", "free"] => seen.labels = Labels::Free,
        ["labels", "numbered"] => seen.labels = Labels::Numbered,
        ["scope" | "labels", ..] => return Some(false),
        _ => return None,
    }
    Some(true)
}

fn observation(words: &[&str]) -> Option<Observation> {
    match *words {
        ["m", addr, group] => {
            Some(Observation::Member { addr: address(addr)?, group: LineGroupId(decimal(group)?) })
        }
        ["p", a, b, conflict @ ("0" | "1")] => {
            Some(Observation::Pair { a: address(a)?, b: address(b)?, conflict: conflict == "1" })
        }
        _ => None,
    }
}

fn address(word: &str) -> Option<PhysAddr> {
    let digits = word.strip_prefix("0x").unwrap_or(word);
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| plain).map(PhysAddr)
}

fn decimal(word: &str) -> Option<u16> {
    word.parse().ok().filter(|_| word.bytes().all(|byte| byte.is_ascii_digit()))
}

fn cut(line: &str) -> String {
    line.chars().take(SHOWN).flat_map(char::escape_debug).collect()
}

/// Writes a recording; [`parse`] gives the same back.
pub fn render(seen: &Observations) -> String {
    let scope = match seen.scope {
        GroupScope::Set => "set",
        GroupScope::Slice => "slice",
    };
    let labels = match seen.labels {
        Labels::Free => "free",
        Labels::Numbered => "numbered",
    };
    let mut text = format!("{MAGIC}\nscope {scope}\nlabels {labels}\n");
    for one in &seen.list {
        let _ = match one {
            Observation::Member { addr, group } => writeln!(text, "m {addr} {}", group.0),
            Observation::Pair { a, b, conflict } => {
                writeln!(text, "p {a} {b} {}", u8::from(*conflict))
            }
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn remarks_and_blank_lines_do_not_count() {
        let text = "# by hand\nhuepage observations 1\nscope slice # of a counter\n\nm 0x1f40 3\n";
        let seen = parse(text).unwrap();
        assert_eq!(seen.scope, GroupScope::Slice);
        assert_eq!(seen.members().collect::<Vec<_>>(), [(PhysAddr(0x1f40), LineGroupId(3))]);
    }

    #[test]
    fn the_line_at_fault_is_named_with_what_to_write() {
        let said = |body: &str| parse(&format!("{MAGIC}\n{body}")).unwrap_err().to_string();
        for bad in ["m 1", "m g 1", "m 1 -1", "m 1 99999", "p 1 2 3", "p 1 2", "m 1 2 3", "x"] {
            assert!(said(bad).starts_with("line 2: `"), "{bad}");
        }
        assert!(said("scope all").contains("set|slice"));
        assert!(said("m 1 1\nscope set").starts_with("line 3"));
        assert!(parse("").unwrap_err().to_string().contains("first line"));
        assert!(said("\u{1b}[31m").contains("\\u{1b}"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            list in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u16>()), 0..50),
            slice in any::<bool>(), numbered in any::<bool>(),
        ) {
            let scope = if slice { GroupScope::Slice } else { GroupScope::Set };
            let labels = if numbered { Labels::Numbered } else { Labels::Free };
            let mut seen = Observations::new(scope, labels);
            for (a, b, group) in list {
                match group % 3 {
                    0 => seen.member(PhysAddr(a), LineGroupId(group)),
                    odd => seen.pair(PhysAddr(a), PhysAddr(b), odd == 1),
                }
            }
            prop_assert_eq!(parse(&render(&seen)), Ok(seen));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*", more in "[mp0-9a-fx \n#]*") {
            let _ = parse(&text);
            let _ = parse(&format!("{MAGIC}\n{more}"));
        }
    }
}
