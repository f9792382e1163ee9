//! The layers at the top of the `lib.rs` of `crates/linux` hold, and in no crate modules use each other in a circle.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::modules::Modules;
use super::sources::{self, Module};

/// The crate with layers.
fn linux() -> PathBuf {
    sources::root().join("crates/linux/src")
}

/// The layers as `lib.rs` lists them, the lowest first.
fn layers() -> Vec<String> {
    let text = std::fs::read_to_string(linux().join("lib.rs")).unwrap();
    let name = |line: &str| {
        let (number, rest) = line.strip_prefix("//! ")?.split_once(". ")?;
        number.parse::<u32>().ok()?;
        let rest = rest.trim_start_matches('[').strip_prefix('`')?;
        rest.split_once('`').map(|(name, _)| name.to_owned())
    };
    text.lines().filter_map(name).collect()
}

/// What is used by layers that are below it, or is no layer at all.
fn upwards(modules: &Modules, layers: &[String]) -> Vec<String> {
    let place = |module: &Module| layers.iter().position(|layer| Some(layer) == module.first());
    let wrong = |(from, to): &(Module, Module)| {
        !from.is_empty() && !to.is_empty() && (place(to).is_none() || place(from) < place(to))
    };
    let shown =
        |(from, to): (Module, Module)| format!("{} uses {}", from.join("::"), to.join("::"));
    modules.uses().into_iter().filter(wrong).map(shown).collect()
}

#[test]
fn layers_use_only_those_below() {
    let (layers, modules) = (layers(), Modules::read(&linux()));
    assert_eq!(layers.len(), 8, "{layers:?}");
    assert!(modules.uses().len() > 500, "sources are read");
    let wrong = upwards(&modules, &layers);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn modules_do_not_use_each_other_in_circles() {
    let mut all = Vec::new();
    for (name, directory) in sources::crates() {
        let circles = Modules::read(&directory.join("src")).circles();
        all.extend(circles.into_iter().map(|circle| format!("{name}, {circle}")));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn what_is_wrong_is_found() {
    let text = |module: &str, text: &str| {
        let words = module.split("::").filter(|word| !word.is_empty()).map(str::to_owned);
        (words.collect::<Module>(), text.to_owned())
    };
    let texts = BTreeMap::from([
        text("", "pub mod low;\nmod high;\n"),
        text("low", "pub use one::Thing;\nmod one;\nmod two;\n"),
        text("low::one", "use super::two::{self, Other as O};\nfn f() { crate::high::g() }\n"),
        text(
            "low::two",
            "use crate::low::Thing;\n#[cfg(test)]\nmod tests {\n use crate::high;\n}\n",
        ),
        text("high", "// crate::nothing::at_all\nuse crate::low::{Thing, one::{self}};\n"),
    ]);
    let modules = Modules::of(&sources::of_texts(&texts));
    let wrong = upwards(&modules, &["low".to_owned(), "high".to_owned()]);
    assert_eq!(wrong, ["low::one uses high"]);
    assert_eq!(modules.circles(), ["in ``: high -> low -> high", "in `low`: one -> two -> one"]);
}
