//! Accesses longer than a record can say, as several records side by side. Dividing is all
//! that happens here.

use huepage_color::VirtAddr;

use crate::record::Record;

/// Bytes of a piece: a line of most caches.
const PIECE: u32 = 64;
/// What an x86 `xsave` touches at most; a longer access is damage.
pub const LONGEST: u32 = 1 << 16;

/// What is left of one or two accesses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pieces {
    left: [Option<(Record, u32)>; 2],
}

impl Pieces {
    /// An access, and another that follows it.
    pub const fn new(first: (Record, u32), second: Option<(Record, u32)>) -> Pieces {
        Pieces { left: [Some(first), second] }
    }

    /// The next record. Only the first of an access counts its instructions.
    pub fn take(&mut self) -> Option<Record> {
        let place = usize::from(self.left[0].is_none());
        let (record, length) = self.left[place].take()?;
        if let Ok(bytes) = u8::try_from(length) {
            return Some(Record { bytes, ..record });
        }
        let address = VirtAddr(record.address.0.wrapping_add(u64::from(PIECE)));
        let rest = Record { address, instructions: 0, ..record };
        self.left[place] = Some((rest, length - PIECE));
        Some(Record { bytes: u8::try_from(PIECE).unwrap_or(u8::MAX), ..record })
    }
}
