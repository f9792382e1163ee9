//! Where the members of kernel structures lie, from the type information that a kernel publishes
//! about itself (BTF). Only structures are understood, as nothing else is asked for. The crates
//! that read BTF either have a licence that does not fit (`btf-rs`) or keep members to themselves
//! (`aya-obj`).

use std::collections::HashMap;

const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
/// Unnamed structures inside each other, at most.
const DEPTH: u32 = 8;

/// The types of one kernel.
pub(super) struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Where each type begins in `types`; the number of a type is its place here.
    starts: Vec<usize>,
    /// Structures by name.
    named: HashMap<&'a [u8], usize>,
}

impl<'a> Btf<'a> {
    /// Indexes a BTF blob; milliseconds for that of a kernel. `None` if it is malformed, or of a
    /// newer format.
    pub(super) fn parse(blob: &'a [u8]) -> Option<Btf<'a>> {
        let magic = u16::from_ne_bytes(blob.get(..2)?.try_into().ok()?);
        let header = word(blob, 4)? as usize;
        if magic != MAGIC || header < HEADER {
            return None;
        }
        let section = |at: usize| {
            let (from, len) = (word(blob, at)? as usize, word(blob, at + 4)? as usize);
            blob.get(header..)?.get(from..)?.get(..len)
        };
        let (types, strings) = (section(8)?, section(16)?);
        let mut btf = Btf { types, strings, starts: Vec::new(), named: HashMap::new() };
        btf.index()?;
        Some(btf)
    }

    fn index(&mut self) -> Option<()> {
        // The first number means `void`, and has no entry.
        self.starts.push(usize::MAX);
        let mut at = 0;
        while at < self.types.len() {
            let (kind, members) = self.kind(at)?;
            if kind == STRUCT && members > 0 {
                let name = self.string(word(self.types, at)?)?;
                self.named.entry(name).or_insert(at);
            }
            self.starts.push(at);
            at += 12 + trailer(kind, members)?;
        }
        Some(())
    }

    /// Bytes from the start of a structure to a member, which may lie in unnamed parts of it.
    pub(super) fn offset(&self, structure: &str, member: &str) -> Option<u32> {
        let bits = self.bits(*self.named.get(structure.as_bytes())?, member.as_bytes(), 0)?;
        (bits % 8 == 0).then_some(bits / 8)
    }

    /// Bytes of a structure.
    pub(super) fn size(&self, structure: &str) -> Option<u32> {
        word(self.types, *self.named.get(structure.as_bytes())? + 8)
    }

    fn bits(&self, at: usize, wanted: &[u8], depth: u32) -> Option<u32> {
        let bit_fields = word(self.types, at + 4)? >> 31 == 1;
        let members = self.kind(at)?.1;
        (0..members).map(|i| at + 12 + i * 12).find_map(|member| {
            let name = self.string(word(self.types, member)?)?;
            let place = word(self.types, member + 8)?;
            let place = if bit_fields { place & 0x00ff_ffff } else { place };
            if name == wanted {
                return Some(place);
            }
            let inner = *self.starts.get(word(self.types, member + 4)? as usize)?;
            let unnamed = name.is_empty() && matches!(self.kind(inner)?.0, STRUCT | UNION);
            if !unnamed || depth == DEPTH {
                return None;
            }
            place.checked_add(self.bits(inner, wanted, depth + 1)?)
        })
    }

    /// What a type is, and how many members it has.
    fn kind(&self, at: usize) -> Option<(u32, usize)> {
        let info = word(self.types, at.checked_add(4)?)?;
        Some((info >> 24 & 0x1f, (info & 0xffff) as usize))
    }

    fn string(&self, at: u32) -> Option<&'a [u8]> {
        self.strings.get(at as usize..)?.split(|&b| b == 0).next()
    }
}

/// Bytes of a type behind its first twelve.
fn trailer(kind: u32, members: usize) -> Option<usize> {
    match kind {
        // Pointers, forward declarations, aliases and qualifiers, functions, floats, tags.
        2 | 7..=12 | 16 | 18 => Some(0),
        // Integers, variables, declaration tags.
        1 | 14 | 17 => Some(4),
        // Arrays.
        3 => Some(12),
        // Structures, sections, and enumerations of 64 bits.
        STRUCT | UNION | 15 | 19 => Some(12 * members),
        // Enumerations, and the parameters of functions.
        6 | 13 => Some(8 * members),
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let end = at.checked_add(4)?;
    Some(u32::from_ne_bytes(bytes.get(at..end)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct outer { int; struct { int; union { int x; int pgd; }; }; }` and an enumeration, an
    /// array, a forward declaration of `outer` before it.
    fn blob() -> Vec<u8> {
        let strings = b"\0outer\0first\0pgd\0x\0inner\0";
        let kind = |kind: u32, members: u32| kind << 24 | members;
        let types: &[u32] = &[
            1,
            kind(7, 0),
            0, // 1: forward declaration
            0,
            kind(1, 0),
            4,
            32, // 2: int
            0,
            kind(6, 1),
            4,
            7,
            0, // 3: enum
            0,
            kind(3, 0),
            0,
            2,
            2,
            8, // 4: int[8]
            0,
            kind(5, 2),
            4,
            17,
            2,
            0,
            13,
            2,
            0, // 5: union { x, pgd }
            0,
            kind(4, 2),
            40,
            7,
            4,
            0,
            0,
            5,
            256, // 6: struct { first[8]; union }
            1,
            kind(4, 3),
            44,
            19,
            2,
            0,
            0,
            6,
            32,
            7,
            6,
            512, // 7: struct outer
        ];
        let types: Vec<u8> = types.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
        let mut blob = MAGIC.to_ne_bytes().to_vec();
        blob.extend([1, 0]);
        for word in [24, 0, length(&types), length(&types), length(strings)] {
            blob.extend(word.to_ne_bytes());
        }
        blob.extend(types);
        blob.extend(strings);
        blob
    }

    #[test]
    fn members_of_unnamed_parts_are_found() {
        let blob = blob();
        let btf = Btf::parse(&blob).unwrap();
        assert_eq!(btf.offset("outer", "inner"), Some(0));
        assert_eq!(btf.offset("outer", "pgd"), Some(4 + 32));
        assert_eq!(btf.offset("outer", "first"), Some(4), "the unnamed one comes before");
        assert_eq!(btf.size("outer"), Some(44));
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        let blob = blob();
        let btf = Btf::parse(&blob).unwrap();
        assert_eq!((btf.offset("outer", "second"), btf.offset("pgd", "x")), (None, None));
        assert_eq!(btf.size("inner"), None);
    }

    #[test]
    fn damaged_blobs_are_refused() {
        let blob = blob();
        for len in 0..blob.len() {
            assert!(Btf::parse(&blob[..len]).is_none(), "cut after {len} bytes");
        }
        let mut strange = blob.clone();
        strange[24 + 7] = 25;
        assert!(Btf::parse(&strange).is_none(), "a kind of type that does not exist");
        for at in 0..blob.len() {
            let mut other = blob.clone();
            other[at] ^= 0x55;
            let _ = Btf::parse(&other).map(|btf| btf.offset("outer", "pgd"));
        }
    }
}
