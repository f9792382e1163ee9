//! Options that take a policy: `--superpages`, `--page-cache`, `--recolor-conflicts` and `--pollute-buffer`, and the
//! keys of files that are those. All take `NAME` or `NAME:key=value,…`, read by `huepage_policy::registry` as
//! for `huepage sim` and `huepage replay`; here are `off` and what stored plans say.

use std::fmt;

use huepage_policy::registry::{Error, LiveOption, Settings};
use serde::{Deserialize, Serialize};

/// What the help calls the value.
pub const POLICY: &str = "POLICY[:KEY=VALUE,…]";

/// The policy of `--recolor-conflicts` that is meant when none is named.
pub const USUAL_RECOLORING: &str = "snapshot-in-use";

/// A policy, or `off`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyOption(Option<Settings>);

impl PolicyOption {
    /// Nothing is done.
    pub const OFF: PolicyOption = PolicyOption(None);

    /// The policy; none if nothing is done.
    pub const fn policy(&self) -> Option<&Settings> {
        self.0.as_ref()
    }

    /// Whether anything is done.
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }
}

/// Reads the value of an option.
pub fn reader(
    option: LiveOption,
) -> impl Fn(&str) -> Result<PolicyOption, Error> + Clone + Send + Sync + 'static {
    move |text| match text {
        "off" => Ok(PolicyOption::OFF),
        text => option.parse(text).map(|policy| PolicyOption(Some(policy))),
    }
}

impl fmt::Display for PolicyOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("off"),
            Some(policy) => policy.fmt(f),
        }
    }
}

impl Serialize for PolicyOption {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// As plans are stored: of an option that was a switch once, whether it was on.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    Switch(bool),
    Policy(String),
}

impl<'de> Deserialize<'de> for PolicyOption {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<PolicyOption, D::Error> {
        let text = match Stored::deserialize(deserializer)? {
            Stored::Switch(false) => "off".to_owned(),
            Stored::Switch(true) => USUAL_RECOLORING.to_owned(),
            Stored::Policy(text) => text,
        };
        let read = |text: String| Settings::parse(&text).map_err(serde::de::Error::custom);
        Some(text).filter(|text| text != "off").map(read).transpose().map(PolicyOption)
    }
}

#[cfg(test)]
mod tests {
    use huepage_policy::registry::POLICIES;

    use super::*;
    use crate::cmd::run::parsed_plan;
    use crate::plan::keys;

    /// The options with their keys in files.
    const OPTIONS: [(LiveOption, &str); 4] = [
        (LiveOption::Superpages, "superpages"),
        (LiveOption::PageCache, "page_cache"),
        (LiveOption::RecolorConflicts, "recolor_conflicts"),
        (LiveOption::PolluteBuffer, "pollute_buffer"),
    ];

    fn said(option: LiveOption, text: &str) -> String {
        parsed_plan(&[format!("{}={text}", option.text()).as_str()]).unwrap_err()
    }

    fn of_key(text: &str) -> Result<crate::plan::Plan, String> {
        let mut table = toml::de::DeTable::parse(text).unwrap();
        let keys = keys::take(table.get_mut(), &[]).map_err(|error| error.what)?;
        keys.plan().map_err(|error| error.what)
    }

    /// Every policy is taken by its option and its key, with its keys, and by no other.
    #[test]
    fn each_option_takes_its_policies_and_no_others() {
        for (option, key) in OPTIONS {
            let names: Vec<&str> = option.names().collect();
            assert!(names.len() > 1, "{option:?}: {names:?}");
            for entry in POLICIES {
                let taken = names.contains(&entry.name);
                let orders = matches!(entry.name, "fixed" | "hybrid");
                let text =
                    if orders { format!("{}:order=9", entry.name) } else { entry.name.to_owned() };
                let plan = parsed_plan(&[format!("{}={text}", option.text()).as_str()]);
                assert_eq!(plan.is_ok(), taken, "{option:?} {text}: {plan:?}");
                let by_key = of_key(&format!("{key} = \"{text}\""));
                match plan {
                    Ok(plan) => assert_eq!(by_key, Ok(plan)),
                    Err(said) => {
                        assert!(said.contains(option.text()) && said.contains(names[0]), "{said}");
                        let by_key = by_key.unwrap_err();
                        assert!(by_key.contains(key) && by_key.contains(names[0]), "{by_key}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_the_option_and_what_could_be_written() {
        let unknown = said(LiveOption::Superpages, "zzz");
        assert!(
            unknown.contains("--superpages") && unknown.contains("choose fixed, asap"),
            "{unknown}"
        );
        assert!(said(LiveOption::PageCache, "srn").contains("did you mean `srm`?"));
        let other = said(LiveOption::RecolorConflicts, "asap");
        assert!(other.contains("asap is for --superpages; choose active-naive"), "{other}");
        assert!(said(LiveOption::RecolorConflicts, "cml").contains("look-aside buffer"));
        assert!(said(LiveOption::Superpages, "asap-4-64").contains("pages of 64 KiB"));
        assert!(said(LiveOption::Superpages, "fixed").contains("write order=9"));
        assert!(said(LiveOption::PageCache, "srm:threshold=0").contains("threshold"));
        assert!(said(LiveOption::PolluteBuffer, "rocs:trail=1").contains("did you mean `trial`?"));
    }

    #[test]
    fn plans_are_stored_as_they_are_written() {
        let read = |text: &str| serde_json::from_str::<PolicyOption>(text);
        assert_eq!(read("\"off\"").unwrap(), PolicyOption::OFF);
        assert_eq!(read("false").unwrap(), PolicyOption::OFF);
        let usual = reader(LiveOption::RecolorConflicts)("snapshot-in-use").unwrap();
        assert_eq!(read("true").unwrap(), usual, "a plan of an earlier version");
        assert_eq!(serde_json::to_string(&usual).unwrap(), "\"snapshot-in-use\"");
        assert!(read("\"faster\"").is_err() && read("7").is_err());
    }
}
