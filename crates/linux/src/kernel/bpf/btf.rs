//! The types of the running kernel, from what it publishes of itself (BTF): the numbers of types and functions,
//! and where the members of structures lie. The crates that read BTF either have a licence that does not fit
//! (`btf-rs`) or keep members to themselves (`aya-obj`).

/// Where the kernel tells its types.
pub(crate) const VMLINUX: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const FUNCTION: u32 = 12;
/// Unnamed structures inside each other, at most.
const DEPTH: u32 = 8;

/// What a program names to load kernel memory by plain instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainLoads {
    /// The function that makes an address one of a structure.
    pub(crate) cast: i32,
    /// A structure that begins with 64 bits which are no pointer.
    pub(crate) structure: i32,
}

impl PlainLoads {
    /// By the types of the running kernel; `None` where it tells none or lacks the function (who builds a kernel
    /// may leave it out). Takes some milliseconds.
    pub(crate) fn of_kernel() -> Option<PlainLoads> {
        PlainLoads::of(&std::fs::read(VMLINUX).ok()?)
    }

    fn of(blob: &[u8]) -> Option<PlainLoads> {
        let btf = Btf::parse(blob)?;
        let found = |kind, name| i32::try_from(btf.number(kind, name)?).ok();
        let (cast, structure) = (found(FUNCTION, "bpf_rdonly_cast")?, found(STRUCT, "timespec64")?);
        Some(PlainLoads { cast, structure })
    }
}

/// The types of one kernel.
pub(crate) struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Where each type begins in `types`; the number of a type is its place here.
    starts: Vec<usize>,
}

impl<'a> Btf<'a> {
    /// Indexes a BTF blob; milliseconds for that of a kernel. `None` if it is malformed, or of a
    /// newer format.
    pub(crate) fn parse(blob: &'a [u8]) -> Option<Btf<'a>> {
        let header = word(blob, 4)? as usize;
        if blob.get(..2)? != MAGIC.to_ne_bytes() || header < HEADER {
            return None;
        }
        let section = |at: usize| {
            let (from, len) = (word(blob, at)? as usize, word(blob, at + 4)? as usize);
            blob.get(header..)?.get(from..)?.get(..len)
        };
        // The first number means `void`, and has no entry.
        let starts = vec![usize::MAX];
        let mut btf = Btf { types: section(8)?, strings: section(16)?, starts };
        let mut at = 0;
        while at < btf.types.len() {
            let (kind, members) = btf.kind(at)?;
            btf.starts.push(at);
            at += 12 + trailer(kind, members)?;
        }
        Some(btf)
    }

    /// Bytes from the start of a structure to a member, which may lie in unnamed parts of it.
    pub(crate) fn offset(&self, structure: &str, member: &str) -> Option<u32> {
        let at = self.starts[self.number(STRUCT, structure)?];
        let bits = self.bits(at, member.as_bytes(), 0)?;
        (bits % 8 == 0).then_some(bits / 8)
    }

    /// Bytes of a structure.
    pub(crate) fn size(&self, structure: &str) -> Option<u32> {
        word(self.types, self.starts[self.number(STRUCT, structure)?] + 8)
    }

    /// The number of the first type of some kind and name; a structure only declared is none.
    fn number(&self, wanted: u32, name: &str) -> Option<usize> {
        let is_wanted = |&at: &usize| {
            let (kind, members) = self.kind(at)?;
            let fits = kind == wanted && (kind != STRUCT || members > 0);
            (fits && self.string(word(self.types, at)?)? == name.as_bytes()).then_some(())
        };
        self.starts.iter().position(|at| is_wanted(at).is_some())
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

/// Bytes of a type behind its first twelve; `None` for kinds that are not known.
fn trailer(kind: u32, members: usize) -> Option<usize> {
    match kind {
        // Pointers, forward declarations, aliases and qualifiers, functions, floats, tags.
        2 | 7..=FUNCTION | 16 | 18 => Some(0),
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
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(kind: u32, members: u32) -> u32 {
        kind << 24 | members
    }

    fn blob(types: &[&[u32]], strings: &[u8]) -> Vec<u8> {
        let types: Vec<u8> = types.concat().iter().flat_map(|w| w.to_ne_bytes()).collect();
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
        let header = [24, 0, length(&types), length(&types), length(strings)];
        let mut blob = MAGIC.to_ne_bytes().to_vec();
        blob.extend([1, 0]);
        blob.extend(header.iter().flat_map(|word| word.to_ne_bytes()));
        [&blob[..], &types, strings].concat()
    }

    /// `struct outer { int; struct { int; union { int x; int pgd; }; }; }` and an enumeration, an
    /// array, a forward declaration of `outer` before it.
    fn outer() -> Vec<u8> {
        let types: [&[u32]; 7] = [
            // 1: forward declaration
            &[1, kind(7, 0), 0],
            // 2: int
            &[0, kind(1, 0), 4, 32],
            // 3: enum
            &[0, kind(6, 1), 4, 7, 0],
            // 4: int[8]
            &[0, kind(3, 0), 0, 2, 2, 8],
            // 5: union { x, pgd }
            &[0, kind(5, 2), 4, 17, 2, 0, 13, 2, 0],
            // 6: struct { first[8]; union }
            &[0, kind(4, 2), 40, 7, 4, 0, 0, 5, 256],
            // 7: struct outer
            &[1, kind(4, 3), 44, 19, 2, 0, 0, 6, 32, 7, 6, 512],
        ];
        blob(&types, b"\0outer\0first\0pgd\0x\0inner\0")
    }

    /// A list of types: a kind, a count of members, a name.
    fn list(list: &[(u32, u32, &str)]) -> Vec<u8> {
        let (mut types, mut strings) = (Vec::new(), vec![0]);
        for &(this, members, name) in list {
            let mut words = vec![strings.len() as u32, kind(this, members), 8];
            words.resize(3 + trailer(this, members as usize).unwrap() / 4, u32::MAX);
            types.push(words);
            strings.extend(name.bytes().chain([0]));
        }
        blob(&types.iter().map(|words| &words[..]).collect::<Vec<_>>(), &strings)
    }

    #[test]
    fn members_of_unnamed_parts_are_found() {
        let blob = outer();
        let btf = Btf::parse(&blob).unwrap();
        assert_eq!(btf.offset("outer", "inner"), Some(0));
        assert_eq!(btf.offset("outer", "pgd"), Some(4 + 32));
        assert_eq!(btf.offset("outer", "first"), Some(4), "the unnamed one comes before");
        assert_eq!(btf.size("outer"), Some(44));
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        let blob = outer();
        let btf = Btf::parse(&blob).unwrap();
        assert_eq!((btf.offset("outer", "second"), btf.offset("pgd", "x")), (None, None));
        assert_eq!(btf.size("inner"), None);
    }

    #[test]
    fn damaged_blobs_are_refused() {
        let blob = outer();
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

    #[test]
    fn numbers_are_found_behind_all_kinds() {
        let mut all: Vec<(u32, u32, &str)> = (1..=19).map(|kind| (kind, 3, "other")).collect();
        all.extend([(STRUCT, 1, "timespec64x"), (FUNCTION, 0, "timespec64")]);
        all.extend([(STRUCT, 2, "timespec64"), (FUNCTION, 0, "bpf_rdonly_cast")]);
        let found = PlainLoads::of(&list(&all));
        assert_eq!(found, Some(PlainLoads { cast: 23, structure: 22 }));
    }

    #[test]
    fn numbers_in_what_is_cut_off_or_unknown_are_no_answer() {
        let whole = list(&[(STRUCT, 2, "timespec64"), (FUNCTION, 0, "bpf_rdonly_cast")]);
        assert!(PlainLoads::of(&whole).is_some());
        for end in 0..whole.len() {
            assert_eq!(PlainLoads::of(&whole[..end]), None, "{end}");
        }
        let unknown = list(&[(STRUCT, 2, "timespec64"), (FUNCTION, 0, "other")]);
        assert_eq!(PlainLoads::of(&unknown), None);
        let mut kind = whole;
        kind[24 + 7] = 31;
        assert_eq!(PlainLoads::of(&kind), None);
    }
}
