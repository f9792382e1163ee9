//! Instruction records of ChampSim: 64 bytes each with the instruction's address, two
//! addresses written and four read, 0 for none. Branches and registers are skipped.

use std::io::{ErrorKind, Read};

use huepage_color::VirtAddr;

use super::TraceError;
use super::lines::iterate;
use crate::record::{AccessKind, Record};

/// Bytes of an instruction.
pub(super) const RECORD: usize = 64;
/// Places of the addresses: the instruction's, then what is read, then what is written.
const PLACES: [(usize, AccessKind); 7] = [
    (0, AccessKind::Fetch),
    (32, AccessKind::Load),
    (40, AccessKind::Load),
    (48, AccessKind::Load),
    (56, AccessKind::Load),
    (16, AccessKind::Store),
    (24, AccessKind::Store),
];

/// A reader of ChampSim records, unpacked. The records name no sizes: a fetch counts as 4
/// bytes, data as 8. Each instruction is a fetch that counts one, then its loads, then its
/// stores.
#[derive(Debug)]
pub struct ChampSim<R> {
    input: R,
    record: [u8; RECORD],
    next: usize,
    offset: u64,
    ended: bool,
}

impl<R: Read> ChampSim<R> {
    /// A reader of `input`, which should be buffered.
    pub const fn new(input: R) -> ChampSim<R> {
        ChampSim { input, record: [0; RECORD], next: PLACES.len(), offset: 0, ended: false }
    }

    /// Reads one record; false at the end.
    fn fill(&mut self) -> Result<bool, TraceError> {
        let mut have = 0;
        while have < RECORD {
            match self.input.read(&mut self.record[have..]) {
                Ok(0) if have == 0 => return Ok(false),
                Ok(0) => {
                    let what = format!(
                        "{have} bytes are left at the end where an instruction has {RECORD}; the \
                         trace was cut: use the records before, or fetch it again"
                    );
                    return Err(TraceError::Bytes { offset: self.offset, what });
                }
                Ok(n) => have += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(TraceError::Read { offset: self.offset, source }),
            }
        }
        self.check()?;
        self.offset += RECORD as u64;
        Ok(true)
    }

    /// The two branch flags are all that can be told wrong.
    fn check(&self) -> Result<(), TraceError> {
        let flags = [self.record[8], self.record[9]];
        if flags.iter().all(|flag| *flag <= 1) {
            return Ok(());
        }
        let what = format!(
            "branch flags {flags:?} where 0 or 1 belongs; if this is no ChampSim trace, name its \
             format"
        );
        Err(TraceError::Bytes { offset: self.offset + 8, what })
    }

    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            let Some(&(place, kind)) = PLACES.get(self.next) else {
                if !self.fill()? {
                    return Ok(None);
                }
                self.next = 0;
                continue;
            };
            self.next += 1;
            let mut word = [0; 8];
            word.copy_from_slice(&self.record[place..place + 8]);
            let address = u64::from_le_bytes(word);
            if address != 0 || kind == AccessKind::Fetch {
                let fetch = kind == AccessKind::Fetch;
                return Ok(Some(Record {
                    address: VirtAddr(address),
                    bytes: if fetch { 4 } else { 8 },
                    instructions: u16::from(fetch),
                    ..Record::plain(0, kind)
                }));
            }
        }
    }
}

iterate!(Read: ChampSim);
