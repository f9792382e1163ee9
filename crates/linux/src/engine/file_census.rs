//! Where the file-backed pages of a process are: program text, libraries and data that it maps.
//!
//! Counted apart from the census of the partition, which promises memory of the process's own: a
//! page of a file lies where whoever read it first had it put, and may be everybody's. Reads page
//! tables and looks colours up; changes nothing. Pages that are cached and that the process does
//! not map at this moment are not its pages here.

use std::collections::{BTreeMap, HashMap, HashSet};

use huepage_color::{Color, ColorSet, Pfn, Vpn};
use serde::{Deserialize, Serialize};

use crate::kernel::mappers::{FileId, file_of};
use crate::kernel::procfs::{
    Area, AreaKind, Categories, PageEntry, Pagemap, PagemapRegion, ProcError, ProcRoot, ScanQuery,
    is_code,
};

/// What a process has a file mapped for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileUse {
    /// It is the program.
    Text,
    /// Code of it is executed.
    Library,
    /// Anything else.
    Data,
}

impl FileUse {
    /// For tables.
    pub const fn text(self) -> &'static str {
        match self {
            FileUse::Text => "program text",
            FileUse::Library => "libraries",
            FileUse::Data => "data",
        }
    }
}

/// Resident pages of files of one use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRow {
    /// All of them.
    pub resident: u64,
    /// Of files that only the group maps: inside the partition.
    pub inside: u64,
    /// The same: in a colour outside.
    pub outside: u64,
    /// The same: in a frame whose colour nobody measured.
    pub unknown: u64,
    /// Of files that others map too, in whatever colour.
    pub shared: u64,
    /// Of these, in the colours that are named for such files; 0 if none are.
    pub shared_inside: u64,
    /// Pages of each colour, shared or not.
    pub by_color: Vec<u64>,
}

impl FileRow {
    /// Pages of files that only the group maps.
    pub const fn exclusive(&self) -> u64 {
        self.inside + self.outside + self.unknown
    }

    /// Adds the pages of another row.
    fn add(&mut self, other: &FileRow) {
        self.resident += other.resident;
        self.inside += other.inside;
        self.outside += other.outside;
        self.unknown += other.unknown;
        self.shared += other.shared;
        self.shared_inside += other.shared_inside;
        self.by_color.resize(self.by_color.len().max(other.by_color.len()), 0);
        self.by_color.iter_mut().zip(&other.by_color).for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// The file-backed pages of a process by the use of their files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileCensus {
    /// Uses that have pages.
    pub uses: BTreeMap<FileUse, FileRow>,
}

impl FileCensus {
    /// The sum over all uses.
    pub fn total(&self) -> FileRow {
        let mut total = FileRow::default();
        self.uses.values().for_each(|row| total.add(row));
        total
    }

    /// The share of pages of files that only the group maps that lie inside, 0 to 1; `None` if
    /// there is none.
    pub fn compliance(&self) -> Option<f64> {
        let total = self.total();
        (total.exclusive() > 0).then(|| total.inside as f64 / total.exclusive() as f64)
    }
}

/// What such a census looks with.
pub struct FileColorLookup<'a> {
    /// Where `/proc` is.
    pub root: &'a ProcRoot,
    /// The process.
    pub pid: i32,
    /// Its page tables.
    pub pagemap: &'a Pagemap,
    /// Colour of a frame as far as known.
    pub color_of: &'a dyn Fn(Pfn) -> Option<Color>,
    /// The partition.
    pub colors: &'a ColorSet,
    /// Colours for files that others map too.
    pub shared_colors: Option<&'a ColorSet>,
    /// Whether processes outside of the group map a file.
    pub is_shared: &'a dyn Fn(FileId) -> bool,
    /// Ranges of ours in the process.
    pub own: &'a [(u64, u64)],
}

impl FileColorLookup<'_> {
    /// Counts the pages of files in `areas`: some 10 ns a page and a look at each area.
    ///
    /// # Errors
    /// When the process is gone, or page tables cannot be read.
    pub fn count(&self, areas: &[Area]) -> Result<FileCensus, ProcError> {
        let ours = |a: &Area| self.own.iter().any(|&(start, end)| a.start < end && start < a.end);
        let files: Vec<(FileId, &Area)> = areas
            .iter()
            .filter(|area| is_file(area) && !ours(area))
            .map(|area| (file_of(self.root, self.pid, area), area))
            .collect();
        let program = self.program();
        let code: HashSet<FileId> =
            files.iter().filter(|(_, area)| is_code(area)).map(|(id, _)| *id).collect();
        let (mut census, mut shared) = (FileCensus::default(), HashMap::<FileId, bool>::new());
        for (id, area) in files {
            let used = match id {
                id if Some(id) == program => FileUse::Text,
                id if code.contains(&id) => FileUse::Library,
                _ => FileUse::Data,
            };
            let shared = *shared.entry(id).or_insert_with(|| (self.is_shared)(id));
            let row = self.look_at(area, shared)?;
            if row.resident > 0 {
                census.uses.entry(used).or_default().add(&row);
            }
        }
        Ok(census)
    }

    /// The file that the process executes.
    fn program(&self) -> Option<FileId> {
        let file = std::fs::File::open(self.root.pid_path(self.pid, "exe")).ok()?;
        FileId::from_file(&file).ok()
    }

    fn look_at(&self, area: &Area, shared: bool) -> Result<FileRow, ProcError> {
        let by_color = vec![0; usize::from(self.colors.universe())];
        let mut row = FileRow { by_color, ..FileRow::default() };
        let mut entries: Vec<PageEntry> = Vec::new();
        for region in self.regions(area)? {
            let n = usize::try_from(region.pages()).unwrap_or(0);
            self.pagemap.entries(Vpn(region.start / 4096), n, &mut entries)?;
            for frame in entries.iter().filter(|e| e.file_or_shared()).filter_map(|e| e.pfn()) {
                self.count_page(&mut row, (self.color_of)(frame), shared);
            }
        }
        Ok(row)
    }

    /// Pages that the process wrote to in a private mapping are memory of its own.
    fn regions(&self, area: &Area) -> Result<Vec<PagemapRegion>, ProcError> {
        let mut query = ScanQuery::present();
        query.all_of = Categories::PRESENT | Categories::FILE;
        query.report = query.all_of;
        let mut regions = Vec::new();
        self.pagemap.scan(area.start..area.end, &query, &mut regions)?;
        Ok(regions)
    }

    fn count_page(&self, row: &mut FileRow, color: Option<Color>, shared: bool) {
        row.resident += 1;
        if let Some(color) = color {
            row.by_color[usize::from(color.0)] += 1;
        }
        let within = |set: &ColorSet| color.map(|color| set.contains(color));
        if shared {
            row.shared += 1;
            row.shared_inside += u64::from(self.shared_colors.and_then(within) == Some(true));
            return;
        }
        *match within(self.colors) {
            Some(true) => &mut row.inside,
            Some(false) => &mut row.outside,
            None => &mut row.unknown,
        } += 1;
    }
}

fn is_file(area: &Area) -> bool {
    area.inode != 0 && matches!(area.kind(), AreaKind::PrivateFile | AreaKind::SharedFile)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::procfs::fake::own_pid;

    /// This test's own process, with colours by the frame number's last bit.
    fn census(is_shared: &dyn Fn(FileId) -> bool, known: bool) -> FileCensus {
        let root = ProcRoot::default();
        let (one, all) = (ColorSet::first(1, 2), ColorSet::all(2));
        let color_of = |frame: Pfn| known.then_some(Color((frame.0 & 1) as u16));
        let lookup = FileColorLookup {
            root: &root,
            pid: own_pid(),
            pagemap: &root.pagemap(own_pid()).expect("own page tables"),
            color_of: &color_of,
            colors: &one,
            shared_colors: Some(&all),
            is_shared,
            own: &[],
        };
        lookup.count(&root.maps(own_pid()).expect("own areas")).expect("looked at")
    }

    fn sees_frames(test: &str) -> bool {
        // A page that is there: this function's own stack.
        let root = ProcRoot::default();
        let at = Vpn(&raw const root as u64 / 4096);
        let map = root.pagemap(own_pid());
        let sees = map.is_ok_and(|map| map.entry(at).is_ok_and(|e| e.pfn().is_some()));
        if !sees {
            huepage_testing::skip(test, "frames are hidden; run the tests as root");
        }
        sees
    }

    #[test]
    fn our_own_text_is_found_and_told_from_libraries() {
        if !sees_frames("our_own_text_is_found_and_told_from_libraries") {
            return;
        }
        let program = FileId::from_file(&std::fs::File::open("/proc/self/exe").expect("ours"));
        let program = program.expect("seen");
        let found = census(&|id| id != program, true);
        let (text, libraries) = (&found.uses[&FileUse::Text], &found.uses[&FileUse::Library]);
        assert!(text.inside > 0 && text.outside > 0 && text.shared == 0, "{text:?}");
        assert_eq!(text.resident, text.exclusive());
        assert_eq!(text.by_color, [text.inside, text.outside]);
        assert!(libraries.resident > 0 && libraries.exclusive() == 0, "{libraries:?}");
        assert_eq!(libraries.shared_inside, libraries.shared);
        let share = found.compliance().expect("pages");
        assert!(share > 0.0 && share < 1.0, "{share}");
    }

    #[test]
    fn unknown_colours_do_not_count_as_inside() {
        if !sees_frames("unknown_colours_do_not_count_as_inside") {
            return;
        }
        let total = census(&|_| false, false).total();
        assert_eq!((total.unknown, total.inside, total.shared), (total.resident, 0, 0));
        assert!(total.resident > 0 && total.by_color == [0, 0]);
    }

    #[test]
    fn rows_add_up() {
        let row = FileRow {
            resident: 3,
            inside: 2,
            shared: 1,
            by_color: vec![2, 1],
            ..FileRow::default()
        };
        let uses = BTreeMap::from([(FileUse::Text, row.clone()), (FileUse::Data, row)]);
        let total = FileCensus { uses }.total();
        assert_eq!((total.resident, total.inside, total.shared), (6, 4, 2));
        assert_eq!(total.by_color, [4, 2]);
        assert_eq!(FileCensus::default().compliance(), None);
    }
}
