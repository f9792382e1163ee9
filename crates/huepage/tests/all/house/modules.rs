//! Which module of a crate uses which, by reading its sources: paths that begin with `crate`, `super`, `self` or a
//! module below, through re-exports to where things are. Tests are left out. No compiler is asked, so what a macro
//! makes up is not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::sources::{self, Module};

/// The modules of a crate, each with those that it uses.
pub struct Modules {
    sources: BTreeMap<Module, Source>,
}

#[derive(Default)]
struct Source {
    paths: BTreeSet<Vec<String>>,
    /// What `use` makes known under another place: its name and its path.
    known: BTreeMap<String, Vec<String>>,
}

impl Modules {
    /// Of the sources below a directory.
    pub fn read(directory: &Path) -> Modules {
        Modules::of(&sources::read(directory))
    }

    /// Of the texts of modules, without their tests.
    pub fn of(texts: &BTreeMap<Module, String>) -> Modules {
        let all: BTreeSet<Module> = texts.keys().cloned().collect();
        let source =
            |(module, text): (&Module, &String)| (module.clone(), source(module, text, &all));
        Modules { sources: texts.iter().map(source).collect() }
    }

    /// Pairs of modules of which the first uses the second.
    pub fn uses(&self) -> BTreeSet<(Module, Module)> {
        let of = |(module, source): (&Module, &Source)| {
            let targets: Vec<Module> =
                source.paths.iter().map(|path| self.place(path, 8)).collect();
            targets.into_iter().map(|to| (module.clone(), to)).collect::<Vec<_>>()
        };
        self.sources.iter().flat_map(of).filter(|(from, to)| from != to).collect()
    }

    /// The module in which the end of a path is.
    fn place(&self, path: &[String], depth: u32) -> Module {
        let n =
            (0..=path.len()).rev().find(|&n| self.sources.contains_key(&path[..n])).unwrap_or(0);
        let known = path.get(n).and_then(|name| self.sources[&path[..n]].known.get(name));
        match known {
            Some(other) if depth > 0 && other[..] != path[..=n] => {
                self.place(&[other, &path[n + 1..]].concat(), depth - 1)
            }
            _ => path[..n].to_vec(),
        }
    }

    /// Circles among the modules of each directory, as they are to be read.
    pub fn circles(&self) -> Vec<String> {
        let mut below: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for (from, to) in self.uses() {
            let same = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
            if same < from.len() && same < to.len() {
                let inside = below.entry(from[..same].to_vec()).or_default();
                inside.entry(from[same].clone()).or_default().insert(to[same].clone());
            }
        }
        let circle = |(parent, uses): (&Module, &BTreeMap<String, BTreeSet<String>>)| {
            let found = uses.keys().find_map(|from| way_back(uses, from))?;
            Some(format!("in `{}`: {}", parent.join("::"), found.join(" -> ")))
        };
        below.iter().filter_map(circle).collect()
    }
}

/// A shortest way from a module back to itself.
fn way_back(uses: &BTreeMap<String, BTreeSet<String>>, from: &String) -> Option<Vec<String>> {
    let mut ways = vec![vec![from.clone()]];
    let mut seen = BTreeSet::new();
    for at in 0.. {
        let way = ways.get(at)?.clone();
        for next in uses.get(&way[way.len() - 1]).into_iter().flatten() {
            let longer = [&way[..], std::slice::from_ref(next)].concat();
            if next == from {
                return Some(longer);
            }
            if seen.insert(next.clone()) {
                ways.push(longer);
            }
        }
    }
    None
}

/// Names, `::` and single characters.
fn tokens(text: &str) -> Vec<&str> {
    let (mut tokens, mut rest) = (Vec::new(), text.trim_start());
    while let Some(first) = rest.chars().next() {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let length = match rest {
            _ if is_name(first) => rest.find(|c| !is_name(c)).unwrap_or(rest.len()),
            _ if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        tokens.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    tokens
}

fn source(module: &Module, text: &str, all: &BTreeSet<Module>) -> Source {
    let (tokens, mut source) = (tokens(text), Source::default());
    let mut at = 0;
    while at < tokens.len() {
        let is_path = tokens.get(at + 1) == Some(&"::") && (at == 0 || tokens[at - 1] != "::");
        let Some(base) = is_path.then(|| base(module, tokens[at], all)).flatten() else {
            at += 1;
            continue;
        };
        let is_use = at > 0 && tokens[at - 1] == "use";
        let mut found = Vec::new();
        at = tree(&tokens, at, &mut Vec::new(), &mut found);
        for (path, name) in found {
            let Some(path) = absolute(&base, &path) else { continue };
            if is_use {
                source.known.insert(name, path.clone());
            }
            source.paths.insert(path);
        }
    }
    source
}

/// The module that a path with this first word begins in, if it is one of this crate.
fn base(module: &Module, word: &str, all: &BTreeSet<Module>) -> Option<Module> {
    match word {
        "crate" => Some(Module::new()),
        "super" | "self" => Some(module.clone()),
        _ => all.contains(&[&module[..], &[word.to_owned()]].concat()).then(|| module.clone()),
    }
}

/// Reads a tree of paths from a token on; the token behind it.
fn tree<'a>(
    tokens: &[&'a str],
    mut at: usize,
    path: &mut Vec<&'a str>,
    found: &mut Vec<(Vec<&'a str>, String)>,
) -> usize {
    let before = path.len();
    loop {
        if tokens.get(at) == Some(&"{") {
            at += 1;
            while tokens.get(at).is_some_and(|token| *token != "}") {
                at = tree(tokens, at, path, found);
                at += usize::from(tokens.get(at) == Some(&","));
            }
            path.truncate(before);
            return at + 1;
        }
        path.extend(tokens.get(at).filter(|word| **word != "self" || path.is_empty()));
        at += 1;
        if tokens.get(at) != Some(&"::") {
            break;
        }
        at += 1;
    }
    let named = tokens.get(at) == Some(&"as");
    let name = if named { tokens.get(at + 1) } else { path.last() };
    found.push((path.clone(), name.map_or_else(String::new, |name| (*name).to_owned())));
    path.truncate(before);
    at + if named { 2 } else { 0 }
}

fn absolute(base: &[String], path: &[&str]) -> Option<Vec<String>> {
    let up = path.iter().take_while(|word| **word == "super").count();
    let rest = path.iter().filter(|word| !matches!(**word, "crate" | "super" | "self"));
    let base = &base[..base.len().checked_sub(up)?];
    Some(base.iter().cloned().chain(rest.map(|word| (*word).to_owned())).collect())
}
