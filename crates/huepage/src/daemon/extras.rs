//! What can be done for a group besides giving it colours: superpages, a pollute buffer, files in
//! sequences. The keys of the file mean what the options of `huepage attach` of the same names do; here they are
//! read, and refused with their place where they cannot be. What runs for them is in `helpers`.

use clap::ValueEnum;
use huepage_color::ColorSet;
use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use toml::Spanned;

use super::config::{ConfigError, GroupConfig, Portion, Raw, Sizes, Text};
use crate::cmd::page_cache::args::{PageCache, PageCacheArgs, parse_sizes};
use crate::pollute::{PolluteArgs, PolluteSearch, fraction, parse_range};
use crate::superpages::{SuperpageArgs, Superpages, parse_cpu, parse_percent};

/// What is done for a group; nothing of it unless the file says so.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extras {
    /// Superpages, if any are to be built.
    pub superpages: Option<SuperpageArgs>,
    /// Where `superpages` or `misses_from` is.
    at_superpages: usize,
    /// A buffer for pages that pollute, if there is to be one.
    pub buffer: Option<Buffer>,
    /// Where `pollute_buffer` is.
    pub at_buffer: usize,
    /// Files that are placed, if they are.
    pub page_cache: Option<PageCacheArgs>,
}

/// A buffer within the colours of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// How many of its colours.
    pub part: Part,
    /// How pages are found.
    pub args: PolluteArgs,
}

/// A part of the colours of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// So many.
    Colors(u16),
    /// A fraction, above 0 and below 1.
    Of(f64),
}

impl Part {
    /// How many that is of `colors`: a fraction is rounded down, to one at least.
    pub fn of(self, colors: u16) -> u16 {
        match self {
            Part::Colors(n) => n,
            Part::Of(part) => {
                // A little more than the part: a third of three is one.
                let n = (f64::from(colors) * part + 1e-6).floor();
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                // It is between 0 and `colors`.
                let n = n as u16;
                n.max(1)
            }
        }
    }

    /// Which of the colours of a group are the buffer: of those that were it `before` as many as may
    /// stay, then the last ones. One colour at least is left for the rest.
    pub fn choose(self, colors: &ColorSet, before: Option<&ColorSet>) -> ColorSet {
        let most = colors.len().saturating_sub(1).min(self.of(colors.len()));
        let stays = |color: &_| before.is_some_and(|before| before.contains(*color));
        let all: Vec<_> = colors.iter().collect();
        let kept = all.iter().filter(|color| stays(color));
        let others = all.iter().rev().filter(|color| !stays(color));
        let mut buffer = ColorSet::empty(colors.universe());
        kept.chain(others).take(usize::from(most)).for_each(|&color| _ = buffer.insert(color));
        buffer
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Part::Colors(n) => write!(to, "{n} of its colours"),
            Part::Of(part) => write!(to, "{:.4} of its colours", part),
        }
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Part, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Part;

            fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                to.write_str("a part of the group's colours such as \"1/16\" or \"6.25%\", or how many of them")
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Part, E> {
                let fits = u16::try_from(number).ok().filter(|&n| n > 0);
                fits.map(Part::Colors)
                    .ok_or_else(|| E::custom(format!("{number} colours; expected at least 1")))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Part, E> {
                let percent = || text.strip_suffix('%').and_then(|n| n.trim().parse::<f64>().ok());
                let part = fraction(text).or_else(|| percent().map(|percent| percent / 100.0));
                part.filter(|part| (1e-6..1.0).contains(part)).map(Part::Of).ok_or_else(|| {
                    E::custom(format!(
                        "`{text}` is no part of the group's colours, of which the daemon decides which they are; \
                         expected for instance \"1/16\", \"6.25%\" or 1"
                    ))
                })
            }
        }
        from.deserialize_any(Reader)
    }
}

/// What a group of the file asks for.
pub(super) fn of(raw: &Raw, portion: &Portion, text: &Text) -> Result<Extras, ConfigError> {
    let superpages = superpages(raw, text)?;
    let (buffer, page_cache) = (buffer(raw, portion, text)?, page_cache(raw, portion, text)?);
    let at_buffer = start(&raw.pollute_buffer).unwrap_or(0);
    if buffer.is_some() {
        let other =
            superpages.as_ref().map(|_| "superpages").or(page_cache.as_ref().map(|_| "page_cache"));
        let why = match other {
            Some("superpages") => "pages of a pollute buffer are single ones",
            _ => "files and polluting pages cannot be looked after together yet",
        };
        if let Some(other) = other {
            let what = format!("{why}; expected pollute_buffer or {other}, not both");
            return Err(text.error(at_buffer, what));
        }
    }
    let at = raw.misses_from.as_ref().or(raw.superpages.as_ref());
    let at_superpages = at.map_or(0, |at| at.span().start);
    Ok(Extras { superpages, at_superpages, buffer, at_buffer, page_cache })
}

impl Extras {
    /// Refuses what the machine or the sizes of the group do not allow.
    pub(super) fn fit(
        &self,
        group: &GroupConfig,
        own: Sizes,
        text: &Text,
    ) -> Result<(), ConfigError> {
        if let Some(buffer) = &self.buffer {
            let takes = buffer.part.of(own.floor);
            if takes >= own.floor {
                let what = format!(
                    "the buffer takes {takes} of the {} colours that group {} has at least; expected a smaller part, or a \
                     floor or share of {} colours",
                    own.floor,
                    group.name,
                    takes + 1
                );
                return Err(text.error(self.at_buffer, what));
            }
        }
        let lacking = self.superpages.as_ref().and_then(SuperpageArgs::lacking);
        lacking.map_or(Ok(()), |why| Err(text.error(self.at_superpages, why)))
    }

    /// The colours of a group as the engine is to have them: its partition, and of it the buffer if there is
    /// to be one, which was `before`.
    pub fn divided(
        &self,
        colors: &ColorSet,
        before: Option<&ColorSet>,
    ) -> (ColorSet, Option<ColorSet>) {
        let buffer = self.buffer.as_ref().map(|buffer| buffer.part.choose(colors, before));
        let rest =
            buffer.as_ref().map_or_else(|| colors.clone(), |buffer| colors.difference(buffer));
        (rest, buffer)
    }

    /// What is asked for, one line each.
    pub fn lines(&self) -> Vec<String> {
        let name = |value: &dyn Fn() -> Option<clap::builder::PossibleValue>| {
            value().map(|value| value.get_name().to_owned()).unwrap_or_default()
        };
        let superpages = self.superpages.as_ref().map(|args| {
            let policy = name(&|| args.superpages.to_possible_value());
            let how = name(&|| args.superpages_in_partition.to_possible_value());
            format!("superpages by {policy}; the partition: {how}")
        });
        let buffer = self.buffer.as_ref().map(|of| format!("a pollute buffer of {}", of.part));
        let files = self.page_cache.as_ref().map(|args| {
            let n = args.page_cache_threshold;
            format!("files in sequences of {n} pages (srm)")
        });
        superpages.into_iter().chain(buffer).chain(files).collect()
    }
}

/// Something that is a name on the command line.
fn named<T: ValueEnum>(key: &Spanned<String>, text: &Text) -> Result<T, ConfigError> {
    T::from_str(key.get_ref(), false).map_err(|_| {
        let names = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let names: Vec<String> = names.map(|value| value.get_name().to_owned()).collect();
        let what = format!("`{}` is unknown; expected {}", key.get_ref(), names.join(", "));
        text.error(key.span().start, what)
    })
}

/// Something that is read as an option is.
fn read<T>(
    key: Option<&Spanned<String>>,
    parse: fn(&str) -> Result<T, String>,
    otherwise: T,
    text: &Text,
) -> Result<T, ConfigError> {
    let Some(key) = key else { return Ok(otherwise) };
    parse(key.get_ref()).map_err(|why| {
        text.error(key.span().start, format!("`{}` is refused: {why}", key.get_ref()))
    })
}

/// Keys that say more of another one are nothing without it.
fn alone(keys: &[Option<usize>], of: &str, text: &Text) -> Result<(), ConfigError> {
    let first = keys.iter().flatten().min();
    let what = format!("this says more of {of}; expected {of} beside it");
    first.map_or(Ok(()), |&at| Err(text.error(at, what)))
}

fn start<T>(key: &Option<Spanned<T>>) -> Option<usize> {
    key.as_ref().map(|key| key.span().start)
}

fn superpages(raw: &Raw, text: &Text) -> Result<Option<SuperpageArgs>, ConfigError> {
    let usual = SuperpageArgs::default();
    let Some(policy) = &raw.superpages else {
        let more = [&raw.superpages_in_partition, &raw.memory_overhead, &raw.superpage_cpu];
        let more = more.into_iter().chain([&raw.misses_from]).map(start).collect::<Vec<_>>();
        return alone(&more, "superpages", text).map(|()| None);
    };
    let how = raw.superpages_in_partition.as_ref();
    let args = SuperpageArgs {
        superpages: named(policy, text)?,
        superpages_in_partition: how
            .map_or(Ok(usual.superpages_in_partition), |how| named(how, text))?,
        memory_overhead: read(
            raw.memory_overhead.as_ref(),
            parse_percent,
            usual.memory_overhead,
            text,
        )?,
        superpage_cpu: read(raw.superpage_cpu.as_ref(), parse_cpu, usual.superpage_cpu, text)?,
        misses_from: raw.misses_from.as_ref().map(|from| named(from, text)).transpose()?,
    };
    if args.is_blind() {
        let what = "asap knows of no TLB misses, and so of no benefit; expected approx-online, throttle or online";
        return Err(text.error(policy.span().start, what));
    }
    Ok((args.superpages != Superpages::Off).then_some(args))
}

fn buffer(raw: &Raw, portion: &Portion, text: &Text) -> Result<Option<Buffer>, ConfigError> {
    let Some(part) = &raw.pollute_buffer else {
        let more = [start(&raw.pollute_search), start(&raw.pollute_cpu), start(&raw.confine)];
        return alone(&more, "pollute_buffer", text).map(|()| None);
    };
    let at = part.span().start;
    if let Portion::With(other) = portion {
        let what = format!(
            "the colours are those of {other}, which would use the buffer too; expected none"
        );
        return Err(text.error(at, what));
    }
    let usual = PolluteArgs::default();
    let search = raw.pollute_search.as_ref();
    let mut confine = Vec::new();
    if let Some(ranges) = &raw.confine {
        let at = ranges.span().start;
        for range in Vec::<String>::from(ranges.get_ref().clone()) {
            let what = |why: String| text.error(at, format!("expected addresses: {why}"));
            confine.push(parse_range(&range).map_err(what)?);
        }
    }
    let args = PolluteArgs {
        pollute_search: search.map_or(Ok(PolluteSearch::Model), |search| named(search, text))?,
        pollute_cpu: read(raw.pollute_cpu.as_ref(), parse_cpu, usual.pollute_cpu, text)?,
        confine,
        ..usual
    };
    Ok(Some(Buffer { part: *part.get_ref(), args }))
}

fn page_cache(
    raw: &Raw,
    portion: &Portion,
    text: &Text,
) -> Result<Option<PageCacheArgs>, ConfigError> {
    let Some(policy) = &raw.page_cache else {
        let more = [
            start(&raw.page_cache_wait),
            start(&raw.page_cache_threshold),
            start(&raw.page_cache_include),
            start(&raw.page_cache_exclude),
            start(&raw.page_cache_sizes),
        ];
        return alone(&more, "page_cache", text).map(|()| None);
    };
    if named::<PageCache>(policy, text)? == PageCache::Off {
        return Ok(None);
    }
    if !matches!(portion, Portion::Share(_)) {
        let what = "files stay in the colours that they were read into, and those of this group change; expected share";
        return Err(text.error(policy.span().start, what));
    }
    let args = files(raw, text)?;
    let at = raw.page_cache_include.as_ref().or(raw.page_cache_exclude.as_ref());
    let at = at.map_or(policy.span().start, |at| at.span().start);
    args.resolved().map_err(|error| {
        text.error(at, format!("{}; expected directories that are there", error.message))
    })?;
    Ok(Some(args))
}

/// What is said of files that are placed.
fn files(raw: &Raw, text: &Text) -> Result<PageCacheArgs, ConfigError> {
    let usual = PageCacheArgs::default();
    let within = |key: &Option<Spanned<u64>>, otherwise, range: std::ops::RangeInclusive<u64>| {
        let Some(key) = key else { return Ok(otherwise) };
        let what = format!("{}; expected {} to {}", key.get_ref(), range.start(), range.end());
        let fits = range.contains(key.get_ref());
        if fits { Ok(*key.get_ref()) } else { Err(text.error(key.span().start, what)) }
    };
    let sizes = |text: &str| parse_sizes(text).map(Some);
    let (wait, threshold) = (&raw.page_cache_wait, &raw.page_cache_threshold);
    Ok(PageCacheArgs {
        page_cache: PageCache::Srm,
        page_cache_wait: within(wait, usual.page_cache_wait, 0..=60_000)?,
        page_cache_threshold: within(threshold, usual.page_cache_threshold, 1..=1 << 20)?,
        page_cache_include: directories(raw.page_cache_include.as_ref()),
        page_cache_exclude: directories(raw.page_cache_exclude.as_ref()),
        page_cache_sizes: read(raw.page_cache_sizes.as_ref(), sizes, None, text)?,
    })
}

fn directories(key: Option<&Spanned<super::config::Words>>) -> Vec<std::path::PathBuf> {
    let words = key.map(|key| Vec::<String>::from(key.get_ref().clone())).unwrap_or_default();
    words.into_iter().map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::config::Config;
    use super::*;

    fn parse(lines: &str) -> Result<Config, ConfigError> {
        let text = format!("[[group]]\nname = \"web\"\ncommand = \"nginx\"\n{lines}\n");
        Config::parse(&text, Path::new("x.toml"))
    }

    fn extras(lines: &str) -> Extras {
        parse(lines).unwrap().groups.remove(0).extras
    }

    const FOLLOWS: &str = "miss_rate = { low = 0.1, high = 0.4 }\n";

    #[test]
    fn keys_are_the_options_of_their_names() {
        assert_eq!(extras("share = 4"), Extras::default());
        // What is written elsewhere in the file is no change.
        let same = extras("share = 4\npollute_buffer = 1").buffer;
        assert_eq!(same, extras("share = 4\n\n# more\npollute_buffer = 1").buffer);
        let found = extras(
            "share = 4\nsuperpages = \"throttle\"\nsuperpages_in_partition = \"benefit\"\nmemory_overhead = \"2%\"\n\
             superpage_cpu = \"0.5%\"\npage_cache = \"srm\"\npage_cache_wait = 5\npage_cache_sizes = \"64K-\"",
        );
        let superpages = found.superpages.clone().unwrap();
        assert!(superpages.weighs() && superpages.is_on());
        assert!((superpages.memory_overhead - 0.02).abs() < 1e-9);
        let files = found.page_cache.clone().unwrap();
        assert_eq!((files.page_cache_wait, files.page_cache_threshold), (5, 256));
        assert_eq!(files.page_cache_sizes.map(|sizes| sizes.min), Some(64 << 10));
        assert_eq!(found.lines().len(), 2, "{:?}", found.lines());
        assert!(found.lines()[0].contains("throttle") && found.lines()[0].contains("benefit"));
        let found = extras(&format!(
            "{FOLLOWS}floor = 4\npollute_buffer = \"1/4\"\nconfine = \"1000-3000\""
        ));
        let buffer = found.buffer.unwrap();
        assert_eq!((buffer.part, buffer.args.confine), (Part::Of(0.25), vec![(0x1000, 0x3000)]));
        assert!(extras("share = 4\nsuperpages = \"off\"\npage_cache = \"off\"").lines().is_empty());
    }

    /// Lines of a file, where they are wrong, and a part of what is said.
    const MISTAKES: &[(&str, &str, &str)] = &[
        ("share = 4\nsuperpages = \"fast\"", "5:14", "expected approx-online, throttle"),
        ("share = 4\nsuperpages = 7", "5:14", "string"),
        ("share = 4\nmemory_overhead = \"4%\"", "5:19", "expected superpages beside it"),
        (
            "share = 4\nsuperpages = \"asap\"\nmemory_overhead = \"x\"",
            "6:19",
            "write for instance 4%",
        ),
        (
            "share = 4\nsuperpages = \"asap\"\nsuperpages_in_partition = \"benefit\"",
            "5:14",
            "expected approx-online",
        ),
        ("share = 4\npollute_buffer = \"0-1\"", "5:18", "the daemon decides which they are"),
        ("share = 4\npollute_buffer = \"3/2\"", "5:18", "\"1/16\", \"6.25%\" or 1"),
        ("share = 4\npollute_buffer = 0", "5:18", "at least 1"),
        ("share = 4\npollute_cpu = \"1%\"", "5:15", "expected pollute_buffer beside it"),
        ("share = 4\npollute_buffer = 1\nconfine = \"x\"", "6:11", "is no range"),
        ("share = 4\npollute_buffer = 1\nsuperpages = \"asap\"", "5:18", "not both"),
        ("share = 4\npollute_buffer = 1\npage_cache = \"srm\"", "5:18", "not both"),
        ("miss_rate = { low = 0.1, high = 0.4 }\npage_cache = \"srm\"", "5:14", "expected share"),
        ("share = 4\npage_cache = \"lru\"", "5:14", "expected srm, off"),
        ("share = 4\npage_cache = \"srm\"\npage_cache_wait = 99999", "6:19", "0 to 60000"),
        (
            "share = 4\npage_cache = \"srm\"\npage_cache_include = [\"/no/such\"]",
            "6:22",
            "/no/such",
        ),
    ];

    #[test]
    fn mistakes_have_a_place_and_say_what_was_expected() {
        for (lines, place, expected) in MISTAKES {
            let error = parse(lines).unwrap_err().to_string();
            assert!(error.starts_with(&format!("x.toml:{place}: ")), "{lines:?}: {error}");
            assert!(error.contains(expected) && error.lines().count() == 1, "{lines:?}: {error}");
        }
    }

    #[test]
    fn a_buffer_leaves_colours_for_the_rest() {
        let fit = |lines: &str| parse(lines).unwrap().fit(16, 16).map_err(|e| e.to_string());
        assert!(fit("share = 2\npollute_buffer = \"1/16\"").is_ok());
        let alone = fit("share = 1\npollute_buffer = \"1/16\"").unwrap_err();
        assert!(alone.contains("x.toml:5:18: ") && alone.contains("of 2 colours"), "{alone}");
        let floor = fit(&format!("{FOLLOWS}pollute_buffer = 2\nfloor = 2")).unwrap_err();
        assert!(floor.contains("of 3 colours"), "{floor}");
        let others = parse(
            "share = 4\npollute_buffer = 1\n[[group]]\nname = \"b\"\npid = 7\nshares_with = \"web\"",
        );
        let others = others.unwrap_err().to_string();
        assert!(others.contains("x.toml:5:18: ") && others.contains("shares_with"), "{others}");
    }

    #[test]
    fn the_buffer_moves_no_more_than_it_has_to() {
        let set = |text: &str| ColorSet::parse(text, 16).unwrap();
        let half = Part::Of(0.5);
        assert_eq!(half.choose(&set("0-7"), None), set("4-7"));
        assert_eq!(half.choose(&set("0-9"), Some(&set("4-7"))), set("4-7,9"));
        assert_eq!(half.choose(&set("0-5"), Some(&set("4-7"))), set("3-5"));
        assert_eq!(Part::Colors(9).choose(&set("0-3"), None), set("1-3"));
        assert_eq!(Part::Of(1.0 / 16.0).choose(&set("5"), None).len(), 0);
        assert_eq!(
            (Part::Of(1.0 / 3.0).of(3), Part::Of(0.01).of(3), Part::Colors(2).of(3)),
            (1, 1, 2)
        );
    }
}
