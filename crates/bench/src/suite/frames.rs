//! Where the pages of a program lie in a cache: for a simulation that is to have the conflicts that the
//! program has. Frame numbers say it, or each frame is timed while the program stands still.

use std::collections::HashMap;

use huepage_color::{CacheGeometry, Color, PAGE_BYTES, Pfn, Vpn};
use huepage_linux::color::frame_colors::FrameColors;
use huepage_linux::color::sources::{ColorSource as _, Probed};
use huepage_linux::kernel::procfs::{Area, ProcError, ProcRoot};

use crate::sys;

/// By page, a frame number that no other page has and whose lowest bits are the colour.
pub type FramesByPage = HashMap<u64, u64>;

/// Where in this cache a program's own memory lies; pages whose colour cannot be told are left out. The program
/// stands still meanwhile, some 20 us for each page.
///
/// # Errors
/// When frames or colours cannot be seen here.
pub fn of(pid: u32, cache: &CacheGeometry) -> Result<FramesByPage, String> {
    sys::kill(pid, libc::SIGSTOP).map_err(|e| e.to_string())?;
    let found = lying(i32::try_from(pid).map_err(|e| e.to_string())?, cache);
    sys::kill(pid, libc::SIGCONT).map_err(|e| e.to_string())?;
    found
}

fn lying(pid: i32, cache: &CacheGeometry) -> Result<FramesByPage, String> {
    let pages = pages(pid).map_err(|e| e.to_string())?;
    let Some(probed) = Probed::open_if_needed(cache).map_err(|e| e.to_string())? else {
        return Ok(pages.into_iter().map(|(page, frame)| (page, frame.0)).collect());
    };
    let mut colors = FrameColors::open(probed.method()).map_err(|e| e.to_string())?;
    let frames: Vec<Pfn> = pages.iter().map(|(_, frame)| *frame).collect();
    let told = colors.colors_of(&frames).map_err(|e| e.to_string())?;
    let of = u64::from(probed.universe());
    let frame = |at: u64, color: Option<Color>| Some(at * of + u64::from(color?.0));
    let all = (0..).zip(&pages).zip(told);
    Ok(all.filter_map(|((at, (page, _)), color)| Some((*page, frame(at, color)?))).collect())
}

/// The pages of its own memory that are there.
fn pages(pid: i32) -> Result<Vec<(u64, Pfn)>, ProcError> {
    pages_in(pid, |_| true)
}

/// The pages that are there of those areas of its own memory whose bytes are `wanted`.
///
/// # Errors
/// When the program is gone, or its pages may not be seen.
pub fn pages_in(pid: i32, wanted: impl Fn(u64) -> bool) -> Result<Vec<(u64, Pfn)>, ProcError> {
    let root = ProcRoot::default();
    let (pagemap, mut found, mut entries) = (root.pagemap(pid)?, Vec::new(), Vec::new());
    let own = |area: &&Area| area.inode == 0 && area.prot.write && wanted(area.end - area.start);
    for area in root.maps(pid)?.iter().filter(own) {
        let (first, pages) = (area.start / PAGE_BYTES, (area.end - area.start) / PAGE_BYTES);
        pagemap.entries(Vpn(first), usize::try_from(pages).unwrap_or(0), &mut entries)?;
        let present = (first..).zip(&entries).filter(|(_, entry)| entry.present());
        found.extend(present.filter_map(|(page, entry)| Some((page, entry.pfn()?))));
    }
    Ok(found)
}
