//! Streams of pages known before a run, for OFFLINE: the pages that each address space of a program turns to,
//! of a long stream pieces that lie evenly in it. What they are worth in superpages is worked out by
//! `huepage_policy::superpage::Plan`.

use huepage_color::Vpn;
use huepage_policy::Prices;
use huepage_policy::superpage::{OfflinePlan, PageSizes};

use crate::record::Record;
use crate::schedule::AccessSource;

/// Turns that are looked at; a plan takes about a microsecond for each and round.
const MOST: usize = 1 << 19;
/// Turns in a row that are kept or left out together.
const PIECE: usize = 1 << 14;

/// The pages of one address space, accesses in a row to one page counted once.
pub(crate) struct Stream {
    space: u16,
    last: Option<Vpn>,
    pages: Vec<Vpn>,
    /// One piece in so many is kept.
    stride: usize,
    seen: usize,
}

/// The streams of a program, in the order in which its address spaces begin; of its first `limit` accesses.
pub(crate) fn streams<E>(
    mut source: Box<dyn AccessSource<E> + '_>,
    limit: u64,
) -> Result<Vec<Stream>, E> {
    let (mut streams, mut batch, mut left) = (Vec::<Stream>::new(), Vec::<Record>::new(), limit);
    while left > 0 && source.next(&mut batch)? {
        let taken = batch.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        left -= taken as u64;
        for record in &batch[..taken] {
            let at = streams.iter().position(|stream| stream.space == record.space);
            let at = at.unwrap_or_else(|| {
                streams.push(Stream::new(record.space));
                streams.len() - 1
            });
            streams[at].turn(record.address.vpn());
        }
    }
    Ok(streams)
}

impl Stream {
    const fn new(space: u16) -> Stream {
        Stream { space, last: None, pages: Vec::new(), stride: 1, seen: 0 }
    }

    fn turn(&mut self, page: Vpn) {
        if self.last.replace(page) == Some(page) {
            return;
        }
        let piece = self.seen / PIECE;
        self.seen += 1;
        if !piece.is_multiple_of(self.stride) {
            return;
        }
        self.pages.push(page);
        if self.pages.len() >= MOST && self.seen.is_multiple_of(PIECE) {
            // Too many: every other piece goes.
            let pieces = self.pages.chunks(PIECE).step_by(2);
            self.pages = pieces.flatten().copied().collect();
            self.stride *= 2;
        }
    }

    /// What it is worth with a TLB of so many entries; a superpage may cost the share of its price that was
    /// kept of the stream.
    pub fn plan(&self, entries: usize, sizes: &PageSizes, prices: Prices) -> OfflinePlan {
        let share = self.pages.len() as f64 / self.seen.max(1) as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share")]
        let per_kib = ((prices.per_kib as f64 * share).round() as u64).max(1);
        OfflinePlan::greedy(&self.pages, entries, sizes, Prices { per_kib, ..prices })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_even_and_no_larger_than_it_may_be() {
        let mut stream = Stream::new(0);
        (0..4 * MOST as u64).for_each(|i| stream.turn(Vpn(i)));
        assert!((MOST / 4..=MOST).contains(&stream.pages.len()));
        let firsts: Vec<u64> = stream.pages.chunks(PIECE).map(|piece| piece[0].0).collect();
        let gap = (stream.stride * PIECE) as u64;
        assert!(firsts.windows(2).all(|pair| pair[1] - pair[0] == gap), "{firsts:?}");
        stream.turn(Vpn(1));
        let seen = stream.seen;
        stream.turn(Vpn(1));
        assert_eq!(stream.seen, seen, "the same page again is no turn");
    }
}
