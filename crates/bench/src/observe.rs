//! The independent reader: where the pages of a confined program really are.
//!
//! It shares no code with huepage. From `/proc` alone it finds the processes below a
//! supervisor, walks their page tables and counts the pages that huepage could have moved:
//! present, anonymous and private, mapped by one process only, not the zero page, and not in
//! areas that huepage itself put there (`inspect` lists them). Where the frame number gives the
//! colour it is computed here; probed colours are looked up in the machine's file of them, and
//! some are measured again.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

const PRESENT: u64 = 1 << 63;
const FILE_OR_SHARED: u64 = 1 << 61;
const EXCLUSIVE: u64 = 1 << 56;
const FRAME: u64 = (1 << 55) - 1;
/// Bits of `/proc/kpageflags`.
const ZERO_PAGE: u64 = 1 << 24;
const PAGE: u64 = 4096;

/// Pages of one or more processes at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCount {
    /// Pages that could be moved.
    pub movable: u64,
    /// Of these, in a frame of the partition.
    pub inside: u64,
    /// Of these, in a frame whose colour the list does not give.
    pub unknown: u64,
    /// Anonymous pages of one process in areas that are not both readable and writable, that
    /// are executable, or that map a file: no promise covers them.
    pub elsewhere: u64,
}

impl PageCount {
    /// The share inside the partition, 0 to 1.
    pub fn share(&self) -> f64 {
        if self.movable == 0 { 1.0 } else { self.inside as f64 / self.movable as f64 }
    }

    /// The same, but for one page of each of so many threads: no promise covers those with the word that the kernel
    /// clears at a thread's end (`docs/reference/left-alone.md`).
    pub fn share_but_for(&self, threads: u64) -> f64 {
        let inside = self.movable.min(self.inside + threads);
        PageCount { inside, ..*self }.share()
    }

    fn add(&mut self, other: PageCount) {
        self.movable += other.movable;
        self.inside += other.inside;
        self.unknown += other.unknown;
        self.elsewhere += other.elsewhere;
    }
}

/// How the colour of a frame is known.
#[derive(Debug)]
pub enum ColorRule {
    /// The frame number modulo the number of colours, which is at least 1.
    Linear(u64),
    /// From the machine's file of probed colours: a page of header, then a byte per frame, 0 for
    /// unknown, else the colour plus one, then other things.
    Probed(File),
}

impl ColorRule {
    /// As huepage's `--colors-from` names it: `pfn` or `declared`, or `probe`.
    ///
    /// # Errors
    /// When nothing was probed yet.
    pub fn from_source(source: &str, of: usize) -> io::Result<ColorRule> {
        match source {
            "probe" | "probed" => probed_colors().map(ColorRule::Probed),
            _ => Ok(ColorRule::Linear(of.max(1) as u64)),
        }
    }

    /// The colour of a frame; `None` when it is unknown.
    pub fn color(&self, frame: u64) -> Option<usize> {
        match self {
            ColorRule::Linear(of) => usize::try_from(frame % of).ok(),
            ColorRule::Probed(file) => {
                let mut label = [0];
                file.read_exact_at(&mut label, PAGE + frame).ok()?;
                label[0].checked_sub(1).map(usize::from)
            }
        }
    }
}

/// Which frames belong to a partition: how colours are known, and which are inside.
#[derive(Debug)]
pub struct PartitionFrames(ColorRule, Vec<bool>);

/// The file of probed colours, where it may be, and the variable that names another directory for it.
const LABELS: &str = "frames-l2-v2";
const LABEL_DIRS: [&str; 2] = ["/run/huepage/memory", "/dev/shm/huepage"];
const LABEL_VARIABLE: &str = "HUEPAGE_CLASSES_DIR";

impl PartitionFrames {
    /// Whether a frame is inside; `None` when its colour is unknown.
    fn inside(&self, frame: u64) -> Option<bool> {
        self.1.get(self.0.color(frame)?).copied()
    }
}

/// The machine's file of probed colours, if the caller may read it.
fn probed_colors() -> io::Result<File> {
    if let Some(dir) = std::env::var_os(LABEL_VARIABLE) {
        return File::open(Path::new(&dir).join(LABELS));
    }
    let [first, other] = LABEL_DIRS.map(|dir| Path::new(dir).join(LABELS));
    File::open(first).or_else(|_| File::open(other))
}

/// Which of `of` colours are in `list`, like `0-3,7`; `None` when it is no list of them.
pub fn members(list: &str, of: usize) -> Option<Vec<bool>> {
    let mut inside = vec![false; of];
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = first.trim().parse().ok()?..=last.trim().parse().ok()?;
        inside.get_mut(range)?.fill(true);
    }
    Some(inside)
}

/// What `huepage inspect` says of a process: its partition and the ranges of huepage's own.
#[derive(Debug, Deserialize)]
struct Inspection {
    partition: Partition,
    engine: Engine,
    verified: Option<VerifiedPages>,
    compliance: Option<Own>,
}

/// What huepage itself says of a process's pages.
#[derive(Debug, Deserialize)]
struct Own {
    share: f64,
}

#[derive(Debug, Deserialize)]
struct Partition {
    colors: String,
    of: usize,
    colors_from: String,
}

#[derive(Debug, Deserialize)]
struct Engine {
    own: Vec<(u64, u64)>,
}

/// Pages whose colours were measured again.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct VerifiedPages {
    /// Pages measured.
    pub measured: u64,
    /// Of these, with the colour they were believed to have.
    pub as_believed: u64,
}

impl Inspection {
    fn of(pid: u32, huepage: &Path, verify: Option<u32>) -> Option<Inspection> {
        let mut command = Command::new(huepage);
        command.args(["inspect", "--json", &pid.to_string()]);
        if let Some(pages) = verify {
            command.args(["--verify", &pages.to_string()]);
        }
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        serde_json::from_slice(&output.stdout).ok()
    }

    fn frames(&self) -> Option<PartitionFrames> {
        let Partition { colors, of, colors_from } = &self.partition;
        let rule = ColorRule::from_source(colors_from, *of).ok()?;
        Some(PartitionFrames(rule, members(colors, *of)?))
    }
}

/// What was seen over a run: one count per look.
#[derive(Clone, Debug, Default)]
pub struct RunObservation {
    /// The counts, in order.
    pub counts: Vec<PageCount>,
    /// Pages measured again, where colours are probed.
    pub verified: Option<VerifiedPages>,
}

impl RunObservation {
    /// The median share over the second half of the looks: the steady state.
    pub fn steady(&self) -> Option<f64> {
        let mut late: Vec<f64> =
            self.counts[self.counts.len() / 2..].iter().map(PageCount::share).collect();
        late.sort_by(f64::total_cmp);
        late.get(late.len() / 2).copied()
    }

    /// Looks once at everything below a supervisor.
    pub fn look(&mut self, supervisor: u32, huepage: &Path) {
        let mut total = PageCount::default();
        for pid in programs_below(supervisor, huepage) {
            let Some(inspection) = Inspection::of(pid, huepage, None) else { continue };
            let Some(frames) = inspection.frames() else { continue };
            // A process may end while it is read; then it does not count.
            if let Ok(count) = count(pid, &frames, &inspection.engine.own) {
                total.add(count);
            }
        }
        if total.movable > 0 {
            self.counts.push(total);
        }
    }

    /// Has the colours of some pages below a supervisor measured again.
    pub fn verify(&mut self, supervisor: u32, huepage: &Path, pages: u32) {
        let programs = programs_below(supervisor, huepage).into_iter();
        let mut seen = programs.filter_map(|pid| Inspection::of(pid, huepage, Some(pages)));
        self.verified = seen.next().and_then(|i| i.verified).or(self.verified);
    }
}

/// The pages of a process of which huepage says `inspection` (the JSON of `huepage inspect`), and the share that
/// huepage itself gives; `None` when it is not confined or has ended.
pub fn confined(pid: u32, inspection: &serde_json::Value) -> Option<(PageCount, f64)> {
    let inspection = Inspection::deserialize(inspection).ok()?;
    let count = count(pid, &inspection.frames()?, &inspection.engine.own).ok()?;
    Some((count, inspection.compliance.map_or(1.0, |own| own.share)))
}

/// The parent of a process.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything; the fields after it begin behind the last parenthesis.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Every process below another, children before grandchildren.
pub fn descendants(root: u32) -> Vec<u32> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = numbers.filter_map(|e| e.file_name().to_str()?.parse().ok());
    let parents: Vec<(u32, u32)> = pids.filter_map(|p| Some((p, parent(p)?))).collect();
    let mut found = vec![root];
    let mut at = 0;
    while at < found.len() {
        let above = found[at];
        found.extend(parents.iter().filter(|(_, p)| *p == above).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

/// The processes below a supervisor that are not huepage's own.
pub fn programs_below(supervisor: u32, huepage: &Path) -> Vec<u32> {
    let theirs = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|e| e == huepage);
    descendants(supervisor).into_iter().filter(|pid| !theirs(pid)).collect()
}

/// Counts the pages of one process, without the ranges `own` of huepage.
///
/// # Errors
/// When the process is gone, or the caller may not read page maps.
pub fn count(pid: u32, frames: &PartitionFrames, own: &[(u64, u64)]) -> io::Result<PageCount> {
    let mut maps = String::new();
    File::open(format!("/proc/{pid}/maps"))?.read_to_string(&mut maps)?;
    let tables = Tables {
        pagemap: File::open(format!("/proc/{pid}/pagemap"))?,
        flags: File::open("/proc/kpageflags")?,
        frames,
    };
    let mut total = PageCount::default();
    for area in maps.lines().filter_map(Area::parse) {
        let ours =
            |&(from, to): &(u64, u64)| area.pages.start * PAGE < to && from < area.pages.end * PAGE;
        if !own.iter().any(ours) {
            let found = tables.count(&area.pages)?;
            total.add(if area.movable {
                found
            } else {
                PageCount { elsewhere: found.movable, ..PageCount::default() }
            });
        }
    }
    Ok(total)
}

/// A private area of a process.
#[derive(Debug, PartialEq, Eq)]
struct Area {
    pages: std::ops::Range<u64>,
    /// Whether its pages can be moved at all.
    movable: bool,
}

impl Area {
    /// Reads a line of `maps`; `None` for shared areas, those of the kernel, and address space that is only reserved:
    /// of that a database may have terabytes.
    fn parse(line: &str) -> Option<Area> {
        let mut words = line.split_ascii_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let rights = words.next()?;
        let name = words.nth(3).unwrap_or_default();
        if rights.ends_with('s') || rights == "---p" || name.starts_with("[v") {
            return None;
        }
        let page = |text| u64::from_str_radix(text, 16).ok().map(|at| at / PAGE);
        let movable = rights == "rw-p" && !name.starts_with('/');
        Some(Area { pages: page(from)?..page(to)?, movable })
    }
}

struct Tables<'a> {
    pagemap: File,
    flags: File,
    frames: &'a PartitionFrames,
}

impl Tables<'_> {
    fn count(&self, pages: &std::ops::Range<u64>) -> io::Result<PageCount> {
        let mut total = PageCount::default();
        let mut bytes = vec![0; 8 * 512];
        let mut at = pages.start;
        while at < pages.end {
            let want = usize::try_from((pages.end - at).min(512)).unwrap_or(512) * 8;
            let got = self.pagemap.read_at(&mut bytes[..want], at * 8)?;
            if got == 0 {
                break;
            }
            for entry in bytes[..got].chunks_exact(8) {
                self.add(u64::from_ne_bytes(entry.try_into().unwrap_or_default()), &mut total)?;
            }
            at += got as u64 / 8;
        }
        Ok(total)
    }

    fn add(&self, entry: u64, total: &mut PageCount) -> io::Result<()> {
        let alone = entry & PRESENT != 0 && entry & FILE_OR_SHARED == 0 && entry & EXCLUSIVE != 0;
        if !alone || self.is_zero_page(entry & FRAME)? {
            return Ok(());
        }
        total.movable += 1;
        match self.frames.inside(entry & FRAME) {
            Some(inside) => total.inside += u64::from(inside),
            None => total.unknown += 1,
        }
        Ok(())
    }

    fn is_zero_page(&self, frame: u64) -> io::Result<bool> {
        let mut word = [0; 8];
        self.flags.read_exact_at(&mut word, frame * 8)?;
        Ok(u64::from_ne_bytes(word) & ZERO_PAGE != 0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn areas_are_read_and_the_kernel_s_own_left_out() {
        let area = |pages, movable| Some(Area { pages, movable });
        let parse = Area::parse;
        assert_eq!(parse("400000-402000 rw-p 00000000 00:00 0   [heap]"), area(0x400..0x402, true));
        assert_eq!(parse("1000-3000 rw-p 00000000 00:00 0 "), area(1..3, true));
        assert_eq!(parse("1000-3000 r--p 00000000 00:00 0 "), area(1..3, false));
        assert_eq!(parse("1000-3000 rw-p 00001000 fd:00 9   /bin/x"), area(1..3, false));
        assert_eq!(parse("1000-3000 rw-s 00000000 00:01 9 /memfd:x"), None);
        assert_eq!(parse("1000-3000 r-xp 00000000 00:00 0 [vdso]"), None);
    }

    #[test]
    fn labels_are_read() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[9; 4096]).unwrap();
        file.write_all(&[0, 1, 4, 5, 200]).unwrap();
        let frames = PartitionFrames(ColorRule::Probed(file), members("0-3", 16).unwrap());
        let seen = [0, 1, 2, 3, 4, 5].map(|frame| frames.inside(frame));
        assert_eq!(seen, [None, Some(true), Some(true), Some(false), None, None]);
    }

    #[test]
    fn colours_by_frame_number() {
        let frames = PartitionFrames(ColorRule::Linear(8), members("0-2,7", 8).unwrap());
        let inside = (8..16).filter(|f| frames.inside(*f) == Some(true));
        assert_eq!(inside.collect::<Vec<_>>(), [8, 9, 10, 15]);
        assert!(members("0-8", 8).is_none());
    }

    /// Range and resident pages of a process's stack, as the kernel counts them.
    fn stack(pid: u32) -> ((u64, u64), u64) {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
        let mut lines = text.lines().skip_while(|line| !line.ends_with("[stack]"));
        let (first, last) =
            lines.next().unwrap().split_once(' ').unwrap().0.split_once('-').unwrap();
        let address = |text| u64::from_str_radix(text, 16).unwrap();
        let resident = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
        let kib: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
        ((address(first), address(last)), kib / 4)
    }

    /// Ends with the test, however that ends.
    struct Sleeper(std::process::Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Of a process that sleeps: our own other threads touch pages between two looks.
    #[test]
    fn pages_are_counted_where_they_are() {
        let child = Sleeper(std::process::Command::new("sleep").arg("60").spawn().unwrap());
        std::thread::sleep(std::time::Duration::from_millis(300));
        let all = PartitionFrames(ColorRule::Linear(1), vec![true]);
        let seen = count(child.0.id(), &all, &[]);
        let (own, resident) = stack(child.0.id());
        let (Ok(seen), Ok(rest)) = (seen, count(child.0.id(), &all, &[own])) else {
            let why = "frame numbers are root's to see; run the tests as root";
            return huepage_testing::skip("pages_are_counted_where_they_are", why);
        };
        assert!(resident > 0 && seen.inside == seen.movable && seen.unknown == 0, "{seen:?}");
        assert_eq!(rest.movable + resident, seen.movable, "{rest:?} of {seen:?}");
    }

    #[test]
    fn the_steady_state_is_the_median_of_the_second_half() {
        let counts = [0, 0, 97, 100, 99]
            .map(|inside| PageCount { movable: 100, inside, ..PageCount::default() })
            .to_vec();
        assert_eq!(RunObservation { counts, verified: None }.steady(), Some(0.99));
        assert_eq!(RunObservation::default().steady(), None);
    }

    #[test]
    fn own_children_are_found() {
        let child = Sleeper(std::process::Command::new("sleep").arg("5").spawn().unwrap());
        assert!(descendants(std::process::id()).contains(&child.0.id()));
    }
}
