//! Ends a simulation in good order when a signal asks for it.

use huepage_sim::record::Record;
use huepage_sim::schedule::Source;
use huepage_sim::workloads::FileId;

use super::source::Boxed;
use crate::exit::{CmdError, ExitCode};
use crate::signals::Interrupt;

/// Has a source end with an error once the end was asked for.
pub fn guard(source: Boxed, interrupt: &Interrupt) -> Box<dyn Source<CmdError> + '_> {
    Box::new(Guarded { source, interrupt })
}

struct Guarded<'a> {
    source: Boxed,
    interrupt: &'a Interrupt,
}

impl Source<CmdError> for Guarded<'_> {
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<bool, CmdError> {
        match self.interrupt.signal() {
            None => self.source.next(batch),
            Some(signal) => Err(CmdError::new(
                ExitCode::Internal,
                format!("ended by signal {signal}; run it again"),
            )),
        }
    }

    fn restart(&mut self) -> Result<(), CmdError> {
        self.source.restart()
    }

    fn volume(&self) -> Option<u32> {
        self.source.volume()
    }

    fn deletions(&self) -> &[(usize, FileId)] {
        self.source.deletions()
    }
}
