//! The pages that a process uses again and again, with their colours, to begin a recording with. What the
//! policy makes of a recording is in `huepage_policy::conflict::replayed`.

use huepage_color::{Color, Vpn};

use crate::color::frame_colors::{ColorMethod, FrameColors};
use crate::color::line_timer::ResidencyError;
use crate::kernel::procfs::ProcRoot;
use crate::sensors::in_use::InUse;

/// Pages with their colours; none where nobody knows.
pub type Colored = Vec<(Vpn, Option<Color>)>;

/// The pages that a process uses again and again now, ascending, with their colours; `None` of one with too
/// much memory. Takes a few milliseconds of the process, and longer where colours are measured.
///
/// # Errors
/// When the process has ended, or the kernel does not let us.
pub fn pages_in_use(pid: i32, method: ColorMethod) -> Result<Option<Colored>, ResidencyError> {
    let Some(pages) = InUse::open(pid)?.find()? else { return Ok(None) };
    let pagemap = ProcRoot::default().pagemap(pid)?;
    let (mut places, mut frames) = (Vec::new(), Vec::new());
    for (at, page) in pages.iter().enumerate() {
        if let Some(frame) = pagemap.entry(*page)?.pfn().filter(|frame| frame.0 != 0) {
            places.push(at);
            frames.push(frame);
        }
    }
    let colors = FrameColors::open(method)?.colors_of(&frames)?;
    let mut told: Colored = pages.into_iter().map(|page| (page, None)).collect();
    for (at, color) in places.into_iter().zip(colors) {
        told[at].1 = color;
    }
    Ok(Some(told))
}
