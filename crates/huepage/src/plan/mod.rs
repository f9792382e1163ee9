//! What is to be done to some processes, as one value: [`Plan`]. Options of `huepage run`, `attach` and
//! `group`, tables of the daemon's file and stored groups all become one; it is checked here, by `combine`'s
//! table. `keys` reads the same options as keys of a file: an option is defined once, where its service is.
//! What runs a plan is [`crate::supervise::Supervisor`].

pub mod combine;
pub mod keys;

use clap::Args;
use huepage_color::ColorSet;
use serde::{Deserialize, Serialize};

use crate::exit::{CmdError, ExitCode};
use crate::partition::{ColorsFrom, DividedColors, Level, PartitionArgs, Prepared};
use crate::services::conflicts::ConflictArgs;
use crate::services::files::PageCacheArgs;
use crate::services::pollute::PolluteArgs;
use crate::services::superpages::SuperpageArgs;
use crate::services::text::TextArgs;
use combine::{Door, Feature};

/// What is to be done. The order is that of help.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Plan {
    /// Pages of 2 MiB.
    #[command(flatten)]
    pub superpages: SuperpageArgs,
    /// Files.
    #[command(flatten)]
    pub page_cache: PageCacheArgs,
    /// Text and libraries.
    #[command(flatten)]
    pub text: TextArgs,
    /// Pages that pollute the cache.
    #[command(flatten)]
    pub pollute: PolluteArgs,
    /// Pages that conflict.
    #[command(flatten)]
    pub conflicts: ConflictArgs,
    /// Which colours of which cache.
    #[command(flatten)]
    pub partition: PartitionArgs,
}

impl Plan {
    /// Whether all memory of the processes is to lie in some colours.
    pub const fn confines(&self) -> bool {
        self.partition.confines()
    }

    /// What is asked for.
    pub fn features(&self) -> Vec<Feature> {
        let all = [
            (Feature::Partition, self.confines()),
            (Feature::LastLevel, self.partition.level() == Level::Llc),
            (Feature::Files, self.page_cache.is_on()),
            (Feature::Text, self.text.is_on()),
            (Feature::Superpages, self.superpages.is_on()),
            (Feature::BlindSuperpages, self.superpages.is_blind()),
            (Feature::WeighedSuperpages, self.superpages.is_on() && self.superpages.weighs()),
            (Feature::PolluteBuffer, self.pollute.is_on()),
            (Feature::Conflicts, self.conflicts.is_on()),
        ];
        all.into_iter().filter(|(_, on)| *on).map(|(feature, _)| feature).collect()
    }

    /// Whether anything is to be done.
    pub fn does_something(&self) -> bool {
        self.features().iter().any(|feature| *feature != Feature::LastLevel)
    }

    /// Refuses what cannot be done together, nothing at all, and what this machine lacks.
    pub fn check(&self) -> Result<(), CmdError> {
        if !self.does_something() {
            let what = "how much cache? say `--share 25%` or `--colors 0-3`; `huepage info` lists the colours of each cache";
            return Err(CmdError::new(ExitCode::Usage, what));
        }
        let wrong = |rule: combine::Rule| CmdError::new(ExitCode::Usage, rule.text(Door::Options));
        combine::check(&self.features()).map_err(wrong)?;
        self.pollute.check()?;
        self.page_cache.check()?;
        let lacking = self.superpages.lacking();
        lacking.map_or(Ok(()), |why| Err(CmdError::new(ExitCode::Kernel, why)))
    }

    /// Opens the cache and finds the colours that this is about; `open` does that.
    pub fn prepare(
        &self,
        open: fn(&PartitionArgs) -> Result<Prepared, CmdError>,
    ) -> Result<Prepared, CmdError> {
        open(&self.wanted()?)
    }

    /// The partition to ask for: of all memory, of a buffer alone, of files or of all colours; where no colour
    /// is looked at, none is found out.
    fn wanted(&self) -> Result<PartitionArgs, CmdError> {
        if self.confines() {
            return Ok(self.partition.clone());
        }
        if self.pollute.is_on() {
            return self.pollute.alone(&self.partition);
        }
        let all = PartitionArgs { colors: Some("all".to_owned()), ..self.partition.clone() };
        let looks = self.page_cache.is_on() || self.conflicts.is_on();
        let colors_from = Some(ColorsFrom::Declared(None));
        Ok(if looks { all } else { PartitionArgs { colors_from, ..all } })
    }

    /// Divides the colours that the processes have; `before` was the buffer.
    pub fn divide(
        &self,
        colors: &ColorSet,
        before: Option<&ColorSet>,
    ) -> Result<DividedColors, CmdError> {
        let none = ColorSet::empty(colors.universe());
        let whole = |held: &ColorSet| DividedColors {
            held: held.clone(),
            own: held.clone(),
            buffer: None,
            files: colors.clone(),
        };
        match (self.pollute.part(), self.confines()) {
            (Some(part), true) => {
                let buffer = part.choose(colors, before)?;
                if buffer.is_empty() {
                    let what =
                        "the partition has one colour, of which none can be a buffer; give it more";
                    return Err(CmdError::new(ExitCode::Colors, what));
                }
                let own = colors.difference(&buffer);
                let (held, files) = (colors.clone(), own.clone());
                Ok(DividedColors { held, own, buffer: Some(buffer), files })
            }
            (Some(_), false) | (None, true) => Ok(whole(colors)),
            (None, false) => Ok(whole(&none)),
        }
    }

    /// The same with paths from the root on: a supervisor in the background is somewhere else.
    pub fn rooted(&self) -> std::io::Result<Plan> {
        let mut plan = self.clone();
        if let Some(ColorsFrom::Declared(Some(path))) = &mut plan.partition.colors_from {
            *path = std::path::absolute(&*path)?;
        }
        let files = &mut plan.page_cache;
        for path in files.page_cache_include.iter_mut().chain(&mut files.page_cache_exclude) {
            *path = std::path::absolute(&*path)?;
        }
        Ok(plan)
    }

    /// What is asked for besides colours, one line each.
    pub fn lines(&self) -> Vec<String> {
        let lines = [
            self.superpages.line(),
            self.pollute.line(),
            self.page_cache.line(),
            self.text.line(),
            self.conflicts.line(),
        ];
        lines.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::run::parsed;

    fn plan(options: &[&str]) -> Plan {
        parsed(options).unwrap().plan
    }

    fn refused(options: &[&str]) -> String {
        plan(options).check().unwrap_err().message
    }

    #[test]
    fn each_feature_stands_in_for_colours() {
        for options in [
            &["--share", "25%"][..],
            &["--page-cache", "srm"],
            &["--superpages", "approx-online"],
            &["--pollute-buffer"],
            &["--recolor-conflicts"],
        ] {
            let plan = plan(options);
            assert!(plan.check().is_ok(), "{options:?}");
            assert_eq!(plan.confines(), options[0] == "--share");
        }
        for options in [&[][..], &["--page-cache", "off"], &["--level", "llc"]] {
            assert!(refused(options).contains("--share 25%"), "{options:?}");
        }
    }

    #[test]
    fn options_are_refused_by_the_table() {
        let conflicts = refused(&["--recolor-conflicts", "--share", "25%"]);
        assert!(conflicts.contains("cannot be combined with --share or --colors"), "{conflicts}");
        assert!(refused(&["--recolor-conflicts", "--level", "llc"]).contains("--level llc"));
        assert!(refused(&["--pollute-buffer", "--superpages", "asap"]).contains("single ones"));
        assert!(refused(&["--text", "place"]).contains("requires --share or --colors"));
        let benefit = ["--superpages", "asap", "--superpages-in-partition", "benefit"];
        assert!(refused(&benefit).contains("choose approx-online"));
        assert!(plan(&["--share", "50%", "--pollute-buffer"]).check().is_ok());
    }

    #[test]
    fn a_plan_survives_its_text() {
        let options = ["--share", "50%", "--pollute-buffer=1/4", "--confine", "1000-3000"];
        let plan = plan(&options);
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
        assert_eq!(serde_json::from_str::<Plan>("{}").unwrap(), Plan::default());
        assert_eq!(super::tests::plan(&[]), Plan::default(), "defaults are those of the options");
    }

    #[test]
    fn colours_are_divided_by_what_lies_in_them() {
        let set = |text: &str| ColorSet::parse(text, 16).unwrap();
        let divide = |options: &[&str], colors| plan(options).divide(&set(colors), None).unwrap();
        let buffer = divide(&["--share", "50%", "--pollute-buffer=1/4"], "0-7");
        assert_eq!((buffer.own, buffer.buffer), (set("0-5"), Some(set("6-7"))));
        assert_eq!((buffer.held, buffer.files), (set("0-7"), set("0-5")));
        let alone = divide(&["--pollute-buffer"], "3");
        assert_eq!((alone.own, alone.held, alone.buffer), (set("3"), set("3"), None));
        let files = divide(&["--page-cache", "srm"], "0-15");
        assert!(files.held.is_empty() && files.files == set("0-15"));
    }
}
