//! Reads that a process can hold up: its memory may lie in a file system of its own (FUSE), which answers when it
//! likes. Another thread reads, and who asks waits for a moment only.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// What a read may take: the kernel answers in 20 us, and in milliseconds where a program maps much at that moment.
const PATIENCE: Duration = Duration::from_millis(100);
/// Reads without an answer at most, each of which keeps a thread. The more there are the less the next may take.
const MOST_STUCK: usize = 32;

/// Reads that have no answer yet, and that nobody waits for any more.
static STUCK: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static READER: RefCell<Option<Reader>> = const { RefCell::new(None) };
}

/// A thread that reads for another one.
struct Reader {
    asked: Sender<(PathBuf, u64)>,
    answers: Receiver<io::Result<Vec<u8>>>,
    left: Arc<AtomicBool>,
    stuck: &'static AtomicUsize,
}

/// The first `most` bytes of a file, if they come within a tenth of a second.
///
/// # Errors
/// `TimedOut` if they do not, or if too many reads have no answer; and what opening and reading fail of.
pub(super) fn read_start(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_counted(&STUCK, path, most)
}

/// The same, by this number of reads that have no answer.
fn read_counted(stuck: &'static AtomicUsize, path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let others = stuck.load(Ordering::Relaxed);
    if others >= MOST_STUCK {
        return Err(ErrorKind::TimedOut.into());
    }
    READER.with_borrow_mut(|own| {
        let reader = own.take().map_or_else(|| Reader::start(stuck), Ok)?;
        let answer = reader.ask(path, most, PATIENCE / (others as u32 + 1));
        // One that has not answered is left to itself.
        *own = answer.is_some().then_some(reader);
        answer.unwrap_or_else(|| Err(ErrorKind::TimedOut.into()))
    })
}

impl Reader {
    fn start(stuck: &'static AtomicUsize) -> io::Result<Reader> {
        let ((asked, asks), (answer, answers)) = (channel(), channel());
        let left = Arc::new(AtomicBool::new(false));
        let own = Arc::clone(&left);
        let name = "huepage-reader".to_owned();
        thread::Builder::new().name(name).spawn(move || {
            answer_all(&asks, &answer);
            if own.load(Ordering::Acquire) {
                stuck.fetch_sub(1, Ordering::Relaxed);
            }
        })?;
        Ok(Reader { asked, answers, left, stuck })
    }

    /// The answer, if it comes in time.
    fn ask(&self, path: &Path, most: u64, patience: Duration) -> Option<io::Result<Vec<u8>>> {
        if self.asked.send((path.to_owned(), most)).is_err() {
            return Some(Err(ErrorKind::BrokenPipe.into()));
        }
        match self.answers.recv_timeout(patience) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Disconnected) => Some(Err(ErrorKind::BrokenPipe.into())),
            Err(RecvTimeoutError::Timeout) => {
                self.stuck.fetch_add(1, Ordering::Relaxed);
                self.left.store(true, Ordering::Release);
                None
            }
        }
    }
}

/// Reads what is asked for until nobody asks any more.
fn answer_all(asks: &Receiver<(PathBuf, u64)>, answer: &Sender<io::Result<Vec<u8>>>) {
    for (path, most) in asks {
        let mut bytes = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(most).read_to_end(&mut bytes));
        if answer.send(read.map(|_| bytes)).is_err() {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    static COUNT: AtomicUsize = AtomicUsize::new(0);

    /// A pipe without a writer is as slow as a file system can be.
    #[test]
    fn who_never_answers_holds_nobody_up() {
        let dir = tempfile::tempdir().expect("a directory");
        let [pipe, file] = ["pipe", "file"].map(|name| dir.path().join(name));
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("coreutils").success());
        std::fs::write(&file, "words").expect("written");
        let began = Instant::now();
        for _ in 0..2 * MOST_STUCK {
            let error = read_counted(&COUNT, &pipe, 9).expect_err("nobody writes");
            assert_eq!(error.kind(), ErrorKind::TimedOut);
        }
        // A tenth of a second, a half of it, a third and so on: less than half a second in all.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert_eq!(COUNT.load(Ordering::Relaxed), MOST_STUCK);
        assert!(read_counted(&COUNT, &file, 9).is_err(), "none is started while so many are stuck");
        // All who wait for the pipe read its end.
        while COUNT.load(Ordering::Relaxed) > 0 {
            drop(std::fs::OpenOptions::new().write(true).open(&pipe).expect("readers wait"));
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(read_counted(&COUNT, &file, 3).expect("answered"), b"wor");
        let missing = read_counted(&COUNT, &dir.path().join("none"), 3).expect_err("no file");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }
}
