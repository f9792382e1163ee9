//! How long it takes to read the page tables of 512 MiB: `cargo run --release -p huepage-linux
//! --example table_speed`, as root.

use std::error::Error;
use std::time::{Duration, Instant};

use huepage_linux::color::probe::OwnPages;
use huepage_linux::kernel::page_tables::{BlockMapping, PageTables, TablesError};

const BLOCKS: u64 = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let mut tables = PageTables::open()?;
    println!("open: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let (spent, space) = fastest(|| tables.space(own));
    println!("space: {:.1} us", spent.as_secs_f64() * 1e6);
    let space = space?;
    let memory = OwnPages::reserve_aligned(BLOCKS as usize * 512)?;
    memory.populate(false)?;
    let first = memory.base() >> 21;
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
