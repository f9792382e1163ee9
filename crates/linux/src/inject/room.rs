//! Where the stub goes: the end of the vDSO, which is executable and never run by the program.
//!
//! Behind the last section of its ELF image there is nothing. Where that is too little (Debian's
//! 6.12 leaves 960 bytes), behind the last byte that is loaded lie only section headers, which a
//! running program does not use; what is overwritten is put back when the session ends. The image
//! is read from the target, so every number in it is checked.
//!
//! Where the kernel makes no vDSO (booted with `vdso=0`), the last page of the program's text serves, or of the
//! loader's or the C library's, which are never unloaded: behind the segment's last byte there is nothing that is
//! ever run.

/// Where room for `bytes` begins in a vDSO of this content, aligned to a cache line; `None` when it
/// has too little.
pub fn find(image: &[u8], bytes: usize) -> Option<usize> {
    let header = Header::parse(image)?;
    let fits = |end: usize| {
        let at = end.checked_next_multiple_of(64)?;
        (at.checked_add(bytes)? <= image.len()).then_some(at)
    };
    fits(header.sections_end(image)?).or_else(|| fits(header.loaded_end(image)?))
}

/// Where room for `bytes` begins, aligned to a cache line, in an area of `length` bytes that maps a file's text from
/// `offset` on: behind the segment, within its last page, as another may be mapped next to it. The file begins with
/// `head`.
pub fn behind_text(head: &[u8], offset: u64, length: u64, bytes: usize) -> Option<u64> {
    const LOAD: usize = 1;
    const EXECUTABLE: usize = 1;
    let (table, size, count) = Header::parse(head)?.programs;
    for i in 0..count {
        let entry = table.checked_add(i.checked_mul(size)?)?;
        let field = |at: usize, n: usize| word(head, entry.checked_add(at)?, n);
        let (begin, held) = (field(8, 8)? as u64, field(32, 8)?.max(field(40, 8)?) as u64);
        if field(0, 4)? != LOAD || field(4, 4)? & EXECUTABLE == 0 || begin & !4095 != offset {
            continue;
        }
        let end = (begin - offset).checked_add(held)?;
        let (at, page) = (end.checked_next_multiple_of(64)?, end.checked_next_multiple_of(4096)?);
        return (at.checked_add(bytes as u64)? <= page.min(length)).then_some(at);
    }
    None
}

/// What the ELF header says of its two tables: where each begins, bytes an entry, entries.
struct Header {
    programs: (usize, usize, usize),
    sections: (usize, usize, usize),
}

impl Header {
    fn parse(image: &[u8]) -> Option<Header> {
        if image.get(..5)? != b"\x7fELF\x02" {
            return None;
        }
        let table = |at, size, count| {
            Some((word(image, at, 8)?, word(image, size, 2)?, word(image, count, 2)?))
        };
        Some(Header { programs: table(32, 54, 56)?, sections: table(40, 58, 60)? })
    }

    /// The end of everything that the image holds: headers, sections and their table.
    fn sections_end(&self, image: &[u8]) -> Option<usize> {
        const NOBITS: usize = 8;
        let (table, size, count) = self.sections;
        let mut end = table.checked_add(size.checked_mul(count)?)?.max(self.loaded_end(image)?);
        for i in 0..count {
            let entry = table.checked_add(i.checked_mul(size)?)?;
            if word(image, entry.checked_add(4)?, 4)? != NOBITS {
                let (at, bytes) = (entry.checked_add(24)?, entry.checked_add(32)?);
                end = end.max(word(image, at, 8)?.checked_add(word(image, bytes, 8)?)?);
            }
        }
        Some(end)
    }

    /// The end of everything that is loaded: the headers and the loaded segments.
    fn loaded_end(&self, image: &[u8]) -> Option<usize> {
        const LOAD: usize = 1;
        let (table, size, count) = self.programs;
        let mut end = table.checked_add(size.checked_mul(count)?)?.max(64);
        for i in 0..count {
            let entry = table.checked_add(i.checked_mul(size)?)?;
            if word(image, entry, 4)? == LOAD {
                let (at, bytes) = (entry.checked_add(8)?, entry.checked_add(40)?);
                end = end.max(word(image, at, 8)?.checked_add(word(image, bytes, 8)?)?);
            }
        }
        Some(end)
    }
}

/// A little-endian number of `n` bytes; `None` outside the image or above what an address holds.
fn word(image: &[u8], at: usize, n: usize) -> Option<usize> {
    let bytes = image.get(at..at.checked_add(n)?)?;
    let value = bytes.iter().rev().fold(0u64, |v, &byte| v << 8 | u64::from(byte));
    usize::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::super::stub;
    use super::*;

    fn put(image: &mut [u8], at: usize, n: usize, value: usize) {
        image[at..at + n].copy_from_slice(&value.to_le_bytes()[..n]);
    }

    /// An image of `pages` pages with one loaded segment of `loaded` bytes, and a table of
    /// `sections` entries that ends at `end`.
    fn image(pages: usize, loaded: usize, sections: usize, end: usize) -> Vec<u8> {
        let mut image = vec![0; pages * 4096];
        image[..5].copy_from_slice(b"\x7fELF\x02");
        let table = end - sections * 64;
        for (at, n, value) in [(32, 8, 64), (54, 2, 56), (56, 2, 1)] {
            put(&mut image, at, n, value);
        }
        for (at, n, value) in [(40, 8, table), (58, 2, 64), (60, 2, sections)] {
            put(&mut image, at, n, value);
        }
        put(&mut image, 64, 4, 1);
        put(&mut image, 64 + 40, 8, loaded);
        image
    }

    #[test]
    fn room_behind_the_sections_is_taken_first() {
        // As Linux 6.18 has it.
        assert_eq!(find(&image(2, 0x1500, 18, 0x1a00), 1045), Some(0x1a00));
    }

    #[test]
    fn room_behind_what_is_loaded_is_enough() {
        // As Debian's 6.12 has it: loaded up to 0x170f, sections up to 0x1c20.
        let debian = image(2, 0x170f, 16, 0x1c20);
        assert_eq!(find(&debian, 960), Some(0x1c40));
        assert_eq!(find(&debian, 1045), Some(0x1740));
        assert_eq!(find(&debian, 0x8c1), None);
    }

    #[test]
    fn stripped_images_have_the_room_of_their_sections() {
        assert_eq!(find(&image(2, 0x1d00, 0, 64), 600), Some(0x1d00));
        assert_eq!(find(&image(1, 0xf00, 0, 64), 600), None);
    }

    /// A file's head with text of `held` bytes from `begin` on.
    fn head(begin: usize, held: usize) -> Vec<u8> {
        let mut head = image(1, 0x800, 0, 64);
        put(&mut head, 56, 2, 2);
        let text = 64 + 56;
        for (at, n, value) in [(0, 4, 1), (4, 4, 5), (8, 8, begin), (32, 8, held)] {
            put(&mut head, text + at, n, value);
        }
        put(&mut head, 54, 2, 56);
        head
    }

    #[test]
    fn text_has_room_behind_its_last_byte() {
        let head = head(0x1000, 0x2345);
        assert_eq!(behind_text(&head, 0x1000, 0x3000, 1045), Some(0x2380));
        assert_eq!(behind_text(&head, 0x1000, 0x9000, 0xc81), None, "too little in its last page");
        let mut more = head.clone();
        put(&mut more, 64 + 56 + 40, 8, 0x2f00);
        assert_eq!(
            behind_text(&more, 0x1000, 0x3000, 600),
            None,
            "more is loaded than is in the file"
        );
        assert_eq!(behind_text(&head, 0x2000, 0x3000, 600), None, "another segment");
        assert_eq!(behind_text(&head[..100], 0x1000, 0x3000, 600), None);
        assert_eq!(behind_text(b"#!/bin/sh", 0, 0x1000, 1), None);
    }

    #[test]
    fn no_head_that_lies_has_room_outside_or_panics() {
        let good = head(0x1000, 0x2345);
        for at in 0..0x100 {
            let mut bad = good.clone();
            bad[at] = 0xff;
            let room = behind_text(&bad, 0x1000, 0x3000, 600);
            assert!(room.is_none_or(|at| at % 64 == 0 && at + 600 <= 0x3000), "byte {at}");
        }
    }

    #[test]
    fn this_kernels_own_image_has_room() {
        let maps = crate::kernel::procfs::ProcRoot::default();
        let areas = maps.maps(std::process::id().cast_signed()).expect("own maps");
        let Some(vdso) = areas.iter().find(|a| a.name == "[vdso]") else {
            let why = "booted without a vDSO";
            return huepage_testing::lacks("this_kernels_own_image_has_room", why);
        };
        let bytes = usize::try_from(vdso.end - vdso.start).expect("small");
        let mut content = vec![0; bytes];
        let memory = std::fs::File::open("/proc/self/mem").expect("own memory");
        use std::os::unix::fs::FileExt;
        memory.read_exact_at(&mut content, vdso.start).expect("mapped");
        assert!(find(&content, stub::bytes()).is_some(), "{} bytes", stub::bytes());
    }

    #[test]
    fn no_image_that_lies_has_room_or_panics() {
        let good = image(2, 0x1500, 18, 0x1a00);
        for at in (0..0x400).filter(|at| *at != 4) {
            let mut bad = good.clone();
            bad[at] = 0xff;
            if let Some(room) = find(&bad, 600) {
                assert!(room % 64 == 0 && room + 600 <= bad.len(), "byte {at}");
            }
        }
        assert_eq!(find(&good[..63], 1), None);
        assert_eq!(find(&[], 1), None);
    }
}
