//! Command lines: clap's complaints on one line, and what it would misunderstand: a mistyped option before a
//! program counts as the program's name, and clap then complains of whatever else it lacks.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, CommandFactory, Parser};

use crate::args::Cli;
use crate::cmd::nri::SOCKET_VARIABLE;
use crate::exit::{CmdError, ExitCode};

/// Names that are at least so alike (Jaro and Winkler's measure, 0 to 1) are taken for each other.
const ALIKE: f64 = 0.8;

/// Reads the arguments; what clap prints by itself (help, the version) ends the process.
pub fn parse() -> Result<Cli, CmdError> {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    // Runtimes start their plugins without a word: what they are to be is in the environment.
    if args.len() == 1 && std::env::var_os(SOCKET_VARIABLE).is_some() {
        args.push("nri".into());
    }
    let words = &args[1.min(args.len())..];
    let message = moved(words).or_else(|| unknown_option(words));
    if let Some(message) = message {
        return Err(CmdError::new(ExitCode::Usage, message));
    }
    Cli::try_parse_from(&args).map_err(|error| match error.use_stderr() && !is_help(&error) {
        true => CmdError::new(ExitCode::Usage, on_one_line(words, &error)),
        false => error.exit(),
    })
}

/// Whether it is no complaint but the help of a command that was given nothing.
fn is_help(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// What clap says of a line of so many words in several paragraphs: what is wrong, a tip, how the command is used.
fn on_one_line(words: &[OsString], error: &clap::Error) -> String {
    let mut root = Cli::command();
    root.build();
    let (mut command, mut path) = (&root, "huepage".to_owned());
    for word in words.iter().filter_map(|word| word.to_str()) {
        let Some(next) = command.find_subcommand(word) else { break };
        (command, path) = (next, format!("{path} {word}"));
    }
    let unknown = matches!(error.kind(), ErrorKind::UnknownArgument);
    if let (true, Some(ContextValue::String(name))) = (unknown, error.get(ContextKind::InvalidArg))
        && let Some(long) = alike(command, name)
    {
        return format!("`{path}` has no option `{name}`; did you mean `{long}`?");
    }
    let said = error.to_string();
    let paragraphs = said.split("\n\n").map(|lines| {
        lines.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    });
    let told = paragraphs.take_while(|paragraph| !paragraph.starts_with("Usage: "));
    let told: Vec<String> = told
        .filter(|paragraph| !paragraph.starts_with("For more"))
        .map(|text| text.trim_start_matches("error: ").trim_start_matches("tip: ").to_owned())
        // What stands for several options has brackets of its own.
        .map(|text| text.replace("<--", "--").replace(">>", ">"))
        .collect();
    format!("{}; see `{path} --help`", told.join("; "))
}

/// Where a command has gone that was once here.
fn moved(words: &[OsString]) -> Option<String> {
    (words.first()? == "experiment").then(|| {
        "papers are reproduced by `huepage-repro`: cargo run --release -p huepage-repro -- romer --quick".to_owned()
    })
}

/// What is wrong with an option before a program, if it is one that the command does not have.
fn unknown_option(args: &[OsString]) -> Option<String> {
    let mut root = Cli::command();
    root.build();
    let (mut command, mut path) = (&root, "huepage".to_owned());
    let mut args = args.iter();
    while let Some(arg) = args.next().and_then(|arg| arg.to_str()) {
        if !arg.starts_with('-') {
            command = command.find_subcommand(arg)?;
            path = format!("{path} {arg}");
            continue;
        }
        let (name, value) =
            arg.split_once('=').map_or((arg, None), |(name, value)| (name, Some(value)));
        match command.get_arguments().find(|known| is_called(known, name)) {
            Some(known) if value.is_none() && wants_value(known) => _ = args.next(),
            Some(_) => {}
            None if name.len() > 2 && takes_program(command) => {
                return Some(describe(command, &path, name));
            }
            None => return None,
        }
    }
    None
}

fn describe(command: &clap::Command, path: &str, name: &str) -> String {
    match alike(command, name) {
        Some(long) => format!("`{path}` has no option `{name}`; did you mean `{long}`?"),
        None => format!("`{path}` has no option `{name}`; see `{path} --help`"),
    }
}

/// The option of a command that is most like a name, if one is like it.
fn alike(command: &clap::Command, name: &str) -> Option<String> {
    let longs = command.get_arguments().filter_map(Arg::get_long).map(|long| format!("--{long}"));
    let rated = longs.map(|long| (strsim::jaro_winkler(&long, name), long));
    let best = rated.max_by(|one, other| one.0.total_cmp(&other.0));
    best.filter(|best| best.0 >= ALIKE).map(|(_, long)| long)
}

fn is_called(arg: &Arg, name: &str) -> bool {
    match name.strip_prefix("--") {
        Some(long) => {
            arg.get_long() == Some(long)
                || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&long))
        }
        None => arg.get_short().is_some_and(|short| name[1..].starts_with(short)),
    }
}

/// Whether the next argument belongs to this one.
fn wants_value(arg: &Arg) -> bool {
    !arg.is_require_equals_set() && arg.get_num_args().is_some_and(|range| range.min_values() > 0)
}

/// Whether what follows the options is a program and what it is called with.
fn takes_program(command: &clap::Command) -> bool {
    command.get_arguments().any(Arg::is_trailing_var_arg_set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> Option<String> {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        unknown_option(&args)
    }

    #[test]
    fn mistyped_options_are_named_with_what_was_meant() {
        let cases = [
            ("run --shares 25% -- true", "--share`?"),
            ("run --share 25% --strickt -- true", "--strict`?"),
            ("run --share=25% --stok=64M true", "--stock`?"),
            ("profile --zzzzzz -- true", "huepage profile --help"),
        ];
        for (line, expected) in cases {
            let text = said(line).unwrap_or_default();
            assert!(text.contains(expected), "{line}: {text}");
        }
    }

    #[test]
    fn complaints_of_clap_are_one_line_that_says_what_to_do() {
        let cases = [
            (
                "attach --sahre 25% 5",
                "`huepage attach` has no option `--sahre`; did you mean `--share`?",
            ),
            (
                "attach --zzzzzzz 5",
                "unexpected argument '--zzzzzzz' found; to pass '--zzzzzzz' as a value, use '-- --zzzzzzz'; see `huepage attach --help`",
            ),
            (
                "sim -m",
                "a value is required for '--machine <FILE>' but none was supplied; see `huepage sim --help`",
            ),
            (
                "attahc 5",
                "unrecognized subcommand 'attahc'; a similar subcommand exists: 'attach'; see `huepage --help`",
            ),
            (
                "run --share 25%",
                "the following required arguments were not provided: <CMD>...; see `huepage run --help`",
            ),
        ];
        for (line, expected) in cases {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let all = std::iter::once(OsString::from("huepage")).chain(words.clone());
            let error = Cli::try_parse_from(all).expect_err(line);
            assert_eq!(on_one_line(&words, &error), expected);
        }
    }

    #[test]
    fn experiments_are_said_to_be_another_programs() {
        let words = ["experiment", "romer"].map(OsString::from);
        assert!(moved(&words).is_some_and(|text| text.contains("`huepage-repro`")));
        assert_eq!(moved(&["sim".into()]), None);
        assert_eq!(moved(&[]), None);
    }

    #[test]
    fn what_is_right_or_the_programs_own_is_left_to_clap() {
        for line in [
            "run --share 25% -- true --shares",
            "run --share 25% true --shares",
            "run --share 25% -- --program",
            "run --colors 0-3 --quiet --report r.json -- true",
            "run --help",
            "attach --shares 25% 1",
            "nothing --of-this",
        ] {
            assert_eq!(said(line), None, "{line}");
        }
    }
}
