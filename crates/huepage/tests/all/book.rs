//! The book: every page is in its table of contents, every link leads somewhere, and the reference
//! of commands is the help of the program.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;

/// Set it to write the reference of commands anew.
const WRITE: &str = "HUEPAGE_WRITE_DOCS";
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn docs() -> PathBuf {
    Path::new(ROOT).join("docs").canonicalize().expect("docs")
}

/// The pages below a folder.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("docs/book") {
            pages(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
}

/// Where the links of a text lead, without those to other sites.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let ends = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    ends.filter(|link| !link.contains("://") && !link.is_empty())
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let docs = docs();
    let summary = docs.join("SUMMARY.md");
    let text = fs::read_to_string(&summary).expect("a table of contents");
    let mut listed: Vec<PathBuf> = links(&text).map(|link| docs.join(link)).collect();
    let mut found = Vec::new();
    pages(&docs, &mut found);
    found.retain(|path| *path != summary);
    found.sort();
    listed.sort();
    assert_eq!(found, listed, "docs/SUMMARY.md and the pages of docs differ");
}

#[test]
fn every_link_of_the_documents_leads_somewhere() {
    let mut found = Vec::new();
    pages(&docs(), &mut found);
    let others =
        ["README.md", "SPECIFICATION.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"];
    found.extend(others.map(|name| Path::new(ROOT).join(name)));
    let mut checked = 0;
    for page in found {
        let text = fs::read_to_string(&page).expect("a page");
        for link in links(&text) {
            assert!(leads_somewhere(&page, &text, link), "{}: {link}", page.display());
            checked += 1;
        }
    }
    assert!(checked > 60, "{checked}");
    let here = Path::new(ROOT).join("README.md");
    assert!(!leads_somewhere(&here, "", "docs/none.md") && !leads_somewhere(&here, "# A", "#b"));
}

fn leads_somewhere(page: &Path, text: &str, link: &str) -> bool {
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = page.parent().expect("a folder").join(file);
    if !file.is_empty() && !target.exists() {
        return false;
    }
    let other = if file.is_empty() { text.to_owned() } else { read_page(&target) };
    heading.is_empty() || other.lines().any(|line| line.starts_with('#') && slug(line) == heading)
}

fn read_page(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The name of a heading in links.
fn slug(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    words.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect()
}

#[test]
fn the_layout_names_what_is_there() {
    let page = read_page(&docs().join("development/layout.md"));
    let words = page.split('`').skip(1).step_by(2);
    let paths: Vec<&str> = words.filter(|word| word.starts_with("crates/")).collect();
    assert!(paths.len() > 8, "{paths:?}");
    for path in paths {
        assert!(Path::new(ROOT).join(path).exists(), "docs/development/layout.md: {path}");
    }
}

#[test]
fn the_reference_of_commands_is_the_help_of_the_program() {
    let path = docs().join("reference/commands.md");
    let made = reference();
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, &made).expect("written");
    }
    let page = fs::read_to_string(&path).expect("the page");
    assert!(page == made, "run `{WRITE}=1 cargo test -p huepage --test all reference_of_commands`");
    for command in ["## huepage run", "## huepage group create", "--superpages"] {
        assert!(page.contains(command), "{command}");
    }
}

fn reference() -> String {
    let mut text = "# Commands and options\n\nMade from `--help` of each command by a test; \
                    do not edit it by hand.\n"
        .to_owned();
    add_help(&mut Vec::new(), &mut text);
    text
}

/// The help of a command and of those below it.
fn add_help(command: &mut Vec<String>, text: &mut String) {
    let help = help(command);
    let title = std::iter::once("huepage").chain(command.iter().map(String::as_str));
    let title = title.collect::<Vec<&str>>().join(" ");
    text.push_str(&format!("\n## {title}\n\n```text\n{}\n```\n", help.trim_end()));
    for below in commands(&help) {
        command.push(below);
        add_help(command, text);
        command.pop();
    }
}

fn help(command: &[String]) -> String {
    let mut program = Command::cargo_bin("huepage").expect("the binary is built");
    let output = program.args(command).arg("--help").output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n")
}

/// The commands that a help lists.
fn commands(help: &str) -> Vec<String> {
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn manual_pages_and_completions_are_of_all_commands() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut program = Command::cargo_bin("huepage").expect("the binary is built");
    program.arg("man-pages").arg(folder.path()).assert().success();
    let page = |name: &str| read_page(&folder.path().join(name));
    for command in commands(&help(&[])) {
        assert!(page(&format!("huepage-{command}.1")).contains(".SH NAME"), "{command}");
        for shell in ["huepage.bash", "_huepage", "huepage.fish"] {
            assert!(page(shell).contains(&command), "{command} in {shell}");
        }
    }
    assert!(page("huepage-run.1").contains("\\-\\-share"), "{}", page("huepage-run.1"));
    let mut program = Command::cargo_bin("huepage").expect("the binary is built");
    let printed = program.args(["completions", "bash"]).output().expect("it runs").stdout;
    assert_eq!(String::from_utf8(printed).expect("UTF-8"), page("huepage.bash"));
}
