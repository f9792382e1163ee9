//! The numbers that the kernel gives its types and functions (BTF), from what it tells of itself in
//! `/sys/kernel/btf/vmlinux`: two lookups by name in a list that is read once, so that no library for
//! whole type graphs is needed.

use std::path::Path;

/// Where the kernel tells its types.
const VMLINUX: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
const STRUCT: u32 = 4;
const FUNCTION: u32 = 12;

/// What a program names to load kernel memory by plain instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainLoads {
    /// The function that makes an address one of a structure.
    pub(crate) cast: i32,
    /// A structure that begins with 64 bits which are no pointer.
    pub(crate) structure: i32,
}

impl PlainLoads {
    /// By the types of the running kernel; `None` where it tells none or lacks the function (before
    /// Linux 6.2). Takes some milliseconds.
    pub(crate) fn of_kernel() -> Option<PlainLoads> {
        PlainLoads::of(&std::fs::read(Path::new(VMLINUX)).ok()?)
    }

    fn of(btf: &[u8]) -> Option<PlainLoads> {
        let found = |kind, name| numbered(btf, kind, name).and_then(|id| i32::try_from(id).ok());
        let (cast, structure) = (found(FUNCTION, "bpf_rdonly_cast")?, found(STRUCT, "timespec64")?);
        Some(PlainLoads { cast, structure })
    }
}

/// The number of a type of some kind and name.
fn numbered(btf: &[u8], kind: u32, name: &str) -> Option<usize> {
    if btf.get(..2)? != MAGIC.to_ne_bytes() {
        return None;
    }
    let header = |at: usize| word(btf, at).and_then(|word| usize::try_from(word).ok());
    let [length, types, types_length, strings] = [4, 8, 12, 16].map(header);
    let start = length?.checked_add(types?)?;
    let types = btf.get(start..start.checked_add(types_length?)?)?;
    let strings = btf.get(length?.checked_add(strings?)?..)?;
    let mut at = 0;
    // Number 0 is `void`, which is not in the list.
    for id in 1.. {
        let [name_at, info] = [word(types, at)?, word(types, at + 4)?];
        let (this, members) = (info >> 24 & 31, (info & 0xffff) as usize);
        if this == kind && is_named(strings, name_at, name) {
            return Some(id);
        }
        at += 12 + extra_bytes(this, members)?;
    }
    None
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn is_named(strings: &[u8], at: u32, name: &str) -> bool {
    let rest = strings.get(at as usize..).unwrap_or_default();
    rest.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
}

/// Bytes that follow the three words of each type; `None` for kinds that are not known.
fn extra_bytes(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        // Integers, variables, tags of declarations.
        1 | 14 | 17 => 4,
        // Arrays.
        3 => 12,
        // Structures, unions, sections, enumerations of 64 bits.
        STRUCT | 5 | 15 | 19 => 12 * members,
        // Enumerations, parameters of functions.
        6 | 13 => 8 * members,
        2 | 7..=FUNCTION | 16 | 18 => 0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of types: a kind, a count of members, a name.
    fn btf(list: &[(u32, u32, &str)]) -> Vec<u8> {
        let (mut types, mut strings) = (Vec::new(), vec![0]);
        for &(kind, members, name) in list {
            for word in [strings.len() as u32, kind << 24 | members, 8] {
                types.extend(word.to_ne_bytes());
            }
            types.resize(types.len() + extra_bytes(kind, members as usize).unwrap(), 0xff);
            strings.extend(name.bytes().chain([0]));
        }
        let mut all = MAGIC.to_ne_bytes().to_vec();
        all.extend([1, 0]);
        let length = types.len() as u32;
        for word in [24, 0, length, length, strings.len() as u32] {
            all.extend(word.to_ne_bytes());
        }
        [all, types, strings].concat()
    }

    #[test]
    fn types_are_found_behind_all_kinds() {
        let mut list: Vec<(u32, u32, &str)> = (1..=19).map(|kind| (kind, 3, "other")).collect();
        list.extend([(STRUCT, 1, "timespec64x"), (FUNCTION, 0, "timespec64")]);
        list.extend([(STRUCT, 2, "timespec64"), (FUNCTION, 0, "bpf_rdonly_cast")]);
        let found = PlainLoads::of(&btf(&list));
        assert_eq!(found, Some(PlainLoads { cast: 23, structure: 22 }));
    }

    #[test]
    fn what_is_cut_off_or_unknown_is_no_answer() {
        let whole = btf(&[(STRUCT, 2, "timespec64"), (FUNCTION, 0, "bpf_rdonly_cast")]);
        assert!(PlainLoads::of(&whole).is_some());
        for end in 0..whole.len() {
            assert_eq!(PlainLoads::of(&whole[..end]), None, "{end}");
        }
        let unknown = btf(&[(STRUCT, 2, "timespec64"), (FUNCTION, 0, "other")]);
        assert_eq!(PlainLoads::of(&unknown), None);
        let mut kind = whole;
        kind[24 + 7] = 31;
        assert_eq!(PlainLoads::of(&kind), None);
    }
}
