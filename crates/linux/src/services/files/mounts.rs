//! Which filesystems to watch: those whose files can be placed, once each, wherever they are
//! mounted; or those of some directories and what is mounted below. Nothing is marked here.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::filesystem::{Placeable, placeable};

/// Types of filesystems that keep pages of a disk's files; others are not even opened, since a
/// server that is gone would not answer.
const DISKS: [&str; 7] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "overlay"];

/// One line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    device: String,
    point: PathBuf,
    kind: String,
}

/// Where to watch, and what is not watched although it was named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchedPlaces {
    /// A directory of each filesystem.
    pub marks: Vec<PathBuf>,
    /// Named directories on filesystems whose files cannot be placed, with the reason.
    pub skipped: Vec<(PathBuf, String)>,
}

/// The filesystems of `include`, or all if nothing is named. `mountinfo` as in proc(5).
pub fn places(mountinfo: &str, include: &[PathBuf]) -> WatchedPlaces {
    let mut found = WatchedPlaces::default();
    for directory in include {
        match judged(directory) {
            Ok(()) => found.marks.push(directory.clone()),
            Err(why) => found.skipped.push((directory.clone(), why)),
        }
    }
    let inside = |point: &Path| include.is_empty() || include.iter().any(|d| point.starts_with(d));
    let mut devices = HashSet::new();
    for mount in parse(mountinfo) {
        let disk = DISKS.contains(&mount.kind.as_str());
        let new = disk && inside(&mount.point) && devices.insert(mount.device);
        if new && judged(&mount.point).is_ok() {
            found.marks.push(mount.point);
        }
    }
    found
}

fn judged(directory: &Path) -> Result<(), String> {
    let open = File::open(directory).map_err(|e| e.to_string())?;
    match placeable(&open) {
        Placeable::Disk | Placeable::Stacked => Ok(()),
        Placeable::Memory => Err("its files are in memory only (tmpfs)".to_owned()),
        Placeable::No(name) => Err(format!("files of {name} filesystems are not placed")),
    }
}

fn parse(mountinfo: &str) -> impl Iterator<Item = Mount> + '_ {
    mountinfo.lines().filter_map(|line| {
        let (place, source) = line.split_once(" - ")?;
        let mut fields = place.split(' ').skip(2);
        let device = fields.next()?.to_owned();
        let point = PathBuf::from(unescape(fields.nth(1)?));
        Some(Mount { device, point, kind: source.split(' ').next()?.to_owned() })
    })
}

/// Blanks, tabs, newlines and backslashes are written as three octal digits.
fn unescape(text: &str) -> OsString {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..3).and_then(|d| std::str::from_utf8(d).ok());
        let code = digits.and_then(|d| u8::from_str_radix(d, 8).ok()).filter(|_| first == b'\\');
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &behind[3..] } else { behind };
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:5 / /dev rw - devtmpfs devtmpfs rw
24 22 254:0 /data /mnt/with\\040blank rw,relatime shared:1 master:2 - ext4 /dev/vda rw
25 22 0:44 / /srv rw - nfs4 server:/srv rw
damaged line\n";

    #[test]
    fn mounts_are_read() {
        let found: Vec<Mount> = parse(MOUNTINFO).collect();
        let points: Vec<_> = found.iter().map(|m| m.point.to_str().unwrap()).collect();
        assert_eq!(points, ["/", "/dev", "/mnt/with blank", "/srv"]);
        let kinds: Vec<&str> = found.iter().map(|m| m.kind.as_str()).collect();
        assert_eq!(kinds, ["ext4", "devtmpfs", "ext4", "nfs4"]);
        assert_eq!(found[2].device, "254:0");
    }

    #[test]
    fn escapes_are_three_octal_digits() {
        assert_eq!(unescape(r"a\040b\134c"), r"a b\c");
        assert_eq!(unescape(r"end\04"), r"end\04");
        assert_eq!(unescape(r"\999"), r"\999");
    }

    #[test]
    fn a_filesystem_is_watched_once() {
        let own = std::env::current_dir().unwrap();
        let line = |point: &Path| format!("9 1 8:1 / {} rw - ext4 /dev/x rw\n", point.display());
        let twice = line(&own) + &line(own.parent().unwrap());
        let expected = if judged(&own).is_ok() { vec![own] } else { vec![] };
        assert_eq!(places(&twice, &[]).marks, expected);
    }

    #[test]
    fn what_cannot_be_placed_is_said() {
        let found = places(MOUNTINFO, &[PathBuf::from("/proc"), PathBuf::from("/absent")]);
        assert!(found.marks.is_empty(), "{found:?}");
        assert!(found.skipped[0].1.contains("proc"), "{found:?}");
        assert_eq!(found.skipped.len(), 2);
    }
}
