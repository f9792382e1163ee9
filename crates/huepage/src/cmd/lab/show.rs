//! The columns of the lab for people: a table of misses, who evicted whom, and the verdict.

use serde::Serialize;

use super::outcome::{Column, LabVerdict, ProgramCounts};
use crate::style::{self, Style};

/// What is printed as JSON. Nothing in it depends on the host.
#[derive(Serialize)]
pub struct LabReport {
    /// The machine's name.
    pub machine: String,
    /// The guest's processors.
    pub cpus: usize,
    /// The guest's kernel.
    pub kernel: String,
    /// Whether the same command counts the same.
    pub deterministic: bool,
    /// The columns.
    pub columns: Vec<Column>,
    /// What they say of the first program, where there are all three.
    pub verdict: Option<LabVerdict>,
}

impl LabReport {
    /// For a person.
    pub fn text(&self) -> String {
        let mut text =
            format!("{} with {} processors, Linux {}\n", self.machine, self.cpus, self.kernel);
        for column in &self.columns {
            text += &format!("\n{}\n{}", heading(column), misses(column));
            text += &format!(
                "\nlines of the last level that the programs above evicted\n{}",
                evictions(column)
            );
        }
        if let Some(verdict) = &self.verdict {
            text += &format!("\n{}\n", verdict.text);
        }
        text
    }
}

fn heading(column: &Column) -> String {
    let late =
        column.unsettled.as_ref().map_or(String::new(), |why| format!("; not settled: {why}"));
    let name = Style::stdout().bold(&column.name);
    format!("{name} (counted after {:.0} s{late})", column.settle_seconds)
}

fn misses(column: &Column) -> String {
    let levels = column.programs[0].levels.iter().map(|row| format!("L{} misses", row.level));
    let mut headings: Vec<String> =
        ["program", "accesses", "per victim's"].map(str::to_owned).to_vec();
    headings.extend(levels);
    headings.extend(["per access", "pages moved"].map(str::to_owned));
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut table = Style::stdout().table(&headings);
    for (number, program) in column.programs.iter().enumerate() {
        table.add_row(row(number, program));
    }
    style::lay_out(table)
}

fn row(number: usize, program: &ProgramCounts) -> Vec<String> {
    let mut cells = vec![label(number, program), program.accesses.to_string()];
    cells.push(format!("{:.2}", program.intensity));
    cells.extend(program.levels.iter().map(|row| row.counts.misses.to_string()));
    cells.push(format!("{:.3} %", program.miss_share * 100.0));
    cells.push(program.pages_moved.map_or("-".to_owned(), |pages| pages.to_string()));
    cells
}

fn label(number: usize, program: &ProgramCounts) -> String {
    let end =
        program.ended_early.as_ref().map_or(String::new(), |status| format!(" (ended: {status})"));
    format!("{} {}{end}", letter(number), program.name)
}

fn letter(number: usize) -> char {
    u8::try_from(number).map_or('?', |number| char::from(b'a' + number.min(25)))
}

/// Whose lines by whom; by the letters of the table above.
fn evictions(column: &Column) -> String {
    let names: Vec<String> = (0..column.programs.len()).map(|n| letter(n).to_string()).collect();
    let headings: Vec<String> = names.iter().map(|name| format!("by {name}")).collect();
    let headings: Vec<&str> =
        ["of"].into_iter().chain(headings.iter().map(String::as_str)).collect();
    let mut table = Style::stdout().table(&headings);
    for (name, counts) in names.iter().zip(&column.evictions) {
        let counts = counts.iter().map(u64::to_string);
        table.add_row([name.clone()].into_iter().chain(counts).collect::<Vec<String>>());
    }
    style::lay_out(table)
}
