//! The table of policies as text: for a terminal, and as Markdown for `docs/policies`. Both say the same.

use std::fmt::Write as _;

use super::places::{live, replay};
use super::table::{POLICIES, PolicyEntry};
use super::{Error, Settings};

/// A line for each policy: its name, where it runs and what it does; below it, why it does not run on programs.
pub fn listing() -> String {
    let width = POLICIES.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for entry in POLICIES {
        let (replayed, live) = (replay(entry).is_ok(), live(entry));
        let mark = |runs: bool, word| if runs { word } else { "-" };
        let [replayed, on_programs] = [mark(replayed, "replay"), mark(live.is_ok(), "live")];
        let (name, what) = (entry.name, entry.what);
        let _ = writeln!(text, "{name:width$}  sim {replayed:6} {on_programs:4}  {what}");
        if let Err(why) = live {
            let _ = writeln!(text, "{:width$}  not live: {why}", "");
        }
    }
    text
}

/// The keys of a policy, a line for each, below what it is and needs.
///
/// # Errors
/// When there is no such policy.
pub fn keys_table(name: &str) -> Result<String, Error> {
    let entry = Settings::parse(name)?.entry();
    let mut text = format!("{}: {}\n", entry.name, entry.what);
    for (title, words) in [("paper", entry.paper.to_owned()), ("needs", needs(entry))] {
        if !words.is_empty() {
            let _ = writeln!(text, "{title}: {words}");
        }
    }
    let _ = writeln!(text, "runs: {}", places(entry).join("; "));
    let width = entry.keys.iter().map(|key| key.name.len()).max().unwrap_or(0);
    for key in entry.keys {
        let _ = writeln!(text, "  {:width$}  {} [{}]; {}", key.name, key.what, key.usual, key.kind);
    }
    Ok(text)
}

/// The tables of `docs/policies/README.md`: the policies, and their keys.
pub fn markdown() -> String {
    let mut text = "| policy | what it does | paper | needs | simulator | replay | live |\n\
                    |---|---|---|---|---|---|---|\n"
        .to_owned();
    for entry in POLICIES {
        let no = |why: String| format!("no: {why}");
        let replay = replay(entry).map_or_else(no, str::to_owned);
        let live = live(entry).map_or_else(no, |option| format!("`{}`", option.text()));
        let (name, what, paper) = (entry.name, entry.what, entry.paper);
        let _ = writeln!(
            text,
            "| `{name}` | {what} | {paper} | {} | yes | {replay} | {live} |",
            needs(entry)
        );
    }
    text += "\n| policy | key | usual value | values | what it decides |\n|---|---|---|---|---|\n";
    for entry in POLICIES {
        for key in entry.keys {
            let (name, what) = (key.name, key.what);
            let _ = writeln!(
                text,
                "| `{}` | `{name}` | {} | {} | {what} |",
                entry.name, key.usual, key.kind
            );
        }
    }
    text
}

fn needs(entry: &PolicyEntry) -> String {
    let words = entry.needs.iter().map(|input| input.words());
    words.map(|(what, unit)| format!("{what} ({unit})")).collect::<Vec<_>>().join(", ")
}

fn places(entry: &PolicyEntry) -> Vec<String> {
    let replay = replay(entry).ok().map(|of| format!("replay of {of}"));
    let live = match live(entry) {
        Ok(option) => format!("live by {}", option.text()),
        Err(why) => format!("not live: {why}"),
    };
    [Some("simulator".to_owned()), replay, Some(live)].into_iter().flatten().collect()
}
