//! The acts of the churn mode: one way each of changing a mapping, with what must hold
//! afterwards. Every act makes its own areas, fills them with a pattern of page and word,
//! and leaves nothing behind.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Ctx;
use crate::mix::{Rng, pattern, range};
use crate::sys::{self, ChildEnd, MappedMemory, PAGE, PageProt, WORDS};

/// An act: works on an area of so many pages.
pub type Act = fn(&Ctx, usize, &mut Rng) -> io::Result<()>;

/// All acts, by the name of their site.
pub const ACTS: [(&str, Act); 15] = [
    ("churn.protect", protect),
    ("churn.grow", grow),
    ("churn.move-over", move_over),
    ("churn.dontunmap", dontunmap),
    ("churn.renew", renew),
    ("churn.same-address", same_address),
    ("churn.dontneed", dontneed),
    ("churn.free", free),
    ("churn.wipe-on-fork", wipe_on_fork),
    ("churn.lock", lock),
    ("churn.many-areas", many_areas),
    ("churn.zero-page", zero_page),
    ("churn.huge", huge),
    ("churn.private-file", private_file),
    ("churn.remote", remote),
];

fn value(page: usize, epoch: u64, word: u64) -> u64 {
    pattern(page as u64, epoch, word)
}

fn fill(area: &MappedMemory, pages: std::ops::Range<usize>, epoch: u64) {
    for page in pages {
        for (at, word) in (0..).zip(area.page(page)) {
            word.store(value(page, epoch, at), Relaxed);
        }
    }
}

/// Pages that hold their pattern of `epoch`, counted as if their first were page `from`.
fn verify(
    ctx: &Ctx,
    site: &'static str,
    area: &MappedMemory,
    pages: std::ops::Range<usize>,
    epoch: u64,
) {
    for page in pages {
        ctx.expect_words(site, area.page(page), |at| value(page, epoch, at));
    }
}

fn verify_zero(ctx: &Ctx, site: &'static str, area: &MappedMemory, pages: std::ops::Range<usize>) {
    for page in pages {
        ctx.expect_words(site, area.page(page), |_| 0);
    }
}

fn filled(pages: usize, epoch: u64) -> io::Result<MappedMemory> {
    let area = MappedMemory::private(pages)?;
    fill(&area, 0..pages, epoch);
    Ok(area)
}

/// `EFAULT` and no change: what the kernel must say when it may not write.
fn kernel_must_not_write(ctx: &Ctx, site: &'static str, words: &[AtomicU64]) -> io::Result<()> {
    let zero = std::fs::File::open("/dev/zero")?;
    let error = sys::read_into(zero.as_fd(), words).err().and_then(|e| e.raw_os_error());
    let fault = u64::from(error == Some(libc::EFAULT));
    ctx.expect(site, 1, fault);
    Ok(())
}

fn protect(ctx: &Ctx, pages: usize, rng: &mut Rng) -> io::Result<()> {
    let (site, epoch) = ("churn.protect", rng.u64(..));
    let area = filled(pages, epoch)?;
    ctx.sabotage(site, area.words());
    for _ in 0..8 {
        let some = range(rng, pages, 16);
        area.protect(some.clone(), PageProt::Read)?;
        verify(ctx, site, &area, some.clone(), epoch);
        kernel_must_not_write(ctx, site, area.page(some.start))?;
        area.protect(some.clone(), PageProt::None)?;
        kernel_must_not_write(ctx, site, area.page(some.start))?;
        area.protect(some, PageProt::Write)?;
    }
    verify(ctx, site, &area, 0..pages, epoch);
    fill(&area, 0..pages, !epoch);
    verify(ctx, site, &area, 0..pages, !epoch);
    Ok(())
}

fn grow(ctx: &Ctx, pages: usize, rng: &mut Rng) -> io::Result<()> {
    let (site, epoch) = ("churn.grow", rng.u64(..));
    let small = 1 + rng.usize(..pages / 2);
    let area = filled(small, epoch)?.resize(pages)?;
    ctx.sabotage(site, area.page(small - 1));
    verify(ctx, site, &area, 0..small, epoch);
    verify_zero(ctx, site, &area, small..pages);
    fill(&area, 0..pages, !epoch);
    let area = area.resize(small)?;
    verify(ctx, site, &area, 0..small, !epoch);
    let area = area.resize(pages)?;
    verify_zero(ctx, site, &area, small..pages);
    Ok(())
}

fn move_over(ctx: &Ctx, pages: usize, rng: &mut Rng) -> io::Result<()> {
    let (site, epoch) = ("churn.move-over", rng.u64(..));
    let (area, target) = (filled(pages, epoch)?, filled(pages, !epoch)?);
    let area = area.move_over(target)?;
    ctx.sabotage(site, area.words());
    verify(ctx, site, &area, 0..pages, epoch);
    Ok(())
}

fn dontunmap(ctx: &Ctx, pages: usize, rng: &mut Rng) -> io::Result<()> {
    let (site, epoch) = ("churn.dontunmap", rng.u64(..));
    let old = filled(pages, epoch)?;
    let new = old.move_contents()?;
    ctx.sabotage(site, old.words());
    verify_zero(ctx, site, &old, 0..pages);
    verify(ctx, site, &new, 0..pages, epoch);
    fill(&old, 0..pages, !epoch);
    verify(ctx, site, &new, 0..pages, epoch);
    verify(ctx, site, &old, 0..pages, !epoch);
    Ok(())
}

fn renew(ctx: &Ctx, pages: usize, rng: &mut Rng) -> io::Result<()> {
    let (site, epoch) = ("churn.renew", rng.u64(..));
    let area = filled(pages, epoch)?;
    let hole = range(rng, pages, pages / 2);
    area.renew(hole.clone(), PageProt::Write)?;
    ctx.sabotage(site, area.words());
    verify(ctx, site, &area, 0..hole.start, epoch);
    verify_zero(ctx, site, &area, hole.clone());
    verify(ctx, site, &area, hole.end..pages, epoch);
    fill(&area, hole.clone(), !epoch);
    verify(ctx, site, &area, hole, !epoch);
    Ok(())
}

fn same_address(ctx: &Ctx, pages: usize, rng: &mut Rng) -> io::Result<()> {
    let (site, epoch) = ("churn.same-address", rng.u64(..));
    let area = match filled(pages, epoch)?.unmap_and_map() {
        Err(e) if e.raw_os_error() == Some(libc::EEXIST) => return Ok(()),
        area => area?,
    };
    ctx.sabotage(site, area.words());
    verify_zero(ctx, site, &area, 0..pages);
    fill(&area, 0..pages, !epoch);
    verify(ctx, site, &area, 0..pages, !epoch);
    Ok(())
}

fn dontneed(ctx: &Ctx, pages: usize, rng: &mut Rng) -> io::Result<()> {
    let (site, epoch) = ("churn.dontneed", rng.u64(..));
    let area = filled(pages, epoch)?;
    for _ in 0..4 {
        let some = range(rng, pages, 32);
        area.advise(some.clone(), libc::MADV_DONTNEED)?;
        ctx.sabotage(site, area.page(some.start));
        verify_zero(ctx, site, &area, some.clone());
        fill(&area, some, epoch);
    }
    verify(ctx, site, &area, 0..pages, epoch);
    Ok(())
}

/// After MADV_FREE a page holds all of its old contents or all zero, until it is written.
fn free(ctx: &Ctx, pages: usize, rng: &mut Rng) -> io::Result<()> {
    let (site, epoch) = ("churn.free", rng.u64(..));
    let area = filled(pages, epoch)?;
    let some = range(rng, pages, pages);
    area.advise(some.clone(), libc::MADV_FREE)?;
    for page in some.clone() {
        let gone = area.page(page)[0].load(Relaxed) == 0;
        ctx.sabotage(site, area.page(page));
        ctx.expect_words(site, area.page(page), |at| if gone { 0 } else { value(page, epoch, at) });
    }
    fill(&area, some, epoch);
    verify(ctx, site, &area, 0..pages, epoch);
    Ok(())
}

fn wipe_on_fork(ctx: &Ctx, pages: usize, rng: &mut Rng) -> io::Result<()> {
    let (site, epoch, pages) = ("churn.wipe-on-fork", rng.u64(..), pages.min(64));
    let area = filled(pages, epoch)?;
    let wiped = range(rng, pages, pages);
    area.advise(wiped.clone(), libc::MADV_WIPEONFORK)?;
    let damage = ctx.strikes(site);
    let child = sys::fork(|| {
        if damage {
            area.words()[9].fetch_xor(1, Relaxed);
        }
        let right = (0..pages).all(|page| {
            let zero = wiped.contains(&page);
            let mut words = (0..).zip(area.page(page));
            words.all(|(at, w)| w.load(Relaxed) == if zero { 0 } else { value(page, epoch, at) })
        });
        u8::from(!right)
    })?;
    let right = sys::wait(child)? == ChildEnd::Status(0);
    ctx.expect(site, 1, u64::from(right));
    verify(ctx, site, &area, 0..pages, epoch);
    Ok(())
}

fn lock(ctx: &Ctx, pages: usize, rng: &mut Rng) -> io::Result<()> {
    let (site, epoch) = ("churn.lock", rng.u64(..));
    let area = filled(pages / 2, epoch)?.resize(pages)?;
    let some = range(rng, pages, 32);
    if let Err(error) = area.lock(some.clone(), rng.usize(..2) == 0) {
        ctx.skip(&format!("churn.lock: mlock is refused ({error})"));
        return Ok(());
    }
    ctx.sabotage(site, area.page(0));
    verify(ctx, site, &area, 0..pages / 2, epoch);
    verify_zero(ctx, site, &area, pages / 2..pages);
    fill(&area, 0..pages, !epoch);
    area.unlock(some)?;
    verify(ctx, site, &area, 0..pages, !epoch);
    Ok(())
}

/// Pages with changing protection: each becomes an area of its own.
fn many_areas(ctx: &Ctx, pages: usize, rng: &mut Rng) -> io::Result<()> {
    let (site, epoch) = ("churn.many-areas", rng.u64(..));
    let area = MappedMemory::reserve(pages)?;
    for page in (0..pages).step_by(2) {
        area.protect(page..page + 1, PageProt::Write)?;
        fill(&area, page..page + 1, epoch);
        if page % 4 == 0 {
            area.protect(page..page + 1, PageProt::Read)?;
        }
    }
    ctx.sabotage(site, area.page(2));
    for page in (0..pages).step_by(2) {
        verify(ctx, site, &area, page..page + 1, epoch);
    }
    area.protect(0..pages, PageProt::Write)?;
    for page in 0..pages {
        let kept = page % 2 == 0;
        let want = |at| if kept { value(page, epoch, at) } else { 0 };
        ctx.expect_words(site, area.page(page), want);
    }
    Ok(())
}

/// Reads first (zero), from the program and from the kernel, and writes only then.
fn zero_page(ctx: &Ctx, pages: usize, rng: &mut Rng) -> io::Result<()> {
    let (site, epoch) = ("churn.zero-page", rng.u64(..));
    let area = MappedMemory::private(pages)?;
    ctx.sabotage(site, area.page(0));
    verify_zero(ctx, site, &area, 0..pages);
    let (fresh, ends) = (MappedMemory::private(2)?, sys::pipe()?);
    sys::write_from(ends.1.as_fd(), fresh.page(0))?;
    sys::read_into(ends.0.as_fd(), fresh.page(1))?;
    verify_zero(ctx, site, &fresh, 0..2);
    let some = range(rng, pages, 32);
    fill(&area, some.clone(), epoch);
    verify_zero(ctx, site, &area, 0..some.start);
    verify(ctx, site, &area, some.clone(), epoch);
    verify_zero(ctx, site, &area, some.end..pages);
    Ok(())
}

/// Areas that ask for huge pages and lose some small ones of them.
fn huge(ctx: &Ctx, _pages: usize, rng: &mut Rng) -> io::Result<()> {
    let (site, epoch, pages) = ("churn.huge", rng.u64(..), 1024);
    let area = MappedMemory::private(pages)?;
    if let Err(error) = area.advise(0..pages, libc::MADV_HUGEPAGE) {
        ctx.skip(&format!("churn.huge: MADV_HUGEPAGE is refused ({error})"));
        return Ok(());
    }
    fill(&area, 0..pages, epoch);
    let hole = range(rng, pages, 8);
    area.advise(hole.clone(), libc::MADV_DONTNEED)?;
    ctx.sabotage(site, area.page(hole.start));
    verify(ctx, site, &area, 0..hole.start, epoch);
    verify_zero(ctx, site, &area, hole.clone());
    verify(ctx, site, &area, hole.end..pages, epoch);
    Ok(())
}

/// A private mapping of a file, some pages of it written.
fn private_file(ctx: &Ctx, pages: usize, rng: &mut Rng) -> io::Result<()> {
    let (site, epoch, pages) = ("churn.private-file", rng.u64(..), pages.min(64));
    let file = tempfile::tempfile_in(&ctx.plan.dir)?;
    let source = filled(pages, epoch)?;
    sys::pwrite_from(file.as_fd(), source.words(), 0)?;
    let area = MappedMemory::private_file(file.as_fd(), pages)?;
    let written = range(rng, pages, 32);
    fill(&area, written.clone(), !epoch);
    ctx.sabotage(site, area.words());
    verify(ctx, site, &area, 0..written.start, epoch);
    verify(ctx, site, &area, written.clone(), !epoch);
    verify(ctx, site, &area, written.end..pages, epoch);
    Ok(())
}

/// Tries for a moment: the kernel answers EIO through `/proc/PID/mem` for a page that a
/// userfaultfd has yet to fill, instead of waiting for it. False when it stays so; a transfer
/// that says it was done must be right.
fn patiently(mut access: impl FnMut() -> io::Result<()>) -> io::Result<bool> {
    for _ in 0..50 {
        match access() {
            Ok(()) => return Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::EIO) => {
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
            Err(e) => return Err(e),
        }
    }
    Ok(false)
}

/// Reads and writes through `/proc/self/mem`, as a debugger does.
fn remote(ctx: &Ctx, pages: usize, rng: &mut Rng) -> io::Result<()> {
    let (site, epoch) = ("churn.remote", rng.u64(..));
    let area = MappedMemory::private(pages)?;
    let memory = std::fs::File::options().read(true).write(true).open("/proc/self/mem")?;
    let page = rng.usize(..pages - 1);
    let at = (area.address() + page * PAGE + PAGE / 2) as u64;
    let mut bytes = vec![1; PAGE];
    if !patiently(|| memory.read_exact_at(&mut bytes, at))? {
        return Ok(());
    }
    ctx.expect(site, 0, bytes.iter().map(|b| u64::from(*b)).sum());
    let letter = epoch.to_ne_bytes().repeat(WORDS);
    if !patiently(|| memory.write_all_at(&letter, at))? {
        return Ok(());
    }
    ctx.sabotage(site, area.page(page));
    let words = &area.words()[page * WORDS..(page + 2) * WORDS];
    let half = WORDS as u64 / 2;
    let inside = |place: u64| (half..WORDS as u64 + half).contains(&place);
    ctx.expect_words(site, words, |place| if inside(place) { epoch } else { 0 });
    Ok(())
}
