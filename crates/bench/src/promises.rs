//! What is promised: each promise has a command and bars, which are numbers, or tests that hold it
//! in every run, or a page of statements that a command wrote, all of which are to hold.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::{fs, io};

use serde::Deserialize;

/// The promises that this program was built with.
static BUILT_IN: LazyLock<Promises> = LazyLock::new(|| {
    Promises::parse(include_str!("../../../bench/promises.toml")).expect("promises")
});

/// The bar of what is measured, as this program was built with it: suites have no numbers of their own.
///
/// # Panics
/// Where no promise has it; a test looks all figures of all suites up.
pub fn bar(id: &str, of: &str) -> &'static Bar {
    let bar = BUILT_IN.get(id).and_then(|promise| promise.bar(of));
    bar.unwrap_or_else(|| panic!("bench/promises.toml has no bar {of:?} of {id}"))
}

/// All promises, in the order of the document.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promises {
    /// Promises about one thing.
    #[serde(rename = "section")]
    pub sections: Vec<Section>,
}

/// Promises about one thing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// What they are about.
    pub title: String,
    /// The promises.
    #[serde(rename = "promise")]
    pub promises: Vec<Promise>,
}

/// One promise. It has a command and at least one bar, or tests.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promise {
    /// A letter and a number, which results and benches name.
    pub id: String,
    /// What is promised or measured.
    pub text: String,
    /// What measures it.
    pub command: Option<String>,
    /// The bar, where there is one.
    bar: Option<Bar>,
    /// The bars, where there are several.
    #[serde(default)]
    bars: Vec<Part>,
    /// The tests that hold it: files or functions.
    #[serde(default)]
    pub tests: Vec<String>,
    /// The page of statements that the command wrote, below the checkout.
    pub page: Option<PathBuf>,
    /// What the page says: its figure is how many hold.
    #[serde(skip)]
    pub statements: PageStatements,
}

/// How many statements of a page hold, and do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageStatements {
    /// That hold.
    pub held: usize,
    /// That do not.
    pub missed: usize,
    /// Of those, the ones that hold in an experiment of the page.
    pub explained: usize,
}

impl PageStatements {
    /// Those of a page: rows of the table under `Statements` that begin with the verdict; experiments come behind.
    pub fn of(page: &str) -> PageStatements {
        let (_, rest) = page.split_once("## Statements\n").unwrap_or_default();
        let (own, experiments) = rest.split_once("\n## ").unwrap_or((rest, ""));
        let holds = told(experiments, "holds");
        let missed = told(own, "**does not hold**");
        PageStatements {
            held: told(own, "holds").len(),
            missed: missed.len(),
            explained: missed.iter().filter(|text| holds.contains(text)).count(),
        }
    }
}

/// The statements of which some tables say this.
fn told<'a>(tables: &'a str, verdict: &str) -> Vec<&'a str> {
    let row = |line: &'a str| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        (cells.next()? == verdict).then(|| cells.next()).flatten()
    };
    tables.lines().filter_map(row).collect()
}

/// One bar of several.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    of: String,
    bar: Bar,
}

/// A number that a figure is compared with.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Bar {
    /// As it is written: comparison, number, unit.
    pub text: String,
    comparison: Comparison,
    number: f64,
    /// The unit; empty for a bare number.
    pub unit: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    AtMost,
    AtLeast,
    Below,
    Above,
    Equal,
}

impl Promises {
    /// Reads the promises of a checkout, and their pages.
    ///
    /// # Errors
    /// When a file of them cannot be read, or is not of the form.
    pub fn read(root: &Path) -> io::Result<Promises> {
        let text = |path: &Path| {
            let failed = |error| io::Error::other(format!("{}: {error}", path.display()));
            fs::read_to_string(root.join(path)).map_err(failed)
        };
        let mut promises = Promises::parse(&text(Path::new("bench/promises.toml"))?)?;
        let all = promises.sections.iter_mut().flat_map(|section| &mut section.promises);
        for promise in all {
            let Some(page) = &promise.page else { continue };
            promise.statements = PageStatements::of(&text(page)?);
        }
        Ok(promises)
    }

    fn parse(text: &str) -> io::Result<Promises> {
        toml::from_str(text)
            .map_err(|error| io::Error::other(format!("bench/promises.toml: {error}")))
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Promise> {
        self.sections.iter().flat_map(|section| &section.promises)
    }

    /// The promise of this id.
    pub fn get(&self, id: &str) -> Option<&Promise> {
        self.all().find(|promise| promise.id == id)
    }
}

impl Promise {
    /// What is measured and its bar; the name is empty where there is one bar only.
    pub fn parts(&self) -> impl Iterator<Item = (&str, &Bar)> {
        let several = self.bars.iter().map(|part| (part.of.as_str(), &part.bar));
        self.bar.iter().map(|bar| ("", bar)).chain(several)
    }

    /// Whether as many statements of its page hold as are to; true where there is no page.
    pub fn page_holds(&self) -> bool {
        let held = self.statements.held as f64;
        self.page.is_none() || self.bar.as_ref().is_some_and(|bar| bar.holds(held))
    }

    /// The bar of what is measured.
    pub fn bar(&self, of: &str) -> Option<&Bar> {
        self.parts().find(|(name, _)| *name == of).map(|(_, bar)| bar)
    }
}

impl Bar {
    /// Whether a figure, in the bar's unit, is as promised.
    pub fn holds(&self, figure: f64) -> bool {
        match self.comparison {
            Comparison::AtMost => figure <= self.number,
            Comparison::AtLeast => figure >= self.number,
            Comparison::Below => figure < self.number,
            Comparison::Above => figure > self.number,
            Comparison::Equal => (figure - self.number).abs() < f64::EPSILON,
        }
    }
}

impl TryFrom<String> for Bar {
    type Error = String;

    fn try_from(text: String) -> Result<Bar, String> {
        let wrong = || format!("{text:?} is no bar; expected for example \"<= 1.5 x\"");
        let (comparison, rest) = text.split_once(' ').ok_or_else(wrong)?;
        let (number, unit) = rest.split_once(' ').unwrap_or((rest, ""));
        let comparison = match comparison {
            "<=" => Comparison::AtMost,
            ">=" => Comparison::AtLeast,
            "<" => Comparison::Below,
            ">" => Comparison::Above,
            "=" => Comparison::Equal,
            _ => return Err(wrong()),
        };
        let number = number.parse().map_err(|_| wrong())?;
        let unit = unit.to_owned();
        Ok(Bar { comparison, number, unit, text })
    }
}
