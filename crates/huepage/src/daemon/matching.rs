//! Which processes belong to which group: by pid, or by the names of their command, their control
//! group and their container. Looks at all processes that are there; remembers nothing, since a process may execute another
//! program at any time. Nobody is touched.

use huepage_linux::procfs::ProcRoot;

use super::config::GroupConfig;

/// Where control groups are mounted: a prefix that a name in the file may have.
const MOUNT: &str = "/sys/fs/cgroup/";

/// A process that a group has a claim to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The process.
    pub pid: i32,
    /// The group, by its place in the file.
    pub group: usize,
    /// Why.
    pub why: String,
}

/// The processes of groups, ascending, each in the first group of the file that matches. This process,
/// threads of the kernel and the dead belong to none. Costs some microseconds for each process there is.
pub fn matches(root: &ProcRoot, groups: &[GroupConfig]) -> Vec<Match> {
    let own = std::process::id().cast_signed();
    let pids = root.pids().unwrap_or_default();
    pids.into_iter().filter(|&pid| pid != own).filter_map(|pid| of(root, groups, pid)).collect()
}

fn of(root: &ProcRoot, groups: &[GroupConfig], pid: i32) -> Option<Match> {
    let by_pid = groups.iter().position(|group| group.pids.contains(&pid));
    if let Some(group) = by_pid {
        return root.process_exists(pid).then(|| Match {
            pid,
            group,
            why: "its number".to_owned(),
        });
    }
    let argv0 = root.argv0(pid).ok().filter(|word| !word.is_empty())?;
    let names = Names {
        comm: root.comm(pid).ok()?,
        command: argv0.rsplit('/').next().unwrap_or_default().to_owned(),
        cgroups: root.cgroups(pid).unwrap_or_default(),
    };
    let found = groups.iter().enumerate().find_map(|(at, group)| Some((at, names.claim(group)?)));
    found.map(|(group, why)| Match { pid, group, why })
}

struct Names {
    comm: String,
    command: String,
    cgroups: Vec<String>,
}

impl Names {
    /// Why a group has a claim to the process, if it has: all that it names must be so.
    fn claim(&self, group: &GroupConfig) -> Option<String> {
        let mut why = Vec::new();
        if !group.commands.is_empty() {
            let fits = |pattern: &&glob::Pattern| {
                pattern.matches(&self.comm) || pattern.matches(&self.command)
            };
            why.push(format!("the command {}", group.commands.iter().find(fits)?));
        }
        if let Some(cgroup) = &group.cgroup {
            let name = cgroup.strip_prefix(MOUNT).unwrap_or(cgroup).trim_matches('/');
            self.cgroups.iter().find(|path| is_within(path, name))?;
            why.push(format!("the control group {name}"));
        }
        if let Some(id) = &group.container {
            let (whole, _) = self.cgroups.iter().find_map(|path| id.of_path(path))?;
            why.push(format!("the container {whole}"));
        }
        (!why.is_empty()).then(|| why.join(" and "))
    }
}

/// Whether a control group is the one of that name or below it.
fn is_within(path: &str, name: &str) -> bool {
    let rest = path.trim_start_matches('/').strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::config::Config;
    use super::*;

    struct Fake(tempfile::TempDir, ProcRoot);

    impl Fake {
        fn new(processes: &[(i32, &str, &str, &str)]) -> Fake {
            let dir = tempfile::tempdir().unwrap();
            for (pid, comm, cmdline, cgroup) in processes {
                let of = dir.path().join(pid.to_string());
                std::fs::create_dir_all(&of).unwrap();
                std::fs::write(of.join("comm"), format!("{comm}\n")).unwrap();
                std::fs::write(of.join("cmdline"), cmdline.replace(' ', "\0")).unwrap();
                std::fs::write(of.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
            }
            let root = ProcRoot(dir.path().to_owned());
            Fake(dir, root)
        }

        fn found(&self, groups: &str) -> Vec<(i32, usize)> {
            let config = Config::parse(groups, Path::new("x.toml")).unwrap();
            let all = matches(&self.1, &config.groups);
            assert!(all.iter().all(|found| !found.why.is_empty()) && self.0.path().is_dir());
            all.into_iter().map(|found| (found.pid, found.group)).collect()
        }
    }

    fn group(name: &str, what: &str) -> String {
        format!("[[group]]\nname = \"{name}\"\n{what}\nshare = \"5%\"\n")
    }

    fn machine() -> Fake {
        Fake::new(&[
            (2, "kthreadd", "", "/"),
            (10, "postgres", "postgres: -D /data", "/system.slice/db.service"),
            (11, "worker", "/usr/lib/pg/postgres", "/system.slice/db.service/child"),
            (12, "python3", "/usr/bin/python3 app.py", "/user.slice"),
            (13, "redis-server", "redis-server *:6379", "/system.slice/dbx"),
        ])
    }

    #[test]
    fn commands_match_by_either_name() {
        let machine = machine();
        let found = machine.found(&group("db", "command = \"postgres*\""));
        assert_eq!(found, [(10, 0), (11, 0)]);
        assert_eq!(
            machine.found(&group("app", "command = [\"python?\", \"redis*\"]")),
            [(12, 0), (13, 0)]
        );
        assert_eq!(machine.found(&group("none", "command = \"post\"")), []);
        assert_eq!(machine.found(&group("kernel", "command = \"kthreadd\"")), []);
    }

    #[test]
    fn control_groups_match_with_those_below() {
        let machine = machine();
        for name in ["system.slice/db.service", "/sys/fs/cgroup/system.slice/db.service"] {
            let found = machine.found(&group("db", &format!("cgroup = \"{name}\"")));
            assert_eq!(found, [(10, 0), (11, 0)], "{name}");
        }
        let narrowed = group("db", "cgroup = \"system.slice\"\ncommand = \"worker\"");
        assert_eq!(machine.found(&narrowed), [(11, 0)]);
    }

    #[test]
    fn containers_match_by_their_identifiers() {
        let whole = "0123456789abcdef".repeat(4);
        let docker = format!("/system.slice/docker-{whole}.scope/app");
        let machine = Fake::new(&[
            (20, "nginx", "nginx", docker.as_str()),
            (21, "redis", "redis", "/default/cache"),
            (22, "sh", "sh", "/system.slice/cache"),
        ]);
        assert_eq!(machine.found(&group("web", "container = \"0123456789ab\"")), [(20, 0)]);
        assert_eq!(machine.found(&group("cache", "container = \"cache\"")), [(21, 0)]);
        assert_eq!(machine.found(&group("none", "container = \"0123456789ac\"")), []);
        let narrowed = group("web", "container = \"0123456789ab\"\ncommand = \"redis\"");
        assert_eq!(machine.found(&narrowed), []);
    }

    #[test]
    fn the_number_goes_first_and_then_the_order_of_the_file() {
        let machine = machine();
        let groups = group("all", "command = \"*\"") + &group("one", "pid = [12, 99]");
        assert_eq!(machine.found(&groups), [(10, 0), (11, 0), (12, 1), (13, 0)]);
    }
}
