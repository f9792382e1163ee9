//! `huepage sim` as a function, for modules of other languages: options in, rows with named columns out.

use std::ffi::OsString;

use super::args::{self, SimRunArgs};
use super::flat::{self, FlatCell};
use super::{rows, usage};
use crate::cmd::policy::PolicyChoice;
use crate::exit::CmdError;
use crate::signals::Interrupt;

/// The rows that `huepage sim --csv` prints with these options, each with its columns; and the signal that
/// asked for the end, if some are missing. Listens for signals on the calling thread while it runs.
///
/// # Errors
/// As `huepage sim`, and for options that only say where to print.
pub fn table(words: Vec<OsString>) -> Result<(Vec<Vec<FlatCell>>, Option<i32>), CmdError> {
    let args = args::parse(words).map_err(|e| usage(first_line(&e.to_string())))?;
    returned(&args)?;
    let interrupt = Interrupt::listen()?;
    let rows = rows(&args, &interrupt)?;
    Ok((rows.iter().map(flat::flatten).collect(), interrupt.signal()))
}

/// What clap says first; the rest is about the command line.
fn first_line(said: &str) -> &str {
    said.lines().next().unwrap_or_default().trim_start_matches("error: ")
}

/// Makes sure that all that is asked for is in the rows.
fn returned(args: &SimRunArgs) -> Result<(), CmdError> {
    if args.json || args.csv || args.svg.is_some() || args.html.is_some() {
        return Err(usage("rows are returned; leave out json, csv, svg and html"));
    }
    match &args.policy {
        Some(PolicyChoice::Text(_)) => {
            Err(usage("that is no policy; name one that `huepage sim --policy list` has"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<(Vec<Vec<FlatCell>>, Option<i32>), String> {
        table(line.split(' ').map(OsString::from).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn rows_have_the_columns_of_csv() {
        let run = "-m cascade-lake-like -w gups:size=64K --limit 1000 --sweep seed=1..2";
        let (rows, signal) = of(run).unwrap();
        assert_eq!((rows.len(), signal), (2, None));
        for (point, row) in rows.iter().enumerate() {
            assert_eq!(row[0], ("point".to_owned(), point.into()));
            assert_eq!(row[1], ("seed".to_owned(), (point + 1).to_string().into()));
        }
    }

    #[test]
    fn what_cannot_be_returned_is_refused() {
        let run = "-m cascade-lake-like -w gups:size=64K";
        let cases = [("--csv", "leave out"), ("--policy list", "name one"), ("--no", "--no")];
        for (more, part) in cases {
            let said = of(&format!("{run} {more}")).unwrap_err();
            assert!(said.contains(part) && !said.contains('\n'), "{said}");
        }
    }
}
