//! Services of Debian and containers, as cells of the matrix: each is started as its own user with a
//! script of `programs/services`, confined by one way, put under load, and ended. Its answers must be
//! those that it gives without huepage.
//!
//! A service is more than one process. Each that lives for some looks must be confined, by the independent
//! reader of page maps and by what huepage itself says, or be named as left out.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{COMPLIANT, Cell, LONGEST, Matrix, refusal};
use crate::harness::{Guard, bounded};
use crate::launch::{End, Huepage};
use crate::suite::daemon::World;
use crate::{observe, rights};

/// Between two looks at all processes of a service.
const LOOK: Duration = Duration::from_millis(250);
/// A process that was seen less often was not there long enough to be confined.
const LOOKS: usize = 6;
/// Fewer movable pages than this say nothing in hundredths.
const LEAST_PAGES: u64 = 128;
/// Longest wait for compliance once the load is over.
const SETTLED: Duration = Duration::from_secs(30);

/// What can be started, and how.
pub(super) struct Service {
    pub(super) name: &'static str,
    script: &'static str,
    /// The script's second argument: whose it is to be, or which of several it is to start.
    whose: &'static str,
}

/// The script of a file of `programs/services`.
macro_rules! script {
    ($name:literal) => {
        include_str!(concat!("../../../programs/services/", $name, ".sh"))
    };
}

const fn service(name: &'static str, script: &'static str, whose: &'static str) -> Service {
    Service { name, script, whose }
}

/// The services and containers of the matrix.
pub(super) const SERVICES: [Service; 6] = [
    service("postgresql", script!("postgresql"), "postgres"),
    service("redis", script!("redis"), "redis"),
    service("nginx", script!("nginx"), "www-data"),
    service("sshd", script!("sshd"), "root"),
    service("container of root", script!("container"), "root"),
    service("container of a user", script!("container"), "user"),
];

/// The services that are confined outside of containers and in them: the first four, and these.
pub(super) const MORE_SERVICES: [Service; 8] = [
    service("memcached", script!("memcached"), "memcache"),
    service("apache2", script!("web"), "apache2"),
    service("lighttpd", script!("web"), "lighttpd"),
    service("haproxy", script!("web"), "haproxy"),
    service("dnsmasq", script!("dns"), "dnsmasq"),
    service("unbound", script!("dns"), "unbound"),
    service("mosquitto", script!("mosquitto"), "mosquitto"),
    service("mariadb", script!("mariadb"), "mysql"),
];

/// Those whose users one daemon takes at the same time.
const USERS: [usize; 3] = [0, 1, 2];

/// A directory, a port and a script: one run of a service.
pub(super) struct Place {
    dir: tempfile::TempDir,
    port: u16,
    whose: &'static str,
}

/// A port that nobody has: of those that the kernel gives to no client, which might have it a moment later.
fn free_port() -> io::Result<u16> {
    let mut ports = std::iter::repeat_with(|| fastrand::u16(20_000..30_000)).take(100);
    let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.find(free).ok_or_else(|| io::Error::other("no port is free; end what listens on them"))
}

impl Place {
    pub(super) fn new(service: &Service) -> io::Result<Place> {
        let dir = tempfile::tempdir()?;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        fs::write(dir.path().join("service.sh"), service.script)?;
        let port = free_port()?;
        Ok(Place { dir, port, whose: service.whose })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The arguments of a call of the script.
    pub(super) fn words(&self, what: &str) -> [String; 4] {
        let script = self.path("service.sh").display().to_string();
        ["bash".into(), script, what.into(), self.whose.into()]
    }

    /// Has the script's variables.
    pub(super) fn dress<'c>(&self, command: &'c mut Command, leader: u32) -> &'c mut Command {
        command.env("DIR", self.dir.path()).env("PORT", self.port.to_string());
        command.env("LEADER", leader.to_string()).current_dir("/").stdin(Stdio::null())
    }

    pub(super) fn call(&self, what: &str, leader: u32) -> io::Result<End> {
        let [bash, rest @ ..] = self.words(what);
        let mut command = Command::new(bash);
        bounded(self.dress(command.args(rest), leader), LONGEST)
    }

    pub(super) fn does(&self, what: &str) -> io::Result<bool> {
        Ok(self.call(what, 0)?.status == 0)
    }

    /// Starts the service, below `before` if that is not empty; ready when this returns.
    pub(super) fn start(&self, before: &[String]) -> io::Result<Guard> {
        let words = [before, &self.words("start")].concat();
        let mut command = Command::new(&words[0]);
        let log = fs::File::create(self.path("service.log"))?;
        command.args(&words[1..]).stdout(log.try_clone()?).stderr(log);
        let mut leader = Guard(self.dress(&mut command, 0).spawn()?);
        let started = Instant::now();
        while !self.does("ready")? {
            if !leader.alive() || started.elapsed() > LONGEST {
                let log = fs::read_to_string(self.path("service.log")).unwrap_or_default();
                let last = log.lines().last().unwrap_or("nothing").to_owned();
                return Err(io::Error::other(format!("not ready, it says: {last}")));
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        Ok(leader)
    }

    /// Begins the load; its output goes into a file.
    pub(super) fn load(&self) -> io::Result<Guard> {
        let [bash, rest @ ..] = self.words("load");
        let mut command = Command::new(bash);
        let said = fs::File::create(self.path("load.err"))?;
        command.args(rest).stdout(fs::File::create(self.path("answer"))?).stderr(said);
        self.dress(&mut command, 0).spawn().map(Guard)
    }

    pub(super) fn answer(&self) -> String {
        fs::read_to_string(self.path("answer")).unwrap_or_default()
    }

    /// What is different from the answers and the status of a native run.
    pub(super) fn differs(&self, status: i32, native: &(String, i32)) -> Option<String> {
        let answer = self.answer();
        if answer != native.0 || answer.is_empty() {
            let said = fs::read_to_string(self.path("load.err")).unwrap_or_default();
            let last = said.lines().last().unwrap_or_default();
            return Some(format!("answers {answer:?} instead of {:?}; {last}", native.0));
        }
        (status != native.1).then(|| format!("it ended with {status} instead of {}", native.1))
    }

    /// Ends the service; the status with which it does.
    pub(super) fn stop(&self, leader: &mut Guard) -> io::Result<i32> {
        self.call("stop", leader.id())?;
        leader.end(LONGEST)
    }

    /// The identifier of the container that it is, if it is one.
    fn container(&self) -> io::Result<Option<String>> {
        let id = self.call("id", 0)?.text().trim().to_owned();
        Ok((!id.is_empty()).then_some(id))
    }
}

/// A process of a service as it was seen.
#[derive(Default)]
struct Seen {
    name: String,
    looks: usize,
    /// The share inside at each look that had enough pages: the lesser of the reader's and huepage's own.
    shares: Vec<f64>,
}

impl Seen {
    /// The median of the last looks.
    fn share(&self) -> Option<f64> {
        let mut last = self.shares[self.shares.len().saturating_sub(3)..].to_vec();
        last.sort_by(f64::total_cmp);
        last.get(last.len() / 2).copied()
    }
}

/// All processes of a service, looked at again and again.
#[derive(Default)]
struct Watch(BTreeMap<u32, Seen>);

impl Watch {
    /// Looks at processes once.
    fn look(&mut self, cell: &mut Cell, pids: &[u32], huepage: &Huepage) {
        for &pid in pids {
            cell.look(pid);
            let seen = self.0.entry(pid).or_default();
            seen.looks += 1;
            seen.name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if let Some((count, own)) =
                observe::confined(pid, &huepage.inspect(pid).unwrap_or_default())
            {
                let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
                let share = count.share_but_for(threads as u64).min(own);
                let share = if count.movable < LEAST_PAGES { 1.0 } else { share };
                seen.shares.push(share);
            }
        }
    }

    /// The least share of the processes that were there long enough; those that were never confined.
    fn result(&self) -> (Option<f64>, Vec<String>) {
        let lasting = || self.0.values().filter(|seen| seen.looks >= LOOKS);
        let least = lasting().filter_map(Seen::share).min_by(f64::total_cmp);
        let left = lasting().filter(|seen| seen.shares.is_empty());
        (least, left.map(|seen| seen.name.trim().to_owned()).collect())
    }

    /// Looks at a service until its loads are over and its processes have settled, and puts what was seen
    /// into a cell.
    fn attend(
        mut loads: Vec<Guard>,
        cell: &mut Cell,
        pids: &dyn Fn() -> Vec<u32>,
        huepage: &Huepage,
    ) {
        let (mut watch, started, mut settling) = (Watch::default(), Instant::now(), None);
        loop {
            watch.look(cell, &pids(), huepage);
            let over = loads.iter_mut().all(|load| !load.alive());
            if over || started.elapsed() > 2 * LONGEST {
                let (share, left) = watch.result();
                let settled = share >= Some(COMPLIANT) && left.is_empty();
                let since: &mut Instant = settling.get_or_insert_with(Instant::now);
                if settled || cell.refused.is_some() || since.elapsed() > SETTLED {
                    break;
                }
            }
            std::thread::sleep(LOOK);
        }
        (cell.compliance, cell.left_out) = watch.result();
    }
}

/// A process and all below it that are not huepage's.
pub(super) fn members(suite: &Matrix, leader: u32, with_leader: bool) -> Vec<u32> {
    let below = observe::programs_below(leader, &suite.huepage.path);
    let tools = |pid: &u32| {
        let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        exe.file_name().is_some_and(|name| name == "runc")
    };
    let all = below.into_iter().chain(with_leader.then_some(leader));
    all.filter(|pid| !tools(pid)).collect()
}

impl Matrix<'_> {
    /// The answers and the status of a service without huepage; `None` where it cannot run here.
    pub(super) fn native_service(&self, service: &Service) -> io::Result<Option<(String, i32)>> {
        self.native_below(service, |_| Ok(Vec::new()))
    }

    /// The same of one that is started by other words.
    pub(super) fn native_below(
        &self,
        service: &Service,
        before: impl FnOnce(&Place) -> io::Result<Vec<String>>,
    ) -> io::Result<Option<(String, i32)>> {
        let place = Place::new(service)?;
        if !place.does("needs")? {
            return Ok(None);
        }
        place.call("prepare", 0)?;
        let mut leader = place.start(&before(&place)?)?;
        place.load()?.end(LONGEST)?;
        let status = place.stop(&mut leader)?;
        Ok(Some((place.answer(), status)))
    }

    /// One cell: a service confined by one way.
    pub(super) fn service(
        &self,
        service: &Service,
        way: &str,
        native: &(String, i32),
    ) -> io::Result<Cell> {
        let place = Place::new(service)?;
        place.call("prepare", 0)?;
        let mut cell = Cell::default();
        let status = match way {
            "run" => self.service_by_run(&place, &mut cell)?,
            "attach" => self.service_by_attach(&place, &mut cell)?,
            _ => self.service_by_daemon(&place, &mut cell)?,
        };
        cell.troubles.extend(place.differs(status, native));
        Ok(cell)
    }

    /// Loads a service and looks at its processes until they have settled.
    fn attend(
        &self,
        place: &Place,
        cell: &mut Cell,
        pids: &dyn Fn() -> Vec<u32>,
        huepage: &Huepage,
        confine: &mut dyn FnMut(&mut Cell) -> io::Result<()>,
    ) -> io::Result<()> {
        let load = place.load()?;
        std::thread::sleep(LOOK);
        confine(cell)?;
        Watch::attend(vec![load], cell, pids, huepage);
        Ok(())
    }

    fn service_by_run(&self, place: &Place, cell: &mut Cell) -> io::Result<i32> {
        let report = place.path("report.json");
        let mut before = vec![self.huepage.path.display().to_string()];
        before.extend(["run", "--quiet", "--share", "50%", "--report"].map(str::to_owned));
        before.push(report.display().to_string());
        before.extend(self.with.iter().map(|&word| word.to_owned()));
        before.push("--".into());
        let mut leader = place.start(&before)?;
        let id = leader.id();
        let pids = || members(self, id, false);
        self.attend(place, cell, &pids, self.huepage, &mut |_| Ok(()))?;
        let status = place.stop(&mut leader)?;
        let report: Value = serde_json::from_slice(&fs::read(report)?).unwrap_or_default();
        let missed = report["missed"].as_array().cloned().unwrap_or_default();
        cell.excused = missed.iter().map(Value::to_string).collect();
        Ok(status)
    }

    fn service_by_attach(&self, place: &Place, cell: &mut Cell) -> io::Result<i32> {
        let mut leader = place.start(&[])?;
        let container = place.container()?;
        self.attached(place, &mut leader, container.as_deref(), Some("50%"), cell)
    }

    /// A service that runs, in a container if it has an identifier, is confined to a share, or has been already;
    /// the status with which it ends.
    pub(super) fn attached(
        &self,
        place: &Place,
        leader: &mut Guard,
        container: Option<&str>,
        share: Option<&str>,
        cell: &mut Cell,
    ) -> io::Result<i32> {
        let id = leader.id();
        let mut attach = |cell: &mut Cell| {
            let Some(share) = share else { return Ok(()) };
            let mut attach = self.huepage.command(["attach", "--quiet", "--share", share]);
            attach.args(self.with);
            match container {
                Some(id) => attach.args(["--container", id]),
                None => attach.arg(id.to_string()),
            };
            let end = bounded(&mut attach, LONGEST)?;
            cell.refused = (end.status != 0).then(|| end.err.trim_end().to_owned());
            Ok(())
        };
        let pids = || members(self, id, container.is_none());
        self.attend(place, cell, &pids, self.huepage, &mut attach)?;
        for pid in pids() {
            bounded(self.huepage.command(["detach"]).arg(pid.to_string()), LONGEST)?;
        }
        place.stop(leader)
    }

    fn service_by_daemon(&self, place: &Place, cell: &mut Cell) -> io::Result<i32> {
        let mut leader = place.start(&[])?;
        let (id, container) = (leader.id(), place.container()?);
        let who = match &container {
            Some(id) => format!("container = \"{id}\""),
            None => format!("pid = {id}"),
        };
        let world = World::new(self.huepage)?;
        let groups = format!("look = 0.1\n[[group]]\nname = \"one\"\n{who}\nshare = 4\n");
        world.write("declared", &groups)?;
        let daemon = world.start()?;
        let pids = || members(self, id, container.is_none());
        self.attend(place, cell, &pids, &world.huepage, &mut |_| Ok(()))?;
        cell.end_daemon(&world, daemon)?;
        cell.excused.extend(pids().into_iter().filter_map(|pid| refusal(&world.log(), pid)));
        place.stop(&mut leader)
    }

    /// Services of three users at the same time, each in the group of its user in one daemon.
    pub(super) fn three_users(&self) -> io::Result<Option<Cell>> {
        let services = USERS.map(|at| &SERVICES[at]);
        let mut running = Vec::new();
        for service in services {
            let Some(native) = self.native_service(service)? else { return Ok(None) };
            let place = Place::new(service)?;
            place.call("prepare", 0)?;
            let leader = place.start(&[])?;
            running.push((place, leader, native));
        }
        let group = |s: &&Service| {
            format!("[[group]]\nname = \"{0}\"\nuser = \"{0}\"\nshare = 4\n", s.whose)
        };
        let world = World::new(self.huepage)?;
        let groups: String = services.iter().map(group).collect();
        world.write("declared", &format!("look = 0.1\n{groups}"))?;
        let (daemon, mut cell) = (world.start()?, Cell::default());
        let loads = running.iter().map(|(place, ..)| place.load()).collect::<io::Result<_>>()?;
        let ids: Vec<u32> = running.iter().map(|(_, leader, _)| leader.id()).collect();
        let pids = || {
            let all = ids.iter().flat_map(|&id| members(self, id, true));
            all.filter(|&pid| !is_roots(pid)).collect()
        };
        Watch::attend(loads, &mut cell, &pids, &world.huepage);
        cell.end_daemon(&world, daemon)?;
        for (place, leader, native) in &mut running {
            let status = place.stop(leader)?;
            let other = place.differs(status, native);
            cell.troubles.extend(other.map(|what| format!("{}: {what}", place.whose)));
        }
        Ok(Some(cell))
    }
}

/// Whether a process is root's, as a master whose workers are others'.
fn is_roots(pid: u32) -> bool {
    let threads = rights::of(std::path::Path::new("/proc"), pid).unwrap_or_default();
    threads.iter().any(|thread| !thread.is_foreign() && thread.uids.first() == Some(&0))
}
