//! Permission events of the kernel (fanotify): a process that opens a file of a marked filesystem
//! waits in the kernel until it is let. This holds the mechanism alone: a group of marks, events
//! read from it, answers. Who is let when is the gate's business ([`crate::services::files::gate`]).
//!
//! Nobody is ever refused. An [`FileOpening`] that is dropped is let, and when the group is closed,
//! also by the death of the process that has it, the kernel lets all that wait. The kernel itself
//! refuses an open only if it cannot open the file for the reader of the event, or the reader ends
//! while a lease on it keeps that from being done; so there must always be descriptors left. Only
//! regular files are told of, not pipes and devices.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

/// Why files that are opened cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum FanotifyError {
    /// Watching filesystems takes CAP_SYS_ADMIN.
    #[error("not allowed to watch files being opened; run huepage as root")]
    Privilege,
    /// A kernel without permission events.
    #[error(
        "this kernel has no fanotify permission events; use one with CONFIG_FANOTIFY_ACCESS_PERMISSIONS, or leave out --page-cache"
    )]
    Unsupported,
    /// One filesystem cannot be watched.
    #[error("{} cannot be watched ({source}); exclude it, or name other directories with --page-cache-include", .path.display())]
    Mark {
        /// Where it is mounted.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Too few descriptors or memory: those who open files would be refused.
    #[error("no descriptors or memory left to watch files ({0}); raise `ulimit -n` or free memory")]
    Resources(io::Error),
    /// Reads of events wait for the holders of leases.
    #[error(
        "somebody holds leases on too many files that are being opened; leave out --page-cache, or exclude their directory"
    )]
    Leases,
    /// An event that could not be read; who opened that file was refused by the kernel.
    #[error("a file could not be opened for looking at it ({0}); exclude its directory")]
    Unreadable(io::Error),
    /// Any other failure.
    #[error("cannot {what} ({source}); leave out --page-cache")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Length of the fixed part of an event: `struct fanotify_event_metadata`.
const METADATA_BYTES: usize = 24;
/// A group of marks and the queue of its events.
#[derive(Debug)]
pub struct FileNotifier {
    group: Arc<OwnedFd>,
}

/// A process that waits to be let open a file. Dropping it lets it.
#[derive(Debug)]
pub struct FileOpening {
    // Fields are dropped in this order. The file is closed before its opener is let: he may take a lease at
    // once, which the kernel refuses while anybody else has the file open.
    file: Arc<File>,
    answer: Answer,
}

/// What is owed to a process that waits: given when it is dropped.
#[derive(Debug)]
struct Answer {
    /// The descriptor of the event names it to the kernel, open or not. Should another event get the same
    /// number meanwhile, the two are let in the order they came: all answers are alike.
    descriptor: RawFd,
    pid: i32,
    group: Arc<OwnedFd>,
}

impl FileOpening {
    /// The file, open for reading; reads through it are told to nobody.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// The process that opens it.
    pub fn pid(&self) -> i32 {
        self.answer.pid
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // Nobody waits for it any more if this fails.
        let _ = rustix::io::write(&self.group, &allow(self.descriptor));
    }
}

/// `struct fanotify_response`.
fn allow(fd: RawFd) -> [u8; 8] {
    let mut answer = [0; 8];
    answer[..4].copy_from_slice(&fd.to_ne_bytes());
    answer[4..].copy_from_slice(&libc::FAN_ALLOW.to_ne_bytes());
    answer
}

impl FileNotifier {
    /// Makes a group without marks, and tries whether the kernel has permission events.
    ///
    /// # Errors
    /// `Privilege`, `Unsupported`, or a failure of the system.
    pub fn new() -> Result<FileNotifier, FanotifyError> {
        // The descriptors of events must not be O_NONBLOCK: a file with a lease could not be opened
        // then, and the kernel would refuse whoever opens it.
        let flags = libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
        let files = libc::O_RDONLY | libc::O_LARGEFILE | libc::O_CLOEXEC | libc::O_NOATIME;
        // SAFETY: a system call without pointers.
        let fd = unsafe { libc::fanotify_init(flags, files.cast_unsigned()) };
        if fd < 0 {
            return Err(init_error(io::Error::last_os_error()));
        }
        // SAFETY: the descriptor is new and nobody else's.
        let group = unsafe { OwnedFd::from_raw_fd(fd) };
        let notifier = FileNotifier { group: Arc::new(group) };
        notifier.try_out()?;
        Ok(notifier)
    }

    /// Marks a directory, whose own opens are not told of, and takes that back.
    fn try_out(&self) -> Result<(), FanotifyError> {
        let root = Path::new("/");
        let tried = self.change(libc::FAN_MARK_ADD, root);
        tried.and_then(|()| self.change(libc::FAN_MARK_REMOVE, root)).map_err(init_error)
    }

    /// Has every open of a file of the filesystem that `path` lies on wait, from now on.
    ///
    /// # Errors
    /// `Mark` if this filesystem cannot be watched.
    pub fn mark(&self, path: &Path) -> Result<(), FanotifyError> {
        let done = self.change(libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM, path);
        done.map_err(|source| FanotifyError::Mark { path: path.to_owned(), source })
    }

    fn change(&self, flags: libc::c_uint, path: &Path) -> io::Result<()> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let group = self.group.as_raw_fd();
        // SAFETY: the path is terminated by a zero and lives across the call.
        let done = unsafe {
            libc::fanotify_mark(group, flags, libc::FAN_OPEN_PERM, libc::AT_FDCWD, path.as_ptr())
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Takes all marks back: nobody comes to wait from now on.
    pub fn unmark_all(&self) {
        // It has been allowed before.
        let _ = self.change(libc::FAN_MARK_FLUSH | libc::FAN_MARK_FILESYSTEM, Path::new("/"));
    }

    /// A process that has come to wait; none if nobody has. Waits for a lease of the file to be given back.
    /// One at a time: others that were read together would wait for that, too.
    ///
    /// # Errors
    /// `Resources` or `Unreadable`; some process was refused by the kernel then.
    pub fn read(&self) -> Result<Option<FileOpening>, FanotifyError> {
        let mut buffer = [0; METADATA_BYTES];
        let length = match rustix::io::read(&self.group, &mut buffer) {
            Ok(length) => length,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => {
                return Err(FanotifyError::Resources(errno.into()));
            }
            Err(errno) => return Err(FanotifyError::Unreadable(errno.into())),
        };
        Ok(events(&buffer[..length]).next().and_then(|event| self.opening(event)))
    }

    fn opening(&self, event: Event) -> Option<FileOpening> {
        // Without a descriptor it only says that the queue ran over; those opens were let.
        if event.fd < 0 {
            return None;
        }
        // SAFETY: the kernel made the descriptor for this event and gives it out once.
        let file = unsafe { File::from_raw_fd(event.fd) };
        let answer =
            Answer { descriptor: event.fd, pid: event.pid, group: Arc::clone(&self.group) };
        let opening = FileOpening { file: Arc::new(file), answer };
        // Dropping it lets the process, whatever this event is.
        (event.mask & libc::FAN_OPEN_PERM != 0).then_some(opening)
    }
}

impl AsRawFd for FileNotifier {
    fn as_raw_fd(&self) -> RawFd {
        self.group.as_raw_fd()
    }
}

fn init_error(source: io::Error) -> FanotifyError {
    match source.raw_os_error() {
        Some(libc::EPERM) => FanotifyError::Privilege,
        Some(libc::EINVAL | libc::ENOSYS) => FanotifyError::Unsupported,
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => FanotifyError::Resources(source),
        _ => FanotifyError::System { what: "watch files being opened", source },
    }
}

/// The part of an event that counts here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Event {
    mask: u64,
    fd: RawFd,
    pid: i32,
}

/// The whole events at the beginning of what was read; ends at what this version does not know.
fn events(mut bytes: &[u8]) -> impl Iterator<Item = Event> + '_ {
    std::iter::from_fn(move || {
        let (length, event) = first_event(bytes)?;
        bytes = &bytes[length..];
        Some(event)
    })
}

fn first_event(bytes: &[u8]) -> Option<(usize, Event)> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let length = usize::try_from(word(0)?).ok()?;
    let mask = u64::from_ne_bytes(bytes.get(8..16)?.try_into().ok()?);
    let (fd, pid) = (word(16)?.cast_signed(), word(20)?.cast_signed());
    let known = bytes[4] == libc::FANOTIFY_METADATA_VERSION;
    let whole = (METADATA_BYTES..=bytes.len()).contains(&length);
    (known && whole).then_some((length, Event { mask, fd, pid }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two events as Linux 6.18 wrote them: cat(1) being executed, and its loader.
    const RECORDED: [u8; 48] = [
        0x18, 0, 0, 0, 3, 0, 0x18, 0, 0, 0, 1, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0x11, 0x2c, 0, 0, //
        0x18, 0, 0, 0, 3, 0, 0x18, 0, 0, 0, 1, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0x8f, 0x2a, 0, 0,
    ];

    #[test]
    fn recorded_events_are_read() {
        let found: Vec<Event> = events(&RECORDED).collect();
        let event = |fd, pid| Event { mask: libc::FAN_OPEN_PERM, fd, pid };
        assert_eq!(found, [event(4, 11_281), event(5, 10_895)]);
    }

    #[test]
    fn damaged_events_end_the_list() {
        for cut in [0, 1, 23] {
            assert_eq!(events(&RECORDED[..cut]).count(), 0, "{cut} bytes");
            assert_eq!(events(&RECORDED[..24 + cut]).count(), 1, "24 + {cut} bytes");
        }
        for (at, value) in [(0, 23), (0, 0), (1, 1), (4, 2)] {
            let mut bytes = RECORDED;
            bytes[at] = value;
            assert_eq!(events(&bytes).count(), 0, "byte {at} is {value}");
        }
    }

    #[test]
    fn longer_events_are_stepped_over() {
        let mut bytes = RECORDED[..24].to_vec();
        bytes[0] = 32;
        bytes.extend([9; 8]);
        bytes.extend(&RECORDED[24..]);
        let pids: Vec<i32> = events(&bytes).map(|event| event.pid).collect();
        assert_eq!(pids, [11_281, 10_895]);
    }

    #[test]
    fn the_answer_is_that_of_the_kernel_s_header() {
        assert_eq!(size_of::<libc::fanotify_event_metadata>(), METADATA_BYTES);
        assert_eq!(size_of::<libc::fanotify_response>(), allow(7).len());
        assert_eq!(allow(7), [7, 0, 0, 0, 1, 0, 0, 0]);
    }

    #[test]
    fn errors_say_what_is_missing() {
        let text = |errno| init_error(io::Error::from_raw_os_error(errno)).to_string();
        assert!(text(libc::EPERM).contains("as root"));
        assert!(text(libc::EINVAL).contains("CONFIG_FANOTIFY_ACCESS_PERMISSIONS"));
        assert!(text(libc::EMFILE).contains("ulimit"));
    }
}
