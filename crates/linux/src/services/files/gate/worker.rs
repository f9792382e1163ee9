//! The placer's thread: takes files from the queue slice by slice, hands them to whoever places
//! them, and tells what became of it. A file that was removed is left, and between two slices one
//! that nobody has opened who still lives. It may wait for disks; nobody waits for it for longer than
//! the doorman allows.

use std::os::fd::AsRawFd;
use std::time::Duration;

use super::wait_queue::{GateEvent, Next, Task, WaitQueue};
use crate::kernel::mappers::FileId;
use crate::kernel::procfs::pidfd;
use crate::kernel::wait::ready;
use crate::services::files::scans::is_removed;
use crate::services::files::{FileCacheError, PlacementTally};

/// How often there is a look at what is not a file to be placed.
const TICK_INTERVAL: Duration = Duration::from_millis(250);

/// A file whose openers have all ended goes on for so long: the next program of a script may open it.
const LEFT_AFTER: Duration = Duration::from_millis(200);

/// What became of a slice of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// Its pages.
    pub tally: PlacementTally,
    /// Pages that were left as they are not on the disk yet; not in the tally.
    pub unwritten: u64,
    /// The page to go on with.
    pub next: u64,
}

/// Places files. Its methods are called on one thread only.
pub trait PlacementWork {
    /// Places some pages of a file from `task.next` on, and says which is next; that may be behind
    /// the end. `alive` is to be called whenever some of them are on their way: what takes long in
    /// between counts as stuck, and nobody waits for that.
    ///
    /// # Errors
    /// When nothing can be placed; the rest of this file is given up then.
    fn slice(&mut self, task: &Task, alive: &dyn Fn()) -> Result<Slice, FileCacheError>;

    /// A file that is placed was opened once more.
    fn opened(&mut self, file: FileId);

    /// The rest of a file is not placed.
    fn left(&mut self, file: FileId);

    /// A process of the group has ended.
    fn ended(&mut self, process: u32);

    /// Called between slices and a few times a second; pages that were spread, of which there are
    /// few at a time.
    ///
    /// # Errors
    /// When nothing can be placed.
    fn tick(&mut self) -> Result<u64, FileCacheError>;

    /// Whether there is more to do at the next tick.
    fn is_busy(&self) -> bool {
        false
    }
}

/// Works until the queue is closed.
pub fn serve(queue: &WaitQueue, work: &mut impl PlacementWork) {
    loop {
        let next = queue.next(if work.is_busy() { Duration::ZERO } else { TICK_INTERVAL });
        let (opened, ended) = queue.take_events();
        opened.into_iter().for_each(|file| work.opened(file));
        ended.into_iter().for_each(|process| work.ended(process));
        match next {
            Next::Close => return queue.clear(),
            Next::Idle => {}
            Next::Task(task) => work_on(queue, work, task),
        }
        queue.begin();
        match work.tick() {
            Ok(0) => queue.over(None, []),
            Ok(spread) => queue.over(None, [GateEvent::Spread(spread)]),
            Err(error) => queue.over(None, [GateEvent::Trouble(error.to_string())]),
        }
    }
}

fn work_on(queue: &WaitQueue, work: &mut impl PlacementWork, mut task: Task) {
    let (id, version, pages) = (task.id, task.version, task.pages());
    if is_removed(&task.file) || task.next > 0 && queue.is_left(id, LEFT_AFTER, lives) {
        work.left(id);
        queue.over(None, [GateEvent::Left(id, version)]);
        return;
    }
    match work.slice(&task, &|| queue.begin()) {
        Ok(slice) if slice.next >= pages => {
            drop(task);
            let slice = GateEvent::Slice(slice.tally, slice.unwritten);
            queue.over(None, [slice, GateEvent::Done(id, version)]);
        }
        Ok(slice) => {
            task.next = slice.next.max(task.next + 1);
            queue.over(Some(task), [GateEvent::Slice(slice.tally, slice.unwritten)]);
        }
        Err(error) => {
            work.left(id);
            queue.over(None, [GateEvent::Failed(id, version, error.to_string())]);
        }
    }
}

/// Whether a process has not ended, nor waits for its parent to hear of its end.
fn lives(process: u32) -> bool {
    match pidfd(process.cast_signed()) {
        Ok(process) => !ready(&[(process.as_raw_fd(), libc::POLLIN)], Duration::ZERO)[0],
        Err(error) => error.raw_os_error() != Some(libc::ESRCH),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tempfile::NamedTempFile;

    use super::super::filter::Version;
    use super::super::wait_queue::Arrival;
    use super::*;

    /// Places two pages at a time, and fails at the fourth slice.
    #[derive(Default)]
    struct Pairs {
        slices: Vec<(u64, u64)>,
        opened: Vec<u64>,
        left: Vec<u64>,
        ended: Vec<u32>,
    }

    impl PlacementWork for Pairs {
        fn slice(&mut self, task: &Task, _: &dyn Fn()) -> Result<Slice, FileCacheError> {
            self.slices.push((task.id.inode, task.next));
            if self.slices.len() == 4 {
                return Err(FileCacheError::NoFrames { limit: 1 });
            }
            let tally = PlacementTally { pages: 2, placed: 2, ..PlacementTally::default() };
            Ok(Slice { tally, next: task.next + 2, unwritten: 0 })
        }

        fn opened(&mut self, file: FileId) {
            self.opened.push(file.inode);
        }

        fn left(&mut self, file: FileId) {
            self.left.push(file.inode);
        }

        fn ended(&mut self, process: u32) {
            self.ended.push(process);
        }

        fn tick(&mut self) -> Result<u64, FileCacheError> {
            Ok(0)
        }
    }

    /// Of a file that is open and has a name until what is returned goes.
    fn arrival(inode: u64, pages: u64) -> (NamedTempFile, Arrival) {
        let file = NamedTempFile::new().unwrap();
        file.as_file().set_len(pages * 4096).unwrap();
        let version = Version::from_metadata(&file.as_file().metadata().unwrap());
        let (id, until) = (FileId { device: 1, inode }, Instant::now());
        let (process, descriptor) = (std::process::id(), file.as_file().as_raw_fd());
        (file, Arrival { id, descriptor, version, process, until })
    }

    fn put(queue: &WaitQueue, inode: u64, pages: u64) -> NamedTempFile {
        let (name, arrival) = arrival(inode, pages);
        queue.put(arrival);
        name
    }

    /// Takes the next file and works on it; where it was begun, and what there is to tell of it.
    fn step(queue: &WaitQueue, work: &mut Pairs) -> (u64, Vec<GateEvent>) {
        let Next::Task(task) = queue.next(Duration::ZERO) else { panic!("nothing to do") };
        let next = task.next;
        work_on(queue, work, task);
        (next, queue.events())
    }

    #[test]
    fn a_file_that_is_removed_is_left() {
        let (queue, mut work) = (WaitQueue::new().unwrap(), Pairs::default());
        let name = put(&queue, 1, 1000);
        assert_eq!(step(&queue, &mut work).0, 0);
        drop(name);
        let (next, events) = step(&queue, &mut work);
        assert!(matches!(events[..], [GateEvent::Left(FileId { inode: 1, .. }, _)]), "{events:?}");
        assert_eq!((next, work.slices.len(), &work.left[..]), (2, 1, &[1][..]));
        assert!(matches!(queue.next(Duration::ZERO), Next::Idle));
    }

    #[test]
    fn a_file_is_left_between_slices_when_who_opened_it_has_ended() {
        let (queue, mut work) = (WaitQueue::new().unwrap(), Pairs::default());
        let mut opener = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let (_name, arrival) = arrival(1, 1000);
        let id = arrival.id;
        queue.put(Arrival { process: opener.id(), ..arrival });
        assert_eq!([step(&queue, &mut work).0, step(&queue, &mut work).0], [0, 2]);
        opener.kill().unwrap();
        let end = pidfd(opener.id().cast_signed()).unwrap();
        ready(&[(end.as_raw_fd(), libc::POLLIN)], Duration::from_secs(60));
        assert!(!lives(opener.id()), "not reaped yet");
        opener.wait().unwrap();
        assert!(!lives(opener.id()));
        queue.joined(id, std::process::id());
        assert_eq!(step(&queue, &mut work).0, 4, "opened again");
        assert!(!queue.is_left(id, LEFT_AFTER, |_| false));
        std::thread::sleep(LEFT_AFTER);
        let (_, events) = step(&queue, &mut work);
        assert!(matches!(events[..], [GateEvent::Left(..)]), "{events:?}");
    }

    #[test]
    fn files_are_worked_on_in_slices_and_in_turns_until_the_desk_is_closed() {
        let (queue, mut work) = (WaitQueue::new().unwrap(), Pairs::default());
        let _names = [put(&queue, 1, 3), put(&queue, 2, 6)];
        queue.opened(FileId { device: 1, inode: 3 });
        queue.ended(vec![5]);
        let events = std::thread::scope(|scope| {
            scope.spawn(|| serve(&queue, &mut work));
            let (mut events, start) = (Vec::new(), Instant::now());
            while !events.iter().any(|n| matches!(n, GateEvent::Failed(..))) {
                events.extend(queue.events());
                assert!(start.elapsed() < Duration::from_secs(10), "{events:?}");
                std::thread::sleep(Duration::from_millis(1));
            }
            queue.close();
            events
        });
        assert_eq!(work.slices, [(1, 0), (2, 0), (1, 2), (2, 2)]);
        assert_eq!((&work.opened[..], &work.ended[..]), (&[3][..], &[5][..]));
        assert_eq!(work.left, [2], "it failed");
        let done = |n: &&GateEvent| matches!(n, GateEvent::Done(FileId { inode: 1, .. }, _));
        assert_eq!(events.iter().filter(done).count(), 1, "{events:?}");
        assert_eq!(events.iter().filter(|n| matches!(n, GateEvent::Slice(..))).count(), 3);
    }
}
