//! Compression by Lempel, Ziv and Welch's method with a hash table that is larger than a cache.

use super::Parameters;
use super::file::File;
use super::file_access::FileNumber;
use super::memory::{Array, Checksum, ProgramMemory};

/// Slots of the hash table; with keys of 4 bytes and codes of 2 it takes 414 KB.
const SLOTS: usize = 69_001;
/// Bytes read at a time.
const BUFFER: usize = 8192;

/// Compresses a file, `rounds` times. The size is that of the file.
///
/// Stands for compress (Romer table 3-1: a 977 KB file, working set 0.8 MB; SPEC95 in table 6-1):
/// for each byte one or more probes at a random place of a table of a hundred pages, a table
/// three times what 32 TLB entries of 4 KB cover (table 3-2: 35.2 % of the time in TLB misses).
pub fn compress<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let file = File { id: FileNumber(0), bytes: p.size, seed: p.seed };
    let mut packer = Packer::new(m);
    let mut sum = Checksum::default();
    for _ in 0..p.rounds {
        let mut out = File::create(m, FileNumber(1), 0);
        packer.pack(m, &file, &mut out, |part| sum.add(part));
        sum.add(out.bytes as u64);
        out.delete(m);
    }
    sum.value()
}

struct Packer {
    input: Array<u8>,
    output: Array<u8>,
    filled: usize,
    keys: Array<i32>,
    codes: Array<u16>,
    /// The next free code. There are 2^16; when all are used the table starts anew.
    next: u32,
}

impl Packer {
    fn new<M: ProgramMemory>(m: &mut M) -> Packer {
        let (input, output) = (m.array(BUFFER), m.array(BUFFER));
        let (keys, codes) = (m.array(SLOTS), m.array(SLOTS));
        Packer { input, output, filled: 0, keys, codes, next: 256 }
    }

    fn pack<M: ProgramMemory>(
        &mut self,
        m: &mut M,
        file: &File,
        out: &mut File,
        mut written: impl FnMut(u64),
    ) {
        self.clear(m);
        let mut prefix = None;
        for offset in (0..file.bytes).step_by(BUFFER) {
            let n = file.read(m, offset, &mut self.input, 0, BUFFER);
            for at in 0..n {
                let byte = m.load(&self.input, at);
                if let Some(code) = self.step(m, &mut prefix, byte) {
                    self.put(m, code, out, &mut written);
                }
            }
        }
        if let Some(code) = prefix {
            self.put(m, code, out, &mut written);
        }
        self.flush(m, out, &mut written);
    }

    fn clear<M: ProgramMemory>(&mut self, m: &mut M) {
        self.next = 256;
        for slot in 0..SLOTS {
            m.work(1);
            m.store(&mut self.keys, slot, -1);
        }
    }

    /// Lengthens the prefix by a byte; gives its code when the longer one is new.
    fn step<M: ProgramMemory>(
        &mut self,
        m: &mut M,
        prefix: &mut Option<u16>,
        byte: u8,
    ) -> Option<u16> {
        let Some(code) = *prefix else {
            *prefix = Some(u16::from(byte));
            return None;
        };
        let key = i32::from(byte) << 16 | i32::from(code);
        let slot = self.slot(m, key);
        if m.load(&self.keys, slot) == key {
            *prefix = Some(m.load(&self.codes, slot));
            return None;
        }
        *prefix = Some(u16::from(byte));
        match u16::try_from(self.next) {
            Ok(next) => {
                m.store(&mut self.codes, slot, next);
                m.store(&mut self.keys, slot, key);
                self.next += 1;
            }
            Err(_) => self.clear(m),
        }
        Some(code)
    }

    /// Where a key is or would go: a first place and steps of a second hash.
    fn slot<M: ProgramMemory>(&self, m: &mut M, key: i32) -> usize {
        let key_bits = key.cast_unsigned() as usize;
        let mut slot = ((key_bits >> 16) << 8 ^ key_bits & 0xffff) % SLOTS;
        let step = SLOTS - slot.max(1);
        m.work(10);
        loop {
            let here = m.load(&self.keys, slot);
            if here == key || here < 0 {
                return slot;
            }
            m.work(4);
            slot = if slot >= step { slot - step } else { slot + SLOTS - step };
        }
    }

    fn put<M: ProgramMemory>(
        &mut self,
        m: &mut M,
        code: u16,
        out: &mut File,
        written: &mut impl FnMut(u64),
    ) {
        for byte in code.to_le_bytes() {
            m.work(2);
            m.store(&mut self.output, self.filled, byte);
            self.filled += 1;
        }
        if self.filled == BUFFER {
            self.flush(m, out, written);
        }
    }

    fn flush<M: ProgramMemory>(
        &mut self,
        m: &mut M,
        out: &mut File,
        written: &mut impl FnMut(u64),
    ) {
        if self.filled > 0 {
            written(out.write(m, out.bytes, &self.output, 0..self.filled));
            self.filled = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::Native;
    use super::*;

    const CODES: usize = 1 << 16;

    /// What codes stand for, with the table started anew where the packer does.
    fn unpack(codes: &[u16]) -> Vec<u8> {
        let fresh = || (0..=255_u8).map(|byte| vec![byte]).collect::<Vec<_>>();
        let (mut table, mut out, mut last) = (fresh(), Vec::new(), None::<Vec<u8>>);
        for &code in codes {
            if table.len() == CODES && last.is_some() {
                (table, last) = (fresh(), None);
            }
            let known = table.get(usize::from(code)).cloned();
            let entry = match (known, &last) {
                (Some(entry), _) => entry,
                (None, Some(last)) => [&last[..], &last[..1]].concat(),
                (None, None) => panic!("code {code} without a past"),
            };
            if let Some(last) = last.take() {
                table.push([&last[..], &entry[..1]].concat());
            }
            out.extend(&entry);
            last = Some(entry);
        }
        out
    }

    #[test]
    fn what_is_packed_can_be_unpacked() {
        for bytes in [1, 100, 977_000] {
            let file = File { id: FileNumber(0), bytes, seed: 6 };
            let mut packer = Packer::new(&mut Native);
            packer.clear(&mut Native);
            let mut text = vec![0; bytes];
            file.text(0, &mut text);
            let (mut prefix, mut codes) = (None, Vec::new());
            for &byte in &text {
                codes.extend(packer.step(&mut Native, &mut prefix, byte));
            }
            codes.extend(prefix);
            assert_eq!(unpack(&codes), text);
            assert_eq!(bytes > 1000, codes.len() > CODES - 256, "a long text uses up all codes");
            assert!(bytes < 1000 || codes.len() * 2 < bytes / 2, "text becomes half or less");
        }
    }
}
