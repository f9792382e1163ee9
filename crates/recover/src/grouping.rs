//! The integer program of [`mod@crate::cluster`], solved exactly: items are put into groups so that the sum
//! of the weights of all pairs in a group is largest. By branch and bound: one item after the
//! other joins a group or founds one, and what cannot become better than the best is left.

/// Branches that are looked at, at most: a second or so. Counts with little noise take hundreds.
const BRANCHES: u64 = 300_000;

/// The group of each item of the best grouping, by the weights of pairs (symmetric, a square table);
/// `None` if that would take too long.
pub(crate) fn best_grouping(weights: &[Vec<i64>]) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    // What says most comes first, so that bounds are tight early.
    order.sort_by_key(|&item| -weights[item].iter().map(|weight| weight.abs()).sum::<i64>());
    let sorted = |&row: &usize| order.iter().map(|&column| weights[row][column]).collect();
    let mut search = Search::new(order.iter().map(sorted).collect());
    search.place(0, 0);
    let mut groups = vec![0; order.len()];
    order.iter().zip(&search.best).for_each(|(&item, &group)| groups[item] = group);
    (search.branches > 0).then_some(groups)
}

struct Search {
    weights: Vec<Vec<i64>>,
    /// For each item, what all pairs of it and later ones could add.
    later: Vec<i64>,
    /// For each item, what it would add to the sum in each group so far.
    gains: Vec<Vec<i64>>,
    /// Groups so far, and the group of each item that has one.
    groups: usize,
    chosen: Vec<usize>,
    best: Vec<usize>,
    best_sum: Option<i64>,
    branches: u64,
}

impl Search {
    fn new(weights: Vec<Vec<i64>>) -> Search {
        let n = weights.len();
        let positive = |row: usize| weights[row][row + 1..].iter().map(|w| w.max(&0)).sum::<i64>();
        let mut later: Vec<i64> = (0..n).map(positive).collect();
        (1..n).rev().for_each(|i| later[i - 1] += later[i]);
        Search {
            weights,
            later,
            gains: vec![vec![0; n + 1]; n],
            groups: 0,
            chosen: Vec::new(),
            best: vec![0; n],
            best_sum: None,
            branches: BRANCHES,
        }
    }

    /// Tries all places for the item and those after it. The groups so far add up to `sum`.
    fn place(&mut self, item: usize, sum: i64) {
        if item == self.weights.len() {
            (self.best, self.best_sum) = (self.chosen.clone(), Some(sum));
            return;
        }
        let mut places: Vec<usize> = (0..=self.groups).collect();
        places.sort_by_key(|&group| -self.gains[item][group]);
        for group in places {
            let gain = self.gains[item][group];
            self.put(item, group, 1);
            if self.branches > 0 && self.can_win(item + 1, sum + gain) {
                self.branches -= 1;
                self.place(item + 1, sum + gain);
            }
            self.put(item, group, -1);
        }
    }

    /// Puts an item into a group, or takes it out again (`sign` -1).
    fn put(&mut self, item: usize, group: usize, sign: i64) {
        for other in item + 1..self.weights.len() {
            self.gains[other][group] += sign * self.weights[item][other];
        }
        match sign {
            1 => self.chosen.push(group),
            _ => _ = self.chosen.pop(),
        }
        self.groups = self.chosen.iter().map(|group| group + 1).max().unwrap_or(0);
    }

    /// Whether items from this one on can still bring the sum above the best.
    fn can_win(&self, item: usize, sum: i64) -> bool {
        let Some(best) = self.best_sum else { return true };
        let most = |gains: &Vec<i64>| gains[..=self.groups].iter().copied().max().unwrap_or(0);
        let apart: i64 = self.gains[item..].iter().map(most).sum();
        sum + apart + self.later.get(item).unwrap_or(&0) > best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    fn sum(weights: &[Vec<i64>], groups: &[usize]) -> i64 {
        let pairs = (0..groups.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
        pairs.filter(|&(a, b)| groups[a] == groups[b]).map(|(a, b)| weights[a][b]).sum()
    }

    /// The best sum of all groupings, by trying all of them.
    fn tried(weights: &[Vec<i64>], groups: &mut Vec<usize>) -> i64 {
        if groups.len() == weights.len() {
            return sum(weights, groups);
        }
        let used = groups.iter().map(|group| group + 1).max().unwrap_or(0);
        let mut most = i64::MIN;
        for group in 0..=used {
            groups.push(group);
            most = most.max(tried(weights, groups));
            groups.pop();
        }
        most
    }

    fn table(n: usize, mut weight: impl FnMut(usize, usize) -> i64) -> Vec<Vec<i64>> {
        let row = |a: usize| (0..a).map(|b| weight(a, b)).collect();
        let lower: Vec<Vec<i64>> = (0..n).map(row).collect();
        let at = |a: usize, b: usize| if a == b { 0 } else { lower[a.max(b)][a.min(b)] };
        (0..n).map(|a| (0..n).map(|b| at(a, b)).collect()).collect()
    }

    #[test]
    fn none_of_all_groupings_is_better() {
        let mut dice = Rng::with_seed(7);
        for n in [0, 1, 2, 5, 8] {
            for _ in 0..30 {
                let weights = table(n, |_, _| i64::try_from(dice.usize(..41)).unwrap() - 20);
                let found = best_grouping(&weights).unwrap();
                assert_eq!(sum(&weights, &found), tried(&weights, &mut Vec::new()), "{weights:?}");
            }
        }
    }

    #[test]
    fn groups_of_many_items_are_found_through_noise() {
        let mut dice = Rng::with_seed(3);
        let weights = table(36, |a, b| {
            let right = if a % 7 == b % 7 { 100 } else { -100 };
            if dice.usize(..20) == 0 { -right / 2 } else { right }
        });
        let found = best_grouping(&weights).unwrap();
        let together = |a: usize, b: usize| found[a] == found[b];
        assert!((0..36).all(|a| (0..36).all(|b| together(a, b) == (a % 7 == b % 7))), "{found:?}");
    }

    #[test]
    fn what_would_take_too_long_is_given_up() {
        let mut dice = Rng::with_seed(5);
        let weights = table(60, |_, _| i64::try_from(dice.usize(..2001)).unwrap() - 1000);
        assert_eq!(best_grouping(&weights), None);
    }
}
