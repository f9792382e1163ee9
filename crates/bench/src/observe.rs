//! The independent reader: where the pages of a confined program really are.
//!
//! It shares no code with huepage. From `/proc` alone it finds the processes below a
//! supervisor, walks their page tables and counts the pages that huepage could have moved:
//! present, anonymous and private, mapped by one process only, not the zero page, and not in
//! areas that huepage itself put there. Their frames are looked up in the list of frames and
//! colours that the supervisor gives out.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

const PRESENT: u64 = 1 << 63;
const FILE_OR_SHARED: u64 = 1 << 61;
const EXCLUSIVE: u64 = 1 << 56;
const FRAME: u64 = (1 << 55) - 1;
/// Bits of `/proc/kpageflags`.
const ZERO_PAGE: u64 = 1 << 24;
const PAGE: u64 = 4096;

/// Pages of one or more processes at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Pages that could be moved.
    pub movable: u64,
    /// Of these, in a frame of the partition.
    pub inside: u64,
    /// Of these, in a frame whose colour the list does not give.
    pub unknown: u64,
}

impl Count {
    /// The share inside the partition, 0 to 1.
    pub fn share(&self) -> f64 {
        if self.movable == 0 { 1.0 } else { self.inside as f64 / self.movable as f64 }
    }
}

/// Which frames belong to a partition.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    colors: HashMap<u64, bool>,
}

impl Frames {
    /// Reads the list of a supervisor: one frame per line, `<frame> <colour> <in|out>`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn parse(text: &str) -> Frames {
        let line = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let frame = words.next()?.parse().ok()?;
            Some((frame, words.nth(1)? == "in"))
        };
        Frames { colors: text.lines().filter_map(line).collect() }
    }
}

/// What was seen over a run: one count per look.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// The counts, in order.
    pub counts: Vec<Count>,
}

impl Observation {
    /// The median share over the second half of the looks: the steady state.
    pub fn steady(&self) -> Option<f64> {
        let mut late: Vec<f64> =
            self.counts[self.counts.len() / 2..].iter().map(Count::share).collect();
        late.sort_by(f64::total_cmp);
        late.get(late.len() / 2).copied()
    }

    /// Looks once at everything below a supervisor.
    pub fn look(&mut self, supervisor: u32, huepage: &Path) {
        let Some(frames) = frames_of(supervisor) else { return };
        let mut total = Count::default();
        for pid in programs_below(supervisor, huepage) {
            // A process may end while it is read; then it does not count.
            if let Ok(count) = count(pid, &frames) {
                total.movable += count.movable;
                total.inside += count.inside;
                total.unknown += count.unknown;
            }
        }
        if total.movable > 0 {
            self.counts.push(total);
        }
    }
}

/// The supervisor's list of frames.
fn frames_of(supervisor: u32) -> Option<Frames> {
    let dir = std::env::var("HUEPAGE_RUNTIME_DIR").unwrap_or_else(|_| "/run/huepage".to_owned());
    let text = fs::read_to_string(format!("{dir}/{supervisor}.frames")).ok()?;
    Some(Frames::parse(&text))
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
    let own = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|e| e == huepage);
    descendants(supervisor).into_iter().filter(|pid| !own(pid)).collect()
}

/// Counts the pages of one process.
///
/// # Errors
/// When the process is gone, or the caller may not read page maps.
pub fn count(pid: u32, frames: &Frames) -> io::Result<Count> {
    let mut maps = String::new();
    File::open(format!("/proc/{pid}/maps"))?.read_to_string(&mut maps)?;
    let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
    let flags = File::open("/proc/kpageflags")?;
    let mut total = Count::default();
    for (first, end) in maps.lines().filter_map(area) {
        count_area(&pagemap, &flags, first..end, frames, &mut total)?;
    }
    Ok(total)
}

/// The page numbers of an area, unless it is huepage's or the kernel's.
fn area(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_ascii_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let shared = words.next()?.as_bytes().get(3) == Some(&b's');
    let name = line.splitn(6, ' ').nth(5).unwrap_or_default().trim();
    let foreign = name.contains("huepage") || name.starts_with("[v");
    if shared || foreign {
        return None;
    }
    let page = |text| u64::from_str_radix(text, 16).ok().map(|at| at / PAGE);
    Some((page(from)?, page(to)?))
}

fn count_area(
    pagemap: &File,
    flags: &File,
    pages: std::ops::Range<u64>,
    frames: &Frames,
    total: &mut Count,
) -> io::Result<()> {
    let mut bytes = vec![0; 8 * 512];
    let mut at = pages.start;
    while at < pages.end {
        let want = usize::try_from((pages.end - at).min(512)).unwrap_or(512) * 8;
        let got = pagemap.read_at(&mut bytes[..want], at * 8)?;
        if got == 0 {
            return Ok(());
        }
        for entry in bytes[..got].chunks_exact(8) {
            let entry = u64::from_ne_bytes(entry.try_into().unwrap_or_default());
            add(entry, flags, frames, total)?;
        }
        at += got as u64 / 8;
    }
    Ok(())
}

fn add(entry: u64, flags: &File, frames: &Frames, total: &mut Count) -> io::Result<()> {
    let movable = entry & PRESENT != 0 && entry & FILE_OR_SHARED == 0 && entry & EXCLUSIVE != 0;
    if !movable {
        return Ok(());
    }
    let frame = entry & FRAME;
    match frames.colors.get(&frame) {
        Some(inside) => total.inside += u64::from(*inside),
        None => {
            let mut word = [0; 8];
            flags.read_exact_at(&mut word, frame * 8)?;
            if u64::from_ne_bytes(word) & ZERO_PAGE != 0 {
                return Ok(());
            }
            total.unknown += 1;
        }
    }
    total.movable += 1;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_read_and_huepage_s_own_left_out() {
        assert_eq!(area("00400000-00402000 rw-p 00000000 00:00 0 [heap]"), Some((0x400, 0x402)));
        assert_eq!(area("1000-3000 rw-p 00000000 00:00 0 "), Some((1, 3)));
        assert_eq!(area("1000-3000 rw-s 00000000 00:01 9 /memfd:x"), None);
        assert_eq!(area("1000-3000 rw-p 00000000 00:00 0 [anon:huepage stock]"), None);
        assert_eq!(area("1000-3000 r-xp 00000000 00:00 0 [vdso]"), None);
    }

    #[test]
    fn a_list_of_frames_is_read() {
        let frames = Frames::parse("4711 3 in\n4712 9 out\nnonsense\n");
        assert_eq!(frames.colors.get(&4711), Some(&true));
        assert_eq!(frames.colors.get(&4712), Some(&false));
        assert_eq!(frames.colors.len(), 2);
    }

    #[test]
    fn the_steady_state_is_the_median_of_the_second_half() {
        let counts =
            [0, 0, 97, 100, 99].map(|inside| Count { movable: 100, inside, unknown: 0 }).to_vec();
        assert_eq!(Observation { counts }.steady(), Some(0.99));
        assert_eq!(Observation::default().steady(), None);
    }

    #[test]
    fn own_children_are_found() {
        let mut child = std::process::Command::new("sleep").arg("5").spawn().unwrap();
        let found = descendants(std::process::id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&child.id()));
    }
}
