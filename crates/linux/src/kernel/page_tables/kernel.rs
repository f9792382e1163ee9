//! What has to be known of the running kernel to find the page tables of a process: offsets in its
//! structures, and the way from a pid to a task.

use std::fs;

use super::TablesError;
use crate::kernel::bpf::btf::{Btf, VMLINUX};
use crate::kernel::bpf::memory::Peeker;

/// What stays the same as long as a process has an address space, as addresses in the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) task: u64,
    pub(super) tgid: u64,
    pub(super) mm: u64,
    pub(super) root: u64,
}

/// Offsets in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) tgid: u32,
    pub(super) mm: u32,
    pub(super) pgd: u32,
    own_pid: u64,
    /// From a task to the link by which its pid knows it as a process.
    link: u64,
    /// From a pid to its first process.
    processes: u64,
    level: u64,
    numbers: u64,
    number_bytes: u64,
    number: u64,
    space: u64,
    /// From a pid space to its tree of pids.
    tree: u64,
    shift: u64,
    slots: u64,
}

impl Layout {
    /// Asks the type information of the kernel. Takes some 10 ms.
    pub(super) fn read() -> Result<Layout, TablesError> {
        let lacks = TablesError::NotSupported("the kernel is built without BTF");
        let blob = fs::read(VMLINUX).map_err(|_| lacks)?;
        let found = Btf::parse(&blob).and_then(|btf| Layout::find(&btf));
        found.ok_or(TablesError::NotSupported("the structures of this kernel are not known"))
    }

    fn find(btf: &Btf<'_>) -> Option<Layout> {
        let at = |structure, member| btf.offset(structure, member).map(u64::from);
        // The second of a task's links, and of a pid's lists, are those of whole processes.
        Some(Layout {
            tgid: btf.offset("task_struct", "tgid")?,
            mm: btf.offset("task_struct", "mm")?,
            pgd: btf.offset("mm_struct", "pgd")?,
            own_pid: at("task_struct", "thread_pid")?,
            link: at("task_struct", "pid_links")? + u64::from(btf.size("hlist_node")?),
            processes: at("pid", "tasks")? + u64::from(btf.size("hlist_head")?),
            level: at("pid", "level")?,
            numbers: at("pid", "numbers")?,
            number_bytes: btf.size("upid")?.into(),
            number: at("upid", "nr")?,
            space: at("upid", "ns")?,
            tree: at("pid_namespace", "idr")? + at("idr", "idr_rt")? + at("xarray", "xa_head")?,
            shift: at("xa_node", "shift")?,
            slots: at("xa_node", "slots")?,
        })
    }
}

/// Finds processes by the pids that this process sees.
#[derive(Debug)]
pub(super) struct Finder {
    layout: Layout,
    /// Depth of this process's pid space in those around it.
    level: u64,
    /// Address of the root of its tree of pids.
    tree: u64,
}

impl Finder {
    /// Takes a few microseconds. `None` if the structures are not as expected.
    pub(super) fn new(peeker: &Peeker, layout: Layout) -> Option<Finder> {
        let pid = peeker.word(peeker.current(), layout.own_pid)?;
        let level = peeker.half(pid, layout.level)?;
        let number = layout.numbers + level * layout.number_bytes;
        let tree = peeker.word(pid, number + layout.space)?.wrapping_add(layout.tree);
        let finder = Finder { layout, level, tree };
        // The tree is believed if it shows the way to ourselves.
        let own = finder.process(peeker, std::process::id().cast_signed())?;
        let known = own.tgid == peeker.half(peeker.current(), u64::from(layout.tgid))?;
        known.then_some(finder)
    }

    /// The address space of a process; `None` if there is none. Takes some five microseconds.
    pub(super) fn process(&self, peeker: &Peeker, pid: i32) -> Option<Owner> {
        let (layout, number) = (&self.layout, u64::try_from(pid).ok()?);
        let known = self.look_up(peeker, number)?;
        let task = peeker.word(known, layout.processes)?.checked_sub(layout.link)?;
        let tgid = peeker.half(task, u64::from(layout.tgid))?;
        let mm = peeker.word(task, u64::from(layout.mm)).filter(|mm| *mm != 0)?;
        let root = peeker.word(mm, u64::from(layout.pgd))?;
        // Nothing was locked: all this is good if the pid is the same still.
        let place = layout.numbers + self.level * layout.number_bytes + layout.number;
        let same =
            peeker.half(known, place)? == number && peeker.word(task, layout.own_pid)? == known;
        same.then_some(Owner { task, tgid, mm, root })
    }

    /// Walks the tree of pids: nodes of 64 slots, told from leaves by their lowest bits.
    fn look_up(&self, peeker: &Peeker, number: u64) -> Option<u64> {
        let mut entry = peeker.word(self.tree, 0)?;
        let mut above = 64;
        while entry & 3 == 2 {
            let node = entry - 2;
            let shift = peeker.word(node, self.layout.shift)? & 0xff;
            // Each level has fewer bits left, and the root has the number's highest ones.
            if shift >= above || (above == 64 && number >> shift > 63) {
                return None;
            }
            above = shift;
            entry = peeker.word(node, self.layout.slots + 8 * (number >> shift & 63))?;
        }
        (entry != 0 && above == 0).then_some(entry)
    }
}
