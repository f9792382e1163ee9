//! Sizes of pages that the kernel gives anonymous memory of its own accord when it is first touched: those between
//! 4 KiB and 2 MiB (mTHP) and 2 MiB itself. It builds only 2 MiB of pages in use, so nobody can ask for the others
//! in memory that is there already. Settings are read and never changed.

use super::{SysRoot, chosen, read_text};

/// Where the settings are, below `/sys`.
pub(super) const THP_DIR: &str = "kernel/mm/transparent_hugepage";
/// The one that counts where a size inherits.
const FOR_ALL: &str = "enabled";
/// Of the largest page that is no superpage.
const LARGEST_BETWEEN_KIB: u64 = 1024;

/// A size and its setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageSizeSetting {
    /// The size in KiB.
    pub kib: u64,
    /// `always`, `madvise`, `inherit` or `never`.
    pub setting: String,
    /// The same, with what is inherited in its place.
    pub applies: String,
}

impl PageSizeSetting {
    /// Whether memory may get such pages: all of it, or what asks for large pages.
    pub fn is_given(&self) -> bool {
        self.applies != "never"
    }

    /// Whether it is larger than 4 KiB and smaller than 2 MiB.
    pub const fn is_between(&self) -> bool {
        self.kib <= LARGEST_BETWEEN_KIB
    }
}

/// The sizes that private memory can have, by size; none where the kernel has no such settings (before Linux 6.8).
pub fn page_size_settings(sys: &SysRoot) -> Vec<PageSizeSetting> {
    let inherited = sys.text(format!("{THP_DIR}/{FOR_ALL}")).unwrap_or_default();
    let mut sizes = Vec::new();
    for entry in std::fs::read_dir(sys.path(THP_DIR)).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let size = name.to_str().and_then(|n| n.strip_prefix("hugepages-")?.strip_suffix("kB"));
        let Some(kib) = size.and_then(|size| size.parse::<u64>().ok()) else { continue };
        // Sizes that only shared memory can have lack this file.
        let Some(text) = read_text(&entry.path().join("enabled")) else { continue };
        let setting = chosen(&text).to_owned();
        let applies =
            if setting == "inherit" { chosen(&inherited).to_owned() } else { setting.clone() };
        sizes.push(PageSizeSetting { kib, setting, applies });
    }
    sizes.sort_by_key(|size| size.kib);
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `/sys` with a setting for all sizes and some of their own.
    fn sys(for_all: &str, own: &[(&str, &str)]) -> (tempfile::TempDir, SysRoot) {
        let directory = tempfile::tempdir().unwrap();
        let thp = directory.path().join(THP_DIR);
        std::fs::create_dir_all(&thp).unwrap();
        std::fs::write(thp.join(FOR_ALL), for_all).unwrap();
        for (name, text) in own {
            let path = thp.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = SysRoot(directory.path().to_owned());
        (directory, root)
    }

    #[test]
    fn a_size_that_inherits_has_what_is_set_for_all() {
        let (_directory, root) = sys(
            "always [madvise] never\n",
            &[
                ("hugepages-2048kB/enabled", "always [inherit] madvise never\n"),
                ("hugepages-64kB/enabled", "[always] inherit madvise never\n"),
                ("hugepages-16kB/enabled", "always inherit madvise [never]\n"),
                ("hugepages-8kB/shmem_enabled", "[always] never\n"),
                ("khugepaged/enabled", "[always] never\n"),
                ("hugepages-xkB/enabled", "[always] never\n"),
            ],
        );
        let sizes = page_size_settings(&root);
        let told: Vec<(u64, &str, &str)> =
            sizes.iter().map(|s| (s.kib, &*s.setting, &*s.applies)).collect();
        let expected =
            [(16, "never", "never"), (64, "always", "always"), (2048, "inherit", "madvise")];
        assert_eq!(told, expected);
        let given: Vec<u64> = sizes.iter().filter(|s| s.is_given()).map(|s| s.kib).collect();
        assert_eq!(given, [64, 2048]);
        assert!(sizes[1].is_between() && !sizes[2].is_between());
    }

    #[test]
    fn a_kernel_without_has_none() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(page_size_settings(&SysRoot(directory.path().to_owned())), []);
    }
}
