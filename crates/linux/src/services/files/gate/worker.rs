//! The placer's thread: takes files from the queue slice by slice, hands them to whoever places
//! them, and tells what became of it. It may wait for disks; nobody waits for it for longer than
//! the doorman allows.

use std::time::Duration;

use super::wait_queue::{GateEvent, Next, Task, WaitQueue};
use crate::kernel::mappers::FileId;
use crate::services::files::{FileCacheError, PlacementTally};

/// How often there is a look at what is not a file to be placed.
const TICK_INTERVAL: Duration = Duration::from_millis(250);

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
        Err(error) => queue.over(None, [GateEvent::Failed(id, version, error.to_string())]),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd as _;
    use std::time::Instant;

    use super::super::filter::Version;
    use super::super::wait_queue::Arrival;
    use super::*;

    /// Places two pages at a time, and fails at the fourth slice.
    #[derive(Default)]
    struct Pairs {
        slices: Vec<(u64, u64)>,
        opened: Vec<u64>,
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

        fn ended(&mut self, process: u32) {
            self.ended.push(process);
        }

        fn tick(&mut self) -> Result<u64, FileCacheError> {
            Ok(0)
        }
    }

    /// Puts a file in that stays open as long as what is given back.
    fn put(queue: &WaitQueue, inode: u64, pages: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(pages * 4096).unwrap();
        let version = Version::from_metadata(&file.metadata().unwrap());
        let (id, until) = (FileId { device: 1, inode }, Instant::now());
        queue.put(Arrival { id, descriptor: file.as_raw_fd(), version, process: 7, until });
        file
    }

    #[test]
    fn files_are_worked_on_in_slices_and_in_turns_until_the_desk_is_closed() {
        let (queue, mut work) = (WaitQueue::new().unwrap(), Pairs::default());
        let _open = [put(&queue, 1, 3), put(&queue, 2, 6)];
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
        let done = |n: &&GateEvent| matches!(n, GateEvent::Done(FileId { inode: 1, .. }, _));
        assert_eq!(events.iter().filter(done).count(), 1, "{events:?}");
        assert_eq!(events.iter().filter(|n| matches!(n, GateEvent::Slice(..))).count(), 3);
    }
}
