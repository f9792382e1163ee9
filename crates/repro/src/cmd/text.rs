//! Tables and claims for a terminal: a workload's row, and below it that of the paper's program
//! that it stands for.

use std::fmt::Write as _;

use crate::report::{StatementResult, Table};
use comfy_table::CellAlignment;

use super::found::StudyResults;
use huepage::style::Style;

/// Everything.
pub fn all<O>(found: &StudyResults<'_, O>) -> String {
    let style = Style::stdout();
    let mut text = String::new();
    for table in &found.tables {
        let _ = writeln!(text, "{}\n{}\n", style.bold(heading(table)), lines(table, style));
    }
    if !found.claims.is_empty() {
        let _ = writeln!(text, "{}", style.bold("Statements"));
    }
    claims(&mut text, &found.claims, style);
    for own in &found.experiments {
        let title = format!("Experiment: {}", own.title);
        let _ = writeln!(text, "\n{}\n{}", style.bold(title), own.about);
        claims(&mut text, &own.claims, style);
    }
    let _ = writeln!(text, "\n{}", found.counts.text());
    let _ = writeln!(text, "{} runs in {:.0} s", found.outcomes.len(), found.seconds);
    text
}

fn claims(text: &mut String, claims: &[StatementResult], style: Style) {
    for claim in claims {
        let (word, paint): (_, fn(Style, &str) -> String) = if claim.holds {
            ("holds        ", |style, word| style.green(word))
        } else {
            ("does not hold", |style, word| style.yellow(word))
        };
        let _ = writeln!(text, "{}  {}: {}", paint(style, word), claim.text, claim.measured);
    }
}

/// `Table 3-4: what it shows`; a figure's identifier is `f` and its number, that of a section without a table `s`.
pub fn heading(table: &Table) -> String {
    let is_number = |number: &&str| number.starts_with(|digit: char| digit.is_ascii_digit());
    let after = |letter| table.id.strip_prefix(letter).filter(is_number);
    match (after('f'), after('s')) {
        (Some(number), _) => format!("Figure {number}: {}", table.title),
        (_, Some(number)) => format!("Section {number}: {}", table.title),
        _ => format!("Table {}: {}", table.id, table.title),
    }
}

/// A figure as the table writes it; a dash where there is none.
pub fn figure(value: Option<f64>, digits: usize) -> String {
    let value = value.filter(|value| !value.is_nan());
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

/// The rows of a table as text, the paper's after each that has one.
pub fn rows(table: &Table) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for row in &table.rows {
        let own = row.cells.iter().map(|&cell| figure(cell, table.digits));
        all.push(std::iter::once(row.program.clone()).chain(own).collect());
        if let (Some(name), Some(paper)) = (&row.stands_for, &row.paper) {
            let theirs = paper.iter().map(|&value| figure(Some(value), table.digits));
            let missing = table.head.len() - paper.len();
            let name = std::iter::once(format!("  paper: {name}"));
            all.push(
                name.chain(theirs).chain(std::iter::repeat_n(String::new(), missing)).collect(),
            );
        }
    }
    all
}

fn lines(table: &Table, style: Style) -> String {
    let head: Vec<&str> =
        std::iter::once("").chain(table.head.iter().map(String::as_str)).collect();
    let mut lines = style.table(&head);
    rows(table).into_iter().for_each(|row| _ = lines.add_row(row));
    lines
        .column_iter_mut()
        .skip(1)
        .for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    lines.to_string()
}
