//! The file of `huepage group apply`: all of it is checked before a group is created.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;
use serde::de::IntoDeserializer as _;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::args::Definition;
use crate::exit::{CmdError, ExitCode};
use crate::plan::keys::{self, Misread};

/// The keys of a group that are no options of its plan.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    cgroup: Option<String>,
    #[serde(default)]
    overlap: bool,
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
    let one_line = |e: toml::de::Error| e.to_string().replace('\n', " ");
    let mut file = DeTable::parse(text).map_err(one_line)?;
    let groups = file.get_mut().remove("group").map(Spanned::into_inner);
    if let Some(key) = file.get_ref().keys().next() {
        return Err(format!("`{}` is unknown; expected [[group]]", key.get_ref()));
    }
    let Some(DeValue::Array(groups)) = groups else {
        return Err("no group; expected at least one [[group]]".to_owned());
    };
    let mut names = BTreeSet::new();
    let mut found = Vec::new();
    for group in groups {
        let line = text[..group.span().start].matches('\n').count() + 1;
        let (name, definition) = group_of(group).map_err(|what| format!("line {line}: {what}"))?;
        if !names.insert(name.clone()) {
            return Err(format!("group {name} is there twice"));
        }
        found.push((name, definition));
    }
    Ok(found)
}

fn group_of(group: Spanned<DeValue<'_>>) -> Result<(String, Definition), String> {
    let span = group.span();
    let DeValue::Table(mut table) = group.into_inner() else {
        return Err("expected a table [[group]]".to_owned());
    };
    let said = |misread: Misread| misread.what;
    let keys = keys::take(&mut table, &[]).map_err(said)?;
    let entry = Entry::deserialize(Spanned::new(span.clone(), table).into_deserializer());
    let Entry { name, cgroup, overlap } =
        entry.map_err(|error| error.message().replace('\n', " "))?;
    let plan = keys.plan().map_err(said)?;
    keys.check(&plan, &[], span.start).map_err(said)?;
    if !plan.does_something() {
        return Err(format!(
            "group {name} has nothing to do; expected share or colors, for instance"
        ));
    }
    Ok((name, Definition { plan, overlap, cgroup, held: None }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::ColorsFrom;

    #[test]
    fn a_table_is_a_group() {
        let text = "[[group]]\nname = \"db\"\nshare = \"50%\"\ncolors-from = \"pfn\"\n\
                    [[group]]\nname = \"web\"\ncolors = \"0-3\"\noverlap = true\ncgroup = \"web\"";
        let found = parse(text).unwrap();
        let [(db, first), (web, second)] = &found[..] else { panic!("{found:?}") };
        assert_eq!((db.as_str(), first.plan.partition.share.as_deref()), ("db", Some("50%")));
        assert_eq!(first.plan.partition.colors_from, Some(ColorsFrom::Pfn));
        assert_eq!(
            (web.as_str(), second.overlap, second.cgroup.as_deref()),
            ("web", true, Some("web"))
        );
        assert_eq!(second.plan.partition.fault_around, 64, "as on the command line");
    }

    #[test]
    fn what_makes_no_sense_is_told_before_anything_is_done() {
        let group = |rest: &str| parse(&format!("[[group]]\nname = \"a\"\n{rest}")).unwrap_err();
        assert!(group("").contains("expected share or colors"));
        assert!(group("share = \"1%\"\ncolors = \"1\"").contains("combined with `colors`"));
        assert!(group("text = \"place\"").contains("requires share"));
        let error = group("share = \"1%\"\nsuperpages = \"fast\"");
        assert!(error.contains("line 1: `superpages`: `fast` is refused"), "{error}");
        assert!(group("share = \"1%\"\nshade = 1").contains("shade"));
        assert!(group("share = \"1%\"\n[[group]]\nname = \"a\"\nshare = \"2%\"").contains("twice"));
    }
}
