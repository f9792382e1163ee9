//! What the guest has: busybox, huepage, the programs with the libraries that they load, and the files of
//! the lab, as the archive that kernels unpack into memory (cpio, "newc"). The same content gives the
//! same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::exit::{CmdError, bad_file};

const DIRECTORY: u32 = 0o04_0755;
const FILE: u32 = 0o10_0000;
const LINK: u32 = 0o12_0777;

/// The archive in the making: by path, with the mode and the content of each.
#[derive(Default)]
pub struct Initramfs(BTreeMap<PathBuf, (u32, Vec<u8>)>);

impl Initramfs {
    /// Adds a file, and the directories above it.
    pub fn file(&mut self, path: impl AsRef<Path>, mode: u32, content: impl Into<Vec<u8>>) {
        self.directory(path.as_ref().parent().unwrap_or(Path::new("/")));
        self.0.insert(path.as_ref().to_owned(), (FILE | mode, content.into()));
    }

    /// Adds a directory, and those above it.
    pub fn directory(&mut self, path: impl AsRef<Path>) {
        for path in path.as_ref().ancestors() {
            self.0.entry(path.to_owned()).or_insert((DIRECTORY, Vec::new()));
        }
    }

    /// Adds a link to a name.
    pub fn link(&mut self, path: impl AsRef<Path>, to: &str) {
        self.directory(path.as_ref().parent().unwrap_or(Path::new("/")));
        self.0.insert(path.as_ref().to_owned(), (LINK, to.into()));
    }

    /// Adds a program of the host under a path, and what it loads under the paths where that lies.
    ///
    /// # Errors
    /// When something cannot be read.
    pub fn program(&mut self, from: &Path, path: impl AsRef<Path>) -> Result<(), CmdError> {
        self.copy(from, path)?;
        for library in libraries(from) {
            if !self.0.contains_key(&library) {
                self.copy(&library, &library)?;
            }
        }
        Ok(())
    }

    /// Adds a file of the host, or all that is below a directory, under the same paths.
    ///
    /// # Errors
    /// When something cannot be read.
    pub fn tree(&mut self, path: &Path) -> Result<(), CmdError> {
        let path = std::path::absolute(path).map_err(|e| bad_file(path, e))?;
        for entry in walkdir::WalkDir::new(&path).sort_by_file_name() {
            let entry = entry.map_err(|e| bad_file(&path, format!("{e}; give another --pack")))?;
            if entry.path_is_symlink() {
                let to = fs::read_link(entry.path()).map_err(|e| bad_file(entry.path(), e))?;
                self.link(entry.path(), &to.to_string_lossy());
            } else if entry.file_type().is_dir() {
                self.directory(entry.path());
            } else if entry.file_type().is_file() {
                self.program(entry.path(), entry.path())?;
            }
        }
        Ok(())
    }

    fn copy(&mut self, from: &Path, path: impl AsRef<Path>) -> Result<(), CmdError> {
        let read = fs::metadata(from).and_then(|about| Ok((about, fs::read(from)?)));
        let (about, content) =
            read.map_err(|e| bad_file(from, format!("{e}; it is to be packed")))?;
        self.file(path, about.permissions().mode() & 0o777, content);
        Ok(())
    }

    /// The archive.
    pub fn archive(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (number, (path, (mode, content))) in (1_u32..).zip(&self.0) {
            let name = path.to_string_lossy();
            let name = name.trim_start_matches('/');
            if !name.is_empty() {
                append(&mut out, number, name, *mode, content);
            }
        }
        append(&mut out, 0, "TRAILER!!!", 0, &[]);
        out
    }
}

/// One member: a head of hexadecimal numbers, its name, its content, both to a multiple of four bytes.
fn append(out: &mut Vec<u8>, number: u32, name: &str, mode: u32, content: &[u8]) {
    let (size, named) = (content.len(), name.len() + 1);
    let fields = [number as usize, mode as usize, 0, 0, 1, 0, size, 0, 0, 0, 0, named, 0];
    out.extend(b"070701");
    fields.iter().for_each(|field| out.extend(format!("{field:08X}").bytes()));
    out.extend(name.bytes());
    out.push(0);
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend(content);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// What a program loads when it starts, by the system's own loader; nothing of a static one, or of a file
/// that is none.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let Ok(listed) = Command::new("ldd").arg(program).output() else { return Vec::new() };
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
    paths
        .map(|word| PathBuf::from(word.trim_end_matches(':')))
        .filter(|path| path.is_file())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_heads_names_and_contents_in_order() {
        let mut all = Initramfs::default();
        all.file("/b/x", 0o755, "content");
        all.link("/a", "b/x");
        let archive = all.archive();
        assert_eq!(archive, all.archive());
        let text = String::from_utf8(archive).unwrap();
        let at = |name: &str| text.find(name).unwrap_or_else(|| panic!("{name}: {text}"));
        assert!(at("a\0") < at("b/x\0") && at("b/x\0") < at("TRAILER!!!\0"));
        assert_eq!(text.matches("070701").count(), 4);
        let head = text.find("b/x\0\0\0content").map(|at| &text[at - 110..at]).unwrap();
        assert_eq!(&head[14..22], "000081ED");
        assert_eq!((&head[54..62], &head[94..102]), ("00000007", "00000004"));
        assert_eq!(text.len() % 4, 0);
    }

    #[test]
    fn a_program_brings_its_libraries() {
        let shell = fs::canonicalize("/bin/sh").unwrap();
        let mut all = Initramfs::default();
        all.program(&shell, "/bin/shell").unwrap();
        let names: Vec<String> = all.0.keys().map(|path| path.display().to_string()).collect();
        assert!(names.contains(&"/bin/shell".to_owned()), "{names:?}");
        let listed = libraries(&shell);
        assert!(listed.iter().all(|path| all.0.contains_key(path)), "{listed:?}: {names:?}");
    }
}
