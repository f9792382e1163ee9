//! Files and trees for the benchmarks of the page cache, always the same for the same wish, and
//! what is done to them from outside: dropping them from the cache, reading them in, telling
//! the file system that they are on.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::mix::{pattern, scramble};
use crate::sys::{self, MappedMemory, PAGE, PageProt};

/// Files of a directory of a tree.
const PER_DIRECTORY: usize = 500;
/// Largest file of a tree, in KiB.
const LARGEST_KIB: u64 = 64;

/// Bytes of file `number` of a tree: whole KiB, 1 to 64, each about as often.
pub fn small_size(number: usize) -> u64 {
    1024 * (1 + scramble(number as u64) % LARGEST_KIB)
}

/// Makes a file of so many bytes of text-like lines that compress to nothing.
///
/// # Errors
/// Those of writing it.
pub fn fill(path: &Path, bytes: u64, seed: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    let (mut left, mut chunk) = (bytes, Vec::with_capacity(1 << 20));
    for part in 0.. {
        if left == 0 {
            break;
        }
        chunk.clear();
        for line in 0..(1 << 14) {
            // A newline every 64 bytes, so that what searches for lines finds some.
            writeln!(chunk, "{:063x}", pattern(part, seed, line))?;
        }
        let some = usize::try_from(left).map_or(chunk.len(), |left| left.min(chunk.len()));
        file.write_all(&chunk[..some])?;
        left -= some as u64;
    }
    file.sync_all()
}

/// Makes a tree of `files` small files below `root`, in several directories; gives their bytes.
///
/// # Errors
/// Those of writing it.
pub fn tree(root: &Path, files: usize) -> io::Result<u64> {
    let mut text = Vec::new();
    for line in 0..(2 * LARGEST_KIB * 1024 / 64) {
        writeln!(text, "{:063x}", pattern(line, 1, 0))?;
    }
    let mut bytes = 0;
    for number in 0..files {
        let dir = root.join(format!("d{:03}", number / PER_DIRECTORY));
        if number % PER_DIRECTORY == 0 {
            fs::create_dir_all(&dir)?;
        }
        let size = small_size(number);
        let from = usize::try_from(scramble(!(number as u64)) % (LARGEST_KIB * 1024)).unwrap_or(0);
        let contents = &text[from..][..usize::try_from(size).map_err(io::Error::other)?];
        fs::write(dir.join(format!("f{number:06}")), contents)?;
        bytes += size;
    }
    Ok(bytes)
}

/// Every regular file at or below a path, by name.
///
/// # Errors
/// Those of reading directories.
pub fn below(path: &Path) -> io::Result<Vec<PathBuf>> {
    if fs::symlink_metadata(path)?.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let (mut found, mut left) = (Vec::new(), vec![path.to_owned()]);
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            match entry.file_type()? {
                kind if kind.is_dir() => left.push(entry.path()),
                kind if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Writes files back and drops their pages; gives the share that stayed, 0 to 1.
///
/// # Errors
/// Those of opening and syncing them.
pub fn drop_cached(paths: &[PathBuf]) -> io::Result<f64> {
    let (mut pages, mut left) = (0, 0);
    for path in paths {
        let file = File::open(path)?;
        file.sync_data()?;
        sys::advise_file(file.as_fd(), libc::POSIX_FADV_DONTNEED)?;
        let resident = resident(&file)?;
        pages += resident.len();
        left += resident.iter().filter(|there| **there).count();
    }
    Ok(left as f64 / pages.max(1) as f64)
}

/// Which pages of a file are in memory.
///
/// # Errors
/// When it cannot be mapped.
pub fn resident(file: &File) -> io::Result<Vec<bool>> {
    let pages = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?.div_ceil(PAGE);
    if pages == 0 {
        return Ok(Vec::new());
    }
    MappedMemory::shared_file(file.as_fd(), pages, PageProt::Read)?.resident()
}

/// Reads files from end to end, as any program would; gives their bytes.
///
/// # Errors
/// Those of reading them.
pub fn read_in(paths: &[PathBuf]) -> io::Result<u64> {
    let (mut buffer, mut bytes) = (vec![0; 1 << 17], 0);
    for path in paths {
        let mut file = File::open(path)?;
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                some => bytes += some as u64,
            }
        }
    }
    Ok(bytes)
}

/// Reads files page by page with the advice that it is at random, so that the kernel brings
/// their pages in one by one, as a placer must, and not in large folios.
///
/// # Errors
/// Those of reading them.
pub fn read_in_small(paths: &[PathBuf]) -> io::Result<()> {
    let mut page = [0; PAGE];
    for path in paths {
        let mut file = File::open(path)?;
        sys::advise_file(file.as_fd(), libc::POSIX_FADV_RANDOM)?;
        while file.read(&mut page)? > 0 {}
    }
    Ok(())
}

/// The type of the file system that a directory is on, as the kernel names it.
///
/// # Errors
/// When the list of mounts cannot be read or does not hold it.
pub fn filesystem(dir: &Path) -> io::Result<String> {
    let (dir, mounts) = (dir.canonicalize()?, fs::read_to_string("/proc/self/mounts")?);
    let kind = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (at, kind) = (words.next()?, words.next()?);
        // Later mounts hide earlier ones at the same place.
        dir.starts_with(at).then(|| (at.len(), kind.to_owned()))
    };
    let found = mounts.lines().filter_map(kind).max_by_key(|(depth, _)| *depth);
    found.map(|(_, kind)| kind).ok_or_else(|| io::Error::other("no mount holds the directory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_files_of_all_sizes_in_several_directories() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = tree(dir.path(), 600).unwrap();
        let files = below(dir.path()).unwrap();
        let sizes: Vec<u64> = files.iter().map(|f| fs::metadata(f).unwrap().len()).collect();
        assert_eq!((files.len(), sizes.iter().sum::<u64>()), (600, bytes));
        assert!(sizes.contains(&1024) && sizes.contains(&65536));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        assert_eq!(read_in(&files).unwrap(), bytes);
    }

    #[test]
    fn a_file_is_filled_dropped_and_read_in() {
        let dir = tempfile::tempdir_in("/var/tmp").or_else(|_| tempfile::tempdir()).unwrap();
        let path = dir.path().join("file");
        fill(&path, 3_000_000, 7).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 3_000_000);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.lines().take(40_000).all(|line| line.len() == 63));
        if filesystem(dir.path()).unwrap() != "tmpfs" {
            let left = drop_cached(std::slice::from_ref(&path)).unwrap();
            assert!(left < 0.05, "{left} of the pages stayed");
        }
        read_in(std::slice::from_ref(&path)).unwrap();
        let there = resident(&File::open(&path).unwrap()).unwrap();
        assert!(there.iter().all(|there| *there));
    }

    #[test]
    fn file_systems_are_told() {
        assert_eq!(filesystem(Path::new("/proc")).unwrap(), "proc");
        assert!(filesystem(Path::new("/no/such/place")).is_err());
    }
}
