//! Files that make sense, and every way in which they do not, with the place that is named.

use huepage_policy::coloris::Bounds;

use super::super::group::{MAX_MEMBERS, NOT_OF_GROUPS};
use super::*;
use crate::plan::combine::{Feature, RULES, Relation};

fn parse(text: &str) -> Result<DaemonConfig, ConfigError> {
    DaemonConfig::parse(text, Path::new("huepage.toml"))
}

fn error(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

const SCALE: ColorScale<'_> = ColorScale { colors: 16, cache: &crate::fuzz_entry::CACHE };
const WEB: &str = "[[group]]\nname = \"web\"\ncommand = \"nginx\"\n";

#[test]
fn the_example_makes_sense() {
    let text = include_str!("../../../../../docs/huepage-daemon.toml");
    let config = parse(text).unwrap();
    assert!(config.groups.len() >= 3, "{config:?}");
    assert!(config.groups.iter().any(GroupConfig::is_dynamic));
    let sizes = config.fit(&SCALE, 16).unwrap();
    assert_eq!(sizes.len(), config.groups.len());
}

/// The file for reference names every option that a group may have.
#[test]
fn the_example_has_every_option() {
    use clap::Args as _;
    let text = include_str!("../../../../../docs/huepage-daemon.toml");
    let options = crate::plan::Plan::augment_args(clap::Command::new("plan"));
    for option in options.get_arguments().filter(|option| !option.is_hide_set()) {
        let name = option.get_id().as_str();
        let named = |line: &str| line.trim_start_matches("# ").starts_with(&format!("{name} = "));
        let known = text.lines().any(named) || NOT_OF_GROUPS.contains(&name);
        assert!(known, "{name} is not in docs/huepage-daemon.toml");
    }
}

#[test]
fn pages_are_left_at_once_unless_they_are_to_wait() {
    let shrink = |line: &str| parse(&format!("[daemon]\n{line}\n{WEB}share = 4\n")).unwrap();
    assert_eq!(shrink("").daemon.shrink.shrink(), Shrink::Eager);
    assert_eq!(shrink("shrink = \"eager\"").daemon.shrink.shrink(), Shrink::Eager);
    assert_eq!(shrink("shrink = \"lazy\"").daemon.shrink.shrink(), Shrink::Lazy);
}

#[test]
fn a_group_has_processes_and_colours() {
    let text = "[daemon]\ncolors_from = \"declared\"\nrecolor_per_second = 0.5\nunit = 2\n\
        [[group]]\nname = \"db\"\ncommand = [\"postgres*\", \"mysqld\"]\ncgroup = \"system.slice/db.service\"\nshare = \"25%\"\n\
        [[group]]\nname = \"batch\"\npid = [7, 8]\nmiss_rate = { low = 0.1, high = 0.4 }\nfloor = 2\nceiling = \"50%\"\npriority = 3\n\
        [[group]]\nname = \"tail\"\npid = 9\nshares_with = \"batch\"\n";
    let config = parse(text).unwrap();
    let [db, batch, tail] = &config.groups[..] else { panic!("{config:?}") };
    assert!(db.commands[0].matches("postgres: writer") && !db.commands[1].matches("mysql"));
    assert_eq!(db.cgroup.as_deref(), Some("system.slice/db.service"));
    assert_eq!(
        batch.portion,
        Portion::MissRate(Spanned::new(0..0, Bounds { low: 0.1, high: 0.4 }))
    );
    assert_eq!((batch.priority, batch.pids.as_slice()), (3, &[7, 8][..]));
    assert_eq!(tail.portion, Portion::With("batch".to_owned()));
    let sizes = config.fit(&SCALE, 16).unwrap();
    assert_eq!(sizes[0], ColorBounds { floor: 4, ceiling: 4 });
    assert_eq!(sizes[1], ColorBounds { floor: 2, ceiling: 8 });
    assert_eq!(config.daemon.unit.as_ref().map(|unit| *unit.get_ref()), Some(2));
}

#[test]
fn who_may_join_is_told_by_user_and_program_and_how_many() {
    let text = "[daemon]\nmax_members = 9\nmetric_user = \"root\"\n\
        [[group]]\nname = \"db\"\ncgroup = \"a\"\nuser = [\"root\", 4711]\nexe = \"/bin/x\"\nmax_members = 3\nshare = 1\n\
        [[group]]\nname = \"web\"\ncgroup = \"a\"\nuser = 12\n\
        metric = { command = [\"x\"], low = 1, high = 2, better = \"lower\" }\n\
        [[group]]\nname = \"any\"\nexe = [\"/bin/x\", \"/bin/y\"]\nshare = 1\n";
    let config = parse(text).unwrap();
    let [db, web, any] = &config.groups[..] else { panic!("{config:?}") };
    let uids = |group: &GroupConfig| group.users.iter().map(|user| user.uid).collect::<Vec<_>>();
    assert_eq!((uids(db), uids(web), uids(any)), (vec![0, 4711], vec![12], vec![]));
    assert_eq!((db.exes.len(), web.exes.len(), any.exes.len()), (1, 0, 2));
    assert_eq!((db.max_members, web.max_members), (3, MAX_MEMBERS));
    assert_eq!(*config.daemon.max_members.get_ref(), 9);
    let Portion::Metric(metric) = &web.portion else { panic!("{web:?}") };
    assert_eq!(metric.account.as_ref().map(|account| account.uid), Some(0));
}

#[test]
fn mistakes_have_a_place_and_say_what_was_expected() {
    let cases = [
        ("[daemon]\nmax_members = 0\n", "2:15", "expected at least 1"),
        ("[daemon]\nmetric_user = \"no-such-user-here\"\n", "2:15", "there is no user"),
        ("[[group]]\nname = \"a\"\npid = 1\nshare = 1\nmax_members = 0\n", "5:15", "at least 1"),
        ("[[group]]\nname = \"a\"\nuser = []\nshare = 1\n", "3:8", "expected at least one"),
        (
            "[[group]]\nname = \"a\"\nuser = 1.5\nshare = 1\n",
            "3:8",
            "expected a user by name or number",
        ),
        ("[[group]]\nname = \"a\"\nexe = \"postgres\"\nshare = 1\n", "3:7", "from the root on"),
        ("[[group]]\nname = 7\n", "2:8", "string"),
        ("[daemon]\ninterval = 0\n", "2:12", "expected 0.05 to 3600"),
        ("[daemon]\ninterval = \"x\"\n", "2:12", "expected a number"),
        ("[daemon]\npatience = 0\n", "2:12", "expected at least 1"),
        ("[daemon]\ncolors_from = \"pnf\"\n", "2:15", "expected pfn, probe, declared"),
        ("[daemon]\nlevel = \"l9\"\n", "2:9", "expected"),
        ("[daemon]\ngrowth = \"odd\"\n", "2:10", "`even`, `selective`, `redistribution`"),
        ("[daemon]\nshrink = \"odd\"\n", "2:10", "`eager` or `lazy`"),
        ("[daemon]\nengine = \"best\"\n", "2:10", "`coloris` or `utility`"),
        ("[daemon]\nengine = \"rocs\"\n", "2:10", "`coloris` or `utility`"),
        ("[daemon]\nengine = \"coloris:by=x\"\n", "2:10", "signals or priority or utility"),
        ("[daemon]\nengine = \"coloris:low=0.1\"\n", "2:10", "`low` does nothing here"),
        ("[daemon]\nengine = \"coloris:sections=2\"\n", "2:10", "shared=on as well"),
        ("[daemon]\nsensor = \"best\"\n", "2:10", "`auto`, `pmu`, `residency`"),
        ("[demon]\n", "1:2", "unknown field `demon`, expected"),
        ("", "1:1", "at least one [[group]]"),
        ("[[group]\n", "1:9", "]"),
        ("[[group]]\nname = \"../x\"\n", "2:8", "letters, digits"),
        ("[[group]]\nname = \"a\"\nshare = \"1%\"\n", "1:1", "cgroup, container, user, exe or pid"),
        ("[[group]]\nname = \"a\"\npid = 0\nshare = \"1%\"\n", "3:7", "positive number"),
        ("[[group]]\nname = \"a\"\ncontainer = \"/x\"\nshare = \"1%\"\n", "3:13", "no identifier"),
        ("[[group]]\nname = \"a\"\ncgroup = \"/\"\nshare = \"1%\"\n", "3:10", "one below it"),
        (
            "[[group]]\nname = \"a\"\ncommand = \"/bin/x\"\nshare = \"1%\"\n",
            "3:11",
            "without directories",
        ),
        ("[[group]]\nname = \"a\"\ncommand = \"[x\"\nshare = \"1%\"\n", "3:11", "pattern"),
    ];
    for (text, place, expected) in cases {
        let error = error(text);
        assert!(error.starts_with(&format!("huepage.toml:{place}: ")), "{text:?}: {error}");
        assert!(error.contains(expected) && error.lines().count() == 1, "{text:?}: {error}");
    }
}

#[test]
fn what_is_said_of_colours_must_make_sense() {
    let cases = [
        ("share = \"150%\"", "4:9", "at most \"100%\""),
        ("share = \"half\"", "4:9", "for instance \"25%\""),
        ("share = 0", "4:9", "at least 1"),
        ("share = 1.5", "4:9", "a number of colours"),
        ("shade = 1", "4:1", "unknown field `shade`, expected"),
        ("miss_rate = { low = 0.4, high = 0.4 }", "4:13", "expected 0 <= low < high <= 1"),
        ("miss_rate = { low = 0.4, hihg = 0.4 }", "4:26", "unknown field `hihg`"),
        ("miss_rate = { low = 0.1 }", "4:13", "missing field `high`"),
        (
            "metric = { command = [], low = 1, high = 2, better = \"lower\" }",
            "4:10",
            "a program and its arguments",
        ),
        (
            "metric = { command = [\"x\"], low = 3, high = 2, better = \"lower\" }",
            "4:10",
            "expected low < high",
        ),
        ("metric = { command = [\"x\"], low = 1, high = 2, better = \"more\" }", "4:57", "lower"),
        ("share = \"5%\"\nfloor = 1", "5:9", "expected neither"),
        ("share = \"5%\"\nmiss_rate = { low = 0.1, high = 0.4 }", "5:13", "in two ways"),
        ("", "1:1", "given no colours"),
        ("shares_with = \"db\"", "2:8", "a group that has its own"),
    ];
    for (line, place, expected) in cases {
        let error = error(&format!("{WEB}{line}\n"));
        assert!(error.starts_with(&format!("huepage.toml:{place}: ")), "{line:?}: {error}");
        assert!(error.contains(expected) && error.lines().count() == 1, "{line:?}: {error}");
    }
}

#[test]
fn groups_exclude_each_other() {
    let two = |first: &str, second: &str| {
        error(&format!("[[group]]\nname = \"a\"\n{first}\n[[group]]\nname = \"b\"\n{second}\n"))
    };
    let both = two("cgroup = \"web\"\nshare = \"5%\"", "cgroup = \"/web/\"\nshare = \"5%\"");
    assert!(
        both.contains("toml:6:8: ") && both.contains("both claim the control group web"),
        "{both}"
    );
    let both = two("pid = 7\nshare = \"5%\"", "pid = [8, 7]\nshare = \"5%\"");
    assert!(both.contains("both claim process 7"), "{both}");
    let both = two("command = \"x\"\nshare = \"5%\"", "command = \"x\"\nshare = \"5%\"");
    assert!(both.contains("both claim the command x"), "{both}");
    let over = two("pid = 7\nshare = \"60%\"", "pid = 8\nshare = \"50%\"");
    assert!(over.contains("toml:8:9: shares come to 110 %"), "{over}");
    let twice = error(&format!("{WEB}share = \"5%\"\n{WEB}share = \"5%\"\n"));
    assert!(twice.contains("both claim the name web"), "{twice}");
    let narrowed = "[[group]]\nname = \"a\"\ncommand = \"x\"\ncgroup = \"one\"\nshare = \"5%\"\n\
        [[group]]\nname = \"b\"\ncommand = \"x\"\ncgroup = \"two\"\nshare = \"5%\"\n";
    assert!(parse(narrowed).is_ok());
}

#[test]
fn sizes_have_to_fit_the_cache() {
    let fit = |lines: &str, universe, free| {
        parse(&format!("{WEB}{lines}\n"))
            .unwrap()
            .fit(&ColorScale { colors: universe, ..SCALE }, free)
            .map_err(|e| e.to_string())
    };
    let follows = "miss_rate = { low = 0.1, high = 0.4 }";
    assert_eq!(fit(follows, 16, 16).unwrap(), [ColorBounds { floor: 1, ceiling: 16 }]);
    let crossed = fit(&format!("{follows}\nfloor = 9\nceiling = 4"), 16, 16).unwrap_err();
    assert!(crossed.contains("toml:5:9: ") && crossed.contains("floor <= ceiling"), "{crossed}");
    let large = fit(&format!("{follows}\nfloor = 9"), 16, 8).unwrap_err();
    assert!(large.contains("toml:5:9: ") && large.contains("8 of 8 are left"), "{large}");
    let share = fit("share = \"75%\"", 16, 8).unwrap_err();
    assert!(share.contains("toml:4:9: ") && share.contains("needs 12 colours"), "{share}");
}

#[test]
fn miss_rates_are_of_the_cache_that_is_divided_or_refused() {
    let follows = "miss_rate = { low = 0.1, high = 0.4 }\n";
    let sensing = |daemon: &str, group: &str, level: u8, missing: Option<&str>| {
        let config = parse(&format!("[daemon]\n{daemon}\n{WEB}{group}")).unwrap();
        config.sensing(CacheLevel(level), missing).map_err(|e| e.to_string())
    };
    let none = Some("no PMU");
    let by = |kind, because: &str| Ok(ChosenSensor { kind, because: because.to_owned() });
    assert_eq!(sensing("", follows, 3, None), by(SensorKind::Pmu, ""));
    assert_eq!(sensing("", follows, 2, none), by(SensorKind::Residency, "no PMU"));
    assert_eq!(sensing("sensor = \"residency\"", follows, 2, None), by(SensorKind::Residency, ""));
    let other = sensing("", follows, 3, none).unwrap_err();
    assert!(other.starts_with("huepage.toml:6:13: group web has a miss_rate of the L3"), "{other}");
    assert!(other.contains("sees the L2 (no PMU); expected share or metric"), "{other}");
    assert_eq!(sensing("", "share = 4\n", 3, none), by(SensorKind::Residency, "no PMU"));
    let forced = sensing("sensor = \"pmu\"", follows, 2, none).unwrap_err();
    assert!(forced.starts_with("huepage.toml:2:10: sensor = \"pmu\": no PMU"), "{forced}");
    let utility = "engine = \"utility\"";
    assert_eq!(sensing(utility, follows, 2, None).unwrap().kind, SensorKind::Residency);
    let both = sensing(&format!("sensor = \"pmu\"\n{utility}"), follows, 2, None).unwrap_err();
    assert!(both.contains("does not tell of pages") && both.contains(":2:10: "), "{both}");
    assert!(sensing(utility, follows, 3, None).unwrap_err().contains("goes by what is known"));
}

#[test]
fn an_engine_has_the_keys_of_the_simulator_and_those_of_the_file() {
    let policy = |daemon: &str| {
        let config = parse(&format!("[daemon]\n{daemon}\n{WEB}share = 4\n")).unwrap();
        config.policy(16).unwrap()
    };
    let usual = coloris::Settings::unattended(16);
    assert_eq!(policy(""), usual);
    assert_eq!(policy("engine = \"coloris\""), usual);
    let utility = coloris::Settings { by: By::Utility, ..usual };
    assert_eq!(policy("engine = \"utility\""), utility);
    let found = policy("engine = \"coloris:by=signals,patience=3,unit=1\"\nrest = 9\nunit = 4");
    let signals = coloris::Settings { by: By::Signals, patience: 3, unit: 1, rest: 9.0, ..usual };
    assert_eq!(found, signals);
    let crowd = "[daemon]\nengine = \"coloris:shared=on,sections=2\"\n";
    let follows = |at: usize| {
        format!(
            "[[group]]\nname = \"g{at}\"\npid = {at}\nmiss_rate = {{ low = 0.1, high = 0.4 }}\n"
        )
    };
    let groups: String = (1..=20).map(follows).collect();
    assert!(parse(&format!("{crowd}{groups}")).unwrap().fit(&SCALE, 16).is_ok(), "over-committed");
    assert!(parse(&groups).unwrap().fit(&SCALE, 16).is_err());
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = DaemonConfig::read(Path::new("/no/such.toml")).unwrap_err().to_string();
    assert!(error.starts_with("/no/such.toml:1:1: cannot be read"), "{error}");
}

/// Lines of a group that has options for keys, where they are wrong, and a part of what is said.
#[test]
fn mistakes_in_options_have_a_place() {
    const FOLLOWS: &str = "miss_rate = { low = 0.1, high = 0.4 }";
    let cases = [
        (
            "share = 4\nsuperpages = \"fast\"",
            "5:14",
            "choose fixed, asap, online, approx-online, throttle",
        ),
        ("share = 4\nmemory_overhead = \"4%\"", "5:19", "`memory_overhead` requires `superpages`"),
        ("share = 4\nsuperpages = \"asap\"\nmemory_overhead = \"x\"", "6:19", "for instance 4%"),
        ("share = 4\npollute_buffer = \"0-1\"", "5:18", "the daemon decides which they are"),
        ("share = 4\npollute_buffer = \"3/2\"", "5:18", "1/16, 6.25%"),
        ("share = 4\npollute_buffer = 0", "5:18", "no part of a cache"),
        ("share = 4\npollute_buffer = 1\nconfine = \"x\"", "6:11", "is no range"),
        ("share = 4\npage_cache = \"lru\"", "5:14", "no policy `lru`; choose srm, srm-rescan"),
        (
            "share = 4\npage_cache = \"srm\"\npage_cache_include = [\"/no/such\"]",
            "6:22",
            "/no/such",
        ),
        ("share = 4\nrecolor_conflicts = 1", "5:21", "choose active-naive"),
        ("share = 4\ncolors = \"0-3\"", "5:1", "unknown field `colors`"),
    ];
    for (lines, place, expected) in cases {
        let error = error(&format!("{WEB}{lines}\n"));
        assert!(error.starts_with(&format!("huepage.toml:{place}: ")), "{lines:?}: {error}");
        assert!(error.contains(expected) && error.lines().count() == 1, "{lines:?}: {error}");
    }
    let fit = |lines: &str| parse(&format!("{WEB}{lines}\n")).unwrap().fit(&SCALE, 16);
    assert!(fit("share = 2\npollute_buffer = \"1/16\"").is_ok());
    let alone = fit("share = 1\npollute_buffer = \"1/16\"").unwrap_err().to_string();
    assert!(alone.contains(":5:18: ") && alone.contains("of 2 colours"), "{alone}");
    let floor = fit(&format!("{FOLLOWS}\npollute_buffer = 2\nfloor = 2")).unwrap_err().to_string();
    assert!(floor.contains("of 3 colours"), "{floor}");
    let free = fit("pollute_buffer = \"1/8\"").unwrap();
    assert_eq!(free, [ColorBounds { floor: 2, ceiling: 2 }], "of all colours");
}

/// What a door calls a feature; none where it does not have it.
fn asked(feature: Feature) -> (Option<&'static [&'static str]>, &'static str) {
    match feature {
        Feature::Partition => (Some(&["--share=25%"]), "share = \"25%\""),
        Feature::Resizing => (None, "miss_rate = { low = 0.1, high = 0.4 }"),
        Feature::SharedColors => (None, "shares_with = \"other\""),
        Feature::LastLevel => (Some(&["--level=llc"]), ""),
        Feature::Files => (Some(&["--page-cache=srm"]), "page_cache = \"srm\""),
        Feature::Text => (Some(&["--text=place"]), "text = \"place\""),
        Feature::Superpages => (Some(&["--superpages=throttle"]), "superpages = \"throttle\""),
        Feature::BlindSuperpages => (Some(&["--superpages=asap"]), "superpages = \"asap\""),
        Feature::WeighedSuperpages => {
            (Some(&["--superpages-in-partition=benefit"]), "superpages_in_partition = \"benefit\"")
        }
        Feature::PolluteBuffer => (Some(&["--pollute-buffer=1/4"]), "pollute_buffer = \"1/4\""),
        Feature::Conflicts => (Some(&["--recolor-conflicts"]), "recolor_conflicts = true"),
    }
}

/// Whatever the table refuses is refused by options and by keys, for the same reason.
#[test]
fn both_doors_have_the_same_table() {
    for rule in RULES {
        let both = match rule.relation {
            Relation::Excludes => vec![rule.feature, rule.other],
            Relation::Requires => vec![rule.feature],
        };
        let level = if both.contains(&Feature::LastLevel) { "llc" } else { "l2" };
        let keys: Vec<&str> = both.iter().map(|of| asked(*of).1).collect();
        let other = "[[group]]\nname = \"other\"\npid = 7\nshare = 1\n";
        let keys =
            error(&format!("[daemon]\nlevel = \"{level}\"\n{WEB}{}\n{other}", keys.join("\n")));
        // Of several rules that are broken the first is said.
        let reasons = RULES.iter().filter(|of| both.contains(&of.feature));
        let reasons: Vec<&str> = reasons.map(|of| of.reason).collect();
        assert!(reasons.iter().any(|why| keys.contains(why)), "{rule:?}: {keys}");
        let options: Option<Vec<&[&str]>> = both.iter().map(|of| asked(*of).0).collect();
        let Some(options) = options else { continue };
        let plan = crate::cmd::run::parsed_plan(&options.concat()).unwrap();
        let options = plan.check().unwrap_err().message;
        assert!(reasons.iter().any(|why| options.contains(why)), "{rule:?}: {options}");
    }
}
