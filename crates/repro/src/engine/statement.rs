//! What a paper says, as figures against bars.

use std::str::FromStr;

use serde::Deserialize;

use crate::report::{StatementResult, list};

/// What a statement is about.
#[derive(Debug, Default, PartialEq)]
pub struct MeasuredFigures {
    /// Names with figures.
    pub figures: Vec<(String, f64)>,
    /// What was looked at, where that is more than there are figures.
    pub compared: usize,
}

impl MeasuredFigures {
    /// A figure of each of some things.
    pub fn each<N: Into<String>>(all: impl IntoIterator<Item = (N, f64)>) -> MeasuredFigures {
        let figures: Vec<_> = all.into_iter().map(|(name, figure)| (name.into(), figure)).collect();
        MeasuredFigures { compared: figures.len(), figures }
    }

    /// A figure, if it is there.
    pub fn one(figure: Option<f64>) -> MeasuredFigures {
        MeasuredFigures::each(figure.map(|figure| ("", figure)))
    }

    /// Only what speaks against a statement about `compared` things.
    pub fn against(figures: Vec<(String, f64)>, compared: usize) -> MeasuredFigures {
        MeasuredFigures { figures, compared }
    }
}

/// A statement; several that differ in a word are one with `words`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Statement {
    /// The section, table or figure that says it; `ours` for what is asked beyond the paper.
    pub section: String,
    /// The part of the experiment that it is about.
    #[serde(default)]
    pub part: String,
    /// The statement with its bar; `{0}`, `{1}` stand for words.
    pub text: String,
    /// Words for each statement that this is.
    #[serde(default)]
    words: Vec<Vec<String>>,
    /// What all have to hold.
    checks: Vec<Check>,
    /// Left out where nothing was compared; else it does not hold then.
    #[serde(default)]
    optional: bool,
}

/// Figures against a bar.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Check {
    /// The measure's name and what it is told.
    measure: Vec<String>,
    /// What is taken of the figures.
    #[serde(default)]
    take: Take,
    /// Not for [`Take::None`].
    #[serde(default)]
    bar: Bar,
    /// The share of figures that have to meet the bar.
    #[serde(default = "all")]
    share: f64,
    /// Figures that there have to be.
    #[serde(default = "one")]
    least: usize,
    /// Digits after the point.
    #[serde(default = "one")]
    digits: usize,
}

const fn all() -> f64 {
    1.0
}

const fn one() -> usize {
    1
}

/// What is taken of figures.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Take {
    /// Each of them.
    #[default]
    Each,
    /// Their mean.
    Mean,
    /// The largest.
    Most,
    /// There may be none.
    None,
}

/// A bar, as `<= 1.5`, `> 2`, `>= 42 and <= 63`, or `within 0.1 of 4.81` (as a share of that).
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(try_from = "String")]
enum Bar {
    AtMost(f64),
    AtLeast(f64),
    Below(f64),
    Above(f64),
    Within(f64, f64),
    Between(f64, f64),
}

impl Default for Bar {
    fn default() -> Bar {
        Bar::Within(f64::NAN, f64::NAN)
    }
}

impl TryFrom<String> for Bar {
    type Error = String;

    fn try_from(text: String) -> Result<Bar, String> {
        let words: Vec<&str> = text.split(' ').collect();
        let number = |word: &str| f64::from_str(word).map_err(|error| format!("{text}: {error}"));
        match words[..] {
            ["<=", bar] => number(bar).map(Bar::AtMost),
            [">=", bar] => number(bar).map(Bar::AtLeast),
            ["<", bar] => number(bar).map(Bar::Below),
            [">", bar] => number(bar).map(Bar::Above),
            [">=", low, "and", "<=", high] => Ok(Bar::Between(number(low)?, number(high)?)),
            ["within", share, "of", bar] => Ok(Bar::Within(number(share)?, number(bar)?)),
            _ => Err(format!("`{text}` is no bar")),
        }
    }
}

impl Bar {
    fn is_met(self, figure: f64) -> bool {
        match self {
            Bar::AtMost(bar) => figure <= bar,
            Bar::AtLeast(bar) => figure >= bar,
            Bar::Below(bar) => figure < bar,
            Bar::Above(bar) => figure > bar,
            Bar::Within(share, bar) => (figure / bar - 1.0).abs() <= share,
            Bar::Between(low, high) => (low..=high).contains(&figure),
        }
    }
}

/// What measures: a name and what it is told.
type Measure<'a> = dyn Fn(&str, &[&str]) -> MeasuredFigures + 'a;

impl Statement {
    /// Whether it holds, once for each of its words.
    pub fn judge(&self, measure: &Measure<'_>) -> Vec<StatementResult> {
        let once = [Vec::new()];
        let words = if self.words.is_empty() { &once[..] } else { &self.words[..] };
        words.iter().filter_map(|words| self.judge_one(words, measure)).collect()
    }

    fn judge_one(&self, words: &[String], measure: &Measure<'_>) -> Option<StatementResult> {
        let (mut holds, mut compared, mut measured) = (true, 0, Vec::new());
        for check in &self.checks {
            let told: Vec<String> = check.measure.iter().map(|word| fill(word, words)).collect();
            let told: Vec<&str> = told.iter().map(String::as_str).collect();
            let found = measure(told[0], &told[1..]);
            holds &= found.compared >= check.least && check.holds(&found);
            compared += found.compared;
            measured.push(check.words(&found));
        }
        let text = fill(&self.text, words);
        let claim = StatementResult { text, measured: measured.join("; "), holds };
        (compared > 0 || !self.optional).then_some(claim)
    }
}

fn fill(text: &str, words: &[String]) -> String {
    let each = words.iter().enumerate();
    each.fold(text.to_owned(), |text, (at, word)| text.replace(&format!("{{{at}}}"), word))
}

impl Check {
    /// The one figure that is taken of all.
    fn taken(&self, found: &MeasuredFigures) -> Option<f64> {
        let figures = found.figures.iter().map(|(_, figure)| *figure);
        match self.take {
            Take::Mean => Some(figures.sum::<f64>() / found.figures.len() as f64),
            Take::Most => figures.reduce(f64::max),
            Take::Each | Take::None => None,
        }
    }

    fn holds(&self, found: &MeasuredFigures) -> bool {
        match self.take {
            Take::None => found.figures.is_empty(),
            Take::Each => {
                let good = found.figures.iter().filter(|(_, figure)| self.bar.is_met(*figure));
                good.count() as f64 >= self.share * found.figures.len() as f64
            }
            _ => self.taken(found).is_some_and(|figure| self.bar.is_met(figure)),
        }
    }

    /// What was measured, with the names of what does not meet the bar.
    fn words(&self, found: &MeasuredFigures) -> String {
        let digits = self.digits;
        if found.compared == 0 {
            return "not run".to_owned();
        }
        if let Some(figure) = self.taken(found) {
            return format!(
                "{figure:.digits$} of {}: {}",
                found.compared,
                list(&found.figures, digits)
            );
        }
        if let [(name, figure)] = &found.figures[..]
            && self.take == Take::Each
        {
            return format!("{name} {figure:.digits$}").trim_start().to_owned();
        }
        let bad =
            |(_, figure): &&(String, f64)| self.take == Take::None || !self.bar.is_met(*figure);
        let bad: Vec<_> = found.figures.iter().filter(bad).cloned().collect();
        let good = found.compared - bad.len();
        let values = || found.figures.iter().map(|(_, figure)| *figure);
        let range = match (self.take, values().reduce(f64::min), values().reduce(f64::max)) {
            (Take::Each, Some(low), Some(high)) => format!("{low:.digits$} to {high:.digits$}; "),
            _ => String::new(),
        };
        format!("{range}{good} of {}; not: {}", found.compared, list(&bad, digits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(check: &str, optional: bool) -> Statement {
        let text = format!(
            "section = \"1\"\ntext = \"{{0}} is fast\"\nwords = [[\"it\"]]\noptional = {optional}\n\
             checks = [{{ measure = [\"time\", \"{{0}}\"], {check} }}]"
        );
        toml::from_str(&text).expect("a statement")
    }

    fn judged(check: &str, figures: &[f64]) -> StatementResult {
        let measure = |name: &str, told: &[&str]| {
            assert_eq!((name, told), ("time", &["it"][..]));
            MeasuredFigures::each(figures.iter().enumerate().map(|(at, f)| (format!("p{at}"), *f)))
        };
        statement(check, false).judge(&measure).remove(0)
    }

    #[test]
    fn every_figure_has_to_meet_the_bar_or_the_share_that_is_asked() {
        let claim = judged("bar = \"<= 2\"", &[1.0, 2.0, 3.0]);
        assert!(!claim.holds && claim.text == "it is fast", "{claim:?}");
        assert_eq!(claim.measured, "1.0 to 3.0; 2 of 3; not: p2 3.0");
        assert!(judged("bar = \"<= 2\", share = 0.6", &[1.0, 2.0, 3.0]).holds);
        assert!(judged("bar = \"<= 3\"", &[1.0, 2.0, 3.0]).holds);
        assert!(!judged("bar = \"<= 3\", least = 4", &[1.0, 2.0, 3.0]).holds);
        assert!(!judged("bar = \"<= 3\"", &[f64::NAN]).holds);
    }

    #[test]
    fn bars_are_met_on_their_own_side() {
        for (bar, good, bad) in [
            ("<= 2", 2.0, 2.1),
            (">= 2", 2.0, 1.9),
            ("< 2", 1.9, 2.0),
            ("> 2", 2.1, 2.0),
            ("within 0.1 of 2", 1.8, 1.7),
            (">= 1 and <= 2", 1.0, 2.1),
            (">= 1 and <= 2", 2.0, 0.9),
        ] {
            let check = format!("bar = \"{bar}\"");
            assert!(judged(&check, &[good]).holds && !judged(&check, &[bad]).holds, "{bar}");
        }
        assert!(Bar::try_from("about 2".to_owned()).is_err());
    }

    #[test]
    fn means_and_the_largest_are_one_figure() {
        assert!(judged("take = \"mean\", bar = \">= 2\"", &[1.0, 3.0]).holds);
        assert!(!judged("take = \"mean\", bar = \">= 2.1\"", &[1.0, 3.0]).holds);
        let claim = judged("take = \"most\", bar = \"> 2\"", &[1.0, 3.0]);
        assert!(claim.holds && claim.measured.starts_with("3.0 of 2: p0 1.0"), "{claim:?}");
        assert!(!judged("take = \"none\"", &[1.0]).holds);
    }

    #[test]
    fn nothing_holds_of_nothing() {
        for take in ["each", "mean", "most", "none"] {
            let claim = judged(&format!("take = \"{take}\", bar = \"<= 2\""), &[]);
            assert!(!claim.holds && claim.measured == "not run", "{take}: {claim:?}");
        }
        let none = |_: &str, _: &[&str]| MeasuredFigures::default();
        assert_eq!(statement("bar = \"<= 2\"", true).judge(&none), []);
        let sound = |_: &str, _: &[&str]| MeasuredFigures::against(Vec::new(), 3);
        assert!(statement("take = \"none\"", false).judge(&sound)[0].holds);
    }
}
