//! Machines to simulate: a file, or the name of one that the program has in itself, so that an installed
//! `huepage` needs no checkout. `machines/lab-hashed.toml`, `lab-hashed.toml` and `lab-hashed` all name one.

use std::io::ErrorKind;
use std::path::Path;

use huepage_sim::machine::Machine;

use crate::exit::{CmdError, bad_file};

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../machines/", $name, ".toml")))),*]
    };
}

/// Names and texts of `machines/`.
const BUILT_IN: [(&str, &str); 15] = built_in![
    "alpha-3000-500",
    "arm-4-core",
    "cascade-lake",
    "cascade-lake-like",
    "client-8-core",
    "core-i3-2100",
    "core-i7-860",
    "lab-4-core",
    "lab-hashed",
    "powerpc-970fx",
    "romer-tlb",
    "xeon-5355",
    "xeon-7560",
    "xeon-e5-1410",
    "xeon-e5506",
];

/// Reads a machine: from the file, else one of the built-in ones by the name.
///
/// # Errors
/// What is neither, and text that describes no machine.
pub fn read_machine(path: &Path) -> Result<Machine, CmdError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::InvalidData => {
            return Err(bad_file(
                path,
                format!("is no text; --machine takes a machine file; {}", what_to_name()),
            ));
        }
        Err(e) => match built_in_text(path) {
            Some(text) if e.kind() == ErrorKind::NotFound => text.to_owned(),
            _ => return Err(bad_file(path, format!("{e}; {}", what_to_name()))),
        },
    };
    Machine::parse(&text).map_err(|e| bad_file(path, e))
}

fn built_in_text(path: &Path) -> Option<&'static str> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if directory.is_some_and(|directory| directory != Path::new("machines")) {
        return None;
    }
    let name = path.file_name()?.to_str()?;
    let name = name.strip_suffix(".toml").unwrap_or(name);
    BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

fn what_to_name() -> String {
    let names = BUILT_IN.map(|(name, _)| name).join(", ");
    format!("name one, or one of {names}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_of_the_sources_is_built_in() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
        let mut names: Vec<String> = Vec::new();
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            names.extend(name.strip_suffix(".toml").map(str::to_owned));
        }
        names.sort();
        assert_eq!(names, BUILT_IN.map(|(name, _)| name));
    }

    #[test]
    fn built_in_machines_are_found_where_there_is_no_checkout() {
        for name in ["xeon-5355", "xeon-5355.toml", "machines/xeon-5355.toml"] {
            let text = built_in_text(Path::new(name)).unwrap();
            assert_eq!(text, built_in_text(Path::new("xeon-5355")).unwrap());
        }
        assert!(read_machine(Path::new("lab-hashed")).is_ok());
        for other in ["xeon", "/machines/xeon-5355.toml", "elsewhere/xeon-5355.toml"] {
            let error = read_machine(Path::new(other)).unwrap_err().message;
            assert!(error.contains("or one of alpha-3000-500, "), "{error}");
        }
    }
}
