//! Reads the kernel's list of areas with their flags (`/proc/PID/smaps`) byte by byte, without
//! memory of its own to allocate. Compiled into the agent, and into the tests.

/// Longest part of a line that is looked at: all flags that exist fit.
const LINE: usize = 256;

/// Puts lines together and remembers which area they speak of. Lines longer than what is looked
/// at are cut.
pub struct Lines {
    line: [u8; LINE],
    len: usize,
    area: (u64, u64),
}

impl Lines {
    pub const EMPTY: Lines = Lines { line: [0; LINE], len: 0, area: (0, 0) };

    /// Takes the next byte; calls `each` with start and end of an area that is wiped on fork
    /// at the end of the line that says so.
    pub fn take(&mut self, byte: u8, each: &mut impl FnMut(u64, u64)) {
        if byte != b'\n' {
            if let Some(place) = self.line.get_mut(self.len) {
                *place = byte;
                self.len += 1;
            }
            return;
        }
        let line = self.line.iter().take(self.len);
        // Fields begin with a capital letter, an area with its address.
        if self.line[0] != b'V' {
            if !self.line[0].is_ascii_uppercase() {
                self.area = bounds(line.copied());
            }
        } else if has_flag(line.copied()) {
            each(self.area.0, self.area.1);
        }
        self.len = 0;
    }
}

/// The two numbers of `start-end …`.
fn bounds(line: impl Iterator<Item = u8>) -> (u64, u64) {
    let mut ends = (0, 0);
    for byte in line {
        match byte {
            b'-' => ends = (ends.1, 0),
            b'0'..=b'9' => ends.1 = ends.1 << 4 | u64::from(byte - b'0'),
            b'a'..=b'f' => ends.1 = ends.1 << 4 | u64::from(byte - b'a' + 10),
            _ => break,
        }
    }
    ends
}

/// Whether the word `wf`, wiped on fork, is on the line.
fn has_flag(line: impl Iterator<Item = u8>) -> bool {
    let mut last = [b' '; 3];
    for byte in line.chain([b' ']) {
        if last == *b" wf" && byte == b' ' {
            return true;
        }
        last = [last[1], last[2], byte];
    }
    false
}
