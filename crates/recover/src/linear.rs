//! Recovery of a hash of parities. Lines of one group give every mask of the hash one parity,
//! so the masks are what the differences within groups do not change: the orthogonal complement
//! of their span over GF(2) (Irazoqui et al. 2015 solve the same equations). Observations may be
//! wrong, so masks are *decoded* one by one (information sets, in `decode`), and believed only if the part
//! of the observations that was held out agrees. How far that could be chance is computed, and
//! if it could, nothing is claimed. Slices that are no power of two are recognised here and
//! left to [`crate::permuted`].

use std::collections::{BTreeMap, BTreeSet};

use huepage_color::gf2;

use crate::bound::{ln_add, ln_tail, ratio};
use crate::columns::Columns;
use crate::obs::{Labels, LineGroupId, Observations};
use crate::rule::{self, MaskVerdict};
use crate::sample::VectorSample;
use crate::search::{FoundMasks, SearchBudget, is_new, least, polished, search, small};
use crate::vectors::VectorGroup;
use fastrand::Rng;

/// Logarithm of the chance, over all masks there could be, that a candidate of the search is
/// none: about 10^-9.
const LN_CANDIDATE: f64 = -20.7;
/// Trials without a new mask after which a search that has found one ends, at least.
const PATIENCE: u64 = 300;
/// Fewest observations that anything is said of.
const LEAST: usize = 64;
/// Vectors that the search draws from and scores candidates on: each trial takes as long as
/// there are vectors, and more of them make no hash easier to find.
const MOST: usize = 16_384;

/// Agreement from which a parity may be one that is constant over groups though the hash as a
/// whole is not linear; below, the unevenness of a base sequence reaches as far.
const CONSTANT: f64 = 0.75;

/// What is known beforehand, and how far to go.
#[derive(Clone, Copy, Debug)]
pub struct RecoverOptions {
    /// Slices, if known; a result with another number is not claimed then.
    pub slices: Option<u32>,
    /// Trials of the search at most; about 200,000 take a second.
    pub trials: u64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Natural logarithm of the largest doubt with which masks are still claimed.
    pub ln_doubt: f64,
}

impl Default for RecoverOptions {
    /// Any number of slices, 400,000 trials, a doubt of one in a million.
    fn default() -> RecoverOptions {
        RecoverOptions { slices: None, trials: 400_000, seed: 1, ln_doubt: -13.8 }
    }
}

/// What observations say of the hash.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovery {
    /// The finding.
    pub outcome: HashOutcome,
    /// Observations given.
    pub observations: usize,
    /// Groups that are more than stray numbers.
    pub groups: usize,
    /// Address bits that varied; nothing is known of any other.
    pub varied: u64,
    /// Parities among these that (nearly) no observation varied, reduced: masks may have them
    /// added or not, and nothing observed would be different.
    pub blind: Vec<u64>,
    /// Trials that the search took.
    pub trials: u64,
}

/// A finding.
#[derive(Clone, Debug, PartialEq)]
pub enum HashOutcome {
    /// The slice is a vector of parities.
    Linear(Linear),
    /// It is not.
    NotLinear(NotLinear),
    /// The observations do not suffice for either.
    Undetermined(Undetermined),
}

/// A hash of parities.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// One mask per slice bit. The slice's own bits if `labelled`; otherwise any masks with the
    /// same span say the same, and these are the reduced basis.
    pub masks: Vec<u64>,
    /// Whether group numbers are slices' own and these masks give them, up to `offset`.
    pub labelled: bool,
    /// What the parities must be XORed with to give the slice's own number, if `labelled`.
    pub offset: u64,
    /// Share of the held-out observations that the masks contradict, 0 to 1.
    pub wrong: f64,
    /// Held-out observations, and those of them that agree.
    pub held: (u64, u64),
    /// Natural logarithm of the doubt: an upper bound on the probability that chance alone
    /// made the held-out observations agree with wrong or missing masks, errors being
    /// independent of addresses.
    pub ln_doubt: f64,
}

/// Slices that parities do not give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotLinear {
    /// Groups seen, not a power of two.
    pub groups: usize,
    /// Parities that are constant over each group all the same, reduced: 12 slices may be 3 in
    /// each of 4 values of two parities.
    pub masks: Vec<u64>,
}

/// Why nothing is claimed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum Undetermined {
    /// Too few to begin with.
    #[error(
        "{seen} lines or pairs, each counted once, are too few to learn from; give at least 64, and about 50 per slice"
    )]
    TooFew { seen: usize },
    /// All in one group, or no conflict at all.
    #[error("all observations fall into one group; observe lines of more slices")]
    OneGroup,
    /// No mask was found.
    #[error(
        "no hash of parities explains the {groups} groups: too many observations are wrong, or the hash is not linear; observe more"
    )]
    NoMask { groups: usize },
    /// Masks were found but do not explain everything, or not surely.
    #[error(
        "the best {masks} masks are right on {right} of {held} held-out observations, which is too little to rely on; observe more, or with fewer errors"
    )]
    Doubtful { masks: usize, right: u64, held: u64 },
    /// Errors that follow a rule: what was found is near the hash, but not the hash.
    #[error(
        "the {errors} observations that the best masks contradict depend on the address (parity {mask:#x}): the hash is not linear, or the source errs by a rule; observe in another way"
    )]
    Systematic { errors: u64, mask: u64 },
    /// Another number of slices than was given.
    #[error(
        "the observations show {found} slices, not the {given} given; check --slices, or leave it out"
    )]
    OtherSlices { found: u64, given: u32 },
    /// Groups that are no power of two because some slice has none.
    #[error(
        "a group was missed: {masks} parities are constant over the {groups} groups, which makes 2^{masks} slices; observe again, with more lines"
    )]
    Missed { groups: usize, masks: usize },
}

impl Recovery {
    /// Whether masks say the same as those recovered, bits that did not vary and blind parities
    /// put aside; `None` if none were recovered.
    pub fn confirms(&self, masks: &[u64]) -> Option<bool> {
        let HashOutcome::Linear(found) = &self.outcome else { return None };
        let seen = |masks: &[u64]| {
            let cut: Vec<u64> = masks.iter().map(|mask| mask & self.varied).collect();
            gf2::reduce(&[&cut, self.blind.as_slice()].concat())
        };
        Some(seen(masks) == seen(&found.masks))
    }
}

/// Solves for the hash behind observations. 2,000 of them take some milliseconds; with a third
/// of them wrong, up to a few seconds ([`RecoverOptions::trials`]).
pub fn recover(seen: &Observations, options: &RecoverOptions) -> Recovery {
    let mut dice = Rng::with_seed(options.seed);
    let sample = VectorSample::new(seen, &mut dice);
    let groups = sample.train.iter().filter(|g| !g.anchored).count();
    let (outcome, trials) = Solver { sample: &sample, options, groups }.solve(seen, &mut dice);
    Recovery {
        outcome,
        observations: seen.list.len(),
        groups,
        varied: sample.varied,
        blind: sample.blind,
        trials,
    }
}

struct Solver<'a> {
    sample: &'a VectorSample,
    options: &'a RecoverOptions,
    groups: usize,
}

impl Solver<'_> {
    fn solve(&self, seen: &Observations, dice: &mut Rng) -> (HashOutcome, u64) {
        let usable = self.sample.vectors();
        if usable < LEAST {
            return (HashOutcome::Undetermined(Undetermined::TooFew { seen: usable }), 0);
        }
        if self.groups == 1 || (self.groups == 0 && self.sample.apart[0].is_empty()) {
            return (HashOutcome::Undetermined(Undetermined::OneGroup), 0);
        }
        let (found, columns) = self.search(dice);
        let judged = self.judge(&found.masks, &columns, seen.labels);
        let judged = judged.and_then(|linear| self.without_rule(&found.masks, linear, dice));
        let outcome = match judged {
            Ok(linear) => HashOutcome::Linear(linear),
            Err(why) => self.otherwise(&found.masks, why),
        };
        (outcome, found.trials)
    }

    /// Masks that part of the sample gives and all that there is to learn from has improved, and
    /// its columns.
    fn search(&self, dice: &mut Rng) -> (FoundMasks, Columns) {
        let part = few(&self.sample.train);
        let columns = self.sample.columns(&[&part]);
        let mut found = search(&part, &columns, self.least(&columns), self.budget(), dice);
        let all = self.sample.columns(&[&self.sample.train]);
        if columns.vectors() < all.vectors() {
            found.masks = polished(&found.masks, &all);
        }
        (found, all)
    }

    /// The agreement below which a mask is none. Of slices that are no power of two only
    /// parities that are constant count, and any that a base sequence is uneven in do not.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts of observations are far below 2^53"
    )]
    fn least(&self, columns: &Columns) -> u64 {
        let constant =
            if self.groups.is_power_of_two() || self.groups == 0 { 0.0 } else { CONSTANT };
        least(columns, LN_CANDIDATE).max((columns.vectors() as f64 * constant) as u64)
    }

    /// The number of masks is known if the groups are 2^n; otherwise there may be none at all.
    fn budget(&self) -> SearchBudget {
        let trials = self.options.trials;
        let rank = |slices: usize| slices.trailing_zeros() as usize;
        let given = self.options.slices.map(|slices| slices as usize);
        match given.or(Some(self.groups).filter(|&groups| groups > 1)) {
            Some(slices) if slices.is_power_of_two() => {
                SearchBudget { trials, rank: rank(slices), patience: trials }
            }
            Some(_) => SearchBudget { trials: trials / 8, rank: 16, patience: PATIENCE },
            None => SearchBudget { trials, rank: 16, patience: PATIENCE },
        }
    }

    /// Whether masks explain what was held out, and how surely.
    fn judge(
        &self,
        masks: &[u64],
        columns: &Columns,
        labels: Labels,
    ) -> Result<Linear, Undetermined> {
        if masks.is_empty() {
            return Err(Undetermined::NoMask { groups: self.groups });
        }
        let (right, held) = if self.groups > 1 { self.lines(masks) } else { self.pairs(masks) };
        let doubtful = Undetermined::Doubtful { masks: masks.len(), right, held };
        if self.groups > 1 && !self.one_to_one(masks) {
            return Err(doubtful);
        }
        // Were a mask missing, each value would stand for two slices at least, and no more than
        // half of what is said of it could be right.
        let missing = ln_tail(right, held, 0.5);
        let ln_doubt = ln_add(missing, ln_add(self.by_chance(masks, columns), self.rivals(masks)));
        if ln_doubt > self.options.ln_doubt {
            return Err(doubtful);
        }
        let found = 1_u64 << masks.len();
        if let Some(given) = self.options.slices.filter(|&given| u64::from(given) != found) {
            return Err(Undetermined::OtherSlices { found, given });
        }
        let named = (labels == Labels::Numbered).then(|| self.labelled(masks)).flatten();
        let (masks, offset, labelled) = match named {
            Some((masks, offset)) => (masks, offset, true),
            None => (self.addresses(masks), 0, false),
        };
        let wrong = 1.0 - ratio(right, held);
        Ok(Linear { masks, labelled, offset, wrong, held: (held, right), ln_doubt })
    }

    /// Errors of a source are independent of addresses; those of a linear approximation to a
    /// hash that is not linear are not.
    fn without_rule(
        &self,
        masks: &[u64],
        linear: Linear,
        dice: &mut Rng,
    ) -> Result<Linear, Undetermined> {
        let verdicts = self.verdicts(masks);
        let errors = verdicts.iter().filter(|verdict| verdict.contradicts).count() as u64;
        let all = few(&self.sample.all());
        match rule::find(&verdicts, self.sample.dimensions(), &all, dice) {
            None => Ok(linear),
            Some(mask) => Err(Undetermined::Systematic { errors, mask: self.sample.mask(mask) }),
        }
    }

    /// What every line and pair says of the masks: a line contradicts them if it is of another
    /// group than usual, a pair if it conflicts and should not, or should and does not.
    fn verdicts(&self, masks: &[u64]) -> Vec<MaskVerdict> {
        let usual = self.usual(masks);
        let of_line = |(group, vector)| {
            let value = gf2::evaluate(masks, vector);
            let contradicts = usual.get(&value).is_none_or(|found| found.0 != group);
            MaskVerdict { vector, value, contradicts }
        };
        let of_pair = |vector: u64, conflict: bool| {
            let value = gf2::evaluate(masks, vector);
            MaskVerdict { vector, value, contradicts: conflict != (value == 0) }
        };
        let both = || [&self.sample.train, &self.sample.held].into_iter();
        let same = both().flatten().filter(|g| g.anchored).flat_map(|g| &g.vectors);
        let apart = self.sample.apart.iter().flatten();
        let of_lines = both().flat_map(|part| lines(part)).map(of_line);
        let of_pairs = same.map(|&v| of_pair(v, true)).chain(apart.map(|&v| of_pair(v, false)));
        of_lines.chain(of_pairs).collect()
    }

    /// What to say when the masks found are not the whole hash.
    fn otherwise(&self, masks: &[u64], why: Undetermined) -> HashOutcome {
        let sizes = self.sample.train.iter().filter(|g| !g.anchored).map(|g| g.vectors.len());
        let all: usize = sizes.clone().sum();
        let substantial = sizes.filter(|&n| n * 3 * self.groups >= all).count();
        if self.groups > 2 && substantial == self.groups && !self.groups.is_power_of_two() {
            return self.no_power(masks);
        }
        HashOutcome::Undetermined(why)
    }

    /// What groups mean that are no power of two: as many slices, unless some were missed. A
    /// missed group shows where the number of slices is known, or where constant parities tell
    /// more values apart than there are groups.
    fn no_power(&self, masks: &[u64]) -> HashOutcome {
        let (groups, found) = (self.groups, self.groups as u64);
        let constant: Vec<u64> =
            masks.iter().copied().filter(|&mask| self.is_constant(mask)).collect();
        if let Some(given) = self.options.slices.filter(|&given| u64::from(given) != found) {
            return HashOutcome::Undetermined(Undetermined::OtherSlices { found, given });
        }
        if 1_u64 << constant.len() >= found {
            let masks = constant.len();
            return HashOutcome::Undetermined(Undetermined::Missed { groups, masks });
        }
        HashOutcome::NotLinear(NotLinear { groups, masks: self.addresses(&constant) })
    }

    /// Whether a parity is constant over every group, and not just uneven in some: groups of
    /// a base sequence are uneven in any parity, as they have few places in it.
    fn is_constant(&self, mask: u64) -> bool {
        let columns = self.sample.columns(&[&self.sample.train, &self.sample.held]);
        let parities = columns.parities(mask);
        let mean = ratio(columns.agreement(&parities), columns.vectors());
        let like_all = |(ones, all): (u64, u64)| {
            let spread = (mean * (1.0 - mean) / ratio(all, 1)).sqrt();
            ratio(ones.max(all - ones), all) >= mean - 4.0 * spread
        };
        mean >= CONSTANT && columns.ones(&parities).all(like_all)
    }

    fn addresses(&self, masks: &[u64]) -> Vec<u64> {
        gf2::reduce(&masks.iter().map(|&mask| self.sample.mask(mask)).collect::<Vec<_>>())
    }

    /// Held-out lines whose group is the one that the lines learned from have most often at the
    /// same value of the masks, and all of them.
    fn lines(&self, masks: &[u64]) -> (u64, u64) {
        let usual = self.usual(masks);
        let mut counts = (0, 0);
        for (group, vector) in lines(&self.sample.held) {
            counts.1 += 1;
            let value = gf2::evaluate(masks, vector);
            counts.0 += u64::from(usual.get(&value).is_some_and(|&(usual, _)| usual == group));
        }
        counts
    }

    /// Of the held-out pairs that should conflict, those that did.
    fn pairs(&self, masks: &[u64]) -> (u64, u64) {
        let fit = |v: &&u64| gf2::evaluate(masks, **v) == 0;
        let held = self.sample.held.iter().filter(|g| g.anchored);
        let did = held.flat_map(|g| &g.vectors).filter(fit).count() as u64;
        let not = self.sample.apart[1].iter().filter(fit).count() as u64;
        (did, did + not)
    }

    /// The most frequent group of every value of the masks, and how often it was seen.
    fn usual(&self, masks: &[u64]) -> BTreeMap<u64, (LineGroupId, usize)> {
        let mut counts: BTreeMap<(u64, LineGroupId), usize> = BTreeMap::new();
        for (group, vector) in lines(&self.sample.train) {
            *counts.entry((gf2::evaluate(masks, vector), group)).or_default() += 1;
        }
        let mut usual: BTreeMap<u64, (LineGroupId, usize)> = BTreeMap::new();
        for ((value, group), count) in counts {
            let best = usual.entry(value).or_insert((group, count));
            if count > best.1 {
                *best = (group, count);
            }
        }
        usual
    }

    /// Whether values that occur have a group each.
    fn one_to_one(&self, masks: &[u64]) -> bool {
        let usual = self.usual(masks);
        let groups: BTreeSet<LineGroupId> = usual.values().map(|found| found.0).collect();
        groups.len() == usual.len() && usual.len() > 1 << (masks.len() - 1)
    }

    /// Logarithm of a bound on the chance that held-out lines agree so well with any of the
    /// parities that follow from the masks, their constants having been learned elsewhere.
    fn by_chance(&self, masks: &[u64], columns: &Columns) -> f64 {
        let held = self.sample.columns(&[&self.sample.held]);
        let spans = (1_u64..1 << masks.len()).map(|pick| combine(masks, pick));
        let chance = spans.map(|mask| {
            let learned: Vec<bool> =
                columns.ones(&columns.parities(mask)).map(|(ones, all)| 2 * ones > all).collect();
            let parities = held.parities(mask);
            let agree = |((ones, all), (one, group)): ((u64, u64), (bool, &VectorGroup))| {
                if one && !group.anchored { ones } else { all - ones }
            };
            let groups = learned.into_iter().zip(&self.sample.held);
            let agree = held.ones(&parities).zip(groups).map(agree).sum();
            ln_tail(agree, held.vectors(), 0.5)
        });
        chance.fold(f64::NEG_INFINITY, ln_add)
    }

    /// Logarithm of the odds that some mask is off by one or two bits: chance hardly gives
    /// those away where observations seldom vary a bit. The likelihood ratio of all
    /// observations, errors at the rate found.
    fn rivals(&self, masks: &[u64]) -> f64 {
        let columns = self.sample.columns(&[&self.sample.train, &self.sample.held]);
        let all = columns.vectors();
        let rival = |mask: u64| {
            let agree = columns.agree(mask);
            let wrong = ratio((all - agree).max(1), all);
            let weight = ((1.0 - wrong) / wrong).ln().max(0.0);
            let others = small(columns.bits()).filter(|flip| is_new(masks, mask ^ flip));
            let best = others.map(|flip| columns.agree(mask ^ flip)).max().unwrap_or(0);
            let lead = ratio(agree.saturating_sub(best), 1);
            (ratio((columns.bits() * columns.bits()) as u64, 2)).ln() - lead * weight
        };
        let all = (1_u64..1 << masks.len()).map(|pick| rival(combine(masks, pick)));
        all.fold(f64::NEG_INFINITY, ln_add)
    }

    /// The masks that give the groups' own numbers, and what to XOR with, if there are any.
    fn labelled(&self, masks: &[u64]) -> Option<(Vec<u64>, u64)> {
        let usual = self.usual(masks);
        let number = |value: u64| usual.get(&value).map(|&(group, _)| u64::from(group.0));
        let (offset, bits) = (number(0)?, masks.len());
        let parts: Vec<u64> =
            (0..bits).map(|bit| Some(number(1 << bit)? ^ offset)).collect::<Option<_>>()?;
        let sum = |value: u64| combine(&parts, value) ^ offset;
        let fits = usual.iter().all(|(&value, found)| sum(value) == u64::from(found.0.0));
        let of_bit = |bit: usize| {
            let picks = (0..bits).filter(|&at| parts[at] >> bit & 1 == 1);
            self.sample.mask(picks.fold(0, |mask, at| mask ^ masks[at]))
        };
        let inside = parts.iter().all(|part| part >> bits == 0);
        let masks: Vec<u64> = (0..bits).map(of_bit).collect();
        // Vectors are relative to an origin, whose own parities belong to the offset.
        let offset = offset ^ gf2::evaluate(&masks, self.sample.origin);
        (fits && inside).then_some((masks, offset))
    }
}

/// As much of groups as is searched, in their proportions: what is left out is any of them, as
/// the sample has shuffled each.
fn few(groups: &[VectorGroup]) -> Vec<VectorGroup> {
    let all: usize = groups.iter().map(|group| group.vectors.len()).sum();
    let cut = |group: &VectorGroup| {
        let count = (group.vectors.len() * MOST.min(all)).div_ceil(all.max(1));
        VectorGroup { vectors: group.vectors[..count].to_vec(), ..*group }
    };
    groups.iter().map(cut).collect()
}

/// Classified lines with their groups.
fn lines(groups: &[VectorGroup]) -> impl Iterator<Item = (LineGroupId, u64)> + '_ {
    let free = groups.iter().filter(|g| !g.anchored);
    free.flat_map(|group| group.vectors.iter().map(|&v| (group.id, v)))
}

/// The sum of the masks that `pick` has a bit for.
pub(crate) fn combine(masks: &[u64], pick: u64) -> u64 {
    masks.iter().zip(0..).fold(0, |sum, (mask, at)| sum ^ (mask * (pick >> at & 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_has_as_much_of_every_group_and_no_more_than_it_can_take() {
        let group = |id: u16, size: u64| VectorGroup {
            id: LineGroupId(id),
            vectors: (0..size).collect(),
            anchored: false,
        };
        let sizes = |groups: &[VectorGroup]| -> Vec<usize> {
            few(groups).iter().map(|group| group.vectors.len()).collect()
        };
        assert_eq!(sizes(&[group(0, 30_000), group(1, 90_000)]), [4096, 12_288]);
        assert_eq!(sizes(&[group(0, 100), group(1, 0), group(2, 16_000)]), [100, 0, 16_000]);
        assert_eq!(sizes(&[]), [0; 0]);
    }
}
