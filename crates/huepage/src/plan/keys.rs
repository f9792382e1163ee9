//! Options of a plan as keys of a TOML table: `pollute_cpu = "1%"` is `--pollute-cpu 1%`, with the same values,
//! bounds and defaults, read by the same definition. A mistake has the place of its key.

use std::error::Error as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Args, Command, FromArgMatches as _};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Plan;
use super::combine::{self, Door, Feature};
use crate::partition::PartitionArgs;
use crate::services::conflicts::ConflictArgs;
use crate::services::files::PageCacheArgs;
use crate::services::pollute::PolluteArgs;
use crate::services::superpages::SuperpageArgs;
use crate::services::text::TextArgs;

/// A mistake, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misread {
    /// Bytes from the beginning of the text.
    pub at: usize,
    /// What is wrong, and what was expected.
    pub what: String,
}

/// A key that is an option.
#[derive(Clone, Debug, PartialEq)]
struct Key {
    /// The option's name, with underscores.
    name: String,
    at: usize,
    /// The option as the command line has it.
    words: Vec<String>,
}

/// The keys of a table that are options.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Keys(Vec<Key>);

/// All options, to read with.
fn options() -> Command {
    let command = Command::new("plan").no_binary_name(true).disable_help_flag(true);
    Plan::augment_args(command)
}

/// Takes the keys that are options out of a table, but for those that the caller reads itself. Dashes count as
/// underscores.
pub fn take(table: &mut DeTable<'_>, but_for: &[&str]) -> Result<Keys, Misread> {
    let options = options();
    let (mut keys, mut taken) = (Vec::new(), Vec::new());
    for (key, value) in table.iter() {
        let name = key.get_ref().replace('-', "_");
        let option = options.get_arguments().find(|option| option.get_id().as_str() == name);
        if let Some(option) = option.filter(|_| !but_for.contains(&name.as_str())) {
            let at = value.span().start;
            let words = words(option, value).map_err(|what| Misread { at, what })?;
            taken.push(key.get_ref().to_string());
            keys.push(Key { name, at, words });
        }
    }
    taken.iter().for_each(|key| _ = table.remove(key.as_str()));
    keys.sort_by_key(|key| key.at);
    Ok(Keys(keys))
}

fn words(option: &Arg, value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, String> {
    let long = option.get_long().unwrap_or_default();
    let one = |value: &DeValue<'_>| Ok(format!("--{long}={}", text(option, value)?));
    match (option.get_action(), value.get_ref()) {
        (ArgAction::SetTrue, DeValue::Boolean(true)) => Ok(vec![format!("--{long}")]),
        (ArgAction::SetTrue, DeValue::Boolean(false)) => Ok(Vec::new()),
        (ArgAction::SetTrue, _) => Err("expected true or false".to_owned()),
        (_, DeValue::Boolean(true)) if may_be_bare(option) => Ok(vec![format!("--{long}")]),
        (_, DeValue::Boolean(false)) if may_be_bare(option) => Ok(Vec::new()),
        (ArgAction::Append, DeValue::Array(values)) => {
            values.iter().map(|value| one(value.get_ref())).collect()
        }
        (_, value) => one(value).map(|word| vec![word]),
    }
}

/// Whether an option stands without a value, too.
fn may_be_bare(option: &Arg) -> bool {
    option.get_num_args().is_some_and(|values| values.min_values() == 0)
}

fn text(option: &Arg, value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        // A number of colours is a number here, and has a word on the command line, where it would be a name.
        DeValue::Integer(n) if option.get_id() == "pollute_buffer" => {
            Ok(format!("{} colors", n.as_str()))
        }
        DeValue::Integer(n) => Ok(n.as_str().to_owned()),
        DeValue::Float(n) => Ok(n.as_str().to_owned()),
        _ if may_be_bare(option) => Err("expected a string, a number, true or false".to_owned()),
        _ => Err("expected a string or a number".to_owned()),
    }
}

impl Keys {
    /// The plan that they make.
    pub fn plan(&self) -> Result<Plan, Misread> {
        let words = self.0.iter().flat_map(|key| &key.words);
        let matches = options().try_get_matches_from(words);
        let plan = matches.and_then(|matches| Plan::from_arg_matches(&matches));
        plan.map_err(|error| self.misread(&error))
    }

    /// Where the key of an option is.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.0.iter().find(|key| key.name == name).map(|key| key.at)
    }

    /// Refuses features that cannot be combined; `others` are asked for by other keys of the table, which is
    /// `at`.
    pub fn check(&self, plan: &Plan, others: &[Feature], at: usize) -> Result<(), Misread> {
        let features = [&plan.features()[..], others].concat();
        combine::check(&features).map_err(|rule| {
            let place = |feature: Feature| self.place(feature.key());
            let at = place(rule.feature).or_else(|| place(rule.other)).unwrap_or(at);
            Misread { at, what: rule.text(Door::Keys) }
        })
    }

    fn misread(&self, error: &clap::Error) -> Misread {
        let named = named(error, ContextKind::InvalidArg);
        if error.kind() == ErrorKind::MissingRequiredArgument {
            let family = families().into_iter().find(|family| family.contains(&named));
            let member = |key: &&Key| family.as_ref().is_some_and(|f| f.contains(&key.name));
            let (at, name) = self.0.iter().find(member).map_or((0, ""), |key| (key.at, &key.name));
            return Misread { at, what: format!("`{name}` requires `{named}`; add it") };
        }
        let at = self.place(&named).unwrap_or(0);
        if error.kind() == ErrorKind::ArgumentConflict {
            let other = self::named(error, ContextKind::PriorArg);
            let what =
                format!("`{named}` cannot be combined with `{other}`; leave one of them out");
            return Misread { at, what };
        }
        Misread { at, what: format!("`{named}`: {}", value_error(error)) }
    }
}

/// The option that an error is about, as a key.
fn named(error: &clap::Error, kind: ContextKind) -> String {
    let text = match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.first().cloned().unwrap_or_default(),
        _ => String::new(),
    };
    let end = |c: char| [' ', '=', '['].contains(&c);
    // What stands for several options has brackets around it.
    text.trim_start_matches('<')
        .trim_start_matches("--")
        .split(end)
        .next()
        .unwrap_or_default()
        .replace('-', "_")
}

/// What is wrong with a value.
fn value_error(error: &clap::Error) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    };
    let (value, known) = (text(ContextKind::InvalidValue), text(ContextKind::ValidValue));
    match error.source() {
        Some(why) => format!("`{value}` is refused: {}", why.to_string().replace("..=", " to ")),
        None => format!("`{value}` is unknown; expected {known}"),
    }
}

/// The options of each module.
fn families() -> [Vec<String>; 6] {
    fn names<T: Args>() -> Vec<String> {
        let command = T::augment_args(Command::new("family"));
        command.get_arguments().map(|option| option.get_id().to_string()).collect()
    }
    [
        names::<SuperpageArgs>(),
        names::<PageCacheArgs>(),
        names::<TextArgs>(),
        names::<PolluteArgs>(),
        names::<ConflictArgs>(),
        names::<PartitionArgs>(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::pollute::CachePart;

    fn read(text: &str) -> Result<Plan, (usize, String)> {
        let mut table = DeTable::parse(text).unwrap();
        let keys = take(table.get_mut(), &["level"]).map_err(|e| (e.at, e.what))?;
        assert!(table.get_ref().keys().all(|key| ["level", "else"].contains(&&**key.get_ref())));
        keys.plan().map_err(|e| (e.at, e.what))
    }

    #[test]
    fn keys_are_the_options_of_their_names() {
        let text = "level = 9\nelse = 1\nshare = \"50%\"\nsuperpages = \"throttle\"\npage_cache_wait = 5\n\
                    page-cache = \"srm\"\npage_cache_include = [\"/a\", \"/b\"]\ncolors-from = \"pfn\"\nstrict = true";
        let words = [
            ["--share=50%", "--superpages=throttle", "--page-cache-wait=5", "--page-cache=srm"],
            ["--page-cache-include=/a", "--page-cache-include=/b", "--colors-from=pfn", "--strict"],
        ];
        let expected = crate::cmd::run::parsed_plan(words.as_flattened()).unwrap();
        assert_eq!(read(text), Ok(expected));
        assert_eq!(read(""), Ok(Plan::default()));
        let buffer = |text: &str| read(text).unwrap().pollute.part();
        assert_eq!(buffer("pollute_buffer = 2"), Some(CachePart::Count(2)));
        assert_eq!(buffer("pollute_buffer = \"1/4\""), Some(CachePart::Of(0.25)));
        assert_eq!(buffer("pollute_buffer = true"), Some(CachePart::Of(1.0 / 16.0)));
        assert!(!read("recolor_conflicts = false").unwrap().conflicts.is_on());
        let conflicts = |text: &str| read(text).unwrap().conflicts.recolor_conflicts.to_string();
        assert_eq!(conflicts("recolor_conflicts = true"), "snapshot-in-use");
        assert_eq!(conflicts("recolor_conflicts = \"active-delay\""), "active-delay");
    }

    #[test]
    fn mistakes_have_the_place_of_their_key() {
        let wrong = |text: &str, at: usize, what: &str| {
            let (place, said) = read(text).unwrap_err();
            assert!(place == at && said.contains(what), "{text}: {place}: {said}");
        };
        wrong(
            "superpages = \"fast\"",
            13,
            "`superpages`: `fast` is refused: no policy `fast`; choose fixed, asap",
        );
        wrong("superpages = true", 13, "expected a string");
        wrong("recolor_conflicts = 1", 20, "`recolor_conflicts`: `1` is refused: no policy `1`");
        wrong("share = \"5%\"\nmemory_overhead = \"4%\"", 31, "requires `superpages`");
        wrong("superpages = \"asap\"\nmemory_overhead = \"x\"", 38, "write for instance 4%");
        wrong("page_cache = \"srm\"\npage_cache_wait = 99999", 37, "0 to 60000");
        wrong("share = \"5%\"\ncolors = \"1\"", 8, "`share` cannot be combined with `colors`");
    }
}
