//! Reading ahead: a thread that decodes the next batches while the present ones are used. On
//! a machine with a free processor, reading a trace then takes no time of its own.
//!
//! To wake a thread on another processor takes as long as a simulation of hundreds of accesses, in a virtual
//! machine of thousands. So the reader stops only when much waits, and goes on when little is left.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::{Batches, TraceError};
use crate::record::Record;

/// Batches that may wait, of some 100 KiB each: together they stay in a shared cache.
const MOST_WAITING: usize = 32;
/// Waiting batches at which the reader goes on.
const FEW_WAITING: usize = 8;

type Batch = Result<Vec<Record>, TraceError>;

/// The batches of another reader, in the same order, read by a thread of its own. Dropping it
/// ends the thread at its next batch.
#[derive(Debug)]
pub struct Ahead {
    queue: Arc<Queue>,
}

/// What the two threads share.
#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    /// Something waits, or the end has come.
    filled: Condvar,
    /// Little waits, or nobody wants more.
    drained: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Batch>,
    /// Used batches, so that none is allocated anew.
    used: Vec<Vec<Record>>,
    /// Nothing more comes.
    is_over: bool,
    /// Nobody wants more.
    is_left: bool,
}

impl Ahead {
    /// Begins to read.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub fn new(trace: Box<dyn Batches + Send>) -> io::Result<Ahead> {
        let queue = Arc::new(Queue::default());
        let end = WriteEnd(queue.clone());
        thread::Builder::new().name("decoder".to_owned()).spawn(move || end.read(trace))?;
        Ok(Ahead { queue })
    }
}

impl Queue {
    /// Nobody panics who holds it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reader's end of a queue. Once it is dropped nothing more comes; where the reader panicked, an error.
struct WriteEnd(Arc<Queue>);

impl WriteEnd {
    /// Reads until the trace ends, an error came, or nobody wants more.
    fn read(&self, mut trace: Box<dyn Batches + Send>) {
        let mut batch = Vec::new();
        loop {
            match trace.next_batch(&mut batch) {
                Ok(true) => match self.pass(batch) {
                    Some(empty) => batch = empty,
                    None => return,
                },
                Ok(false) => return,
                Err(error) => return self.0.lock().waiting.push_back(Err(error)),
            }
        }
    }

    /// Puts a batch into the queue; gives a used one for the next, or none when nobody wants more.
    fn pass(&self, batch: Vec<Record>) -> Option<Vec<Record>> {
        let mut state = self.0.lock();
        state.waiting.push_back(Ok(batch));
        if state.waiting.len() == 1 {
            self.0.filled.notify_one();
        }
        if state.waiting.len() >= MOST_WAITING {
            let many = |state: &mut State| state.waiting.len() > FEW_WAITING && !state.is_left;
            let woken = self.0.drained.wait_while(state, many);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        (!state.is_left).then(|| state.used.pop().unwrap_or_default())
    }
}

impl Drop for WriteEnd {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if thread::panicking() {
            let source = io::Error::other("what reads it ended by an error of its own");
            state.waiting.push_back(Err(TraceError::Read { offset: 0, source }));
        }
        state.is_over = true;
        self.0.filled.notify_one();
    }
}

impl Batches for Ahead {
    fn next_batch(&mut self, out: &mut Vec<Record>) -> Result<bool, TraceError> {
        let mut state = self.queue.lock();
        state.used.push(std::mem::take(out));
        let none = |state: &mut State| state.waiting.is_empty() && !state.is_over;
        let woken = self.queue.filled.wait_while(state, none);
        state = woken.unwrap_or_else(PoisonError::into_inner);
        let Some(batch) = state.waiting.pop_front() else { return Ok(false) };
        if state.waiting.len() == FEW_WAITING {
            self.queue.drained.notify_one();
        }
        *out = batch?;
        Ok(true)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.queue.lock().is_left = true;
        self.queue.drained.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::record::AccessKind;

    /// So many batches of three, then the end or an error.
    struct Few(u64, bool);

    impl Batches for Few {
        fn next_batch(&mut self, out: &mut Vec<Record>) -> Result<bool, TraceError> {
            out.clear();
            if self.0 == 0 {
                let wrong = || TraceError::Bytes { offset: 7, what: "bad".to_owned() };
                return if self.1 { Err(wrong()) } else { Ok(false) };
            }
            self.0 -= 1;
            out.extend((0..3).map(|i| Record::plain(self.0 * 3 + 2 - i, AccessKind::Load)));
            Ok(true)
        }
    }

    fn all(few: Few) -> (Vec<u64>, Result<bool, String>) {
        let mut ahead = Ahead::new(Box::new(few)).unwrap();
        let (mut batch, mut found) = (Vec::new(), Vec::new());
        loop {
            match ahead.next_batch(&mut batch) {
                Ok(true) => found.extend(batch.iter().map(|record| record.address.0)),
                end => {
                    assert!(batch.is_empty(), "no records come with the end");
                    assert!(matches!(ahead.next_batch(&mut batch), Ok(false)), "and none later");
                    return (found, end.map_err(|error| error.to_string()));
                }
            }
        }
    }

    #[test]
    fn the_same_records_come_in_the_same_order() {
        let (found, end) = all(Few(100, false));
        assert_eq!(found, (0..300).rev().collect::<Vec<_>>());
        assert_eq!(end, Ok(false));
    }

    #[test]
    fn everything_before_an_error_comes_before_it() {
        let (found, end) = all(Few(20, true));
        assert_eq!(found.len(), 60);
        assert_eq!(end, Err("offset 7: bad".to_owned()));
    }

    #[test]
    fn many_more_than_may_wait_come_as_well() {
        let batches = 5 * MOST_WAITING as u64;
        let (found, end) = all(Few(batches, true));
        assert_eq!(found, (0..3 * batches).rev().collect::<Vec<_>>());
        assert!(end.is_err());
    }

    #[test]
    fn a_reader_that_panics_is_no_end_of_a_trace() {
        struct Broken;
        impl Batches for Broken {
            fn next_batch(&mut self, _: &mut Vec<Record>) -> Result<bool, TraceError> {
                panic!("as this test wants it");
            }
        }
        let mut ahead = Ahead::new(Box::new(Broken)).unwrap();
        assert!(ahead.next_batch(&mut Vec::new()).is_err());
        assert!(matches!(ahead.next_batch(&mut Vec::new()), Ok(false)));
    }

    #[test]
    fn one_who_stops_listening_stops_the_thread() {
        let (told, dropped) = channel::<()>();
        struct Endless(#[allow(dead_code, reason = "dropped with the thread")] Sender<()>);
        impl Batches for Endless {
            fn next_batch(&mut self, out: &mut Vec<Record>) -> Result<bool, TraceError> {
                out.push(Record::plain(1, AccessKind::Load));
                Ok(true)
            }
        }
        drop(Ahead::new(Box::new(Endless(told))).unwrap());
        assert!(dropped.recv().is_err(), "the thread has let go of the trace");
    }
}
