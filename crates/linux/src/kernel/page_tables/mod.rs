//! Page tables of other processes, read where they lie, so that *accessed bits* are seen: no file
//! of `/proc` tells which pages were touched. A tiny program in the kernel (BPF, run once per
//! batch) walks to the tables and copies them into memory shared with this process; nothing is
//! written to the other one. Tables of x86-64 with four and five levels are understood.
//!
//! The bits say what the processor noted since they were cleared (by writing `1` to
//! `/proc/<pid>/clear_refs`). That file does not empty TLBs: a page whose translation stays in one
//! is touched without a note until it falls out. A thread that keeps its processor to itself hides
//! the few hundred pages it uses most until the kernel next switches it away.

mod bits;
mod kernel;
mod pack;
mod program;
#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;

pub use bits::Bits512;

use crate::kernel::bpf::memory::{DirectMap, Peeker};
use crate::kernel::bpf::{BpfError, Program, Shared};
use crate::kernel::procfs::ProcRoot;
use kernel::{Finder, Layout, Owner};
use program::{ACCESSED, BATCH, Exchange, HUGE, PRESENT, Table};

/// Why page tables could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TablesError {
    /// The kernel refuses BPF, or frame numbers, to this process.
    #[error(
        "not allowed to read page tables: run huepage as root (CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN)"
    )]
    NotPermitted,
    /// This kernel, or this machine, cannot do it for anybody.
    #[error("page tables cannot be read here ({0}): choose a sensor that needs no accessed bits")]
    NotSupported(&'static str),
    /// The process is gone, has replaced itself by another program, or has no memory (a zombie, a
    /// thread of the kernel, a process whose first thread has ended).
    #[error("process {0} has no such address space: look the pid up with `ps -e` and try again")]
    NoProcess(i32),
    /// The kernel can do it, but did not.
    #[error("cannot {what}: {source}; report it as a bug of huepage, with the kernel's version")]
    Failed {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl From<BpfError> for TablesError {
    fn from(error: BpfError) -> TablesError {
        match error {
            BpfError::NotPermitted => TablesError::NotPermitted,
            BpfError::NotSupported(why) => TablesError::NotSupported(why),
            BpfError::Failed { what, source } => TablesError::Failed { what, source },
        }
    }
}

/// The address space of one process, as found by [`PageTables::space`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressSpace {
    pid: i32,
    owner: Owner,
}

impl AddressSpace {
    /// The process that has it.
    pub fn pid(&self) -> i32 {
        self.pid
    }
}

/// One aligned 2 MiB block of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockMapping {
    /// There is no page table for it, or it was just being replaced, or the block is the kernel's.
    Absent,
    /// Mapped by one entry, or as part of 1 GiB mapped by one.
    Huge {
        /// Touched since the bit was cleared; for a part of 1 GiB: any part of that.
        accessed: bool,
    },
    /// Mapped page by page, some or all.
    Pages {
        /// The pages that can be touched without a fault: neither in swap nor without any right.
        present: Bits512,
        /// Those of them that were touched since their bit was cleared.
        accessed: Bits512,
    },
}

/// What of one aligned 2 MiB block is resident.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockResidency {
    /// Base pages with a frame of their own, or of a superpage; 0 to 512.
    pub resident: u16,
    /// Base pages mapped to the frame of zeroes that all share: they count as holes. What reads as zeroes by
    /// one entry is not told from a superpage.
    pub zero: u16,
    /// It is mapped as one page.
    pub huge: bool,
}

/// Reads the page tables of processes; see the module's head.
#[derive(Debug)]
pub struct PageTables {
    peeker: Peeker,
    finder: Finder,
    shared: Shared<Exchange>,
    walk: Program,
}

impl PageTables {
    /// Loads the programs and looks where the running kernel keeps things. Takes some 20 ms, and
    /// holds 260 KiB of the kernel's memory.
    ///
    /// # Errors
    /// [`TablesError::NotPermitted`] without root's capabilities, [`TablesError::NotSupported`] on
    /// other machines than x86-64 and on kernels without BPF or BTF, or that are locked down.
    pub fn open() -> Result<PageTables, TablesError> {
        if !cfg!(target_arch = "x86_64") {
            return Err(TablesError::NotSupported("the processor is not x86-64"));
        }
        let peeker = Peeker::new()?;
        let layout = Layout::read()?;
        let memory = DirectMap::find(&peeker, &ProcRoot::default())?;
        let strange = TablesError::NotSupported("the structures of this kernel are not known");
        let finder = Finder::new(&peeker, layout).ok_or(strange)?;
        let shared = Shared::new()?;
        let walk = Program::load(&program::walk(shared.map(), &layout, &memory))?;
        let mut tables = PageTables { peeker, finder, shared, walk };
        tables.check()?;
        Ok(tables)
    }

    /// Whether the page that holds a variable is found.
    fn check(&mut self) -> Result<(), TablesError> {
        let here = 0_u8;
        let at = (&raw const here).addr();
        let own = self.space(std::process::id().cast_signed())?;
        let mut found = Vec::new();
        self.read(&own, &[(at >> 21) as u64], &mut found)?;
        match found[..] {
            [BlockMapping::Huge { .. }] => Ok(()),
            [BlockMapping::Pages { present, .. }] if present.get(at >> 12 & 511) => Ok(()),
            _ => Err(TablesError::NotSupported("page tables do not look as expected")),
        }
    }

    /// Finds the address space of a process, by its pid as this process sees it. Takes some ten
    /// microseconds, however many processes there are.
    ///
    /// # Errors
    /// [`TablesError::NoProcess`] when there is none.
    pub fn space(&self, pid: i32) -> Result<AddressSpace, TablesError> {
        let owner = self.finder.process(&self.peeker, pid).ok_or(TablesError::NoProcess(pid))?;
        Ok(AddressSpace { pid, owner })
    }

    /// Appends one [`BlockMapping`] for each of `blocks`, in their order; a block is named by its address
    /// / 2 MiB. Takes half a microsecond for a block that is mapped page by page (one, if the
    /// table is in no cache), a tenth of that for others, and a system call for each 64 of them.
    /// The process runs on meanwhile: blocks are looked at one after the other.
    ///
    /// # Errors
    /// [`TablesError::NoProcess`] when the address space is gone; nothing is appended then.
    pub fn read(
        &mut self,
        space: &AddressSpace,
        blocks: &[u64],
        out: &mut Vec<BlockMapping>,
    ) -> Result<(), TablesError> {
        let before = out.len();
        out.reserve(blocks.len());
        for batch in blocks.chunks(BATCH) {
            if let Err(e) = self.read_batch(space, batch, out) {
                out.truncate(before);
                return Err(e);
            }
        }
        Ok(())
    }

    /// Tells of every block of a range in which anything is mapped how much is: also of pages
    /// without any right, which cannot be touched for now. Costs what [`PageTables::read`] does.
    ///
    /// # Errors
    /// [`TablesError::NoProcess`] when the address space is gone: what was told may be wrong.
    pub fn count(
        &mut self,
        space: &AddressSpace,
        blocks: Range<u64>,
        mut each: impl FnMut(u64, BlockResidency),
    ) -> Result<(), TablesError> {
        let mut batch = [0; BATCH];
        for first in blocks.clone().step_by(BATCH) {
            let length = BATCH.min(usize::try_from(blocks.end - first).unwrap_or(BATCH));
            (first..).zip(&mut batch[..length]).for_each(|(at, one)| *one = at);
            let found = self.walk_batch(space, &batch[..length])?;
            let there = batch.iter().zip(found).filter(|(_, (entry, _))| entry & PRESENT != 0);
            there.for_each(|(&at, (entry, table))| each(at, counted(entry, table)));
        }
        Ok(())
    }

    fn read_batch(
        &mut self,
        space: &AddressSpace,
        batch: &[u64],
        out: &mut Vec<BlockMapping>,
    ) -> Result<(), TablesError> {
        out.extend(self.walk_batch(space, batch)?.map(|(entry, table)| match entry {
            _ if entry & PRESENT == 0 => BlockMapping::Absent,
            _ if entry & HUGE != 0 => BlockMapping::Huge { accessed: entry & ACCESSED != 0 },
            _ => {
                let (present, accessed) = pack::pack(table);
                BlockMapping::Pages { present, accessed }
            }
        }));
        Ok(())
    }

    /// The last entry on the way to each block, and the table behind it if it has one.
    fn walk_batch(
        &mut self,
        space: &AddressSpace,
        batch: &[u64],
    ) -> Result<impl Iterator<Item = (u64, &Table)>, TablesError> {
        // SAFETY: the memory is mapped, valid for any content, and shared with the program alone,
        // which does not run while the reference lives.
        let exchange = unsafe { self.shared.at().as_mut() };
        exchange.owner = space.owner;
        exchange.count = batch.len() as u64;
        exchange.blocks[..batch.len()].copy_from_slice(batch);
        if self.walk.run()? != 0 {
            return Err(TablesError::NoProcess(space.pid));
        }
        // SAFETY: as above; the program has ended.
        let exchange = unsafe { self.shared.at().as_ref() };
        Ok(exchange.entries.iter().copied().zip(&exchange.tables.0).take(batch.len()))
    }
}

/// What there is behind an entry that is present.
fn counted(entry: u64, table: &Table) -> BlockResidency {
    if entry & HUGE != 0 {
        return BlockResidency { resident: 512, zero: 0, huge: true };
    }
    let [resident, zero] = pack::count(table);
    BlockResidency { resident, zero, huge: false }
}
