//! Points that tracers can stop at (USDT, provider `huepage`): what was done to which process, and how long it took.
//! Each is one instruction that does nothing until somebody traces it; arguments are numbers.

use std::time::Duration;

/// Pages of `pid` were given other frames: how many were asked for and how many moved, in how many ns.
#[inline]
pub(crate) fn recolored(pid: i32, pages: usize, moved: usize, took: Duration) {
    probe::probe!(huepage, recolor, pid, pages, moved, nanoseconds(took));
}

/// The pages of `pid` were looked at: how many can be moved, how many of these lie inside, in how many ns of CPU time.
#[inline]
pub(crate) fn audited(pid: i32, movable: u64, inside: u64, cpu: Duration) {
    probe::probe!(huepage, audit, pid, movable, inside, nanoseconds(cpu));
}

/// A superpage was tried at an address of `pid`: how long the program may have waited for it, in ns; 0 if it was not
/// built.
#[inline]
pub(crate) fn built(pid: i32, address: u64, wait: Option<Duration>) {
    probe::probe!(huepage, superpage, pid, address, nanoseconds(wait.unwrap_or_default()));
}

/// `pid` has so many colours from now on.
#[inline]
pub(crate) fn retuned(pid: i32, colors: u16) {
    probe::probe!(huepage, retune, pid, colors);
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use object::read::elf::{ElfFile64, FileHeader as _};
    use object::{LittleEndian, Object as _, ObjectSection as _};

    use super::*;

    /// A note each, with its name and where its arguments are, as tracers look for them.
    #[test]
    fn tracers_find_all_points() {
        recolored(1, 2, 2, Duration::from_nanos(3));
        audited(1, 2, 2, Duration::ZERO);
        built(1, 2, None);
        retuned(1, 2);
        let own = std::fs::read(std::env::current_exe().expect("a program")).expect("its file");
        assert!(object::elf::FileHeader64::<LittleEndian>::parse(&*own).is_ok());
        let file = ElfFile64::<LittleEndian>::parse(&*own).expect("ELF");
        let notes = file.section_by_name(".note.stapsdt").expect("notes").data().expect("bytes");
        for name in ["recolor", "audit", "superpage", "retune"] {
            let named = format!("huepage\0{name}\0");
            let found = notes.windows(named.len()).any(|part| part == named.as_bytes());
            assert!(found, "{name}");
        }
    }
}
