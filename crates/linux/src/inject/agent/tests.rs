//! The parts of the agent that can run outside a target.

use super::smaps::Lines;

fn wiped(text: &[u8]) -> Vec<(u64, u64)> {
    let (mut lines, mut found) = (Lines::EMPTY, Vec::new());
    for &byte in text {
        lines.take(byte, &mut |start, end| found.push((start, end)));
    }
    found
}

#[test]
fn only_the_flag_itself_counts() {
    let text = b"7f0000001000-7f0000003000 rw-p 00000000 00:00 0      [anon: wf ]\n\
        Size:                  8 kB\nVmFlags: rd wr mr mw me ac wf sd \n\
        7f0000003000-7f0000004000 rw-p 00000000 00:00 0 \nVmFlags: rd wr mr mw me ac sd\n\
        ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0   [vsyscall]\n\
        VmFlags: ex wf\n";
    let want =
        [(0x7f00_0000_1000, 0x7f00_0000_3000), (0xffff_ffff_ff60_0000, 0xffff_ffff_ff60_1000)];
    assert_eq!(wiped(text), want);
    assert_eq!(wiped(&text[..60]), [], "a list cut short ends quietly");
}

#[test]
fn a_line_that_is_too_long_is_cut() {
    let name = "wf ".repeat(1000);
    let text = format!("1000-2000 rw-p 00000000 00:00 0 {name}\nVmFlags: rd\nVmFlags: wf\n");
    assert_eq!(wiped(text.as_bytes()), [(0x1000, 0x2000)]);
}

#[test]
fn this_kernel_writes_what_is_expected() {
    const BYTES: usize = 3 * 4096;
    // SAFETY: a fresh mapping of our own, unmapped below.
    let at = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), BYTES, prot, flags, -1, 0)
    };
    assert_ne!(at, libc::MAP_FAILED);
    // SAFETY: the middle page of the mapping above.
    let r = unsafe { libc::madvise(at.byte_add(4096), 4096, libc::MADV_WIPEONFORK) };
    assert_eq!(r, 0);
    let text = std::fs::read("/proc/self/smaps").expect("every process may read its own");
    // SAFETY: as mapped.
    unsafe { libc::munmap(at, BYTES) };
    let middle = at as u64 + 4096;
    assert!(wiped(&text).contains(&(middle, middle + 4096)));
}
