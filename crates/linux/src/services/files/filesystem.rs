//! Which filesystems keep their pages in the page cache in a way that they can be placed. Judged
//! by the magic number of statfs(2) alone; nothing is mounted, read or written.

use std::fs::File;

use rustix::fs::fstatfs;

/// Whether and how pages of a file can be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placeable {
    /// Dropped and read again from a disk.
    Disk,
    /// As a disk, but the pages belong to a file below (overlayfs), of which the kernel says less.
    Stacked,
    /// Memory only (tmpfs): pages can be placed as they are written, and through swap.
    Memory,
    /// Not at all; the name of the filesystem.
    No(&'static str),
}

/// Magic numbers as in the kernel's `magic.h`.
/// ext2 to ext4, xfs, btrfs, f2fs.
const DISK: [u64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];
const OVERLAY: u64 = 0x794c_7630;
const TMPFS: u64 = 0x0102_1994;
/// ZFS keeps a cache of its own.
const OTHERS: [(u64, &str); 17] = [
    (0x2fc1_2fc1, "zfs"),
    (0x6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "fuse"),
    (0x00c3_6400, "ceph"),
    (0x5346_414f, "afs"),
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x8584_58f6, "ramfs"),
    (0x9584_58f6, "hugetlbfs"),
    (0x7371_7368, "squashfs"),
    (0xe0f5_e1e2, "erofs"),
    (0x4d44, "vfat"),
    (0x9660, "iso9660"),
    (0x6426_4626, "virtiofs"),
];

/// What the filesystem of an open file allows.
pub fn placeable(file: &File) -> Placeable {
    fstatfs(file).map_or(Placeable::No("unknown"), |found| placeable_by_magic(found.f_type as u64))
}

/// The judgement on a magic number.
fn placeable_by_magic(magic: u64) -> Placeable {
    // The type of the field is signed on some architectures.
    let magic = magic & 0xffff_ffff;
    if DISK.contains(&magic) {
        return Placeable::Disk;
    }
    match magic {
        TMPFS => return Placeable::Memory,
        OVERLAY => return Placeable::Stacked,
        _ => {}
    }
    let named = OTHERS.iter().find(|(number, _)| *number == magic);
    Placeable::No(named.map_or("this kind of", |(_, name)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_memory_and_others_are_told_apart() {
        assert_eq!(placeable_by_magic(0xef53), Placeable::Disk);
        assert_eq!(placeable_by_magic(0xffff_ffff_9123_683e), Placeable::Disk);
        assert_eq!(placeable_by_magic(0x0102_1994), Placeable::Memory);
        assert_eq!(placeable_by_magic(0x794c_7630), Placeable::Stacked);
        assert_eq!(placeable_by_magic(0x6969), Placeable::No("nfs"));
        assert_eq!(placeable_by_magic(0x2fc1_2fc1), Placeable::No("zfs"));
        assert_eq!(placeable_by_magic(7), Placeable::No("this kind of"));
    }

    #[test]
    fn proc_cannot_be_placed() {
        let file = File::open("/proc/self/status").unwrap();
        assert_eq!(placeable(&file), Placeable::No("proc"));
    }
}
