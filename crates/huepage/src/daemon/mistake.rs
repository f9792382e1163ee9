//! Mistakes in the daemon's file, with their places.

use std::path::{Path, PathBuf};

use crate::exit::{CmdError, ExitCode};

/// A mistake, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}:{column}: {what}; see `huepage daemon --help`", .file.display())]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// From 1 on.
    pub line: usize,
    /// In characters, from 1 on.
    pub column: usize,
    /// What is wrong, and what was expected.
    pub what: String,
}

/// A mistake in the file, as the end of a command.
pub fn bad(error: ConfigError) -> CmdError {
    CmdError::new(ExitCode::BadFile, error)
}

/// The text, to say where something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceText {
    file: PathBuf,
    text: String,
}

impl SourceText {
    /// Of a file with this text.
    pub(super) fn new(file: &Path, text: &str) -> SourceText {
        SourceText { file: file.to_owned(), text: text.to_owned() }
    }

    pub(super) fn error(&self, at: usize, what: impl Into<String>) -> ConfigError {
        let before = self.text.get(..at.min(self.text.len())).unwrap_or(&self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let what = what.into().replace('\n', " ");
        ConfigError { file: self.file.clone(), line, column, what }
    }

    /// What the reader of TOML says.
    pub(super) fn unread(&self, error: &toml::de::Error) -> ConfigError {
        self.error(error.span().map_or(0, |span| span.start), plain(error.message()))
    }
}

/// A message of the reader without the names of types in it.
fn plain(message: &str) -> String {
    let whole = ["u8", "u16", "u32", "usize", "i32"];
    let word = |word: &str| match word.trim_end_matches(',') {
        "f64" => "a number".to_owned(),
        name if whole.contains(&name) => "a whole number".to_owned(),
        _ => word.to_owned(),
    };
    message.split(' ').map(word).collect::<Vec<_>>().join(" ")
}
