//! ELF headers: what kind of program a process runs.
//!
//! Only the first bytes are read; symbols, sections and relocations are nobody's business here.

use std::fs::File;
use std::io::Read as _;
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
    parse(file, path)
}

fn parse(file: File, path: &Path) -> Result<Option<ElfInfo>, ProcError> {
    let mut head = Vec::new();
    file.take(64).read_to_end(&mut head).map_err(|e| ProcError::io(path, e))?;
    if !head.starts_with(b"\x7fELF") {
        return Ok(None);
    }
    let class = match (head.get(4), head.get(5), head.len()) {
        (Some(1), Some(1), 52..) => ElfClass::Bits32,
        (Some(2), Some(1), 64..) => ElfClass::Bits64,
        _ => {
            let what = "expected a complete little-endian ELF header";
            return Err(ProcError::malformed(path, what));
        }
    };
    Ok(Some(ElfInfo { class, machine: u16::from_le_bytes([head[18], head[19]]) }))
}

impl ProcRoot {
    /// The ELF header of the program a process runs. Kernel threads have none: `NoProcess`.
    pub fn exe_elf(&self, pid: i32) -> Result<ElfInfo, ProcError> {
        let path = self.pid_path(pid, "exe");
        let file = File::open(&path).map_err(|e| ProcError::of_pid(pid, &path, e))?;
        let found = parse(file, &path)?;
        found.ok_or_else(|| ProcError::malformed(&path, "expected an ELF program"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, own_pid};
    use super::*;

    fn header(class: u8, machine: u16) -> Vec<u8> {
        let mut bytes = vec![0u8; if class == 2 { 64 } else { 52 }];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes
    }

    #[test]
    fn headers_are_told_apart() {
        let fake = Fake::new();
        fake.put("1/exe", header(2, 62)).put("2/exe", header(1, 3));
        assert!(fake.root.exe_elf(1).expect("an ELF file").is_x86_64());
        let old = fake.root.exe_elf(2).expect("an ELF file");
        assert_eq!((old.class, old.machine), (ElfClass::Bits32, 3));
        assert!(!old.is_x86_64());
    }

    #[test]
    fn scripts_and_stumps_are_not_programs() {
        let fake = Fake::new();
        fake.put("script", "#!/bin/sh\n").put("empty", "").put("stump", b"\x7fELF\x02\x01");
        assert_eq!(elf_info(&fake.root.0.join("script")).expect("readable"), None);
        assert_eq!(elf_info(&fake.root.0.join("empty")).expect("readable"), None);
        assert!(matches!(elf_info(&fake.root.0.join("stump")), Err(ProcError::Malformed { .. })));
        assert!(elf_info(&fake.root.0.join("absent")).is_err());
    }

    #[test]
    fn own_program_matches_its_file() {
        let (root, own) = (ProcRoot::default(), own_pid());
        let info = root.exe_elf(own).expect("own header");
        let path = std::env::current_exe().expect("own path");
        assert_eq!(elf_info(&path).expect("readable"), Some(info));
        assert_eq!(info.is_x86_64(), cfg!(target_arch = "x86_64"));
    }
}
