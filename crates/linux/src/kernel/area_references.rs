//! Which areas of a process were touched of late: accessed bits, as the kernel sums them up per area.
//!
//! [`AreaReferences::clear`] has the kernel clear the accessed bit of every page, and
//! [`AreaReferences::read`] tells later how much of each area has it again. It does not tell which
//! pages; that takes BPF. Both walk all page tables of the process: the CPU time is returned so that
//! a caller can keep to a share of it. The bit is set when the processor walks the tables, and the
//! kernel flushes no TLB on clearing: a page that stays in the TLB looks idle, however hot. For
//! superpages that is as well, since such a page costs no misses; as a measure of use it is not.
//! Reclaim sees the bits cleared too, and takes pages for colder than they are.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::kernel::process_memory::thread_time;
use crate::kernel::procfs::{ProcError, ProcRoot};

/// Bytes taken from the kernel in one read; it formats areas until they are full.
const READ_BYTES: usize = 64 << 10;

/// Why references are not known.
#[derive(Debug, thiserror::Error)]
pub enum SmapsError {
    /// The process has ended, or a line is not as the kernel writes it.
    #[error(transparent)]
    Proc(#[from] ProcError),
    /// The kernel refuses this user.
    #[error("not allowed to use {}: run huepage as root", .0.display())]
    Denied(PathBuf),
    /// The kernel does not count references.
    #[error(
        "{} is missing: use a kernel with CONFIG_PROC_PAGE_MONITOR, or samples of TLB misses",
        .0.display()
    )]
    Unsupported(PathBuf),
    /// Any other failure.
    #[error("cannot use {}: {source}; check that /proc is mounted and complete", .path.display())]
    Io {
        /// What was read or written.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// One area, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AreaReference {
    /// First byte, and one past the last.
    pub range: Range<u64>,
    /// Resident; zero if the kernel does not say.
    pub resident: u64,
    /// Resident and touched since the last clearing, by this process or by a reader of its pages; a
    /// huge page counts in full. `None` if the kernel does not say.
    pub referenced: Option<u64>,
    /// Anonymous and in huge pages mapped as such; zero if the kernel does not say.
    pub huge: u64,
}

impl AreaReference {
    /// Share of the resident bytes that were touched; `None` without any or if unknown.
    pub fn share(&self) -> Option<f64> {
        let touched = self.referenced? as f64;
        (self.resident > 0).then(|| touched / self.resident as f64)
    }
}

/// The references of one process.
#[derive(Clone, Debug)]
pub struct AreaReferences {
    root: ProcRoot,
    pid: i32,
}

impl AreaReferences {
    /// Of a process, below a root; nothing is opened yet.
    pub fn new(root: ProcRoot, pid: i32) -> AreaReferences {
        AreaReferences { root, pid }
    }

    /// Clears the accessed bits of all pages, and returns the CPU time that took this thread: some
    /// tens of nanoseconds per resident page. Meanwhile the process waits at `mmap` and the like,
    /// and before Linux 6.4 at page faults.
    ///
    /// # Errors
    /// When the process has ended, the user may not, or the kernel cannot.
    pub fn clear(&self) -> Result<Duration, SmapsError> {
        let before = thread_time();
        let path = self.root.pid_path(self.pid, "clear_refs");
        let written = File::options().write(true).open(&path).and_then(|mut f| f.write_all(b"1"));
        written.map_err(|e| self.error(&path, e))?;
        Ok(thread_time().saturating_sub(before))
    }

    /// Replaces `out` by the areas, ascending, and returns the CPU time that took this thread: about
    /// as much as a clearing, and some microseconds per area.
    ///
    /// Areas that change meanwhile may be missing or there twice. A kernel thread has none.
    ///
    /// # Errors
    /// When the process has ended, the user may not, or a line is not understood.
    pub fn read(&self, out: &mut Vec<AreaReference>) -> Result<Duration, SmapsError> {
        let before = thread_time();
        out.clear();
        let path = self.root.pid_path(self.pid, "smaps");
        let file = File::open(&path).map_err(|e| self.error(&path, e))?;
        let mut reader = BufReader::with_capacity(READ_BYTES, file);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).map_err(|e| self.error(&path, e))? > 0 {
            take(line.trim_ascii_end(), out).ok_or_else(|| malformed(&path, &line))?;
            line.clear();
        }
        Ok(thread_time().saturating_sub(before))
    }

    fn error(&self, path: &Path, source: io::Error) -> SmapsError {
        let absent = source.kind() == ErrorKind::NotFound;
        match source.raw_os_error() {
            Some(libc::ESRCH) => ProcError::NoProcess(self.pid).into(),
            _ if absent && self.root.process_exists(self.pid) => {
                SmapsError::Unsupported(path.to_owned())
            }
            _ if absent => ProcError::NoProcess(self.pid).into(),
            Some(libc::EACCES | libc::EPERM) => SmapsError::Denied(path.to_owned()),
            _ => SmapsError::Io { path: path.to_owned(), source },
        }
    }
}

fn malformed(path: &Path, line: &[u8]) -> SmapsError {
    let shown = &line[..line.len().min(80)];
    let line = String::from_utf8_lossy(shown);
    ProcError::malformed(path, format!("`{}`", line.trim_end())).into()
}

/// Takes one line: the head of an area, or a field of the last one. Fields are known by the colon
/// behind their name; those that are of no interest, or new, pass.
fn take(line: &[u8], out: &mut Vec<AreaReference>) -> Option<()> {
    let word = line.split(u8::is_ascii_whitespace).next()?;
    let Some(key) = word.strip_suffix(b":") else {
        if !line.is_empty() {
            out.push(AreaReference { range: range(word)?, ..AreaReference::default() });
        }
        return Some(());
    };
    let bytes = || kib(&line[word.len()..]);
    let last = out.last_mut()?;
    match key {
        b"Rss" => last.resident = bytes()?,
        b"Referenced" => last.referenced = Some(bytes()?),
        b"AnonHugePages" => last.huge = bytes()?,
        _ => {}
    }
    Some(())
}

/// `start-end`, in hexadecimal.
fn range(word: &[u8]) -> Option<Range<u64>> {
    let (start, end) = std::str::from_utf8(word).ok()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let range = number(start)?..number(end)?;
    (!range.is_empty()).then_some(range)
}

/// `<n> kB`, in bytes.
fn kib(value: &[u8]) -> Option<u64> {
    let mut words = std::str::from_utf8(value).ok()?.split_ascii_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    if words.next() == Some("kB") { number.checked_mul(1024) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::procfs::fake::{Fake, own_pid};
    use crate::kernel::testing::{Anonymous, alone};

    const SMAPS: &str = "\
55d0c0000000-55d0c0400000 rw-p 00000000 00:00 0                          [heap]
Size:               4096 kB
Rss:                3072 kB
Referenced:         2052 kB
AnonHugePages:      2048 kB
THPeligible:           1
VmFlags: rd wr mr mw me ac sd
7f0000000000-7f0000001000 r--p 00001000 fe:00 77 /tmp/a: b
Rss:                   4 kB
7f0000002000-7f0000003000 ---p 00000000 00:00 0
Size:                  4 kB
Rss:                   0 kB
Referenced:            0 kB
NewField:      something new
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    fn read(text: &str) -> Result<Vec<AreaReference>, SmapsError> {
        let fake = Fake::new();
        fake.put("5/smaps", text);
        let mut out = vec![AreaReference::default()];
        AreaReferences::new(fake.root.clone(), 5).read(&mut out).map(|_| out)
    }

    #[test]
    fn areas_are_read_with_the_fields_that_are_there() {
        let found = read(SMAPS).unwrap();
        let first = AreaReference {
            range: 0x55d0_c000_0000..0x55d0_c040_0000,
            resident: 3 << 20,
            referenced: Some(2052 << 10),
            huge: 2 << 20,
        };
        assert_eq!((found.len(), &found[0]), (4, &first));
        assert_eq!((found[1].resident, found[1].referenced, found[1].huge), (4096, None, 0));
        assert_eq!((found[1].share(), found[2].share()), (None, None));
        assert_eq!((found[2].referenced, found[3].referenced), (Some(0), None));
        assert!(first.share().is_some_and(|s| (s - 0.668).abs() < 0.001));
        assert_eq!(read("").unwrap(), []);
    }

    #[test]
    fn damaged_lines_are_refused() {
        let head = "1000-2000 rw-p 00000000 00:00 0\n";
        let bad = ["Rss: 4 kB\n", "nonsense\n", "2000-1000 rw-p\n", "1000-zz rw-p\n"];
        let fields =
            ["Rss:\n", "Rss: x kB\n", "Referenced: 4 MB\n", "Rss: 99999999999999999999 kB"];
        let texts = bad.map(str::to_owned).into_iter().chain(fields.map(|f| format!("{head}{f}")));
        for text in texts {
            let error = read(&text).expect_err(&text);
            assert!(
                matches!(error, SmapsError::Proc(ProcError::Malformed { .. })),
                "{text}: {error}"
            );
        }
        // The last line, cut short.
        let cut = read(&format!("{head}Rss: 4 kB\nReferen")).expect_err("cut");
        assert!(cut.to_string().contains("`Referen`"), "{cut}");
    }

    #[test]
    fn what_is_missing_is_told_apart() {
        let fake = Fake::new();
        let of = |pid| AreaReferences::new(fake.root.clone(), pid);
        let gone = |done| matches!(done, Err(SmapsError::Proc(ProcError::NoProcess(9))));
        assert!(gone(of(9).clear()) && gone(of(9).read(&mut Vec::new())));
        fake.put("5/comm", "x").put("6/clear_refs", "");
        assert!(matches!(of(5).clear(), Err(SmapsError::Unsupported(_))));
        of(6).clear().unwrap();
        assert_eq!(std::fs::read(fake.root.pid_path(6, "clear_refs")).unwrap(), b"1");
    }

    /// On this process: what is touched after a clearing shows, and what is not does not.
    #[test]
    fn touched_areas_show_until_they_are_cleared() {
        if !alone(module_path!(), "touched_areas_show_until_they_are_cleared") {
            return;
        }
        let (busy, idle) = (Anonymous::new(256), Anonymous::new(256));
        (0..256).for_each(|page| [&busy, &idle].iter().for_each(|area| area.touch(page)));
        let references = AreaReferences::new(ProcRoot::default(), own_pid());
        let mut out = Vec::new();
        let (mut cleared, mut read) = (Duration::ZERO, Duration::ZERO);
        // Whoever else looks at this process may clear as well.
        for _ in 0..20 {
            cleared = references.clear().unwrap();
            [&busy, &idle].iter().for_each(|area| area.leave_tlb());
            (0..100).for_each(|page| busy.touch(page));
            read = references.read(&mut out).unwrap();
            if [&busy, &idle].map(|area| referenced(&out, area)) == [100 << 12, 0] {
                break;
            }
        }
        let resident: u64 = out.iter().map(|area| area.resident).sum();
        eprintln!("clear {cleared:?}, read {read:?}, {} areas, {resident} bytes", out.len());
        assert_eq!([&busy, &idle].map(|area| referenced(&out, area)), [100 << 12, 0]);
        assert!(cleared > Duration::ZERO && read > Duration::ZERO);
    }

    /// Two neighbours may be one area to the kernel: the idle one then shows what the busy one has.
    fn referenced(found: &[AreaReference], area: &Anonymous) -> u64 {
        let at = found.iter().find(|a| a.range.contains(&area.start())).expect("mapped");
        assert_eq!(at.range, area.range(), "merged with a neighbour");
        assert!(at.resident >= 256 << 12);
        at.referenced.expect("told")
    }
}
