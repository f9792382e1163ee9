//! Coloured memory in this process, for the demo and the benchmarks: populate pages, learn
//! their colours, move the wanted ones side by side into one area, give the others back at
//! the end (given back at once, the kernel would only hand them out again). Memory of other
//! processes is the engine's business.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use huepage_color::{Color, ColorMap, ColorSet};

use super::ProbeError;
use super::bench::LocalBench;
use super::classify::Classifier;
use super::pages::OwnPages;
use super::verdict::frames_of;
use crate::kernel::userfaultfd::{self, FEATURE_MOVE, request};

/// How this process learns the colours of its pages.
#[derive(Debug)]
pub enum GatherBy {
    /// By measuring them.
    Probe {
        /// Knows the classes.
        classifier: Box<Classifier>,
        /// Runs the loads.
        bench: LocalBench,
    },
    /// From their frame numbers, which takes root.
    Frames(ColorMap),
}

impl GatherBy {
    /// Colours of the level.
    pub fn universe(&self) -> u16 {
        match self {
            GatherBy::Probe { classifier, .. } => classifier.colors(),
            GatherBy::Frames(map) => map.colors(),
        }
    }

    fn colors(&mut self, pages: &Arc<OwnPages>) -> Result<Vec<Option<Color>>, ProbeError> {
        match self {
            GatherBy::Probe { classifier, bench } => {
                bench.allow_pages(pages);
                let found = classifier.classify(bench, &pages.addresses());
                bench.forbid_pages(pages);
                Ok(found?.iter().map(|verdict| verdict.color).collect())
            }
            GatherBy::Frames(map) => {
                Ok(frames_of(pages)?.into_iter().map(|frame| map.color(frame)).collect())
            }
        }
    }
}

/// How a re-measurement compares with colours known before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColorAgreement {
    /// Pages of the same colour as before.
    pub same: usize,
    /// Pages of another colour.
    pub different: usize,
    /// Pages that are undecided now.
    pub undecided: usize,
}

/// Memory whose pages have known colours.
#[derive(Debug)]
pub struct ColoredArea {
    pages: Arc<OwnPages>,
    colors: Vec<Color>,
}

impl ColoredArea {
    /// Number of pages.
    pub fn count(&self) -> usize {
        self.pages.count()
    }

    /// The colour of every page, in order of address.
    pub fn colors(&self) -> &[Color] {
        &self.colors
    }

    /// Address of the first page.
    pub fn base(&self) -> u64 {
        self.pages.base()
    }

    /// The memory; zeroes at first.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.pages.count() * 4096;
        // SAFETY: the area is mapped readable and writable as long as `pages` lives, every
        // byte of it is initialised by the kernel, and the mutable borrow keeps others out:
        // benches get hold of the pages only inside calls that borrow this value.
        unsafe { std::slice::from_raw_parts_mut(self.pages.base() as *mut u8, len) }
    }
}

/// Pages populated at a time.
const CHUNK: usize = 2048;
/// How many times the expected number of pages may be looked at.
const PATIENCE: usize = 4;

/// Collects coloured pages.
#[derive(Debug)]
pub struct LocalGather {
    source: GatherBy,
}

impl LocalGather {
    /// A gatherer that learns colours from `source`.
    pub fn new(source: GatherBy) -> LocalGather {
        LocalGather { source }
    }

    /// The source of colours.
    pub fn source(&mut self) -> &mut GatherBy {
        &mut self.source
    }

    /// An area of `pages` pages whose colours go round through `colors` in ascending order.
    /// `progress` is called with the pages found and wanted. Looks at no more than four times
    /// as many pages as chance asks for, and holds them all meanwhile.
    ///
    /// # Errors
    /// `NotEnough`, `BadJob` for an empty set or one of another level, and what populating,
    /// moving or measuring fails of.
    pub fn gather(
        &mut self,
        colors: &ColorSet,
        pages: usize,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<ColoredArea, ProbeError> {
        let order: Vec<Color> = colors.iter().collect();
        if order.is_empty() || colors.universe() != self.source.universe() || pages == 0 {
            let why = format!("{pages} pages of {} colours", order.len());
            return Err(ProbeError::BadJob(why));
        }
        let limit = pages * usize::from(colors.universe()) / order.len() * PATIENCE + 4 * CHUNK;
        let mut filling = Filling::new(&order, pages)?;
        let mut held = Vec::new();
        while filling.missing > 0 && held.len() * CHUNK < limit {
            let chunk = Arc::new(OwnPages::populated(CHUNK)?);
            let found = self.source.colors(&chunk)?;
            for (address, color) in chunk.addresses().into_iter().zip(found) {
                filling.offer(address, color)?;
            }
            held.push(chunk);
            progress(pages - filling.missing, pages);
        }
        filling.finish(held.len() * CHUNK)
    }

    /// Learns the colours of an area again. Contents stay.
    ///
    /// # Errors
    /// As measuring.
    pub fn verify(&mut self, area: &ColoredArea) -> Result<ColorAgreement, ProbeError> {
        let mut found = ColorAgreement::default();
        for (now, was) in self.source.colors(&area.pages)?.iter().zip(&area.colors) {
            match now {
                Some(color) if color == was => found.same += 1,
                Some(_) => found.different += 1,
                None => found.undecided += 1,
            }
        }
        Ok(found)
    }
}

/// An area being filled.
struct Filling {
    area: OwnPages,
    colors: Vec<Color>,
    /// For each colour, the places still empty.
    empty: Vec<VecDeque<usize>>,
    missing: usize,
    mover: Mover,
}

impl Filling {
    fn new(order: &[Color], pages: usize) -> Result<Filling, ProbeError> {
        let area = OwnPages::reserve(pages)?;
        let colors: Vec<Color> = order.iter().copied().cycle().take(pages).collect();
        let highest = order.iter().map(|c| usize::from(c.0)).max().unwrap_or(0);
        let mut empty = vec![VecDeque::new(); highest + 1];
        for (place, color) in colors.iter().enumerate() {
            empty[usize::from(color.0)].push_back(place);
        }
        let mover = Mover::new(&area);
        Ok(Filling { area, colors, empty, missing: pages, mover })
    }

    /// Moves a page into the area if its colour is still wanted.
    fn offer(&mut self, address: u64, color: Option<Color>) -> Result<(), ProbeError> {
        let places = color.and_then(|c| self.empty.get_mut(usize::from(c.0)));
        if let Some(place) = places.and_then(VecDeque::pop_front) {
            self.mover.take(address, self.area.base() + place as u64 * 4096)?;
            self.missing -= 1;
        }
        Ok(())
    }

    fn finish(self, looked: usize) -> Result<ColoredArea, ProbeError> {
        let wanted = self.colors.len();
        if self.missing > 0 {
            return Err(ProbeError::NotEnough { got: wanted - self.missing, wanted, looked });
        }
        Ok(ColoredArea { pages: Arc::new(self.area), colors: self.colors })
    }
}

/// Moves pages into one area. Userfaultfd keeps the area in one piece; without it, `mremap`
/// leaves one area per page, which the limit on areas (65,530 as a rule) bounds.
enum Mover {
    Userfault(OwnedFd),
    Remap,
}

/// `struct uffdio_register`.
#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

/// `struct uffdio_move`.
#[repr(C)]
struct Move {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    moved: i64,
}

const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_MOVE: libc::c_ulong = 0xc028_aa05;
/// `UFFDIO_REGISTER_MODE_MISSING`.
const MODE_MISSING: u64 = 1;

impl Mover {
    fn new(area: &OwnPages) -> Mover {
        Self::userfault(area).map_or(Mover::Remap, Mover::Userfault)
    }

    /// A userfaultfd that can move pages into the area; `None` where the kernel or its
    /// settings do not allow that.
    fn userfault(area: &OwnPages) -> Option<OwnedFd> {
        let fd = userfaultfd::user_mode().ok()?;
        userfaultfd::handshake(&fd, FEATURE_MOVE).ok()?;
        let (start, len) = (area.base(), area.count() as u64 * 4096);
        let mut register = Register { start, len, mode: MODE_MISSING, ioctls: 0 };
        // SAFETY: the request's own structure; the area is ours, and nobody waits for its pages.
        unsafe { request(&fd, UFFDIO_REGISTER, &mut register) }.ok()?;
        Some(fd)
    }

    /// Moves the page at `from` to `to`, both in this process; `to` is in the area and empty.
    fn take(&self, from: u64, to: u64) -> Result<(), ProbeError> {
        let result = match self {
            Mover::Userfault(fd) => move_page(fd, from, to),
            Mover::Remap => remap_page(from, to),
        };
        result.map_err(ProbeError::os("moving a page"))
    }
}

fn move_page(fd: &OwnedFd, from: u64, to: u64) -> io::Result<()> {
    for attempt in 0.. {
        let mut one = Move { dst: to, src: from, len: 4096, mode: 0, moved: 0 };
        // SAFETY: the request's own structure; both pages belong to areas that the caller owns.
        match unsafe { request(fd, UFFDIO_MOVE, &mut one) } {
            // EAGAIN: the page tables changed under the kernel; EBUSY: a page just being
            // written back or migrated. Both pass.
            Err(e)
                if attempt < 100
                    && matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) =>
            {
                std::thread::yield_now();
            }
            result => return result,
        }
    }
    Ok(())
}

fn remap_page(from: u64, to: u64) -> io::Result<()> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    // SAFETY: both pages belong to areas that the caller owns; the page at `to` is empty, and
    // the one at `from` stays mapped, as zeroes.
    let result = unsafe { libc::mremap(from as *mut _, 4096, 4096, flags, to as *mut u8) };
    if result == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(base: u64, count: usize) {
        for page in 0..count as u64 {
            // SAFETY: the test's own populated pages.
            unsafe { *((base + page * 4096) as *mut u64) = page + 1 };
        }
    }

    fn moves_contents(mover: impl Fn(&OwnPages) -> Mover) {
        let from = OwnPages::populated(8).unwrap();
        let to = OwnPages::reserve(8).unwrap();
        filled(from.base(), 8);
        let mover = mover(&to);
        for page in 0..8u64 {
            mover.take(from.base() + page * 4096, to.base() + (7 - page) * 4096).unwrap();
        }
        drop(mover);
        for page in 0..8u64 {
            // SAFETY: mapped as long as `to` and `from` live.
            let (new, old) = unsafe {
                let at = |base: u64, page: u64| *((base + page * 4096) as *const u64);
                (at(to.base(), 7 - page), at(from.base(), page))
            };
            assert_eq!((new, old), (page + 1, 0));
        }
    }

    #[test]
    fn pages_move_with_their_contents_by_remapping() {
        moves_contents(|_| Mover::Remap);
    }

    #[test]
    fn pages_move_with_their_contents_by_userfaultfd() {
        let area = OwnPages::reserve(1).unwrap();
        if Mover::userfault(&area).is_none() {
            let name = "pages_move_with_their_contents_by_userfaultfd";
            return crate::kernel::testing::skip(
                name,
                "userfaultfd with MOVE is not to be had here",
            );
        }
        moves_contents(Mover::new);
    }

    #[test]
    fn an_area_takes_each_colour_as_often_as_it_has_places() {
        let pool = OwnPages::populated(40).unwrap();
        let order = [Color(1), Color(4)];
        let mut filling = Filling::new(&order, 5).unwrap();
        for (i, address) in pool.addresses().into_iter().enumerate() {
            filling.offer(address, Some(Color(i as u16 % 5))).unwrap();
        }
        filling.offer(pool.base(), None).unwrap();
        let area = filling.finish(40).unwrap();
        assert_eq!(area.colors().iter().map(|c| c.0).collect::<Vec<_>>(), [1, 4, 1, 4, 1]);
    }

    #[test]
    fn too_few_pages_are_an_error() {
        let filling = Filling::new(&[Color(1)], 5).unwrap();
        let error = filling.finish(7).unwrap_err();
        assert!(matches!(error, ProbeError::NotEnough { got: 0, wanted: 5, looked: 7 }));
    }
}
