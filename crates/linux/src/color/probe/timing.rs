//! The timed loads behind colour probing: stream some pages, then time the reload of lines.
//!
//! This file is compiled twice: inside this crate, and (by `#[path]`) inside the freestanding
//! agent that runs in a target. So it uses `core` only, never panics, never calls `memcpy` or
//! any other function, and works on raw pointers. It checks nothing and decides nothing: which
//! lines to load is the caller's business, and so is what the latencies mean. All accesses to
//! probed memory are loads; contents survive.

use core::arch::asm;

/// Which pages of the stream belong to one round.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundDesc {
    /// Index of the first page in the stream.
    pub first: u32,
    /// Number of pages.
    pub len: u32,
}

/// What to run. Every pointer refers to memory that stays valid while [`run`] works.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TimedRounds {
    /// Base addresses of the pages that the rounds stream.
    pub stream: *const u64,
    /// The rounds.
    pub rounds: *const RoundDesc,
    /// Number of rounds.
    pub round_count: u32,
    /// Byte offsets, within a page, of the lines that are streamed.
    pub offsets: *const u16,
    /// Number of offsets.
    pub offset_count: u32,
    /// How often the pages are streamed at each offset.
    pub passes: u32,
    /// The lines whose reload is timed, each with one that is loaded before, by [`pair`]; of chains, the pages.
    pub reload: *const u64,
    /// Number of those lines.
    pub reload_count: u32,
    /// 1 to load all reload lines before the first round.
    pub prime: u32,
    /// Lines of a page that are timed together, at most as many as there are offsets: 1 times
    /// the line itself; more time that many of the offsets instead, which take turns.
    pub depth: u32,
}

/// A line that is timed and another of the same page, which is loaded before so that the translation
/// is at hand: the address of the other one, and in its lowest bits the place of the timed one.
///
/// Processors guess what is loaded next. Some fetch ahead what a list of addresses points to, and
/// some learn how far the second load in a page is from the first (Intel's since Golden Cove do
/// both): so the list must not hold the address of the timed line, and the distance must vary.
pub const fn pair(timed: u64, before: u64) -> u64 {
    before & !63 | timed >> 6 & 63
}

/// The line of a pair that is timed. The pair itself is an address in the other one.
#[inline(always)]
const fn timed(pair: u64) -> u64 {
    pair & !4095 | (pair & 63) << 6
}

/// Runs all rounds: each streams its pages, page by page, then times one load of every
/// reload line. Writes `round_count * reload_count` latencies in ticks of the time stamp
/// counter; 65535 stands for anything longer.
///
/// # Safety
/// The pointers of `job` must be valid for their counts, every `first + len` must stay within
/// the stream, every page and line named must be readable, offsets must be below 4096, and
/// `latencies` must be writable for the count given above.
#[inline(never)]
pub unsafe fn run(job: &TimedRounds, latencies: *mut u16) {
    // SAFETY: the caller vouches for every pointer and count; the indexes below stay within.
    unsafe {
        if job.prime == 1 {
            // Twice: some caches put new lines where they are soon evicted again.
            touch(job);
            touch(job);
        }
        let mut round = 0usize;
        let mut out = latencies;
        while round < job.round_count as usize {
            let desc = job.rounds.add(round);
            stream(job, job.stream.add((*desc).first as usize), (*desc).len);
            reload(job, out);
            out = out.add(job.reload_count as usize);
            round = round.wrapping_add(1);
        }
    }
}

/// Loads every line once, waiting for none.
///
/// # Safety
/// As [`run`].
unsafe fn touch(job: &TimedRounds) {
    let (mut i, mut at) = (0usize, 0usize);
    while i < job.reload_count as usize {
        // SAFETY: `i` is below the count that the caller vouches for, `at` below that of offsets.
        unsafe {
            let pair = *job.reload.add(i);
            if job.depth <= 1 {
                load(timed(pair));
            }
            let mut k = 1u32;
            while job.depth > 1 && k <= job.depth {
                load(neighbour(job, pair, at));
                at = next(job, at);
                k = k.wrapping_add(1);
            }
        }
        i = i.wrapping_add(1);
    }
    fence();
}

/// The line of the same page at the offset with this index.
///
/// # Safety
/// `at` must be below the count of offsets.
#[inline(always)]
unsafe fn neighbour(job: &TimedRounds, line: u64, at: usize) -> u64 {
    // SAFETY: the caller vouches for the index.
    (line & !4095).wrapping_add(u64::from(unsafe { *job.offsets.add(at) }))
}

/// The index after this one; offsets take turns.
#[inline(always)]
fn next(job: &TimedRounds, at: usize) -> usize {
    let after = at.wrapping_add(1);
    if after < job.offset_count as usize { after } else { 0 }
}

/// Independent loads, all offsets of one page before the next: one translation serves them all, and
/// each set sees the same order as if the loads went offset by offset.
///
/// # Safety
/// `pages` must be valid for `len` page addresses, readable at every offset of the job.
#[inline(always)]
unsafe fn stream(job: &TimedRounds, pages: *const u64, len: u32) {
    let mut pass = 0u32;
    while pass < job.passes {
        let mut page = 0usize;
        while page < len as usize {
            let mut i = 0usize;
            while i < job.offset_count as usize {
                // SAFETY: both indexes are below their counts; the line is readable by contract.
                unsafe {
                    load((*pages.add(page)).wrapping_add(u64::from(*job.offsets.add(i))));
                }
                i = i.wrapping_add(1);
            }
            page = page.wrapping_add(1);
        }
        pass = pass.wrapping_add(1);
    }
}

/// Times one load per line, in one tight loop so that code and results stay in the first level;
/// or several lines of each page together.
///
/// # Safety
/// As [`run`]; `out` must be writable for all lines.
#[inline(always)]
unsafe fn reload(job: &TimedRounds, out: *mut u16) {
    if job.depth > 1 {
        // SAFETY: as this.
        return unsafe { reload_chains(job, out) };
    }
    let mut i = 0usize;
    while i < job.reload_count as usize {
        // SAFETY: `i` is below the count; all lines of a mapped page are readable.
        unsafe {
            let pair = *job.reload.add(i);
            load(pair);
            out.add(i).write(time_load(timed(pair)));
        }
        i = i.wrapping_add(1);
    }
}

/// Times several lines of each page together. The clock is read once between two pages: reading it twice, and
/// waiting for another line of the page before, took as long as the lines.
///
/// # Safety
/// As [`reload`], with a depth above 1.
#[inline(always)]
unsafe fn reload_chains(job: &TimedRounds, out: *mut u16) {
    let (mut i, mut at) = (0usize, 0usize);
    let mut began = clock();
    while i < job.reload_count as usize {
        // SAFETY: `i` is below the count, `at` below that of offsets; all lines of a mapped page are readable.
        unsafe {
            let (ended, after) = load_chain(job, *job.reload.add(i), at);
            let ticks = ended.wrapping_sub(began);
            out.add(i).write(if ticks > 0xffff { 0xffff } else { ticks as u16 });
            (began, at) = (ended, after);
        }
        i = i.wrapping_add(1);
    }
}

/// The low half of the time stamp counter, read in order with what is before and behind.
#[inline(always)]
fn clock() -> u32 {
    let low: u32;
    // SAFETY: reads a counter that user space may read; touches no memory.
    unsafe {
        asm!("lfence", "rdtsc", "lfence", out("eax") low, out("edx") _,
             options(nostack, preserves_flags));
    }
    low
}

/// Loads some lines of a page one after the other: what a clock that moves in large steps can tell. The clock
/// after the last, and where the offsets go on.
///
/// # Safety
/// As [`run`], with a depth above 1 and an index below the count of offsets.
#[inline(always)]
unsafe fn load_chain(job: &TimedRounds, page: u64, mut at: usize) -> (u32, usize) {
    let end: u32;
    // SAFETY: reads bytes of readable memory; all registers written are declared. Each load waits
    // for the one before it, since its address is made of what that one brought; the clock waits for
    // all loads, and what comes behind waits for the clock.
    unsafe {
        let (mut k, mut zero) = (0u32, 0u64);
        while k < job.depth {
            let address = neighbour(job, page, at).wrapping_add(zero);
            asm!("movzx {z:e}, byte ptr [{a}]", "and {z:e}, 0",
                 a = in(reg) address, z = out(reg) zero, options(nostack, readonly));
            at = next(job, at);
            k = k.wrapping_add(1);
        }
        asm!("add {z}, 0", "rdtscp", "lfence", z = inout(reg) zero => _, out("eax") end, out("ecx") _,
             out("edx") _, options(nostack));
    }
    (end, at)
}

/// One load whose value is thrown away and which the compiler can neither drop nor move.
///
/// # Safety
/// `address` must be readable.
#[inline(always)]
unsafe fn load(address: u64) {
    // SAFETY: reads one byte of readable memory into a scratch register.
    unsafe {
        asm!("movzx {t:e}, byte ptr [{a}]", a = in(reg) address, t = out(reg) _,
             options(nostack, preserves_flags, readonly));
    }
}

/// Ticks that one load takes, with the overhead of the measurement (some tens of ticks).
///
/// # Safety
/// `address` must be readable.
#[inline(always)]
unsafe fn time_load(address: u64) -> u16 {
    let ticks: u32;
    // SAFETY: reads one byte of readable memory; all registers written are declared. The
    // fences keep earlier loads out of the interval, `rdtscp` waits for the timed one. The
    // difference is taken modulo 2^32 and clamped to 16 bits.
    unsafe {
        asm!("lfence", "rdtsc", "lfence",
             "mov {s:e}, eax",
             "movzx eax, byte ptr [{a}]",
             "rdtscp",
             "sub eax, {s:e}",
             "cmp eax, {max:e}",
             "cmova eax, {max:e}",
             a = in(reg) address, s = out(reg) _, max = in(reg) 0xffff_u32,
             out("eax") ticks, out("ecx") _, out("edx") _,
             options(nostack, readonly));
    }
    ticks as u16
}

/// The time stamp counter, read in order with earlier loads.
#[inline(always)]
pub fn ticks() -> u64 {
    let low: u32;
    let high: u32;
    // SAFETY: reads a counter that user space may read; touches no memory.
    unsafe {
        asm!("lfence", "rdtsc", out("eax") low, out("edx") high,
             options(nostack, preserves_flags, nomem));
    }
    (u64::from(high) << 32) | u64::from(low)
}

/// Waits for all earlier loads.
#[inline(always)]
fn fence() {
    // SAFETY: orders loads, changes nothing.
    unsafe { asm!("lfence", options(nostack, preserves_flags)) };
}
