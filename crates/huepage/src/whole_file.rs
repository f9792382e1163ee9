//! Files that a command writes: there when they are complete and not before, so that whoever waits for one may read
//! it. What is no regular file, such as a device or a pipe, is written and never replaced; a link stays one.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use tempfile::NamedTempFile;

use crate::exit::{CmdError, ExitCode};

/// Where a file is to be.
enum Place {
    /// A new one, or in place of one, behind all links.
    File(PathBuf),
    /// Something else, which is there already.
    Other,
}

/// Where names of what this process has open lie: a file by such a name is written at its end, as somebody else
/// writes into it too.
const OPEN: [&str; 4] = ["/dev/fd", "/dev/stdout", "/dev/stderr", "/proc"];

impl Place {
    fn of(path: &Path) -> io::Result<Place> {
        match fs::metadata(path) {
            Ok(_) if OPEN.iter().any(|open| path.starts_with(open)) => Ok(Place::Other),
            Ok(found) if found.is_file() => fs::canonicalize(path).map(Place::File),
            Ok(_) => Ok(Place::Other),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Place::File(path.to_owned())),
            Err(error) => Err(error),
        }
    }
}

/// Writes a whole file.
///
/// # Errors
/// When it cannot be written; what was there is as it was, unless it is no regular file.
pub fn save(path: &Path, text: &str) -> Result<(), CmdError> {
    write(path, text.as_bytes()).map_err(|error| refused(path, &error))
}

/// Writes a file that somebody may have open already, who is to read it by that: it is the same file afterwards.
///
/// # Errors
/// When it cannot be written.
pub fn save_in_place(path: &Path, text: &str) -> Result<(), CmdError> {
    let written = match Place::of(path) {
        Ok(Place::Other) => append_to(path).and_then(|mut file| file.write_all(text.as_bytes())),
        _ => fs::write(path, text),
    };
    written.map_err(|error| refused(path, &error))
}

/// Makes sure, before hours of work, that a file can be made; what is in it stays.
///
/// # Errors
/// When it cannot.
pub fn can_be_written(path: &Path) -> Result<(), CmdError> {
    let tried = match Place::of(path) {
        Ok(Place::File(path)) => beside(&path).map(drop),
        Ok(Place::Other) if path.is_dir() => Err(ErrorKind::IsADirectory.into()),
        // Not by opening it: who reads a pipe would read its end.
        Ok(Place::Other) => access(path, Access::WRITE_OK).map_err(io::Error::from),
        Err(error) => Err(error),
    };
    tried.map_err(|error| refused(path, &error))
}

/// The same for several files, none of which may be written twice or be one of those that are `read`.
///
/// # Errors
/// When one of them cannot, or would be.
pub fn can_be_written_apart<'a>(
    files: impl IntoIterator<Item = &'a PathBuf>,
    read: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), CmdError> {
    let mut taken: Vec<PathBuf> = read.into_iter().filter_map(|path| one_name(path)).collect();
    for path in files {
        can_be_written(path)?;
        let Some(name) = one_name(path) else { continue };
        if taken.contains(&name) {
            let what = "it is read or written already; name another file";
            return Err(CmdError::new(
                ExitCode::Usage,
                format!("cannot write {}: {what}", path.display()),
            ));
        }
        taken.push(name);
    }
    Ok(())
}

/// The one name of a file, which need not be there yet; none of a device or a pipe.
fn one_name(path: &Path) -> Option<PathBuf> {
    let Ok(Place::File(path)) = Place::of(path) else { return None };
    let directory = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let directory = fs::canonicalize(directory.unwrap_or(Path::new("."))).ok()?;
    Some(directory.join(path.file_name()?))
}

/// As [`can_be_written`] for a file that is written in place: one that is there need not be in a directory that can be written.
///
/// # Errors
/// When it cannot.
pub fn can_be_written_in_place(path: &Path) -> Result<(), CmdError> {
    match access(path, Access::WRITE_OK) {
        Ok(()) if !path.is_dir() => Ok(()),
        _ => can_be_written(path),
    }
}

fn refused(path: &Path, error: &io::Error) -> CmdError {
    let what = format!("cannot write {}: {error}; name a file that can be written", path.display());
    CmdError::new(ExitCode::Usage, what)
}

fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    match Place::of(path)? {
        Place::File(path) => {
            let mut part = beside(&path)?;
            part.write_all(text)?;
            part.persist(&path)?;
            Ok(())
        }
        Place::Other => append_to(path)?.write_all(text),
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).open(path)
}

/// A file of its own in the same directory, with the rights of a new file.
fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let directory = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    // Said in the words of the file that was named, not of one beside it.
    fs::metadata(directory)?;
    tempfile::Builder::new().permissions(Permissions::from_mode(0o666)).tempfile_in(directory)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::{FileTypeExt as _, symlink};

    use super::*;

    #[test]
    fn files_are_replaced_and_links_and_devices_stay() {
        let dir = tempfile::tempdir().unwrap();
        let [file, link, pipe] = ["file", "link", "pipe"].map(|name| dir.path().join(name));
        write(&file, b"old").unwrap();
        symlink(&file, &link).unwrap();
        can_be_written(&link).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"old");
        write(&link, b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        let opened = File::open(&file).unwrap();
        save_in_place(&link, "in place").unwrap();
        assert_eq!(io::read_to_string(opened).unwrap(), "in place");
        assert!(can_be_written(dir.path()).is_err(), "said before hours of work");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        // Nobody reads yet, and what is tried is not opened.
        can_be_written(&pipe).unwrap();
        can_be_written_in_place(&pipe).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).unwrap()
        });
        write(&pipe, b"through").unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        assert!(write(Path::new("/dev/full"), b"no room").is_err());
        assert!(fs::metadata("/dev/full").unwrap().file_type().is_char_device());
        assert!(write(dir.path(), b"a directory").is_err());
        let output = File::create(&file).unwrap();
        write(&Path::new("/dev/fd").join(output.as_raw_fd().to_string()), b"at the end").unwrap();
        (&output).write_all(b"at the ").unwrap();
        assert_eq!(
            fs::read(&file).unwrap(),
            b"at the end",
            "the open file, not another of its name"
        );
        let missing = can_be_written(&dir.path().join("none/report")).unwrap_err();
        assert_eq!(missing.code, ExitCode::Usage);
        let said = missing.to_string();
        assert!(said.contains("none/report: No such file or directory (os error 2);"), "{said}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "nothing is left beside");
    }

    #[test]
    fn a_file_is_not_written_over_what_is_read_nor_twice() {
        let dir = tempfile::tempdir().unwrap();
        let [trace, link, new] = ["a.trace", "link", "new.svg"].map(|name| dir.path().join(name));
        fs::write(&trace, "records").unwrap();
        symlink(&trace, &link).unwrap();
        let again = dir.path().join("../").join(dir.path().file_name().unwrap()).join("new.svg");
        can_be_written_apart([&new], [&trace]).unwrap();
        for (written, read) in [(vec![&trace], vec![&link]), (vec![&new, &again], vec![&trace])] {
            let refused = can_be_written_apart(written, read).unwrap_err();
            assert_eq!(refused.code, ExitCode::Usage);
            assert!(refused.to_string().contains("read or written already"), "{refused}");
        }
        can_be_written_apart([&PathBuf::from("/dev/null"), &"/dev/null".into()], []).unwrap();
        assert_eq!(fs::read(&trace).unwrap(), b"records");
    }
}
