//! ELF headers and the auxiliary vector: what kind of program a process runs.
//!
//! Only headers are read; symbols, sections and relocations are nobody's business here.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{ProcError, ProcRoot};

/// Width of a program's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElfClass {
    /// 32-bit; huepage cannot confine these.
    Bits32,
    /// 64-bit.
    Bits64,
}

/// What the header of a program says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElfInfo {
    /// Width of addresses.
    pub class: ElfClass,
    /// `e_machine`: 62 for x86-64, 183 for AArch64.
    pub machine: u16,
    /// Loaded through an interpreter (the dynamic linker).
    pub dynamic: bool,
    /// May be loaded at any address, so `entry` is relative.
    pub position_independent: bool,
    /// Entry point as written in the file.
    pub entry: u64,
}

impl ElfInfo {
    /// `e_machine` of x86-64.
    pub const X86_64: u16 = 62;

    /// Whether this is a 64-bit x86 program, the only kind the agent exists for.
    pub fn is_x86_64(&self) -> bool {
        self.class == ElfClass::Bits64 && self.machine == ElfInfo::X86_64
    }
}

/// Reads the header of a file; `None` if it is no ELF file (a script, say).
pub fn elf_info(path: &Path) -> Result<Option<ElfInfo>, ProcError> {
    let file = File::open(path).map_err(|e| ProcError::io(path, e))?;
    parse(&file, path)
}

/// The address width of a program file; `None` if it is no ELF file.
pub fn elf_class(path: &Path) -> Result<Option<ElfClass>, ProcError> {
    Ok(elf_info(path)?.map(|info| info.class))
}

fn parse(file: &File, path: &Path) -> Result<Option<ElfInfo>, ProcError> {
    let mut head = [0u8; 64];
    let n = read_up_to(file, &mut head, 0).map_err(|e| ProcError::io(path, e))?;
    if n < 4 || head[..4] != *b"\x7fELF" {
        return Ok(None);
    }
    let fault = || ProcError::malformed(path, "expected a complete little-endian ELF header");
    let class = match (head[4], head[5], n) {
        (1, 1, 52..) => ElfClass::Bits32,
        (2, 1, 64..) => ElfClass::Bits64,
        _ => return Err(fault()),
    };
    Ok(Some(ElfInfo {
        class,
        machine: u16_at(&head, 18),
        dynamic: has_interpreter(file, &head, class).map_err(|e| ProcError::io(path, e))?,
        position_independent: u16_at(&head, 16) == 3,
        entry: match class {
            ElfClass::Bits32 => u64::from(u32_at(&head, 24)),
            ElfClass::Bits64 => u64_at(&head, 24),
        },
    }))
}

/// Program headers that are looked at: those of 64 KiB, which is all that execve(2) takes.
const MAX_HEADERS: u64 = 65536 / 32;

/// Whether a program header of type PT_INTERP exists.
fn has_interpreter(file: &File, head: &[u8; 64], class: ElfClass) -> io::Result<bool> {
    const PT_INTERP: u32 = 3;
    let (table, size, count) = match class {
        ElfClass::Bits32 => (u64::from(u32_at(head, 28)), u16_at(head, 42), u16_at(head, 44)),
        ElfClass::Bits64 => (u64_at(head, 32), u16_at(head, 54), u16_at(head, 56)),
    };
    // The kernel runs no program whose table is larger; a file may claim 65,535 of them.
    for n in 0..u64::from(count).min(MAX_HEADERS) {
        let mut kind = [0u8; 4];
        let at = table.saturating_add(n * u64::from(size));
        if read_up_to(file, &mut kind, at)? == 4 && u32::from_le_bytes(kind) == PT_INTERP {
            return Ok(true);
        }
    }
    Ok(false)
}

fn read_up_to(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], at.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            // An offset beyond what the kernel accepts: a damaged header, nothing there.
            Err(e) if e.kind() == ErrorKind::InvalidInput => break,
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut word = [0; N];
    word.copy_from_slice(&bytes[at..at + N]);
    word
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes_at(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(bytes, at))
}

/// The auxiliary vector of a 64-bit process: what the kernel told it at exec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Auxv(Vec<(u64, u64)>);

impl Auxv {
    /// The value of an `AT_*` kind.
    pub fn get(&self, kind: u64) -> Option<u64> {
        self.0.iter().find(|(k, _)| *k == kind).map(|(_, value)| *value)
    }

    /// Address of the program's first instruction (not the dynamic linker's).
    pub fn entry(&self) -> Option<u64> {
        self.get(libc::AT_ENTRY)
    }

    /// Address of the vdso's ELF header.
    pub fn vdso(&self) -> Option<u64> {
        self.get(libc::AT_SYSINFO_EHDR)
    }
}

impl ProcRoot {
    /// The ELF header of the program a process runs. Kernel threads have none: `NoProcess`.
    pub fn exe_elf(&self, pid: i32) -> Result<ElfInfo, ProcError> {
        let path = self.pid_path(pid, "exe");
        let file = File::open(&path).map_err(|e| ProcError::of_pid(pid, &path, e))?;
        let found = parse(&file, &path)?;
        found.ok_or_else(|| ProcError::malformed(&path, "expected an ELF program"))
    }

    /// The auxiliary vector of a 64-bit process (check [`ProcRoot::exe_elf`] first).
    pub fn auxv(&self, pid: i32) -> Result<Auxv, ProcError> {
        let bytes = self.read_pid(pid, "auxv")?;
        let pairs = bytes.chunks_exact(16).map(|c| (u64_at(c, 0), u64_at(c, 8)));
        Ok(Auxv(pairs.take_while(|(kind, _)| *kind != 0).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, own_pid};
    use super::*;

    /// A header with one program header of the given type right behind it.
    fn header(bits64: bool, machine: u16, segment: u32) -> Vec<u8> {
        let size = if bits64 { 64 } else { 52 };
        let mut bytes = vec![0u8; size + 56];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', if bits64 { 2 } else { 1 }, 1]);
        bytes[16] = 3;
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[24..28].copy_from_slice(&0x1040u32.to_le_bytes());
        let (table, width, count) = if bits64 { (32, 54, 56) } else { (28, 42, 44) };
        bytes[table] = u8::try_from(size).expect("small");
        bytes[width] = 56;
        bytes[count] = 1;
        bytes[size..size + 4].copy_from_slice(&segment.to_le_bytes());
        bytes
    }

    #[test]
    fn headers_are_told_apart() {
        let fake = Fake::new();
        fake.put("1/exe", header(true, 62, 3)).put("2/exe", header(false, 3, 1));
        let dynamic = fake.root.exe_elf(1).expect("an ELF file");
        assert!(dynamic.is_x86_64() && dynamic.dynamic && dynamic.position_independent);
        assert_eq!(dynamic.entry, 0x1040);
        let old = fake.root.exe_elf(2).expect("an ELF file");
        assert_eq!((old.class, old.machine, old.dynamic), (ElfClass::Bits32, 3, false));
        assert!(!old.is_x86_64());
    }

    #[test]
    fn scripts_and_stumps_are_not_programs() {
        let fake = Fake::new();
        fake.put("script", "#!/bin/sh\n").put("empty", "").put("stump", b"\x7fELF\x02\x01");
        assert_eq!(elf_class(&fake.root.0.join("script")).expect("readable"), None);
        assert_eq!(elf_class(&fake.root.0.join("empty")).expect("readable"), None);
        assert!(matches!(elf_class(&fake.root.0.join("stump")), Err(ProcError::Malformed { .. })));
        assert!(elf_class(&fake.root.0.join("absent")).is_err());
    }

    #[test]
    fn a_wild_table_offset_is_survived() {
        let fake = Fake::new();
        let mut bytes = header(true, 62, 3);
        bytes[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        fake.put("3/exe", bytes);
        assert!(!fake.root.exe_elf(3).expect("an ELF file").dynamic);
    }

    #[test]
    fn auxv_is_read_up_to_its_end() {
        let fake = Fake::new();
        let words: [u64; 8] = [9, 0x4000, 33, 0x7000, 0, 0, 9, 1];
        fake.put("4/auxv", words.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<_>>());
        let auxv = fake.root.auxv(4).expect("canned");
        assert_eq!((auxv.entry(), auxv.vdso(), auxv.get(6)), (Some(0x4000), Some(0x7000), None));
    }

    #[test]
    fn own_program_matches_its_file() {
        let (root, own) = (ProcRoot::default(), own_pid());
        let info = root.exe_elf(own).expect("own header");
        let path = std::env::current_exe().expect("own path");
        assert_eq!(elf_info(&path).expect("readable"), Some(info));
        let entry = root.auxv(own).expect("own auxv").entry().expect("an entry");
        assert_eq!(entry & 0xfff, info.entry & 0xfff);
    }
}
