//! The areas of an address space, from `/proc/<pid>/maps` and `/proc/<pid>/smaps`.
//!
//! The parser is written by hand: an audit of a large process reads tens of thousands of
//! lines. It tells areas apart by kind as far as the text allows; whether the pages inside
//! can be moved is for the caller to decide.

use std::path::Path;

use huepage_color::{PAGE_BYTES, Vpn};
use huepage_policy::{AreaKind, MoveRefusal};

use super::{ProcError, ProcRoot, printable};

/// Bytes of a name that are kept: those of the longest path that a program can open.
const LONGEST_NAME: usize = 4096;

/// What may be done with the bytes of an area.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AreaProt {
    /// Loads are allowed.
    pub read: bool,
    /// Stores are allowed.
    pub write: bool,
    /// Instruction fetches are allowed.
    pub exec: bool,
}

impl AreaProt {
    /// The `PROT_*` bits of mmap(2).
    pub fn bits(self) -> i32 {
        let bit = |on, value| if on { value } else { 0 };
        bit(self.read, libc::PROT_READ)
            | bit(self.write, libc::PROT_WRITE)
            | bit(self.exec, libc::PROT_EXEC)
    }
}

/// One line of `/proc/<pid>/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Access rights.
    pub prot: AreaProt,
    /// Stores reach other processes that map the same object.
    pub shared: bool,
    /// Offset in the file, in bytes; 0 without a file.
    pub offset: u64,
    /// Device of the file: major, minor.
    pub dev: (u32, u32),
    /// Inode of the file; 0 without a file.
    pub inode: u64,
    /// Path or pseudo-name such as `[heap]`; empty for plain anonymous memory.
    pub name: String,
    kind: AreaKind,
}

impl Area {
    /// What the area is for.
    pub fn kind(&self) -> AreaKind {
        self.kind
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Length in base pages.
    pub fn pages(&self) -> u64 {
        self.bytes() / PAGE_BYTES
    }

    /// The first page.
    pub fn first_page(&self) -> Vpn {
        Vpn(self.start / PAGE_BYTES)
    }

    /// Whether the address lies inside.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Private memory without a file behind it, whatever its use: what the engine can move.
    pub fn is_private_anonymous(&self) -> bool {
        use AreaKind::{Anonymous, Bss, Heap, MainStack, ThreadStack};
        !self.shared && matches!(self.kind, Heap | MainStack | ThreadStack | Anonymous | Bss)
    }
}

impl ProcRoot {
    /// The areas of a process, by ascending address.
    ///
    /// Empty for a kernel thread or a zombie. The kernel writes the list in pieces: an
    /// area that changed meanwhile may be missing, but none overlap.
    pub fn maps(&self, pid: i32) -> Result<Vec<Area>, ProcError> {
        let text = self.read_pid(pid, "maps")?;
        parse_maps(&text, &self.pid_path(pid, "maps"))
    }

    /// The flags the kernel keeps per area: (start, end, flags), by ascending address.
    ///
    /// Dear: the kernel walks every resident page to write `smaps`.
    pub fn smaps_flags(&self, pid: i32) -> Result<Vec<(u64, u64, VmFlags)>, ProcError> {
        let text = self.read_pid(pid, "smaps")?;
        parse_smaps_flags(&text, &self.pid_path(pid, "smaps"))
    }
}

/// Parses the text of a `maps` file; `path` is for messages only.
pub fn parse_maps(text: &[u8], path: &Path) -> Result<Vec<Area>, ProcError> {
    let mut areas: Vec<Area> = Vec::with_capacity(text.len() / 80 + 1);
    let mut images = Images::default();
    for line in text.split(|&b| b == b'\n').filter(|l| !l.is_empty()) {
        let mut area = parse_line(line).ok_or_else(|| bad_line(path, line))?;
        let floor = areas.last().map_or(0, |a| a.end);
        area.start = area.start.max(floor);
        if area.start >= area.end {
            continue;
        }
        area.kind = classify(&area, images.ends_at(area.start));
        images.note(&area);
        areas.push(area);
    }
    Ok(areas)
}

fn bad_line(path: &Path, line: &[u8]) -> ProcError {
    let shown = printable(&String::from_utf8_lossy(&line[..line.len().min(80)]));
    ProcError::malformed(
        path,
        format!("expected `start-end rwxp offset dev inode name`, found `{shown}`"),
    )
}

/// The last image (a privately mapped file with code) and where its last area ended, to
/// recognise bss. The areas of one image follow each other, so one is enough to remember.
#[derive(Default)]
struct Images {
    code: Option<((u32, u32), u64)>,
    end: Option<u64>,
}

impl Images {
    fn note(&mut self, area: &Area) {
        self.end = None;
        if area.shared || area.inode == 0 {
            return;
        }
        let file = Some((area.dev, area.inode));
        if area.prot.exec {
            self.code = file;
        }
        if self.code == file {
            self.end = Some(area.end);
        }
    }

    fn ends_at(&self, address: u64) -> bool {
        self.end == Some(address)
    }
}

/// A cursor over one line; each step returns `None` on unexpected text.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    /// A number in base 10 or 16 (lower case, as the kernel writes it).
    fn number<const BASE: u64>(&mut self) -> Option<u64> {
        let (mut value, mut used) = (0u64, 0);
        while let Some(&byte) = self.0.get(used) {
            let digit = match byte {
                b'0'..=b'9' => byte - b'0',
                b'a'..=b'f' if BASE == 16 => byte - b'a' + 10,
                _ => break,
            };
            value = value.checked_mul(BASE)?.checked_add(u64::from(digit))?;
            used += 1;
        }
        self.0 = &self.0[used..];
        (used > 0).then_some(value)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        (first == byte).then_some(())
    }

    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }
}

fn parse_line(line: &[u8]) -> Option<Area> {
    let mut at = Cursor(line);
    let start = at.number::<16>()?;
    at.expect(b'-')?;
    let end = at.number::<16>()?;
    at.expect(b' ')?;
    let mode = at.take(4)?;
    at.expect(b' ')?;
    let offset = at.number::<16>()?;
    at.expect(b' ')?;
    let major = at.number::<16>()?;
    at.expect(b':')?;
    let minor = at.number::<16>()?;
    at.expect(b' ')?;
    let inode = at.number::<10>()?;
    Some(Area {
        start,
        end,
        prot: AreaProt { read: mode[0] == b'r', write: mode[1] == b'w', exec: mode[2] == b'x' },
        shared: mode[3] == b's',
        offset,
        dev: (u32::try_from(major).ok()?, u32::try_from(minor).ok()?),
        inode,
        name: name(at.0),
        kind: AreaKind::Anonymous,
    })
}

/// The name after its padding. The kernel escapes nothing but newlines (`\012`); other control
/// characters are escaped here in the same way.
fn name(rest: &[u8]) -> String {
    let skip = rest.iter().take_while(|&&b| b == b' ').count();
    let name = &rest[skip..];
    // Directories can be nested deeper than any path is long.
    printable(&String::from_utf8_lossy(&name[..name.len().min(LONGEST_NAME)]))
}

fn classify(area: &Area, after_image: bool) -> AreaKind {
    let name = area.name.as_str();
    match name.as_bytes().first() {
        None if area.shared => AreaKind::SharedMemory,
        None if after_image => AreaKind::Bss,
        None => AreaKind::Anonymous,
        Some(b'[') => bracketed(name),
        Some(_) if name.starts_with("anon_inode:") => AreaKind::Special,
        Some(_) if name.starts_with("/anon_hugepage") => AreaKind::HugeTlb,
        Some(_) if name.starts_with("/dev/hugepages/") => AreaKind::HugeTlb,
        Some(_) if area.shared => shared_kind(name),
        // A private mapping of /dev/zero is anonymous memory to the kernel as well.
        Some(_) if name == "/dev/zero" => AreaKind::Anonymous,
        Some(_) => AreaKind::PrivateFile,
    }
}

fn bracketed(name: &str) -> AreaKind {
    match name {
        "[heap]" => AreaKind::Heap,
        "[stack]" => AreaKind::MainStack,
        _ if name.starts_with("[stack:") => AreaKind::ThreadStack,
        _ if name.starts_with("[anon_shmem:") => AreaKind::SharedMemory,
        _ if !name.starts_with("[anon:") => AreaKind::Special,
        // glibc names stacks `[anon: glibc: pthread stack: <tid>]` when asked to.
        _ if name.contains("pthread") && name.contains("stack") => AreaKind::ThreadStack,
        _ => AreaKind::Anonymous,
    }
}

fn shared_kind(name: &str) -> AreaKind {
    const MEMORY: [&str; 4] = ["/dev/zero", "/memfd:", "/SYSV", "/dev/shm/"];
    if MEMORY.iter().any(|m| name.starts_with(m)) {
        AreaKind::SharedMemory
    } else {
        AreaKind::SharedFile
    }
}

/// Flags of an area from the `VmFlags:` line of `smaps`; only those huepage acts on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VmFlags(u32);

impl VmFlags {
    /// `lo`: mlocked.
    pub const LOCKED: VmFlags = VmFlags(1);
    /// `wf`: emptied in the child of a fork.
    pub const WIPE_ON_FORK: VmFlags = VmFlags(1 << 1);
    /// `um`: a userfaultfd hears of missing pages.
    pub const UFFD_MISSING: VmFlags = VmFlags(1 << 2);
    /// `uw`: a userfaultfd hears of write-protected pages.
    pub const UFFD_WP: VmFlags = VmFlags(1 << 3);
    /// `ui`: a userfaultfd hears of minor faults.
    pub const UFFD_MINOR: VmFlags = VmFlags(1 << 4);

    const NAMES: [(&'static [u8; 2], VmFlags); 5] = [
        (b"lo", VmFlags::LOCKED),
        (b"wf", VmFlags::WIPE_ON_FORK),
        (b"um", VmFlags::UFFD_MISSING),
        (b"uw", VmFlags::UFFD_WP),
        (b"ui", VmFlags::UFFD_MINOR),
    ];

    /// Whether any flag of `other` is set.
    pub fn intersects(self, other: VmFlags) -> bool {
        self.0 & other.0 != 0
    }

    fn parse(words: &[u8]) -> VmFlags {
        let mut flags = 0;
        for word in words.split(|&b| b == b' ') {
            let known = VmFlags::NAMES.iter().find(|(name, _)| name.as_slice() == word);
            flags |= known.map_or(0, |(_, flag)| flag.0);
        }
        VmFlags(flags)
    }
}

impl std::ops::BitOr for VmFlags {
    type Output = VmFlags;
    fn bitor(self, other: VmFlags) -> VmFlags {
        VmFlags(self.0 | other.0)
    }
}

/// Parses the text of an `smaps` file; `path` is for messages only.
pub fn parse_smaps_flags(text: &[u8], path: &Path) -> Result<Vec<(u64, u64, VmFlags)>, ProcError> {
    let mut found = Vec::new();
    let mut range = None;
    for line in text.split(|&b| b == b'\n') {
        if let Some(words) = line.strip_prefix(b"VmFlags:") {
            let (start, end) = range.take().ok_or_else(|| bad_line(path, line))?;
            found.push((start, end, VmFlags::parse(words)));
        } else if let Some(header) = header_range(line) {
            range = Some(header);
        }
    }
    Ok(found)
}

/// The range of an area's first line; `None` for the `Key: value` lines below it.
fn header_range(line: &[u8]) -> Option<(u64, u64)> {
    let mut at = Cursor(line);
    let start = at.number::<16>()?;
    at.expect(b'-')?;
    let end = at.number::<16>()?;
    at.expect(b' ')?;
    Some((start, end))
}

/// Why pages of an area cannot be moved; `None` when they can.
pub fn obstacle(area: &Area) -> Option<MoveRefusal> {
    match area.kind() {
        AreaKind::PrivateFile | AreaKind::SharedFile => return Some(MoveRefusal::File),
        AreaKind::SharedMemory => return Some(MoveRefusal::Shared),
        AreaKind::Special => return Some(MoveRefusal::Special),
        AreaKind::HugeTlb => return Some(MoveRefusal::Huge),
        _ => {}
    }
    if !area.is_private_anonymous() {
        return Some(MoveRefusal::Shared);
    }
    if area.prot.exec {
        return Some(MoveRefusal::Executable);
    }
    (!area.prot.write || !area.prot.read).then_some(MoveRefusal::WriteProtected)
}

/// Whether pages of an area are constants of a program file. Memory files are not: they have no other place to
/// be read from again, and are how the agent got there.
pub fn is_constant(area: &Area) -> bool {
    area.kind() == AreaKind::PrivateFile
        && area.inode != 0
        && area.prot.read | area.prot.exec
        && !area.prot.write
        && !area.name.starts_with("/memfd:")
}

/// Whether an area makes its file program text.
pub fn is_code(area: &Area) -> bool {
    is_constant(area) && area.prot.exec
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, own_pid};
    use super::*;
    use crate::kernel::testing::Anonymous;

    const MAPS: &str = "\
55d000000000-55d000001000 r--p 00000000 fe:00 100                        /usr/bin/a b
55d000001000-55d000002000 r-xp 00001000 fe:00 100                        /usr/bin/a b
55d000002000-55d000003000 rw-p 00002000 fe:00 100                        /usr/bin/a b
55d000003000-55d000005000 rw-p 00000000 00:00 0 
55d000010000-55d000031000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000001000 r--p 00000000 103:0a 7                         /data/x\\012y
7f0000001000-7f0000002000 rw-p 00000000 00:00 0 
7f0000002000-7f0000003000 rw-s 00000000 00:01 9                          /dev/zero (deleted)
7f0000003000-7f0000004000 rw-s 00000000 00:01 9                          /memfd:ring (deleted)
7f0000004000-7f0000005000 rw-s 00000000 00:01 9                          /SYSV0000beef (deleted)
7f0000005000-7f0000006000 rw-s 00000000 00:19 9                          /dev/shm/seg
7f0000006000-7f0000007000 rw-s 00000000 fe:00 11                         /var/db
7f0000007000-7f0000008000 rw-p 00000000 00:05 4                          /dev/zero
7f0000200000-7f0000400000 rw-p 00000000 00:0f 30                         /anon_hugepage (deleted)
7f0000400000-7f0000401000 rw-p 00000000 00:00 0                          [anon: glibc: pthread stack: 77]
7f0000401000-7f0000402000 rw-p 00000000 00:00 0                          [anon:arena]
7f0000402000-7f0000403000 rw-s 00000000 00:0e 8                          anon_inode:[perf_event]
7ffe00000000-7ffe00021000 rw-p 00000000 00:00 0                          [stack]
7ffe00030000-7ffe00032000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    fn canned() -> Vec<Area> {
        let fake = Fake::new();
        fake.put("5/maps", MAPS);
        fake.root.maps(5).expect("well formed")
    }

    #[test]
    fn fields_are_read() {
        let areas = canned();
        let first = &areas[0];
        assert_eq!((first.start, first.end), (0x55d0_0000_0000, 0x55d0_0000_1000));
        assert_eq!(first.prot, AreaProt { read: true, write: false, exec: false });
        assert_eq!((first.dev, first.inode), ((0xfe, 0), 100));
        assert_eq!(first.name, "/usr/bin/a b");
        assert_eq!(areas[2].offset, 0x2000);
        assert_eq!(areas[2].prot.bits(), libc::PROT_READ | libc::PROT_WRITE);
        assert_eq!((areas[3].pages(), areas[3].first_page()), (2, Vpn(0x5_5d00_0003)));
        assert_eq!((areas[5].dev, areas[5].name.as_str()), ((0x103, 0xa), "/data/x\\012y"));
        assert!(areas[7].shared && !areas[6].shared);
    }

    #[test]
    fn kinds_follow_names_and_neighbours() {
        use AreaKind::*;
        let kinds: Vec<AreaKind> = canned().iter().map(Area::kind).collect();
        let expected = [
            PrivateFile,
            PrivateFile,
            PrivateFile,
            Bss,
            Heap,
            PrivateFile,
            Anonymous,
            SharedMemory,
            SharedMemory,
            SharedMemory,
            SharedMemory,
            SharedFile,
            Anonymous,
            HugeTlb,
            ThreadStack,
            Anonymous,
            Special,
            MainStack,
            Special,
            Special,
        ];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn only_private_memory_is_movable() {
        let movable = canned().iter().filter(|a| a.is_private_anonymous()).count();
        assert_eq!(movable, 7);
    }

    #[test]
    fn overlaps_from_a_torn_read_are_clipped() {
        let text =
            b"1000-3000 rw-p 0 00:00 0 \n2000-5000 rw-p 0 00:00 0 \n4000-5000 rw-p 0 00:00 0 \n";
        let areas = parse_maps(text, Path::new("maps")).expect("well formed");
        let ranges: Vec<_> = areas.iter().map(|a| (a.start, a.end)).collect();
        assert_eq!(ranges, [(0x1000, 0x3000), (0x3000, 0x5000)]);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in
            ["zz", "1000-2000", "1000-2000 rw-p 0 0:0 x", "1000-2000 rw", "10000000000000000-2 r"]
        {
            let error = parse_maps(text.as_bytes(), Path::new("m")).expect_err(text);
            assert!(matches!(error, ProcError::Malformed { .. }), "{text}: {error}");
        }
    }

    #[test]
    fn flags_are_read_per_area() {
        let fake = Fake::new();
        let smaps = "1000-2000 rw-p 00000000 00:00 0 \nSize:  4 kB\nVmFlags: rd wr mr mw me lo um nh \n\
                     ffff-10000 rw-p 00000000 00:00 0 [stack]\nAnonymous: 4 kB\nVmFlags: rd gd sd \n";
        fake.put("5/smaps", smaps);
        let flags = fake.root.smaps_flags(5).expect("well formed");
        let (start, end, first) = flags[0];
        assert_eq!((start, end), (0x1000, 0x2000));
        assert_eq!(first, VmFlags::LOCKED | VmFlags::UFFD_MISSING);
        assert_eq!(flags[1].2, VmFlags::default());
        assert_eq!(flags.len(), 2);
    }

    #[test]
    fn own_areas_hold_own_variables() {
        let (on_stack, on_heap) = (0u8, Box::new(0u8));
        let areas = ProcRoot::default().maps(own_pid()).expect("own maps");
        for place in [&raw const on_stack, &raw const *on_heap] {
            let area = areas.iter().find(|a| a.contains(place as u64)).expect("mapped");
            assert!(area.prot.write && area.is_private_anonymous());
        }
        let code = areas.iter().find(|a| a.contains(own_pid as *const () as u64)).expect("code");
        assert!(code.prot.exec && code.kind() == AreaKind::PrivateFile);
        assert!(areas.iter().any(|a| a.kind() == AreaKind::MainStack));
    }

    #[test]
    fn own_memory_has_the_flags_that_it_was_given() {
        let (area, other) = (Anonymous::new(1), Anonymous::new(1));
        area.advise(libc::MADV_WIPEONFORK);
        let flags = ProcRoot::default().smaps_flags(own_pid()).expect("own smaps");
        let of = |at: u64| flags.iter().find(|f| (f.0..f.1).contains(&at)).expect("mapped").2;
        assert_eq!(of(area.start()), VmFlags::WIPE_ON_FORK);
        assert_eq!(of(other.start()), VmFlags::default());
    }
}
