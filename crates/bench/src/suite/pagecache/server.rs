//! A PostgreSQL server of one's own in a scratch directory, and sessions whose server process
//! can be bound to a CPU and watched. Nothing of it stays.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Where Debian has the programs, by version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// Users that may run a server, the first that there is.
const USERS: [&str; 2] = ["postgres", "nobody"];
/// What `psql` says behind each answer.
const END: &str = "--end--";
/// Little memory of its own, so that the page cache serves it; no helpers, which would run on
/// other CPUs; nothing written in the background.
const SETTINGS: &str = "listen_addresses = ''\nshared_buffers = '16MB'\nwork_mem = '64MB'\n\
    max_parallel_workers_per_gather = 0\njit = off\nautovacuum = off\nfsync = off\n\
    bgwriter_delay = '10s'\ncheckpoint_timeout = '1h'\nmax_wal_size = '8GB'\n\
    wal_level = minimal\nmax_wal_senders = 0\nlogging_collector = off\n";

/// The directory of the newest server's programs, if there is one.
pub fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir(VERSIONS).ok()?.flatten();
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|entry| entry.path()).max_by_key(|path| number(path))?;
    let bin = newest.join("bin");
    bin.join("initdb").is_file().then_some(bin)
}

/// A running server; stopped when dropped.
#[derive(Debug)]
pub struct DatabaseServer {
    bin: PathBuf,
    data: PathBuf,
    user: (u32, u32),
    _dir: tempfile::TempDir,
}

impl DatabaseServer {
    /// Makes a cluster below `dir` and starts it. Takes some seconds.
    ///
    /// # Errors
    /// When there is no user to run it, or a program of PostgreSQL fails.
    pub fn start(bin: &Path, dir: &Path) -> io::Result<DatabaseServer> {
        let user = user().ok_or_else(|| io::Error::other("neither postgres nor nobody is here"))?;
        // The way to the cluster must be open to that user, which a build directory is not.
        let dir = tempfile::Builder::new().prefix("warm-join-").tempdir_in(dir)?;
        let data = dir.path().join("data");
        std::os::unix::fs::chown(dir.path(), Some(user.0), Some(user.1))?;
        let server = DatabaseServer { bin: bin.to_owned(), data, user, _dir: dir };
        let data = server.data.as_os_str();
        let options = ["-A", "trust", "-U", "bench", "--no-sync", "-E", "UTF8", "--locale=C"];
        server
            .tool("initdb", &[&[OsStr::new("-D"), data], &options.map(OsStr::new)[..]].concat())?;
        fs::write(server.data.join("postgresql.auto.conf"), SETTINGS)?;
        let sockets = format!("-k {}", server.data.display());
        let log = server.data.join("log");
        let log = [OsStr::new("-l"), log.as_os_str(), OsStr::new("-o"), OsStr::new(&sockets)];
        server.tool(
            "pg_ctl",
            &[&["-D".as_ref(), data, "-w".as_ref()], &log[..], &["start".as_ref()]].concat(),
        )?;
        Ok(server)
    }

    /// The directory of the tables.
    pub fn tables(&self) -> PathBuf {
        self.data.join("base")
    }

    fn tool(&self, name: &str, args: &[&OsStr]) -> io::Result<()> {
        let (uid, gid) = (format!("--reuid={}", self.user.0), format!("--regid={}", self.user.1));
        let mut command = Command::new("setpriv");
        command.args([uid.as_str(), gid.as_str(), "--clear-groups"]).arg(self.bin.join(name));
        command.args(args).current_dir("/").env("LC_ALL", "C");
        // A file and no pipe: the server keeps what pg_ctl had open.
        let said = tempfile::NamedTempFile::new()?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said.reopen()?);
        if command.status()?.success() {
            return Ok(());
        }
        let said = fs::read_to_string(said.path())?;
        Err(io::Error::other(format!("{name}: {}", said.lines().last().unwrap_or_default())))
    }

    /// Opens a session; bound to a CPU, if one is given.
    ///
    /// # Errors
    /// When the server refuses it.
    pub fn session(&self, cpu: Option<usize>) -> io::Result<DatabaseSession> {
        let mut psql = Command::new(self.bin.join("psql"));
        psql.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-U",
            "bench",
            "-d",
            "postgres",
            "-v",
            "ON_ERROR_STOP=1",
        ]);
        psql.arg("-h").arg(&self.data).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = psql.stderr(Stdio::inherit()).spawn()?;
        let none = || io::Error::other("psql has no pipes");
        let (stdin, out) = (child.stdin.take().ok_or_else(none)?, child.stdout.take());
        let out = BufReader::new(out.ok_or_else(none)?);
        let mut session = DatabaseSession { child, stdin, out, backend: 0 };
        let number = session.query("select pg_backend_pid();")?;
        session.backend = number.trim().parse().map_err(io::Error::other)?;
        if let Some(cpu) = cpu {
            let pid = session.backend.to_string();
            super::timed(Command::new("taskset").args(["-p", "-c", &cpu.to_string(), &pid]))?;
        }
        Ok(session)
    }
}

impl Drop for DatabaseServer {
    fn drop(&mut self) {
        let data = self.data.as_os_str();
        let args = ["-D".as_ref(), data, "-m".as_ref(), "immediate".as_ref(), "stop".as_ref()];
        let _ = self.tool("pg_ctl", &args);
    }
}

/// Number and group of the user for the server.
fn user() -> Option<(u32, u32)> {
    let text = fs::read_to_string("/etc/passwd").ok()?;
    let entry = |name: &&str| {
        let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut words = line.split(':').skip(2);
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    };
    USERS.iter().find_map(entry)
}

/// A session; its process of the server ends when it is dropped.
#[derive(Debug)]
pub struct DatabaseSession {
    child: Child,
    stdin: ChildStdin,
    out: BufReader<ChildStdout>,
    backend: u32,
}

impl DatabaseSession {
    /// Sends a query without waiting for its answer.
    ///
    /// # Errors
    /// When the session is gone.
    pub fn send(&mut self, sql: &str) -> io::Result<()> {
        writeln!(self.stdin, "{sql}\n\\echo {END}")?;
        self.stdin.flush()
    }

    /// The answer to the first query that was sent and not answered.
    ///
    /// # Errors
    /// When the session ends instead.
    pub fn answer(&mut self) -> io::Result<String> {
        let mut answer = String::new();
        loop {
            let mut line = String::new();
            if self.out.read_line(&mut line)? == 0 {
                return Err(io::Error::other("the session ended; see what psql said above"));
            }
            if line.trim() == END {
                return Ok(answer);
            }
            answer.push_str(&line);
        }
    }

    /// Sends a query and gives its answer.
    ///
    /// # Errors
    /// When the session ends instead.
    pub fn query(&mut self, sql: &str) -> io::Result<String> {
        self.send(sql)?;
        self.answer()
    }

    /// Runs a query; gives its wall time and the CPU time of the server's process, in seconds.
    ///
    /// # Errors
    /// When the session ends instead.
    pub fn timed(&mut self, sql: &str) -> io::Result<(f64, f64)> {
        let (cpu, started) = (self.cpu(), Instant::now());
        self.query(sql)?;
        Ok((started.elapsed().as_secs_f64(), (self.cpu() - cpu).as_secs_f64()))
    }

    /// CPU time of the server's process; nothing where the kernel does not tell.
    fn cpu(&self) -> Duration {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.backend));
        let nanos = text.ok().and_then(|t| t.split_ascii_whitespace().next()?.parse().ok());
        Duration::from_nanos(nanos.unwrap_or(0))
    }
}

impl Drop for DatabaseSession {
    fn drop(&mut self) {
        // The process of the server works on at its query until it is told.
        let _ = crate::sys::kill(self.backend, libc::SIGTERM);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
