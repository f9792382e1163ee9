//! Sources of the workspace by module, without comments and without their tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The place of a source: its directories and its name, but for `lib`, `main` and `mod`.
pub type Module = Vec<String>;

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The directories of all crates, and their names.
pub fn crates() -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(root().join("crates")).unwrap().map(Result::unwrap);
    let mut all: Vec<(String, PathBuf)> =
        entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path())).collect();
    all.sort();
    assert!(all.len() > 8, "{all:?}");
    all
}

/// All sources of the workspace, tests included.
pub fn files() -> Vec<PathBuf> {
    let mut all = Vec::new();
    for directory in ["crates", "plugins", "fuzz", "python"] {
        find(&root().join(directory), &mut all);
    }
    assert!(all.len() > 900, "{} sources", all.len());
    all
}

fn find(directory: &Path, all: &mut Vec<PathBuf>) {
    for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() && !path.ends_with("target") {
            find(&path, all);
        } else if path.extension().is_some_and(|end| end == "rs") {
            all.push(path);
        }
    }
}

/// The sources below a directory, without comments, tests, and directories named `tests`.
pub fn read(directory: &Path) -> BTreeMap<Module, String> {
    let mut texts = BTreeMap::new();
    collect(directory, &mut Vec::new(), &mut texts);
    of_texts(&texts)
}

/// The same of these texts.
pub fn of_texts(texts: &BTreeMap<Module, String>) -> BTreeMap<Module, String> {
    let texts: BTreeMap<&Module, (String, BTreeSet<String>)> =
        texts.iter().map(|(module, text)| (module, without_tests(text))).collect();
    let is_test = |module: &Module| {
        (0..module.len()).any(|n| {
            let above = texts.get(&module[..n].to_vec());
            above.is_some_and(|(_, tests)| tests.contains(&module[n]))
        })
    };
    let kept = texts.iter().filter(|(module, _)| !is_test(module));
    kept.map(|(module, (text, _))| ((*module).clone(), text.clone())).collect()
}

fn collect(directory: &Path, module: &mut Module, texts: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let (stem, is_file) = name.strip_suffix(".rs").map_or((&*name, false), |stem| (stem, true));
        let own = !matches!(stem, "lib" | "mod" | "main");
        module.extend(own.then(|| stem.to_owned()));
        if is_file {
            let text = fs::read_to_string(entry.path()).unwrap();
            texts.entry(module.clone()).or_default().push_str(&text);
        } else if entry.path().is_dir() && !matches!(stem, "tests" | "target") {
            collect(&entry.path(), module, texts);
        }
        module.truncate(module.len() - usize::from(own));
    }
}

/// A text without comments and without items of tests; the names of those that are files.
fn without_tests(text: &str) -> (String, BTreeSet<String>) {
    let mut lines = text.lines().map(|line| line.split("//").next().unwrap_or("").trim_end());
    let (mut kept, mut tests) = (String::new(), BTreeSet::new());
    while let Some(line) = lines.next() {
        let Some(indent) = line.strip_suffix("#[cfg(test)]") else {
            kept.extend([line, "\n"]);
            continue;
        };
        let mut item = lines.next().unwrap_or("");
        while item.trim_start().starts_with("#[") {
            item = lines.next().unwrap_or("");
        }
        if let Some(name) = item.split_once("mod ").and_then(|(_, name)| name.strip_suffix(';')) {
            tests.insert(name.to_owned());
        } else if !item.ends_with([';', ',', '}']) {
            let end = format!("{indent}}}");
            lines.by_ref().find(|line| line.starts_with(&end));
        }
    }
    (kept, tests)
}

#[test]
fn tests_are_left_out() {
    let text = "fn a() {}\n#[cfg(test)]\nmod b {\n    fn c() {\n    }\n}\nfn d() {} // e\nenum F {\n    \
                #[cfg(test)]\n    G,\n    H,\n}\n#[cfg(test)]\n#[allow(dead_code)]\nmod i;\n";
    let (kept, tests) = without_tests(text);
    assert_eq!(kept, "fn a() {}\nfn d() {}\nenum F {\n    H,\n}\n");
    assert_eq!(Vec::from_iter(tests), ["i"]);
}
