//! How many files this process may have open, and threads with descriptors of their own.

use std::fs::File;
use std::io;
use std::os::fd::RawFd;

use rustix::process::{
    PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, getpid, getrlimit, pidfd_getfd, pidfd_open,
    setrlimit,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Allows this process as many open files as it may allow itself: a process that is confined takes seven, and
/// shells give 1,024. Programs that it starts inherit that; `inject::launch` gives them what there was before.
pub fn allow_most_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // It goes on with what it has; what fails then says so.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// Gives this thread, and those that it starts, descriptors of their own: copies of those that there are now.
/// What it cannot close, because a disk holds it up, nobody else has to wait for then.
///
/// # Errors
/// When the kernel has no memory for it.
pub fn separate_descriptors() -> io::Result<()> {
    // SAFETY: every descriptor that anybody knows stays what it is, here and there; from now on an owner
    // closes that of its own thread, so that at worst one of them stays open.
    unsafe { unshare_unsafe(UnshareFlags::FILES) }?;
    Ok(())
}

/// The open file that is this descriptor of the process's first thread, in this thread's descriptors.
///
/// # Errors
/// When there is none, or there are no descriptors left.
pub fn file_of_first_thread(descriptor: RawFd) -> io::Result<File> {
    let process = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(process, descriptor, PidfdGetfdFlags::empty())?.into())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _, Write as _};
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn files_of_the_first_thread_are_had_by_one_that_has_its_own() {
        let (say, numbers) = std::sync::mpsc::channel();
        let (ready, separate) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            separate_descriptors().unwrap();
            ready.send(()).unwrap();
            let number: RawFd = numbers.recv().unwrap();
            let known = || std::fs::read_link(format!("/proc/thread-self/fd/{number}"));
            let before = known().ok();
            let mut file = file_of_first_thread(number).unwrap();
            file.rewind().unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            (before, text)
        });
        separate.recv().unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"one file").unwrap();
        say.send(file.as_file().as_raw_fd()).unwrap();
        let (before, text) = thread.join().unwrap();
        assert_ne!(before.as_deref(), Some(file.path()), "opened after they were separate");
        assert_eq!(text, "one file");
    }

    #[test]
    fn the_limit_that_can_be_had_is_taken() {
        allow_most_files();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
    }
}
