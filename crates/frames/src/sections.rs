//! Sections: the colours of a shared cache divided among the cores that share it, contiguous
//! and as equal as can be (COLORIS 2014, section 3.2). A core's own section is local to it,
//! those of the others are remote. Who gets which colours of them is for others to say.

use huepage_color::{Color, ColorSet};

/// A division of `colors` colours among `cores` cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sections {
    cores: u16,
    colors: u16,
}

impl Sections {
    /// A section for each core; none if there are no cores, or more than colours.
    pub const fn new(cores: u16, colors: u16) -> Option<Sections> {
        if cores == 0 || colors < cores { None } else { Some(Sections { cores, colors }) }
    }

    /// How many cores there are.
    pub const fn cores(&self) -> u16 {
        self.cores
    }

    /// How many colours there are.
    pub const fn colors(&self) -> u16 {
        self.colors
    }

    /// The colours of a core; empty for a core that is not there.
    pub fn section(&self, core: u16) -> ColorSet {
        let mut set = ColorSet::empty(self.colors);
        if core < self.cores {
            (self.start(core)..self.start(core + 1)).for_each(|color| _ = set.insert(Color(color)));
        }
        set
    }

    /// The core that a colour is local to.
    pub fn core_of(&self, color: Color) -> u16 {
        let mut cores = (0..self.cores).rev();
        cores.find(|&core| self.start(core) <= color.0).unwrap_or(0)
    }

    /// Sections differ by one colour where the cores do not divide the colours.
    fn start(&self, core: u16) -> u16 {
        let start = u32::from(core) * u32::from(self.colors) / u32::from(self.cores);
        u16::try_from(start).unwrap_or(self.colors)
    }
}
