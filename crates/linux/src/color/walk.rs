//! Memory of this process whose pages have measured colours, seen as one slice of words: what
//! a walk through chosen colours needs. Nothing is moved; whoever walks picks the pages. Which
//! pages to walk, and what their latency means, is decided elsewhere.

use std::sync::Arc;

use huepage_color::{Color, PAGE_BYTES};

use crate::color::probe::{Classifier, OwnPages, ProbeError, ProbeParams, open_reference};

/// Words of 64 bits in a page of 4 KiB.
pub const PAGE_WORDS: usize = PAGE_BYTES as usize / 8;

/// Populated private pages with their colours.
#[derive(Debug)]
pub struct ColoredWords {
    pages: OwnPages,
    colors: Vec<Option<Color>>,
}

impl ColoredWords {
    /// Populates `count` pages and measures their colours on `cpu` with the machine's
    /// reference set, which is built if there is none. The thread is on that CPU meanwhile.
    ///
    /// # Errors
    /// As building classes and classifying: noise, want of memory, a CPU out of reach.
    pub fn measure(
        params: &ProbeParams,
        cpu: usize,
        count: usize,
    ) -> Result<ColoredWords, ProbeError> {
        let reference = open_reference(params, cpu)?.set;
        let pages = Arc::new(OwnPages::populated(count)?);
        let mut bench = reference.bench(cpu)?;
        bench.allow_pages(&pages);
        let mut classifier = Classifier::new(reference.classes.clone());
        let verdicts = classifier.classify(&mut bench, &pages.addresses())?;
        drop(bench);
        let colors = verdicts.iter().map(|verdict| verdict.color).collect();
        let pages = Arc::into_inner(pages)
            .ok_or_else(|| ProbeError::BadJob("the bench kept the pages".into()))?;
        Ok(ColoredWords { pages, colors })
    }

    /// The colour of each page; `None` where none was clear.
    pub fn colors(&self) -> &[Option<Color>] {
        &self.colors
    }

    /// The memory, [`PAGE_WORDS`] words for each page.
    pub fn words(&mut self) -> &mut [u64] {
        let words = self.pages.count() * PAGE_WORDS;
        // SAFETY: the area is page-aligned, readable and writable for its whole length while
        // `pages` lives, every bit pattern is a u64, and the borrow of self excludes others.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), words) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_there_once_and_keeps_what_is_written() {
        let pages = OwnPages::populated(3).unwrap();
        let mut words = ColoredWords { pages, colors: vec![None; 3] };
        assert_eq!(words.words().len(), 3 * PAGE_WORDS);
        assert!(words.words().iter().all(|&w| w == 0));
        words.words()[3 * PAGE_WORDS - 1] = 7;
        assert_eq!(words.words()[3 * PAGE_WORDS - 1], 7);
        assert_eq!(words.colors().len(), 3);
    }
}
