//! The file of `huepage group apply`: all of it is checked before a group is created.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;

use super::args::Definition;
use crate::args::{ColorsFrom, Level, PartitionArgs};
use crate::exit::{CmdError, ExitCode};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    group: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Entry {
    name: String,
    colors: Option<String>,
    share: Option<String>,
    level: Option<Level>,
    colors_from: Option<ColorsFrom>,
    cgroup: Option<String>,
    #[serde(default)]
    overlap: bool,
    #[serde(default)]
    strict: bool,
}

/// The groups of a file, in its order.
pub fn read(path: &Path) -> Result<Vec<(String, Definition)>, CmdError> {
    let wrong = |why: &dyn std::fmt::Display| {
        let what = format!("{}: {why}; see `huepage group --help`", path.display());
        CmdError::new(ExitCode::BadFile, what)
    };
    let text = std::fs::read_to_string(path).map_err(|e| wrong(&e))?;
    parse(&text).map_err(|why| wrong(&why))
}

/// The same of a text; errors are one line.
pub fn parse(text: &str) -> Result<Vec<(String, Definition)>, String> {
    let file: File = toml::from_str(text).map_err(|e| e.to_string().replace('\n', " "))?;
    let mut names = BTreeSet::new();
    for entry in &file.group {
        if !names.insert(&entry.name) {
            return Err(format!("group {} is there twice", entry.name));
        }
        if entry.colors.is_some() == entry.share.is_some() {
            return Err(format!("group {} needs either colors or share", entry.name));
        }
    }
    Ok(file.group.into_iter().map(defined).collect())
}

fn defined(entry: Entry) -> (String, Definition) {
    let partition = PartitionArgs {
        level: entry.level.unwrap_or(Level::L2),
        colors: entry.colors,
        share: entry.share,
        colors_from: entry.colors_from,
        strict: entry.strict,
        ..PartitionArgs::default()
    };
    let Entry { name, overlap, cgroup, .. } = entry;
    (name, Definition { partition, overlap, cgroup, held: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_a_group() {
        let text = "[[group]]\nname = \"db\"\nshare = \"50%\"\ncolors-from = \"pfn\"\n\
                    [[group]]\nname = \"web\"\ncolors = \"0-3\"\noverlap = true\ncgroup = \"web\"";
        let found = parse(text).unwrap();
        let [(db, first), (web, second)] = &found[..] else { panic!("{found:?}") };
        assert_eq!((db.as_str(), first.partition.share.as_deref()), ("db", Some("50%")));
        assert_eq!(first.partition.colors_from, Some(ColorsFrom::Pfn));
        assert_eq!(
            (web.as_str(), second.overlap, second.cgroup.as_deref()),
            ("web", true, Some("web"))
        );
        assert_eq!(second.partition.fault_around, 64, "as on the command line");
    }

    #[test]
    fn what_makes_no_sense_is_told_before_anything_is_done() {
        let group = |rest: &str| parse(&format!("[[group]]\nname = \"a\"\n{rest}")).unwrap_err();
        assert!(group("").contains("either colors or share"));
        assert!(group("share = \"1%\"\ncolors = \"1\"").contains("either colors or share"));
        assert!(group("share = \"1%\"\nshade = 1").contains("shade"));
        assert!(group("share = \"1%\"\n[[group]]\nname = \"a\"\nshare = \"2%\"").contains("twice"));
    }
}
