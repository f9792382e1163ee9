//! Functions have at most 40 lines, files at most 900.

use std::fs;

use super::sources;

/// Longest function outside tests, from its signature to its end.
const FUNCTION_LINES: usize = 40;
/// Longest file, tests included.
const FILE_LINES: usize = 900;

/// Functions of a text with their lines, in the form that rustfmt gives them.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let all = lines.iter().enumerate().filter(|(_, line)| !line.ends_with([';', '}']));
    let found = all.filter_map(|(at, line)| {
        Some((name_of(line.trim_start())?, length(&lines[at..], indent(line))))
    });
    found.collect()
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Lines up to the end of the function that begins with them, or of its declaration.
fn length(lines: &[&str], indented: usize) -> usize {
    let is_end = |line: &&str| {
        let text = line.trim_start();
        let ends = text.starts_with('}') || text.starts_with(')') && text.ends_with(';');
        indent(line) == indented && ends
    };
    lines.iter().position(is_end).map_or(lines.len(), |end| end + 1)
}

/// The name of the function whose first line this is.
fn name_of(line: &str) -> Option<&str> {
    const BEFORE: [&str; 6] = ["pub", "const", "async", "unsafe", "extern", "default"];
    let (before, rest) = line.split_once("fn ")?;
    let is_known = |word: &str| {
        word.starts_with(['"', '(']) || BEFORE.contains(&word.split('(').next().unwrap_or(""))
    };
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    let known = before.split_whitespace().all(is_known) && !name.is_empty();
    known.then_some(name)
}

#[test]
fn functions_are_short() {
    let mut seen = 0;
    let mut long = Vec::new();
    for (name, directory) in sources::crates() {
        for (module, text) in sources::read(&directory) {
            let all = functions(&text);
            seen += all.len();
            for (function, lines) in all.into_iter().filter(|(_, lines)| *lines > FUNCTION_LINES) {
                long.push(format!("{name}, {}: {function} has {lines} lines", module.join("/")));
            }
        }
    }
    assert!(seen > 5000, "{seen} functions");
    assert!(long.is_empty(), "split by meaning:\n{}", long.join("\n"));
}

#[test]
fn files_are_short() {
    let lines = |path: &std::path::PathBuf| fs::read_to_string(path).unwrap().lines().count();
    let all = sources::files().into_iter().map(|path| (lines(&path), path));
    let long: Vec<_> = all.filter(|(lines, _)| *lines > FILE_LINES).collect();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn a_function_is_as_long_as_it_is() {
    let text = "fn short() {}\n    pub(crate) const unsafe fn three(\n    ) {\n    }\n\
                trait T {\n    fn declared(\n        &self,\n    ) -> u8;\n}\n\
                pub extern \"C\" fn two() {\n}\nlet fn_ = 3;\n";
    assert_eq!(functions(text), [("three", 3), ("declared", 3), ("two", 2)]);
}
