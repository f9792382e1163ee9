//! Which files are meant: those named, those below directories, those of a list. Files that cannot
//! be placed are left out and counted, unless they were named themselves. Reads no contents.

use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use huepage_linux::kernel::mappers::FileId;
use huepage_linux::services::files::filesystem::{Placeable, placeable};
use walkdir::WalkDir;

use super::args::WarmArgs;
use crate::exit::{CmdError, bad_file};

/// A file to look after.
pub struct WarmFile {
    pub path: PathBuf,
    /// Its name below the directory that was given, or its last part.
    pub below: PathBuf,
    /// Bytes, when it was found.
    pub size: u64,
}

/// The files, and what was left out, by reason.
#[derive(Default)]
pub struct Files {
    /// In order of directories and names.
    pub entries: Vec<WarmFile>,
    /// Files by the reason for which they are not among them.
    pub skipped: BTreeMap<String, u64>,
}

impl Files {
    pub fn find(args: &WarmArgs) -> Result<Files, CmdError> {
        let mut files = Files::default();
        for path in &args.paths {
            files.add(path)?;
        }
        for path in listed(args)? {
            // A list may be older than the files.
            if path.symlink_metadata().is_ok() { files.add(&path)? } else { files.skip("vanished") }
        }
        Ok(files)
    }

    /// Bytes of all.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.size).sum()
    }

    fn add(&mut self, path: &Path) -> Result<(), CmdError> {
        let missing = |e| bad_file(path, format!("{e}; name a file or a directory"));
        let found = path.metadata().map_err(missing)?;
        let root = path.parent().unwrap_or(path);
        if !found.is_dir() {
            self.keep(path.to_owned(), root, found.len(), found.is_file());
            return Ok(());
        }
        for entry in WalkDir::new(path).sort_by_file_name() {
            let Ok(entry) = entry else {
                self.skip("unreadable");
                continue;
            };
            let kind = entry.file_type();
            if kind.is_dir() || kind.is_symlink() {
                continue;
            }
            let size = entry.metadata().map_or(0, |found| found.len());
            self.keep(entry.into_path(), root, size, kind.is_file());
        }
        Ok(())
    }

    fn keep(&mut self, path: PathBuf, root: &Path, size: u64, regular: bool) {
        if !regular {
            return self.skip("no regular file");
        }
        let below = path.strip_prefix(root).unwrap_or(&path).to_owned();
        self.entries.push(WarmFile { path, below, size });
    }

    /// Counts a file that is left out.
    pub fn skip(&mut self, why: &str) {
        *self.skipped.entry(why.to_owned()).or_default() += 1;
    }
}

/// The lines of the list.
fn listed(args: &WarmArgs) -> Result<Vec<PathBuf>, CmdError> {
    let Some(path) = &args.files_from else { return Ok(Vec::new()) };
    let bad = |e| bad_file(path, format!("{e}; name a list of files"));
    let lines: Box<dyn std::io::BufRead> = if path.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(path).map_err(bad)?))
    };
    let lines = lines.lines().collect::<Result<Vec<_>, _>>().map_err(bad)?;
    Ok(lines.into_iter().filter(|line| !line.is_empty()).map(PathBuf::from).collect())
}

/// Opens files, each only once however many names it has.
#[derive(Default)]
pub struct Opener {
    seen: HashSet<FileId>,
}

impl Opener {
    /// The file, or in a word why it is not to be looked after.
    pub fn open(&mut self, path: &Path) -> Result<File, String> {
        let mut options = OpenOptions::new();
        let flags = libc::O_NOATIME | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = options.read(true).custom_flags(flags).open(path);
        let file = file.map_err(|e| word(&e).to_owned())?;
        let id = FileId::from_file(&file).map_err(|e| word(&e).to_owned())?;
        if !self.seen.insert(id) {
            return Err("another name of a file".to_owned());
        }
        match placeable(&file) {
            Placeable::No(name) => Err(format!("on {name}, which cannot be placed")),
            _ => Ok(file),
        }
    }
}

fn word(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::NotFound => "vanished",
        _ => "unreadable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_walked_in_order_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("b")).unwrap();
        for name in ["b/2", "b/1", "a"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("/", dir.path().join("c")).unwrap();
        let mut files = Files::default();
        files.add(dir.path()).unwrap();
        let names: Vec<_> = files
            .entries
            .iter()
            .map(|e| e.path.strip_prefix(dir.path()).unwrap().to_str().unwrap())
            .collect();
        assert_eq!(names, ["a", "b/1", "b/2"]);
        assert!(files.entries[1].below.ends_with("b/1"));
        assert_eq!((files.bytes(), files.skipped.len()), (7, 0));
        assert!(files.add(&dir.path().join("nothing")).is_err());
    }

    #[test]
    fn a_file_with_two_names_is_opened_once_and_odd_filesystems_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("1"), dir.path().join("2"));
        std::fs::write(&one, "x").unwrap();
        std::fs::hard_link(&one, &two).unwrap();
        let mut opener = Opener::default();
        assert!(opener.open(&one).is_ok());
        assert_eq!(opener.open(&two).unwrap_err(), "another name of a file");
        assert_eq!(opener.open(&dir.path().join("3")).unwrap_err(), "vanished");
        let odd = opener.open(Path::new("/proc/self/status")).unwrap_err();
        assert_eq!(odd, "on proc, which cannot be placed");
    }
}
