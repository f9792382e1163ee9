//! The document against the data, and the data against itself and the tests that it names.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use super::results::{MachineResults, ResultEntry, ResultMachine};
use super::save::{RunOrigin, save};
use super::{SpecError, made, replaced, root, table};
use crate::promises::{Bar, PageStatements, Promise, Promises};
use crate::verdict::SuiteVerdict;

fn promises() -> Promises {
    Promises::read(&root()).expect("the promises")
}

fn results() -> Vec<MachineResults> {
    MachineResults::all(&root()).expect("the results")
}

#[test]
fn the_document_is_made_of_the_data() {
    let document = fs::read_to_string(root().join("SPECIFICATION.md")).expect("the document");
    let expected = replaced(&document, &made(&root()).expect("a table")).expect("the marks");
    assert!(document == expected, "run `huepage-bench spec --write`");
    assert!(document.lines().count() <= 200, "at most 200 lines");
    assert!(replaced("no marks", "").is_err());
}

#[test]
fn every_promise_has_a_command_with_bars_or_tests() {
    let promises = promises();
    let mut ids: Vec<&str> = promises.all().map(|promise| promise.id.as_str()).collect();
    assert!(ids.len() > 100, "{}", ids.len());
    ids.sort_unstable();
    assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "an id twice");
    for Promise { id, command, page, statements, .. } in promises.all() {
        let bars = promises.get(id).map_or(0, |promise| promise.parts().count());
        assert_eq!(command.is_some(), bars > 0, "{id}: a command and its bars");
        let Some(page) = page else { continue };
        let text = fs::read_to_string(root().join(page)).expect("a page");
        let bar = Bar::try_from(format!("= {} statements", statements.held + statements.missed));
        assert_eq!(
            promises.get(id).and_then(|own| own.bar("")),
            bar.ok().as_ref(),
            "{id}: all of them"
        );
        let written =
            text.lines().find(|line| line.starts_with("Written by `")).expect("a command");
        assert!(!written.contains("--quick") && !written.contains("--only"), "{written}");
    }
    for Promise { id, command, tests, .. } in promises.all() {
        assert_ne!(command.is_some(), !tests.is_empty(), "{id}: a command or tests");
    }
}

#[test]
fn every_result_is_of_a_bar_and_says_rightly_whether_it_holds() {
    let promises = promises();
    for MachineResults { machine, results, .. } in results() {
        for ResultEntry { id, of, figure, unit, holds, bar, spread, .. } in &results {
            let named = format!("{}: {id} {of:?}", machine.name);
            let promised = promises.get(id).and_then(|promise| promise.bar(of));
            let promised = promised.unwrap_or_else(|| panic!("{named}: no such bar"));
            assert_eq!((bar, unit), (&promised.text, &promised.unit), "{named}");
            assert_eq!(*holds, promised.holds(*figure), "{named}");
            assert!(spread.is_none_or(|[low, high]| low <= *figure && *figure <= high), "{named}");
        }
    }
}

#[test]
fn the_tests_that_promises_name_are_there() {
    let mut names = HashSet::new();
    sources(&root().join("crates"), &mut names);
    for promise in promises().all() {
        for test in &promise.tests {
            assert!(names.contains(test), "{}: there is no test {test}", promise.id);
        }
    }
    assert!(!names.contains("a test that is not there"));
}

/// The names of source files and folders, and of functions in them.
fn sources(folder: &Path, names: &mut HashSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() {
            sources(&path, names);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            names.extend(functions(&fs::read_to_string(&path).expect("a source")));
        }
        names.insert(stem);
    }
}

fn functions(text: &str) -> impl Iterator<Item = String> {
    text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next()).map(str::to_owned)
}

#[test]
fn what_is_called_experimental_missed_its_bars_and_the_readme_says_so() {
    let readme = fs::read_to_string(root().join("README.md")).expect("the README");
    let (_, listed) = readme.split_once("## Experimental\n").expect("a section");
    let listed = listed.split("\n## ").next().unwrap_or_default().to_lowercase();
    let (promises, results) = (promises(), results());
    let missed = table::missed(&promises, &results);
    for section in &promises.sections {
        let Some(title) = section.title.strip_suffix(" (experimental)") else { continue };
        let missed = section.promises.iter().any(|promise| missed.contains(&promise.id));
        assert!(missed, "{title} keeps its bars");
        assert!(listed.contains(&title.to_lowercase()), "README.md does not list {title}");
    }
}

#[test]
fn statements_of_a_page_are_counted() {
    let page = "| holds | x | 0 |\n## Statements\n| holds | a | 1 |\n| **does not hold** | b | 2 |\nholds\n\
                | **does not hold** | d | 2 |\n| holds | c | 3 |\n\n## Experiment\n| holds | b | 3 |\n\
                | **does not hold** | d | 1 |\n| holds | c | 3 |\n";
    assert_eq!(PageStatements::of(page), PageStatements { held: 2, missed: 2, explained: 1 });
}

#[test]
fn bars_are_numbers() {
    let bar = |text: &str| Bar::try_from(text.to_owned());
    let tenth = bar("<= 1.10 x").expect("a bar");
    assert!(tenth.holds(1.1) && !tenth.holds(1.11) && tenth.unit == "x");
    assert!(bar("= 0 bytes").is_ok_and(|bar| bar.holds(0.0) && !bar.holds(1.0)));
    assert!(bar("< 4").is_ok_and(|bar| !bar.holds(4.0)) && bar("> 4").is_ok_and(|b| b.holds(5.0)));
    for wrong in ["reported, held or not", "always", "<= many x", "~ 4 x"] {
        assert!(bar(wrong).is_err_and(|why| why.contains(wrong)), "{wrong}");
    }
}

#[test]
fn a_new_figure_takes_the_place_of_the_old_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("here.json");
    let mut results =
        MachineResults::new(ResultMachine { name: "here".to_owned(), ..ResultMachine::default() });
    let entry = |figure| ResultEntry { id: "P6".to_owned(), figure, ..ResultEntry::default() };
    results.record(entry(2.0));
    results.record(ResultEntry { of: "other".to_owned(), ..entry(3.0) });
    results.record(entry(1.0));
    results.store(&path).expect("written");
    let read = MachineResults::load(&path).expect("read");
    assert_eq!(read, results);
    assert_eq!(read.results.len(), 2);
    assert_eq!(read.get("P6", "").map(|entry| entry.figure), Some(1.0));
    fs::write(&path, r#"{"schema":2,"machine":{},"results":[]}"#).expect("written");
    assert!(MachineResults::load(&path).is_err());
}

#[test]
fn what_was_measured_is_saved_with_its_bar_in_place_of_what_was() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("some-guest.json");
    let [command, date, commit] = ["huepage-bench first-command", "2026-11-25", "0123456"];
    let [command, date, commit] = [command, date, commit].map(str::to_owned);
    let origin = RunOrigin { command, date, commit };
    let save = |verdict: &SuiteVerdict| save(verdict, &path, &root(), &origin);
    let mut verdict = SuiteVerdict::new("first-command");
    assert!(save(&verdict).is_err() && !path.exists(), "figures of nothing");
    verdict.figure("P22", "inside from empty store", &[2.0, 3.1234, 4.0]);
    assert_eq!(save(&verdict).expect("saved"), 1);
    let saved = MachineResults::load(&path).expect("results");
    assert_eq!(
        (saved.machine.name.as_str(), saved.machine.kernel.is_empty()),
        ("some-guest", false)
    );
    let entry = saved.get("P22", "inside from empty store").expect("the figure");
    assert_eq!((entry.figure, entry.spread, entry.holds), (3.123, Some([2.0, 4.0]), false));
    assert_eq!((entry.bar.as_str(), entry.unit.as_str()), ("<= 3 s", "s"));
    assert_eq!((&entry.command, &entry.commit), (&origin.command, &origin.commit));
    verdict.figures.clear();
    verdict.figure("P22", "inside from empty store", &[1.0]);
    save(&verdict).expect("saved again");
    let again = MachineResults::load(&path).expect("results");
    assert_eq!((again.results.len(), again.results[0].holds), (1, true));
    verdict.figures[0].of = "no such bar".to_owned();
    assert!(matches!(save(&verdict), Err(SpecError::NoBar("P22", _))));
}
