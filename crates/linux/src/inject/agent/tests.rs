//! The parts of the agent that can run outside a target.

use super::smaps::Lines;
use crate::kernel::testing::Anonymous;

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
    let area = Anonymous::new(1);
    area.advise(libc::MADV_WIPEONFORK);
    let text = std::fs::read("/proc/self/smaps").expect("every process may read its own");
    assert!(wiped(&text).contains(&(area.start(), area.range().end)));
}
