//! How long it takes to read the page tables of 512 MiB: `cargo run --release -p huepage-linux
//! --example table_speed`, as root.

use std::time::{Duration, Instant};

use huepage_linux::kernel::page_tables::{BlockMapping, PageTables, TablesError};
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

const BLOCKS: u64 = 256;
const BYTES: usize = (BLOCKS as usize + 1) << 21;

fn main() -> Result<(), TablesError> {
    let start = Instant::now();
    let mut tables = PageTables::open()?;
    println!("open: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let (spent, space) = fastest(|| tables.space(own));
    println!("space: {:.1} us", spent.as_secs_f64() * 1e6);
    let space = space?;
    let first = touched(Advice::LinuxNoHugepage);
    let blocks: Vec<u64> = (first..first + BLOCKS).collect();
    report("first read", &mut tables, |t, out| t.read(&space, &blocks, out), 1);
    report("present", &mut tables, |t, out| t.read(&space, &blocks, out), 20);
    report("one batch", &mut tables, |t, out| t.read(&space, &blocks[..64], out), 20);
    let holes = vec![0; 256];
    report("absent", &mut tables, |t, out| t.read(&space, &holes, out), 20);
    Ok(())
}

/// Prints what the fastest of some tries took.
fn report(
    name: &str,
    tables: &mut PageTables,
    mut read: impl FnMut(&mut PageTables, &mut Vec<BlockMapping>) -> Result<(), TablesError>,
    tries: u32,
) {
    let mut out = Vec::new();
    let mut best = Duration::MAX;
    for _ in 0..tries {
        out.clear();
        let start = Instant::now();
        read(tables, &mut out).expect("our own tables");
        best = best.min(start.elapsed());
    }
    let (nanos, blocks) = (best.as_secs_f64() * 1e9, out.len() as f64);
    println!("{name}: {:.2} ns a page, {:.0} ns a block", nanos / blocks / 512.0, nanos / blocks);
}

fn fastest<T>(mut what: impl FnMut() -> T) -> (Duration, T) {
    let mut best = Duration::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        what();
        best = best.min(start.elapsed());
    }
    (best, what())
}

/// Maps 512 MiB and touches every page; the first block of it.
fn touched(advice: Advice) -> u64 {
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping at an address of the kernel's choice, which stays.
    let base = unsafe { mm::mmap_anonymous(std::ptr::null_mut(), BYTES, prot, flags) }
        .expect("512 MiB of memory");
    // SAFETY: the mapping is ours; this kind of advice changes no contents.
    unsafe { mm::madvise(base, BYTES, advice) }.expect("known advice");
    for page in (0..BYTES).step_by(4096) {
        // SAFETY: inside the mapping.
        unsafe { base.cast::<u8>().add(page).write_volatile(1) };
    }
    (base.addr() as u64).div_ceil(1 << 21)
}
