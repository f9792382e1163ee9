//! The placer on files of this machine: needs root and Linux 6.8.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use huepage_color::{CacheLevel, Color, ColorMap, ColorSet, LinearColors, Pfn, Provenance};
use huepage_policy::SrmSettings;

use super::filesystem::{Placeable, placeable};
use huepage_testing::skip;

use super::*;
use crate::color::frame_colors::ColorMethod;
use crate::color::probe::TimingBench;
use crate::color::sources::{Candidate, ColorSource, Computed};

const PAGES: u64 = 2048;

/// Sixteen colours by frame number, and a placer for all of them; none without root.
fn placer(name: &str) -> Option<Placer> {
    placer_with(name, &PlacerOptions::default())
}

fn placer_with(name: &str, options: &PlacerOptions) -> Option<Placer> {
    late_placer(name, options, Duration::ZERO)
}

/// One that finds its first frames so late, as on a machine that is never calm.
fn late_placer(name: &str, options: &PlacerOptions, late: Duration) -> Option<Placer> {
    if !rustix::process::geteuid().is_root() {
        skip(name, "frame numbers take root");
        return None;
    }
    let colors = LinearColors::new(vec![1 << 12, 1 << 13, 1 << 14, 1 << 15]).unwrap();
    let map = ColorMap::linear(CacheLevel::L2, colors, Provenance::Pfn).unwrap();
    let source = Box::new(LateColors { colors: Computed(map), late });
    Some(Placer::start(source, ColorSet::all(16), options).unwrap())
}

/// Colours by frame number, the first of which take a while.
struct LateColors {
    colors: Computed,
    late: Duration,
}

impl ColorSource for LateColors {
    fn universe(&self) -> u16 {
        self.colors.universe()
    }

    fn provenance(&self) -> Provenance {
        self.colors.provenance()
    }

    fn known(&self, frame: Pfn) -> Option<Color> {
        self.colors.known(frame)
    }

    fn reference(&self) -> Option<(BorrowedFd<'_>, u64)> {
        None
    }

    fn measure(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[Candidate],
        wanted: Option<&ColorSet>,
    ) -> Result<Vec<Option<Color>>, ProbeError> {
        std::thread::sleep(std::mem::take(&mut self.late));
        self.colors.measure(bench, pages, wanted)
    }

    fn measure_again(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[Candidate],
    ) -> Result<Vec<Option<Color>>, ProbeError> {
        self.colors.measure_again(bench, pages)
    }

    fn method(&self) -> ColorMethod {
        self.colors.method()
    }

    fn another(&self) -> Box<dyn ColorSource> {
        Box::new(LateColors { colors: self.colors.clone(), late: self.late })
    }
}

/// A file with contents that tell its pages apart, removed with the directory.
fn file(dir: &Path) -> Arc<File> {
    let path = dir.join("file");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
    file.write_all(&contents()).unwrap();
    Arc::new(file)
}

fn contents() -> Vec<u8> {
    (0..PAGES).flat_map(|page| [page as u8, (page >> 8) as u8].repeat(2048)).collect()
}

fn check(mut file: &File) {
    let mut found = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut found).unwrap();
    assert!(found == contents(), "the contents are others");
}

/// A directory on a disk; temporary directories may be in memory.
fn disk(name: &str) -> Option<tempfile::TempDir> {
    let here = [std::env::temp_dir(), PathBuf::from("/var/tmp"), PathBuf::from(".")];
    let mut dirs = here.iter().filter_map(|dir| tempfile::tempdir_in(dir).ok());
    let found = dirs.find(|dir| placeable(&File::open(dir.path()).unwrap()) == Placeable::Disk);
    if found.is_none() {
        skip(name, "no directory on a disk");
    }
    found
}

fn all(file: &Arc<File>, want: &str) -> FileRequest {
    let want = ColorSet::parse(want, 16).unwrap();
    FileRequest { file: Arc::clone(file), first: 0, pages: u64::MAX, want }
}

/// Pages by colour, seen through a window of the test's own.
fn by_color(placer: &mut Placer, file: &File) -> Vec<u64> {
    let view = View::new(file, 0..PAGES).unwrap();
    let mut counts = vec![0; 16];
    for (_, color) in placer.look(&view).unwrap() {
        counts[usize::from(color.unwrap().0)] += 1;
    }
    counts
}

#[test]
fn a_file_that_was_just_written_comes_into_colours_and_keeps_its_contents() {
    let name = "a_file_that_was_just_written";
    let (Some(mut placer), Some(dir)) = (placer(name), disk(name)) else { return };
    let file = file(dir.path());
    placer.place(&all(&file, "3,4")).unwrap();
    let tally = placer.settle().unwrap();
    assert!(tally.share() >= 0.99, "{tally:?}");
    let counts = by_color(&mut placer, &file);
    assert!(counts[3] + counts[4] >= PAGES * 99 / 100, "{counts:?}");
    check(&file);
    placer.place(&all(&file, "3,4")).unwrap();
    let again = placer.settle().unwrap();
    assert!(again.already >= PAGES * 99 / 100, "{again:?}");
}

#[test]
fn pages_that_somebody_else_maps_stay_and_are_counted() {
    let name = "pages_that_somebody_else_maps_stay";
    let (Some(mut placer), Some(dir)) = (placer(name), disk(name)) else { return };
    let file = file(dir.path());
    let other = View::new(&file, 0..100).unwrap();
    other.populate(&(0..100)).unwrap();
    placer.place(&all(&file, "3")).unwrap();
    let tally = placer.settle().unwrap();
    // One page in sixteen lies right by chance; folios of several pages stay as a whole.
    let mapped = tally.refused.get(&PlacementRefusal::Mapped).copied().unwrap_or(0);
    assert!(mapped >= 80, "{tally:?}");
    assert_eq!(tally.placed + tally.already + tally.refused.values().sum::<u64>(), PAGES);
    drop(other);
    check(&file);
}

#[test]
fn a_placer_that_is_to_stop_has_nothing_leave_the_cache() {
    let name = "a_placer_that_is_to_stop";
    let stop = Arc::new(AtomicBool::new(false));
    let options = PlacerOptions { stop: Arc::clone(&stop), ..PlacerOptions::default() };
    let (Some(mut placer), Some(dir)) = (placer_with(name, &options), disk(name)) else { return };
    let file = file(dir.path());
    file.sync_all().unwrap();
    let before = by_color(&mut placer, &file).iter().sum::<u64>();
    // There are frames, so that it would go on with those.
    let set = ColorSet::parse("3", 16).unwrap();
    assert!(placer.stock(&set, 0, true)[3] > 0);
    stop.store(true, Ordering::Relaxed);
    placer.place(&all(&file, "3")).unwrap();
    assert_eq!(placer.settle().unwrap(), PlacementTally::default());
    assert_eq!(by_color(&mut placer, &file).iter().sum::<u64>(), before);
    assert!(before >= PAGES / 2, "{before}");
}

#[test]
fn a_file_that_becomes_shorter_meanwhile_is_no_error() {
    let name = "a_file_that_becomes_shorter";
    let (Some(mut placer), Some(dir)) = (placer(name), disk(name)) else { return };
    let file = file(dir.path());
    placer.place(&all(&file, "3")).unwrap();
    file.set_len(10 * 4096).unwrap();
    let tally = placer.settle().unwrap();
    assert!(tally.placed >= 9, "{tally:?}");
    assert_eq!(tally.placed + tally.already + tally.refused.values().sum::<u64>(), tally.pages);
    file.set_len(0).unwrap();
    placer.place(&all(&file, "3")).unwrap();
    assert_eq!(placer.settle().unwrap(), PlacementTally::default());
}

#[test]
fn sequences_lie_in_one_colour_each_and_are_left_alone_the_second_time() {
    let name = "sequences_lie_in_one_colour_each";
    let (Some(placer), Some(dir)) = (placer(name), disk(name)) else { return };
    let file = file(dir.path());
    let mut files = FilePlacer::sequences(placer, SrmSettings::paper(16), ColorSet::all(16));
    let warm = |files: &mut FilePlacer| {
        for first in (0..PAGES).step_by(256) {
            files.place(&file, 1, first..first + 256).unwrap();
        }
        files.settle().unwrap()
    };
    // Others may take frames that were meant for a page.
    let tallies: Vec<PlacementTally> = (0..5).map(|_| warm(&mut files)).collect();
    assert!(tallies.iter().any(|tally| tally.share() >= 0.99), "{tallies:?}");
    let again = tallies.last().unwrap();
    assert!(again.already >= PAGES * 99 / 100, "{again:?}");
    check(&file);
}

#[test]
fn files_in_memory_are_placed_as_they_are_written() {
    let name = "files_in_memory_are_placed";
    if let Some(placer) = placer(name) {
        write_in_memory(placer, name);
    }
}

#[test]
fn files_in_memory_wait_for_frames_that_come_late() {
    let (name, late) = ("files_in_memory_wait_for_frames", Duration::from_secs(7));
    if let Some(placer) = late_placer(name, &PlacerOptions::default(), late) {
        write_in_memory(placer, name);
    }
}

fn write_in_memory(mut placer: Placer, name: &str) {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        return skip(name, "no tmpfs at /dev/shm");
    };
    let path = dir.path().join("file");
    let options = OpenOptions::new().read(true).write(true).create_new(true).open(path);
    let file = Arc::new(options.unwrap());
    let bytes = contents();
    placer.write(&file, 0, &bytes[..bytes.len() - 5], &ColorSet::parse("5", 16).unwrap()).unwrap();
    let tally = placer.settle().unwrap();
    assert!(tally.placed >= PAGES * 99 / 100, "{tally:?}");
    let counts = by_color(&mut placer, &file);
    assert!(counts[5] >= PAGES * 99 / 100, "{counts:?}");
    (&*file).seek(SeekFrom::End(0)).unwrap();
    (&*file).write_all(&bytes[bytes.len() - 5..]).unwrap();
    check(&file);
}
