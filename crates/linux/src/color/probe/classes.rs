//! The classes of one cache level: which reference pages have which colour.

use super::params::ProbeParams;

/// The reference classes of one cache level: page indexes per colour.
#[derive(Clone, Debug, PartialEq)]
pub struct ColorClasses {
    /// The numbers they were built with.
    pub params: ProbeParams,
    /// For each colour, the indexes of its pages among the reference pages.
    pub classes: Vec<Vec<u32>>,
}

impl ColorClasses {
    /// The number of colours.
    pub fn colors(&self) -> u16 {
        self.params.colors
    }

    /// All page indexes, class by class.
    pub fn pages(&self) -> impl Iterator<Item = u32> + '_ {
        self.classes.iter().flatten().copied()
    }

    /// Takes other classes; how many of `pages` are in another class than before, or in none.
    pub(crate) fn replace(&mut self, classes: Vec<Vec<u32>>, pages: &[u32]) -> usize {
        let same = |(old, new): (&Vec<u32>, &Vec<u32>)| {
            new.iter().filter(|page| old.contains(page)).count()
        };
        let kept: usize = self.classes.iter().zip(&classes).map(same).sum();
        self.classes = classes;
        pages.len() - kept
    }
}
