//! Accesses longer than a line of most caches, as several records side by side, none of which
//! reaches across the end of a line: of a record caches are asked for its first line and its last.
//! Dividing is all that happens here.

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
    #[expect(clippy::cast_possible_truncation, reason = "below the length of a piece")]
    pub fn take(&mut self) -> Option<Record> {
        let place = usize::from(self.left[0].is_none());
        let (record, length) = self.left[place].take()?;
        let to_end = PIECE - (record.address.0 % u64::from(PIECE)) as u32;
        let bytes = if length <= PIECE { length } else { to_end };
        if bytes < length {
            let address = VirtAddr(record.address.0.wrapping_add(u64::from(bytes)));
            let rest = Record { address, instructions: 0, ..record };
            self.left[place] = Some((rest, length - bytes));
        }
        Some(Record { bytes: u8::try_from(bytes).unwrap_or(u8::MAX), ..record })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::AccessKind;

    fn pieces(address: u64, length: u32) -> Vec<(u64, u8)> {
        let mut pieces = Pieces::new((Record::plain(address, AccessKind::Load), length), None);
        std::iter::from_fn(|| pieces.take()).map(|of| (of.address.0, of.bytes)).collect()
    }

    #[test]
    fn no_piece_of_a_long_access_crosses_a_line() {
        assert_eq!(pieces(60, 8), [(60, 8)], "as programs access it");
        assert_eq!(pieces(1000, 64), [(1000, 64)]);
        assert_eq!(pieces(1000, 192), [(1000, 24), (1024, 64), (1088, 64), (1152, 40)]);
        let all = pieces(0, LONGEST);
        assert!(all.len() == 1024 && all.iter().all(|of| of.1 == 64));
    }
}
