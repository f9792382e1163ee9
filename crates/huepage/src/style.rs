//! Colour on a terminal, and nowhere else.
//!
//! A stream gets colour when it is a terminal, `NO_COLOR` is unset or empty, and `TERM` is
//! not `dumb`. Everything else about output (tables, plots) lives with its command.

use std::fmt::Display;
use std::io::{self, IsTerminal};

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

    fn paint(self, code: &str, text: impl Display) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
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
    fn a_pipe_gets_no_color() {
        assert!(!wanted(false));
    }
}
