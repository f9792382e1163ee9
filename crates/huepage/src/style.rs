//! Colour on a terminal, and nowhere else; how tables lie on it; counts in words.
//!
//! A stream gets colour when it is a terminal, `NO_COLOR` is unset or empty, and `TERM` is
//! not `dumb`. What a table holds lives with its command.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use comfy_table::{
    Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, Row, Table, presets,
};

/// Columns that text in the last column of a table needs, to be worth wrapping.
const LEAST_TEXT: u16 = 20;
/// Columns between two columns of a table.
const GAP: u16 = 2;

/// Whether one output stream is written in colour.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    color: bool,
}

#[allow(dead_code, reason = "one palette for all commands; not every command uses every entry")]
impl Style {
    /// The style of standard output.
    pub fn stdout() -> Style {
        Style { color: wanted(io::stdout().is_terminal()) }
    }

    /// The style of standard error.
    pub fn stderr() -> Style {
        Style { color: wanted(io::stderr().is_terminal()) }
    }

    /// No colour at all, whatever the stream is.
    pub const fn plain() -> Style {
        Style { color: false }
    }

    /// Whether escape sequences are written.
    pub const fn colored(self) -> bool {
        self.color
    }

    /// For headings.
    pub fn bold(self, text: impl Display) -> String {
        self.paint("1", text)
    }

    /// For remarks that may be skipped.
    pub fn dim(self, text: impl Display) -> String {
        self.paint("2", text)
    }

    /// For errors and for what is missing.
    pub fn red(self, text: impl Display) -> String {
        self.paint("1;31", text)
    }

    /// For what works.
    pub fn green(self, text: impl Display) -> String {
        self.paint("32", text)
    }

    /// For warnings.
    pub fn yellow(self, text: impl Display) -> String {
        self.paint("33", text)
    }

    /// An empty table without lines, its headings bold. [`lay_out`] makes text of it.
    pub fn table(self, headings: &[&str]) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        let bold = |text: &&str| Cell::new(text).add_attribute(Attribute::Bold);
        table.set_header(headings.iter().map(bold));
        table.column_iter_mut().for_each(|column| _ = column.set_padding((0, GAP)));
        if self.color {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        table
    }

    fn paint(self, code: &str, text: impl Display) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}

/// A table as text that fits the terminal with two columns to spare for an indent, and a newline at its end:
/// figures to the right, and where columns have no room side by side, each row as keys and values.
pub fn lay_out(table: Table) -> String {
    let terminal = table.width().map(|columns| columns.saturating_sub(2));
    lay_out_within(table, terminal)
}

/// The same for a terminal of so many columns; without one, lines are as long as they are.
fn lay_out_within(mut table: Table, columns: Option<u16>) -> String {
    align(&mut table);
    let widths = table.column_max_content_widths();
    let natural: u16 = widths.iter().map(|width| width + GAP).sum::<u16>().saturating_sub(GAP);
    let last = widths.last().copied().unwrap_or(0);
    if let Some(columns) = columns.filter(|&columns| natural > columns) {
        if natural - last + LEAST_TEXT > columns || is_figures(&table, widths.len() - 1) {
            return blocks(&table);
        }
        wrap_last(&mut table, columns);
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Columns of figures end at the right.
fn align(table: &mut Table) {
    let figures: Vec<bool> = (0..table.column_count()).map(|at| is_figures(table, at)).collect();
    for (column, _) in table.column_iter_mut().zip(figures).filter(|(_, figures)| *figures) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn is_figures(table: &Table, column: usize) -> bool {
    let cells =
        || table.row_iter().filter_map(|row| row.cell_iter().nth(column)).map(Cell::content);
    let known = |cell: &String| !matches!(cell.trim(), "" | "-");
    cells().any(|cell| known(&cell)) && cells().filter(known).all(|cell| is_figure(&cell))
}

/// A number, perhaps with a unit, a sign or a margin: `12`, `3.5 %`, `456K`, `12.3±1.2%`.
fn is_figure(cell: &str) -> bool {
    let number = cell.split([' ', '±']).next().unwrap_or_default();
    let number = number.trim_end_matches(['%', 'K', 'M', 'G', 'T', 'P', 'k', 'x']);
    number.parse::<f64>().is_ok_and(f64::is_finite)
}

/// Only text at the end of rows is wrapped: a figure in two parts is none.
fn wrap_last(table: &mut Table, columns: u16) {
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns);
    let kept = table.column_count().saturating_sub(1);
    let columns = table.column_iter_mut().take(kept);
    columns.for_each(|column| _ = column.set_constraint(ColumnConstraint::ContentWidth));
}

/// A row after the other: each column's heading and, beside it, the row's value.
fn blocks(table: &Table) -> String {
    let cells = |row: &Row| row.cell_iter().map(Cell::content).collect::<Vec<String>>();
    let keys = table.header().map_or_else(Vec::new, cells);
    let width = keys.iter().map(|key| key.chars().count()).max().unwrap_or(0);
    let block = |row: &Row| -> String {
        let pairs = keys.iter().zip(cells(row)).filter(|(_, value)| !value.is_empty());
        let below = format!("\n{:width$}  ", "");
        pairs
            .map(|(key, value)| format!("{key:width$}  {}\n", value.replace('\n', &below)))
            .collect()
    };
    table.row_iter().map(block).collect::<Vec<_>>().join("\n")
}

/// A number with what it counts: `1 file`, `2 files`.
pub fn count(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Writes to standard output; a reader that has gone away (`| head`) is no error. Other errors say what to do.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// What [`print`] makes of the outcome of writing to standard output.
pub fn written(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(e) => {
            let what =
                format!("cannot write to standard output: {e}; make room, or write elsewhere");
            Err(io::Error::new(e.kind(), what))
        }
        Ok(()) => Ok(()),
    }
}

fn wanted(terminal: bool) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|v: std::ffi::OsString| !v.is_empty());
    terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_stays_plain() {
        assert_eq!(Style::plain().red("x"), "x");
    }

    #[test]
    fn color_is_reset_after_the_text() {
        assert_eq!(Style { color: true }.green("ok"), "\x1b[32mok\x1b[0m");
    }

    #[test]
    fn a_plain_table_has_no_escapes_and_no_trailing_lines() {
        let mut table = Style::plain().table(&["a", "b"]);
        table.add_row(["1", "2"]);
        assert_eq!(table.to_string().lines().count(), 2);
        assert!(!table.to_string().contains('\x1b'));
    }

    fn example() -> Table {
        let mut table = Style::plain().table(&["name", "misses", "rate", "what of it"]);
        table.add_row(["gcc", "1586", "3.5 %", "a text that is long enough to be wrapped"]);
        table.add_row(["a-long-name", "-", "12.25 %", "short"]);
        table
    }

    #[test]
    fn figures_end_at_the_right_and_text_begins_at_the_left() {
        let text = lay_out_within(example(), None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "name         misses     rate  what of it");
        assert!(lines[1].starts_with("gcc            1586    3.5 %  a text"), "{text}");
        assert!(lines[2].starts_with("a-long-name       -  12.25 %  short"), "{text}");
        for (cell, figure) in
            [("456K", true), ("12.3±1.2%", true), ("0-7", false), ("7f10", false), ("inf", false)]
        {
            assert_eq!(is_figure(cell), figure, "{cell}");
        }
    }

    #[test]
    fn a_narrow_terminal_wraps_text_and_never_breaks_a_figure() {
        let text = lay_out_within(example(), Some(60));
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        assert!(text.lines().count() > 3 && text.contains("1586    3.5 %"), "{text}");
        let text = lay_out_within(example(), Some(40));
        assert!(
            text.starts_with("name        gcc\nmisses      1586\nrate        3.5 %\n"),
            "{text}"
        );
        assert_eq!(text.matches("\n\n").count(), 1, "{text}");
    }

    #[test]
    fn one_is_singular() {
        let files = [0, 1, 2].map(|n| count(n, "file", "files"));
        assert_eq!(files, ["0 files", "1 file", "2 files"]);
    }

    #[test]
    fn a_pipe_gets_no_color() {
        assert!(!wanted(false));
    }
}
