//! Parities of one mask over thousands of addresses at once. Addresses are kept transposed, a
//! word holding one bit of 64 of them, so that all parities are the XOR of the words that the
//! mask selects. Groups begin at a word of their own, so that sums per group are population
//! counts. What a sum means is decided elsewhere.

/// Groups of vectors of at most 64 bits.
#[derive(Clone, Debug)]
pub struct Columns {
    /// `planes[bit]`: that bit of every vector.
    planes: Vec<Vec<u64>>,
    groups: Vec<Extent>,
    vectors: u64,
}

/// The words of one group.
#[derive(Clone, Copy, Debug)]
struct Extent {
    first: usize,
    words: usize,
    members: u64,
    /// Parities of this group are to be 0 and not any constant.
    anchored: bool,
}

/// Parities of all vectors of a [`Columns`], for one mask.
pub type Parities = Vec<u64>;

impl Columns {
    /// No vectors yet, of `bits` bits.
    pub fn new(bits: usize) -> Columns {
        Columns { planes: vec![Vec::new(); bits], groups: Vec::new(), vectors: 0 }
    }

    /// Adds a group; the parity of a fitting mask is the same for all its vectors, and 0 if it
    /// is anchored.
    pub fn push(&mut self, members: &[u64], anchored: bool) {
        let first = self.words();
        let words = members.len().div_ceil(64);
        for (bit, plane) in self.planes.iter_mut().enumerate() {
            let word = |chunk: &[u64]| {
                chunk.iter().zip(0..).fold(0, |word, (&v, at)| word | (v >> bit & 1) << at)
            };
            plane.extend(members.chunks(64).map(word));
        }
        self.groups.push(Extent { first, words, members: members.len() as u64, anchored });
        self.vectors += members.len() as u64;
    }

    /// Bits of each vector.
    pub const fn bits(&self) -> usize {
        self.planes.len()
    }

    /// Words of a [`Parities`].
    pub fn words(&self) -> usize {
        self.planes.first().map_or(0, Vec::len)
    }

    /// All vectors there are.
    pub const fn vectors(&self) -> u64 {
        self.vectors
    }

    /// Groups with a constant of their own, to be learned.
    pub fn free_groups(&self) -> usize {
        self.groups.iter().filter(|g| !g.anchored).count()
    }

    /// The parities of all vectors with `mask`.
    pub fn parities(&self, mask: u64) -> Parities {
        let mut sum = vec![0; self.words()];
        for (plane, _) in self.planes.iter().zip(0..).filter(|&(_, bit)| mask >> bit & 1 == 1) {
            sum.iter_mut().zip(plane).for_each(|(sum, word)| *sum ^= word);
        }
        sum
    }

    /// How many vectors of every group have parity 1.
    pub fn ones<'a>(&'a self, parities: &'a [u64]) -> impl Iterator<Item = (u64, u64)> + 'a {
        self.groups.iter().map(|group| {
            let words = &parities[group.first..group.first + group.words];
            (words.iter().map(|w| u64::from(w.count_ones())).sum(), group.members)
        })
    }

    /// How many vectors agree with the best constant of their group.
    pub fn agreement(&self, parities: &[u64]) -> u64 {
        let sums = self.ones(parities).zip(&self.groups);
        sums.map(
            |((ones, all), group)| {
                if group.anchored { all - ones } else { ones.max(all - ones) }
            },
        )
        .sum()
    }

    /// Whether the usual parity differs between groups with a constant of their own, one in
    /// eight at least: one that hardly any vector varies agrees with all and tells none apart.
    pub fn tells_apart(&self, parities: &[u64]) -> bool {
        let sums = self.ones(parities).zip(&self.groups).filter(|(_, group)| !group.anchored);
        let (ones, all) = sums.fold((0, 0), |(ones, all), ((one, members), _)| {
            (ones + usize::from(2 * one > members), all + 1)
        });
        8 * ones.min(all - ones) >= all && all > 1
    }

    /// [`Self::agreement`] of a mask.
    pub fn agree(&self, mask: u64) -> u64 {
        self.agreement(&self.parities(mask))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use huepage_color::gf2;

    #[test]
    fn sums_are_those_of_single_parities() {
        let mut dice = Rng::with_seed(3);
        let groups: Vec<Vec<u64>> =
            [1, 64, 65, 200].map(|n| (0..n).map(|_| dice.u64(..) >> 40).collect()).to_vec();
        let mut columns = Columns::new(24);
        groups.iter().zip(0..).for_each(|(group, at)| columns.push(group, at == 1));
        for _ in 0..50 {
            let mask = dice.u64(..) >> 40;
            let ones = groups.iter().map(|g| g.iter().map(|&v| gf2::parity(v, mask)).sum::<u64>());
            let want: Vec<u64> = ones.collect();
            let found: Vec<u64> = columns.ones(&columns.parities(mask)).map(|s| s.0).collect();
            assert_eq!(found, want);
            let best = |at: usize| want[at].max(groups[at].len() as u64 - want[at]);
            assert_eq!(columns.agree(mask), best(0) + (64 - want[1]) + best(2) + best(3));
        }
        assert_eq!((columns.vectors(), columns.free_groups()), (330, 3));
    }
}
