//! Colour on a terminal, and nowhere else.
//!
//! A stream gets colour when it is a terminal, `NO_COLOR` is unset or empty, and `TERM` is
//! not `dumb`. Everything else about output (tables, plots) lives with its command.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use comfy_table::{Attribute, Cell, ContentArrangement, Table, presets};

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

    /// An empty table without lines, its headings bold; it fits itself to a terminal, with
    /// two columns to spare for an indent.
    pub fn table(self, headings: &[&str]) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        // Below that, rows are better broken by the terminal than column by column.
        if let Some(width) = table.width().filter(|&width| width >= 60) {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width - 2);
        }
        let bold = |text: &&str| Cell::new(text).add_attribute(Attribute::Bold);
        table.set_header(headings.iter().map(bold));
        table.column_iter_mut().for_each(|column| _ = column.set_padding((0, 2)));
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

/// Writes to standard output; a reader that has gone away (`| head`) is no error.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
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

    #[test]
    fn a_pipe_gets_no_color() {
        assert!(!wanted(false));
    }
}
