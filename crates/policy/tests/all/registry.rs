//! Policies by name: what is read, what is refused and in which words, and the table in the documents.

use huepage_policy::registry::{
    Error, Host, LiveOption, POLICIES, Settings, keys_table, listing, markdown,
};

fn said(text: &str) -> String {
    Settings::parse(text).expect_err(text).to_string()
}

#[test]
fn names_and_keys_are_read_and_written() {
    for entry in POLICIES {
        let settings = Settings::parse(entry.name).expect(entry.name);
        assert_eq!(settings.to_string(), entry.name);
        assert!(entry.what.len() <= 100 && !entry.what.ends_with('.'), "{}", entry.what);
    }
    let text = "snapshot-miss:period=5000,target=random,fit=on";
    let settings = Settings::parse(text).expect("a policy");
    assert_eq!(settings.to_string(), text);
    assert_eq!(settings.count("period"), Some(5000));
    assert_eq!(settings.count("delay"), Some(1000), "the usual one");
    let json = serde_json::to_string(&settings).expect("JSON");
    assert_eq!(serde_json::from_str::<Settings>(&json).expect("a policy"), settings);
}

#[test]
fn what_is_wrong_is_named_with_what_was_meant() {
    assert_eq!(said("apprx-online"), "no policy `apprx-online`; did you mean `approx-online`?");
    assert!(said("zzz").contains("choose none, static, rocs"), "{}", said("zzz"));
    assert_eq!(said("rocs:trail=3"), "rocs has no key `trail`; did you mean `trial`?");
    assert_eq!(said("none:x=1"), "none has no key `x`; it has none");
    assert_eq!(said("rocs:trial=1,trial=2"), "`trial` of rocs is given twice; leave one out");
    let error = said("rocs:trial=soon");
    assert!(
        error.starts_with("`trial=soon` of rocs: expected a whole number (instructions)"),
        "{error}"
    );
    let error = said("coloris:low=130%");
    assert!(error.contains("`low=130%` of coloris: expected a share"), "{error}");
    let error = said("cml:target=nowhere");
    assert!(
        error.ends_with("sequential or coldest-ref or coldest-miss or random or emptiest"),
        "{error}"
    );
    for text in ["", ":", "rocs:", "rocs:,", "rocs:trial", "rocs:=", "\u{1b}[31m"] {
        let found = Settings::parse(text).map_err(|error| error.to_string());
        assert!(
            found.as_ref().is_ok_and(|s| s.to_string() == "rocs")
                || found.is_err_and(|said| !said.contains(['\n', '\u{1b}'])),
            "{text:?}"
        );
    }
}

#[test]
fn there_are_at_least_sixteen_and_each_is_listed_once() {
    let names: std::collections::BTreeSet<_> = POLICIES.iter().map(|entry| entry.name).collect();
    assert!(names.len() >= 16 && names.len() == POLICIES.len());
    let text = listing();
    let (reasons, lines): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with("  "));
    assert_eq!(lines.len(), POLICIES.len());
    assert!(reasons.iter().all(|line| line.trim_start().starts_with("not live: needs ")), "{text}");
    let live = lines.iter().filter(|line| line.contains(" live  ")).count();
    assert_eq!(live + reasons.len(), POLICIES.len(), "each is live, or it is said why not: {text}");
    for entry in POLICIES {
        let keys = keys_table(entry.name).expect("a policy");
        assert!(entry.keys.iter().all(|key| keys.contains(key.name)), "{keys}");
        let mut keys: Vec<_> = entry.keys.iter().map(|key| key.name).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), entry.keys.len(), "{}", entry.name);
    }
    assert!(matches!(keys_table("x"), Err(Error::Unknown { .. })));
}

/// What a policy needs to hear of decides where it runs.
#[test]
fn needs_say_where_a_policy_runs() {
    let names = |option: LiveOption| option.names().collect::<Vec<_>>().join(" ");
    assert_eq!(
        names(LiveOption::Superpages),
        "fixed asap online approx-online throttle throttle-strict hybrid"
    );
    assert_eq!(
        names(LiveOption::RecolorConflicts),
        "active-naive active-delay active-throttle periodic-random periodic-color snapshot \
         snapshot-delay snapshot-miss snapshot-in-use snapshot-fit"
    );
    assert_eq!(names(LiveOption::PolluteBuffer), "rocs rocs-model");
    assert_eq!(names(LiveOption::PageCache), "srm srm-rescan");
    assert_eq!(
        (names(LiveOption::Colors), names(LiveOption::Daemon)),
        ("static".into(), "coloris utility".into())
    );
    let why = |option: LiveOption, text| option.parse(text).expect_err(text).to_string();
    let cml = why(LiveOption::RecolorConflicts, "cml-fit");
    assert!(cml.starts_with("cml-fit needs a cache miss look-aside buffer"), "{cml}");
    assert!(why(LiveOption::Superpages, "offline").contains("the stream of accesses beforehand"));
    let other = why(LiveOption::Superpages, "srm");
    assert!(other.starts_with("srm is for --page-cache; choose fixed, asap"), "{other}");
    let size = why(LiveOption::Superpages, "hybrid");
    assert!(size.contains("64 KiB") && size.ends_with("write order=9"), "{size}");
    assert!(LiveOption::Superpages.parse("fixed:order=9").is_ok());
    let known = |text| LiveOption::Superpages.parse(text).map(|settings| settings.to_string());
    assert_eq!(known("asap:share=0.5").as_deref(), Ok("asap:share=0.5"));
}

#[test]
fn usual_values_are_values_that_the_key_takes() {
    use huepage_policy::registry::Usual;
    for entry in POLICIES {
        for key in entry.keys.iter().filter(|key| !matches!(key.usual, Usual::Host(_))) {
            let text = format!("{}:{}={}", entry.name, key.name, key.usual);
            let given = Settings::parse(&text).expect(&text);
            let host = Host::default();
            assert_eq!(
                given.make(&host).is_ok(),
                Settings::parse(entry.name).expect("it").make(&host).is_ok()
            );
        }
    }
}

#[test]
fn the_documents_have_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/policies/README.md");
    let text = std::fs::read_to_string(path).expect("docs/policies/README.md");
    let (head, rest) = text.split_once("<!-- policies -->\n").expect("a mark");
    let (table, tail) = rest.split_once("<!-- end -->").expect("an end");
    if table != markdown() && std::env::var_os("HUEPAGE_WRITE_DOCS").is_some() {
        let whole = format!("{head}<!-- policies -->\n{}<!-- end -->{tail}", markdown());
        std::fs::write(path, whole).expect("the document can be written");
        return;
    }
    assert!(
        table == markdown(),
        "docs/policies/README.md is not as the registry has it; \
         HUEPAGE_WRITE_DOCS=1 cargo test -p huepage-policy writes it"
    );
}
