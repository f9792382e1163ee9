//! Reading ahead: a thread that decodes the next batches while the present ones are used. On
//! a machine with a free processor, reading a trace then takes no time of its own.

use std::io;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use super::{Batches, TraceError};
use crate::record::Record;

/// Batches that may wait: 64 KiB each, so that all of them stay in a shared cache.
const WAITING: usize = 4;

type Batch = Result<Vec<Record>, TraceError>;

/// The batches of another reader, in the same order, read by a thread of its own. Dropping it
/// ends the thread at its next batch.
#[derive(Debug)]
pub struct Ahead {
    full: Receiver<Batch>,
    /// Used batches go back, so that none is allocated anew.
    empty: Sender<Vec<Record>>,
}

impl Ahead {
    /// Begins to read.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub fn new(trace: Box<dyn Batches + Send>) -> io::Result<Ahead> {
        let (sender, full) = sync_channel(WAITING);
        let (empty, used) = channel();
        let name = "decoder".to_owned();
        thread::Builder::new().name(name).spawn(move || read(trace, &sender, &used))?;
        Ok(Ahead { full, empty })
    }
}

/// Sends batches until the trace ends, an error came, or nobody listens.
fn read(
    mut trace: Box<dyn Batches + Send>,
    full: &SyncSender<Batch>,
    used: &Receiver<Vec<Record>>,
) {
    loop {
        let mut batch = used.try_recv().unwrap_or_default();
        let more = match trace.next_batch(&mut batch) {
            Ok(true) => full.send(Ok(batch)),
            Ok(false) => return,
            Err(error) => return drop(full.send(Err(error))),
        };
        if more.is_err() {
            return;
        }
    }
}

impl Batches for Ahead {
    fn next_batch(&mut self, out: &mut Vec<Record>) -> Result<bool, TraceError> {
        let Ok(batch) = self.full.recv() else {
            out.clear();
            return Ok(false);
        };
        let used = std::mem::take(out);
        *out = batch?;
        // The thread may have come to the end and gone.
        let _ = self.empty.send(used);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
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
