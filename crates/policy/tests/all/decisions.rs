//! What is tried, weighed, rested and paced is decided in this crate: the live side has no constants of that kind, and
//! no trial of its own. Where one of the words stands for something else there, it is listed with what it is.

use std::path::Path;

/// Parts of names that say what only a policy may.
const DECISIONS: [&str; 21] = [
    "TRIAL",
    "GAIN",
    "MARGIN",
    "SAVED",
    "SLOWED",
    "SETTLE",
    "REVIEW",
    "LULL",
    "REST_",
    "_REST",
    "LEAST_PER",
    "LEAST_LOOKS",
    "FLOOR",
    "SOON",
    "SLACK",
    "BUDGET",
    "BACKOFF",
    "DOUBLING",
    "PRICE",
    "HOLD_CPU",
    "GROWTH_PARTS",
];

/// Constants that have such a word and decide nothing about pages of a program.
const OTHERS: [(&str, &str); 7] = [
    ("sensors/residency/levels.rs", "NEAREST_BYTES"),
    ("kernel/page_tables/program.rs", "AGAIN"),
    // The probe: how colours are measured.
    ("color/probe/frame_number_verdict.rs", "LEAST_PER_COLOR"),
    ("color/probe/likelihood.rs", "OWN_AFTER_REST"),
    ("color/probe/likelihood.rs", "OTHER_AFTER_REST"),
    // The doctor: what a person is told of the machine.
    ("color/doctor/additions.rs", "SLOWED"),
    ("color/doctor/siblings.rs", "SETTLES"),
];

/// Types and functions that decide.
const DECIDES: [&str; 6] =
    ["struct Trial", "struct Backoff", "struct CpuBudget", "fn gain", "fn pace", "fn judge_trial"];

fn sources(folder: &Path, visit: &mut impl FnMut(&Path, &str)) -> usize {
    let mut files = 0;
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files += sources(&path, visit);
            continue;
        }
        files += 1;
        visit(&path, &std::fs::read_to_string(&path).expect("text"));
    }
    files
}

/// A constant's name, of a line that defines one.
fn constant(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line =
        line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(super) ")).unwrap_or(line);
    let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
    let name = line.strip_prefix("const ")?.split(':').next()?;
    name.starts_with(|c: char| c.is_ascii_uppercase()).then_some(name)
}

fn decisions(folder: &Path) -> (usize, Vec<String>) {
    let mut found = Vec::new();
    let files = sources(folder, &mut |path, text| {
        let listed =
            |name: &str| OTHERS.iter().any(|(file, other)| path.ends_with(file) && *other == name);
        let names = text.lines().filter_map(constant);
        let named =
            names.filter(|name| DECISIONS.iter().any(|word| name.contains(word)) && !listed(name));
        found.extend(named.map(|name| format!("{}: {name}", path.display())));
        let code =
            text.lines().map(str::trim_start).map(|line| line.strip_prefix("pub ").unwrap_or(line));
        let decides = code.filter(|line| DECIDES.iter().any(|word| line.starts_with(word)));
        found.extend(decides.map(|line| format!("{}: {line}", path.display())));
    });
    (files, found)
}

#[test]
fn the_live_side_decides_nothing_about_pages() {
    let linux = Path::new(env!("CARGO_MANIFEST_DIR")).join("../linux/src");
    let (files, found) = decisions(&linux);
    assert!(files > 150, "{files} files");
    assert!(found.is_empty(), "{found:#?}");
    for (file, name) in OTHERS {
        let text = std::fs::read_to_string(linux.join(file)).expect(file);
        assert!(text.lines().filter_map(constant).any(|known| known == name), "{file}: no {name}");
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (_, here) = decisions(&here);
    assert!(here.len() > 5, "the words are those that policies use: {here:#?}");
}
