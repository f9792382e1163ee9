//! Which processes belong to which group: by pid, or by the names of their command, their control
//! group and their container, their user, and the program that they execute. A process chooses its names
//! itself, and anybody may execute a program: what only some may join names their users. Looks at all
//! processes that are there; a process may execute another program at any time, so nothing is remembered
//! but what has a number. Nobody is touched.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use huepage_linux::kernel::procfs::{Executable, KnownProcess, ProcRoot, ProcessHandle};
use huepage_linux::kernel::signs::MachineSigns;
use huepage_policy::settled::{ProcessSearch, ProcessSearchSettings};

use super::group::GroupConfig;

/// Where control groups are mounted: a prefix that a name in the file may have.
const MOUNT: &str = "/sys/fs/cgroup/";

/// A process that a group has a claim to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchedProcess {
    /// The process.
    pub pid: i32,
    /// The group, by its place in the file.
    pub group: usize,
    /// Why.
    pub why: String,
}

/// What was found of each process, and how long it had run then.
type KnownClaims = HashMap<i32, (u64, Option<MatchedProcess>)>;

/// Looks for the processes of groups again and again: at those that have run since, and now and then at all.
pub struct Finder {
    search: ProcessSearch,
    began: Instant,
    known: KnownClaims,
    machine: MachineSigns,
    /// The newest process of the machine at the last look.
    newest: Option<u64>,
}

impl Finder {
    /// The first look is due at once.
    pub fn new(root: &ProcRoot) -> Finder {
        Finder {
            search: ProcessSearch::new(ProcessSearchSettings::default()),
            began: Instant::now(),
            known: KnownClaims::new(),
            machine: MachineSigns::open(root),
            newest: None,
        }
    }

    /// How long until the next look, of which there is one in so much time at most.
    pub fn wait(&self, shortest: Duration) -> Duration {
        let newest = self.machine.newest();
        let begun = newest.is_none() || newest != self.newest;
        self.search.wait(self.began.elapsed(), shortest, begun)
    }

    /// The next look is due at once, and at all processes.
    pub fn again(&mut self) {
        self.search.again();
    }

    /// The processes of groups as they are now.
    pub fn find(&mut self, claims: &Claims<'_>) -> Vec<MatchedProcess> {
        self.newest = self.machine.newest();
        if self.search.is_at_all(self.began.elapsed()) {
            self.known.clear();
        }
        claims.changed(&mut self.known)
    }

    /// A look, and what came of it, has taken so much CPU time.
    pub fn looked(&mut self, spent: Duration) {
        self.search.looked(self.began.elapsed(), spent);
    }
}

/// Who has a claim to what, for one look at all processes.
pub struct Claims<'a> {
    root: &'a ProcRoot,
    groups: &'a [GroupConfig],
    /// The processes that the numbers of the file stand for.
    numbers: &'a HashMap<i32, KnownProcess>,
    /// The programs of each group as they lie on the disk now.
    programs: Vec<Vec<Executable>>,
}

/// The processes that have the numbers of a file now: later ones of these numbers are others.
pub fn numbers(root: &ProcRoot, groups: &[GroupConfig]) -> HashMap<i32, KnownProcess> {
    let all = groups.iter().flat_map(|group| group.pids.iter().copied());
    all.filter_map(|pid| Some((pid, KnownProcess::read(root, pid).ok()?))).collect()
}

impl<'a> Claims<'a> {
    /// Of these groups, in the order of the file.
    pub fn new(
        root: &'a ProcRoot,
        groups: &'a [GroupConfig],
        numbers: &'a HashMap<i32, KnownProcess>,
    ) -> Claims<'a> {
        let programs = |group: &GroupConfig| {
            group.exes.iter().filter_map(|path| Executable::at(path).ok()).collect()
        };
        Claims { root, groups, numbers, programs: groups.iter().map(programs).collect() }
    }

    /// The processes of groups, ascending, each in the first group of the file that matches. This process,
    /// threads of the kernel and the dead belong to none. Costs some microseconds for each process there is.
    pub fn all(&self) -> Vec<MatchedProcess> {
        let own = std::process::id().cast_signed();
        let pids = self.root.pids().unwrap_or_default();
        pids.into_iter().filter(|&pid| pid != own).filter_map(|pid| self.of(pid)).collect()
    }

    /// The same where those that have not run since they were looked at last are what they were. Costs less than
    /// a microsecond for each of these.
    fn changed(&self, known: &mut KnownClaims) -> Vec<MatchedProcess> {
        let own = std::process::id().cast_signed();
        let before = std::mem::take(known);
        for pid in self.root.pids().unwrap_or_default().into_iter().filter(|&pid| pid != own) {
            // What has ended in this moment is no process.
            let Some(ran) = self.root.run_time(pid) else { continue };
            let same = before.get(&pid).filter(|of| of.0 == ran);
            let found = same.map_or_else(|| self.of(pid), |of| of.1.clone());
            known.insert(pid, (ran, found));
        }
        let mut found: Vec<_> = known.values().filter_map(|of| of.1.clone()).collect();
        found.sort_unstable_by_key(|of| of.pid);
        found
    }

    /// A process that belongs to a group, held; it belonged there after it was held.
    pub fn hold(&self, found: &MatchedProcess) -> Option<ProcessHandle> {
        let held = ProcessHandle::open(self.root, found.pid).ok()?;
        let again = self.of(found.pid)?;
        (again.group == found.group && held.is_alive()).then_some(held)
    }

    fn of(&self, pid: i32) -> Option<MatchedProcess> {
        let by_pid = self.groups.iter().position(|group| group.pids.contains(&pid));
        if let Some(group) = by_pid {
            let known = self.numbers.get(&pid)?;
            return known.is_alive(self.root).then(|| MatchedProcess {
                pid,
                group,
                why: "its number".to_owned(),
            });
        }
        let argv0 = match self.root.argv0(pid) {
            // A process whose command line does not come is known by all else.
            Err(error) if error.is_late() => String::new(),
            word => word.ok().filter(|word| !word.is_empty())?,
        };
        let names = ProcessNames {
            comm: self.root.comm(pid).ok()?,
            command: argv0.rsplit('/').next().unwrap_or_default().to_owned(),
            cgroups: self.root.cgroups(pid).unwrap_or_default(),
        };
        let found = self.groups.iter().zip(&self.programs).enumerate();
        let mut found = found.filter_map(|(at, (group, programs))| {
            let why = names.claim(group)?;
            Some((at, self.narrow(pid, group, programs, why)?))
        });
        found.next().map(|(group, why)| MatchedProcess { pid, group, why: why.join(" and ") })
    }

    /// What speaks for the group, with its user and its program, if those fit as well.
    fn narrow(
        &self,
        pid: i32,
        group: &GroupConfig,
        programs: &[Executable],
        mut why: Vec<String>,
    ) -> Option<Vec<String>> {
        if !group.users.is_empty() {
            let status = self.root.status(pid).ok()?;
            // A program that is set-uid acts for another, and is neither's.
            let is = |uid: u32| status.uid == uid && status.real_uid == uid;
            why.push(format!("the user {}", group.users.iter().find(|user| is(user.uid))?.name));
        }
        if !group.exes.is_empty() {
            let own = self.root.executable(pid).ok()?;
            let fitting = programs.iter().find(|program| **program == own)?;
            why.push(format!("the program {}", fitting.path.display()));
        }
        (!why.is_empty()).then_some(why)
    }
}

struct ProcessNames {
    comm: String,
    command: String,
    cgroups: Vec<String>,
}

impl ProcessNames {
    /// What speaks for the group, if all that it names is so; nothing where it names nothing.
    fn claim(&self, group: &GroupConfig) -> Option<Vec<String>> {
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
        Some(why)
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

    use super::super::config::DaemonConfig;
    use super::*;

    struct Fake(tempfile::TempDir, ProcRoot);

    fn put_stat(dir: &Path, pid: i32, start_time: u64) {
        let zeroes = "0 ".repeat(18);
        let text = format!("{pid} (x) S {zeroes}{start_time}{}\n", " 0".repeat(30));
        std::fs::write(dir.join(pid.to_string()).join("stat"), text).unwrap();
    }

    fn put_uids(dir: &Path, pid: i32, [real, effective]: [u32; 2]) {
        let text = format!("Tgid:\t{pid}\nUid:\t{real}\t{effective}\t0\t0\n");
        std::fs::write(dir.join(pid.to_string()).join("status"), text).unwrap();
    }

    impl Fake {
        fn new(processes: &[(i32, &str, &str, &str)]) -> Fake {
            let dir = tempfile::tempdir().unwrap();
            for (pid, comm, cmdline, cgroup) in processes {
                let of = dir.path().join(pid.to_string());
                std::fs::create_dir_all(&of).unwrap();
                std::fs::write(of.join("comm"), format!("{comm}\n")).unwrap();
                std::fs::write(of.join("cmdline"), cmdline.replace(' ', "\0")).unwrap();
                std::fs::write(of.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
                put_stat(dir.path(), *pid, 1000);
                put_uids(dir.path(), *pid, [70, 70]);
            }
            let root = ProcRoot(dir.path().to_owned());
            Fake(dir, root)
        }

        fn found(&self, groups: &str) -> Vec<(i32, usize)> {
            let config = DaemonConfig::parse(groups, Path::new("x.toml")).unwrap();
            let numbers = numbers(&self.1, &config.groups);
            let all = Claims::new(&self.1, &config.groups, &numbers).all();
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

    /// A pipe without a writer: as a command line in a file system whose owner does not answer.
    #[test]
    fn a_command_line_that_does_not_come_leaves_the_other_names() {
        let machine = machine();
        let cmdline = machine.0.path().join("11/cmdline");
        std::fs::remove_file(&cmdline).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&cmdline).status().unwrap();
        assert!(made.success());
        let found = machine.found(&group("db", "cgroup = \"system.slice/db.service\""));
        assert_eq!(found, [(10, 0), (11, 0)]);
        assert_eq!(machine.found(&group("name", "command = \"work*\"")), [(11, 0)]);
        assert_eq!(machine.found(&group("line", "command = \"postgres*\"")), [(10, 0)]);
    }

    #[test]
    fn what_has_not_run_is_what_it_was_until_all_are_looked_at() {
        let machine = machine();
        let config = DaemonConfig::parse(&group("db", "command = \"new\""), Path::new("x.toml"));
        let (config, numbers) = (config.unwrap(), HashMap::new());
        let claims = Claims::new(&machine.1, &config.groups, &numbers);
        let mut finder = Finder::new(&machine.1);
        assert!(finder.wait(Duration::ZERO).is_zero() && finder.find(&claims).is_empty());
        finder.looked(Duration::from_secs(1));
        // Others cannot rename it; its control group they can change.
        std::fs::write(machine.0.path().join("12/comm"), "new\n").unwrap();
        assert_eq!(finder.find(&claims), []);
        finder.again();
        let found = finder.find(&claims);
        assert_eq!(found.iter().map(|of| of.pid).collect::<Vec<_>>(), [12]);
        std::fs::remove_dir_all(machine.0.path().join("12")).unwrap();
        assert_eq!(finder.find(&claims), [], "it has ended");
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
    fn users_and_programs_narrow_down_and_may_stand_alone() {
        let machine = machine();
        let dir = machine.0.path();
        put_uids(dir, 11, [70, 0]);
        put_uids(dir, 13, [71, 71]);
        let user = "command = \"*\"\nuser = 70";
        assert_eq!(
            machine.found(&group("db", user)),
            [(10, 0), (12, 0)],
            "not those of set-uid programs"
        );
        assert_eq!(machine.found(&group("db", "user = [70, 71]")).len(), 3);
        assert_eq!(machine.found(&group("db", "user = \"root\"")), []);
        // A program by its path and its inode: a copy, another file in its place and a forged name do not fit.
        let (place, copy) = (dir.join("program"), dir.join("copy"));
        std::fs::write(&place, "").unwrap();
        std::fs::write(&copy, "").unwrap();
        let place = place.canonicalize().unwrap();
        std::os::unix::fs::symlink(&place, dir.join("10/exe")).unwrap();
        std::os::unix::fs::symlink(&copy, dir.join("12/exe")).unwrap();
        let exe = format!("exe = \"{}\"", place.display());
        assert_eq!(machine.found(&group("db", &exe)), [(10, 0)]);
        assert_eq!(machine.found(&group("db", &format!("command = \"python?\"\n{exe}"))), []);
        assert_eq!(machine.found(&group("db", &format!("user = 71\n{exe}"))), []);
        assert_eq!(machine.found(&group("db", "exe = \"/no/such/program\"")), []);
    }

    #[test]
    fn a_number_stands_for_the_process_that_had_it_first() {
        let machine = machine();
        let text = group("one", "pid = [12, 99]");
        let config = DaemonConfig::parse(&text, Path::new("x.toml")).unwrap();
        let numbers = numbers(&machine.1, &config.groups);
        let all = || Claims::new(&machine.1, &config.groups, &numbers).all();
        assert_eq!(all().len(), 1);
        let held = Claims::new(&machine.1, &config.groups, &numbers).hold(&all()[0]).unwrap();
        assert!(held.is_alive());
        put_stat(machine.0.path(), 12, 1001);
        assert!(all().is_empty() && !held.is_alive());
    }

    #[test]
    fn the_number_goes_first_and_then_the_order_of_the_file() {
        let machine = machine();
        let groups = group("all", "command = \"*\"") + &group("one", "pid = [12, 99]");
        assert_eq!(machine.found(&groups), [(10, 0), (11, 0), (12, 1), (13, 0)]);
    }
}
