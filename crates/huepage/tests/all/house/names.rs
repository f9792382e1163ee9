//! Each name of a public type says in the whole workspace what the type is; so no two have the same one, but for
//! those that the name of the module explains.

use std::collections::BTreeMap;

use super::sources;

/// Names that may occur in each module, as in `rocs::Settings`.
const OF_MODULES: [&str; 4] = ["Settings", "Error", "Report", "Args"];

/// Public types of a text.
fn types(text: &str) -> impl Iterator<Item = &str> {
    const KINDS: [&str; 5] = ["struct ", "enum ", "trait ", "type ", "union "];
    text.lines().filter_map(|line| {
        let line = line.trim_start().strip_prefix("pub ")?;
        let name = KINDS.iter().find_map(|kind| line.strip_prefix(kind))?;
        name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
    })
}

#[test]
fn names_of_public_types_occur_once() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, directory) in sources::crates() {
        for (module, text) in sources::read(&directory) {
            for found in types(&text) {
                let place = format!("{name}/{}", module.join("/"));
                places.entry(found.to_owned()).or_default().push(place);
            }
        }
    }
    assert!(places.len() > 1000, "{} names", places.len());
    places.retain(|name, places| places.len() > 1 && !OF_MODULES.contains(&name.as_str()));
    let told: Vec<String> =
        places.iter().map(|(name, places)| format!("{name}: {}", places.join(", "))).collect();
    assert!(told.is_empty(), "rename by what each is:\n{}", told.join("\n"));
}

#[test]
fn public_types_are_found() {
    let text =
        "pub struct One;\n    pub enum Two<T> {\npub(crate) struct Three;\npub type Four = u8;\n";
    assert_eq!(types(text).collect::<Vec<_>>(), ["One", "Two", "Four"]);
}
