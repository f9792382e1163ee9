//! What can be asked for, and what of it cannot be had together: one table for every door. `huepage run`,
//! `attach`, `group` and the daemon's file refuse the same for the same reasons; only the names differ, options
//! here and keys there.

/// Something that a plan may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// Colours for all memory of the processes.
    Partition,
    /// Colours that change by themselves.
    Resizing,
    /// Colours of another group.
    SharedColors,
    /// The cache that is divided is not the L2.
    LastLevel,
    /// Files that are placed before they are read.
    Files,
    /// Text and libraries that are placed.
    Text,
    /// Pages of 2 MiB.
    Superpages,
    /// A policy for superpages that knows of no misses.
    BlindSuperpages,
    /// Superpages that may lie outside the partition.
    WeighedSuperpages,
    /// A buffer for pages that pollute the cache.
    PolluteBuffer,
    /// Pages that conflict are recoloured.
    Conflicts,
}

/// Where a plan comes from, and so how its parts are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Options of a command.
    Options,
    /// Keys of a file.
    Keys,
}

impl Feature {
    /// As it is asked for: an option, or a key of a file.
    pub const fn name(self, door: Door) -> &'static str {
        let [option, key] = match self {
            Feature::Partition => ["--share or --colors", "share, miss_rate or metric"],
            Feature::Resizing => ["a size that changes", "miss_rate or metric"],
            Feature::SharedColors => ["colours of another group", "shares_with"],
            Feature::LastLevel => ["--level llc", "level = \"llc\""],
            Feature::Files => ["--page-cache", "page_cache"],
            Feature::Text => ["--text place", "text"],
            Feature::Superpages => ["--superpages", "superpages"],
            Feature::BlindSuperpages => ["--superpages asap", "superpages = \"asap\""],
            Feature::WeighedSuperpages => {
                ["--superpages-in-partition benefit", "superpages_in_partition = \"benefit\""]
            }
            Feature::PolluteBuffer => ["--pollute-buffer", "pollute_buffer"],
            Feature::Conflicts => ["--recolor-conflicts", "recolor_conflicts"],
        };
        match door {
            Door::Options => option,
            Door::Keys => key,
        }
    }
}

impl Feature {
    /// The key of a file that asks for it.
    pub const fn key(self) -> &'static str {
        match self {
            Feature::Partition => "share",
            Feature::Resizing => "miss_rate",
            Feature::SharedColors => "shares_with",
            Feature::LastLevel => "level",
            Feature::Files => "page_cache",
            Feature::Text => "text",
            Feature::Superpages | Feature::BlindSuperpages => "superpages",
            Feature::WeighedSuperpages => "superpages_in_partition",
            Feature::PolluteBuffer => "pollute_buffer",
            Feature::Conflicts => "recolor_conflicts",
        }
    }
}

/// What two features are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The first cannot be had with the second.
    Excludes,
    /// The first cannot be had without the second.
    Requires,
}

/// A line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What is asked for.
    pub feature: Feature,
    /// How it stands to the other.
    pub relation: Relation,
    /// The other.
    pub other: Feature,
    /// Why.
    pub reason: &'static str,
}

const fn excludes(feature: Feature, other: Feature, reason: &'static str) -> Rule {
    Rule { feature, relation: Relation::Excludes, other, reason }
}

const fn requires(feature: Feature, other: Feature, reason: &'static str) -> Rule {
    Rule { feature, relation: Relation::Requires, other, reason }
}

const CHANGING: &str =
    "files stay in the colours that they were read into, and those of this group change";
const ONE_AT_A_TIME: &str = "conflicts are found in programs whose pages nothing else moves";

/// What cannot be combined.
pub const RULES: [Rule; 14] = [
    requires(Feature::Text, Feature::Partition, "text is placed in the colours of a partition"),
    excludes(Feature::Text, Feature::Resizing, CHANGING),
    excludes(
        Feature::Text,
        Feature::PolluteBuffer,
        "pages of files cannot lie in a pollute buffer yet",
    ),
    excludes(Feature::Files, Feature::Resizing, CHANGING),
    excludes(
        Feature::PolluteBuffer,
        Feature::Files,
        "files and polluting pages cannot be looked after together yet",
    ),
    excludes(
        Feature::PolluteBuffer,
        Feature::Superpages,
        "pages of a pollute buffer are single ones",
    ),
    excludes(
        Feature::PolluteBuffer,
        Feature::SharedColors,
        "the group that has the colours would use the buffer too",
    ),
    excludes(
        Feature::WeighedSuperpages,
        Feature::BlindSuperpages,
        "asap knows of no TLB misses, and so of no benefit; choose approx-online, throttle or online",
    ),
    excludes(
        Feature::Conflicts,
        Feature::Partition,
        "conflicts are found in programs that have all colours",
    ),
    excludes(Feature::Conflicts, Feature::LastLevel, "only the L2 can be watched for conflicts"),
    excludes(Feature::Conflicts, Feature::Files, ONE_AT_A_TIME),
    excludes(Feature::Conflicts, Feature::Text, ONE_AT_A_TIME),
    excludes(Feature::Conflicts, Feature::Superpages, ONE_AT_A_TIME),
    excludes(Feature::Conflicts, Feature::PolluteBuffer, ONE_AT_A_TIME),
];

impl Rule {
    /// What is wrong and what to do, in one line.
    pub fn text(&self, door: Door) -> String {
        let (feature, other) = (self.feature.name(door), self.other.name(door));
        match self.relation {
            Relation::Excludes => format!(
                "{feature} cannot be combined with {other}: {}; leave one of them out",
                self.reason
            ),
            Relation::Requires => format!("{feature} requires {other}: {}; add it", self.reason),
        }
    }

    const fn is_broken(self, has_feature: bool, has_other: bool) -> bool {
        has_feature && has_other == matches!(self.relation, Relation::Excludes)
    }
}

/// The first rule that these features break.
pub fn check(features: &[Feature]) -> Result<(), Rule> {
    let has = |feature| features.contains(&feature);
    let broken = RULES.into_iter().find(|rule| rule.is_broken(has(rule.feature), has(rule.other)));
    broken.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each rule refuses what it is about, at both doors by name, and nothing less.
    #[test]
    fn each_rule_is_about_two_features() {
        for rule in RULES {
            let both = [rule.feature, rule.other];
            let (wrong, right): (&[Feature], &[Feature]) = match rule.relation {
                Relation::Excludes => (&both, &both[..1]),
                Relation::Requires => (&both[..1], &both),
            };
            let partition = |features: &[Feature]| [features, &[Feature::Partition]].concat();
            let broken = check(wrong).unwrap_err();
            assert!(both.contains(&broken.feature), "{rule:?}: {broken:?}");
            let fine = check(right).or_else(|_| check(&partition(right)));
            assert!(fine.is_ok(), "{rule:?} refuses too much: {fine:?}");
            for door in [Door::Options, Door::Keys] {
                let text = rule.text(door);
                assert!(text.contains(rule.feature.name(door)), "{text}");
                assert!(text.contains(rule.other.name(door)), "{text}");
                assert_eq!(text.matches('\n').count(), 0, "{text}");
            }
        }
    }

    /// The page of the book has every rule and no other.
    #[test]
    fn the_reference_has_every_rule() {
        let page = include_str!("../../../../docs/reference/combinations.md");
        for Rule { feature, relation, other, reason } in RULES {
            let relation = if relation == Relation::Requires { "needs" } else { "not with" };
            let names = [feature, other].map(|feature| feature.name(Door::Options));
            let row = format!("| `{}` | {relation} | `{}` | {reason} |\n", names[0], names[1]);
            assert!(page.contains(&row), "docs/reference/combinations.md lacks {row}");
        }
        assert_eq!(page.matches("\n| `").count(), RULES.len());
    }

    #[test]
    fn what_is_not_in_the_table_is_allowed() {
        use Feature::{Files, Partition, PolluteBuffer, Resizing, Superpages, Text};
        for features in [
            &[Partition, PolluteBuffer][..],
            &[Partition, Resizing, PolluteBuffer],
            &[Partition, Files, Text, Superpages],
            &[Files, Superpages],
            &[PolluteBuffer],
            &[Feature::Conflicts],
        ] {
            assert_eq!(check(features), Ok(()), "{features:?}");
        }
    }
}
