//! Ends a simulation in good order when a signal asks for it.

use huepage_sim::record::Record;
use huepage_sim::schedule::{AccessSource, BoxedSource};
use huepage_sim::workloads::FileNumber;

use crate::exit::{CmdError, ExitCode};
use crate::signals::Interrupt;

/// Has a source end with an error once the end was asked for.
pub fn guard<'a>(
    source: BoxedSource<'static, CmdError>,
    interrupt: &'a Interrupt,
) -> BoxedSource<'a, CmdError> {
    Box::new(Guarded { source, interrupt })
}

struct Guarded<'a> {
    source: BoxedSource<'static, CmdError>,
    interrupt: &'a Interrupt,
}

impl AccessSource<CmdError> for Guarded<'_> {
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

    fn deletions(&self) -> &[(usize, FileNumber)] {
        self.source.deletions()
    }
}
