//! The table of promises in Markdown: a row for each promise, with the figures of all machines,
//! those that miss their bar in bold. Below it the machines, and what no machine reached.

use super::results::{MachineResults, ResultEntry};
use crate::promises::{PageStatements, Promise, Promises, Section};

/// The table and what stands below it.
pub fn table(promises: &Promises, machines: &[MachineResults]) -> String {
    let mut text =
        "| | promise | bar | shown by | result by machine |\n|---|---|---|---|---|\n".to_owned();
    for section in &promises.sections {
        text.push_str(&section_rows(section, machines));
    }
    text.push_str("\n### Machines\n\n");
    machines.iter().for_each(|machine| text.push_str(&about(machine)));
    text.push_str(&format!("\nMissed on every machine: {}.\n", missed(promises, machines)));
    text
}

fn section_rows(section: &Section, machines: &[MachineResults]) -> String {
    let rows = section.promises.iter().map(|promise| row(promise, machines));
    format!("| **{}** | | | | |\n{}", section.title, rows.collect::<String>())
}

fn row(promise: &Promise, machines: &[MachineResults]) -> String {
    let Promise { id, text, tests, page, .. } = promise;
    let (bars, shown, results) = match (&promise.command, page) {
        (Some(command), Some(page)) => {
            let shown = format!("`{command}`, [page]({})", page.display());
            (bars(promise), shown, of_page(promise))
        }
        (Some(command), None) => {
            (bars(promise), format!("`{command}`"), results(promise, machines))
        }
        (None, _) => ("= 0 failures".to_owned(), named(tests), "every test run".to_owned()),
    };
    format!("| {id} | {text} | {bars} | {shown} | {results} |\n")
}

/// How many statements of a page hold, and how many of the others do in an experiment.
fn of_page(promise: &Promise) -> String {
    let PageStatements { held, explained, .. } = promise.statements;
    if promise.page_holds() {
        held.to_string()
    } else {
        format!("**{held}**; {explained} more in an experiment that changes one thing or two")
    }
}

fn named(tests: &[String]) -> String {
    let names: Vec<String> = tests.iter().map(|test| format!("`{test}`")).collect();
    format!("test {}", names.join(", "))
}

fn bars(promise: &Promise) -> String {
    let bars: Vec<String> =
        promise.parts().map(|(of, bar)| format!("{of} {}", bar.text).trim().to_owned()).collect();
    bars.join("; ")
}

/// The figures of a promise, machine by machine.
fn results(promise: &Promise, machines: &[MachineResults]) -> String {
    let of = |machine: &MachineResults| {
        let figures: Vec<String> = promise
            .parts()
            .filter_map(|(of, _)| machine.get(&promise.id, of))
            .map(figure)
            .collect();
        (!figures.is_empty())
            .then(|| format!("{}: {}", short(&machine.machine.name), figures.join(", ")))
    };
    let all: Vec<String> = machines.iter().filter_map(of).collect();
    if all.is_empty() { "not measured".to_owned() } else { all.join("; ") }
}

fn figure(entry: &ResultEntry) -> String {
    let ResultEntry { of, figure, unit, .. } = entry;
    let figure = format!("{figure} {unit}");
    let figure =
        if entry.holds { figure.trim().to_owned() } else { format!("**{}**", figure.trim()) };
    format!("{of} {figure}").trim().to_owned()
}

/// A machine's name in the table: most are guests.
fn short(name: &str) -> &str {
    name.strip_suffix("-guest").unwrap_or(name)
}

fn about(results: &MachineResults) -> String {
    let machine = &results.machine;
    let kind = if machine.guest { "virtual machine" } else { "bare metal" };
    let pmu = if machine.pmu { "counters" } else { "no counters" };
    let memory = machine.memory_gib.map_or(String::new(), |gib| format!(", {gib} GiB of memory"));
    let first = results.results.iter().map(|entry| entry.date.as_str()).min().unwrap_or("never");
    let last = results.results.iter().map(|entry| entry.date.as_str()).max().unwrap_or("never");
    format!(
        "- **{}**: {}; {}; Linux {}{memory}; {kind}, {pmu}; measured {first} to {last}.\n",
        short(&machine.name),
        machine.cpu,
        machine.caches,
        machine.kernel
    )
}

/// Promises that were measured and that no machine kept.
pub fn missed(promises: &Promises, machines: &[MachineResults]) -> String {
    let parts = promises.all().filter_map(|promise| {
        let missed: Vec<&str> = promise
            .parts()
            .filter(|(of, _)| missed_everywhere(&promise.id, of, machines))
            .map(|(of, _)| of)
            .collect();
        (!missed.is_empty() || !promise.page_holds()).then(|| match missed.join(", ") {
            of if of.is_empty() => promise.id.clone(),
            of => format!("{} ({of})", promise.id),
        })
    });
    parts.collect::<Vec<String>>().join(", ")
}

fn missed_everywhere(id: &str, of: &str, machines: &[MachineResults]) -> bool {
    let figures: Vec<&ResultEntry> =
        machines.iter().filter_map(|machine| machine.get(id, of)).collect();
    !figures.is_empty() && figures.iter().all(|entry| !entry.holds)
}
