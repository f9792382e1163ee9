//! redis with a heap of small values: filled by a script inside the server, read at random by
//! redis-benchmark over a socket of its own, and thinned out by deleting nine of ten. It keeps
//! nothing on disk, and its own switch against large pages (`disable-thp`) is off.
//!
//! Values are deleted in runs of a thousand, as those that expire together: page after page then
//! becomes free between survivors. Single values deleted at random would leave every page in use.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::memory::MemoryUse;
use super::run::{ProgramSample, ProgramSizes};
use super::target::{LargePages, SuperpageCounts, SuperpageTarget};
use super::{SuperpageBench, missing};
use crate::launch::{go_on, succeeds};
use crate::superpages::pace::steady;

/// Bytes of memory for a value of 64, with its key and all that redis adds, about.
const BYTES: usize = 170;
/// Values that one script makes or deletes.
const BITE: usize = 500_000;
/// Requests of one run of redis-benchmark, when only speed is wanted.
const REQUESTS: usize = 200_000;
/// A call that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(300);

const FILL: &str = "local value = string.rep('x', 64) for i = ARGV[1], ARGV[2] - 1 do \
                    redis.call('SET', string.format('key:%012d', i), value) end";
const DELETE: &str = "for i = ARGV[1], ARGV[2] - 1 do if math.floor(i / 1000) % 10 ~= 0 then \
                      redis.call('DEL', string.format('key:%012d', i)) end end";

/// What is missing; `None` if nothing is.
pub fn obstacle() -> Option<String> {
    let tools = [
        ("redis-server", "redis-server"),
        ("redis-benchmark", "redis-tools"),
        ("redis-cli", "redis-tools"),
    ];
    missing(&tools)
}

/// A server with values.
#[derive(Debug)]
pub struct RedisServer<'a> {
    target: SuperpageTarget<'a>,
    socket: PathBuf,
    /// Gone when dropped.
    _files: tempfile::TempDir,
    keys: usize,
    /// The server's process.
    pub pid: u32,
}

impl<'a> RedisServer<'a> {
    /// Starts one and fills it.
    ///
    /// # Errors
    /// When it, or huepage, fails.
    pub fn start(
        bench: SuperpageBench<'a>,
        variant: LargePages,
        mib: usize,
    ) -> io::Result<RedisServer<'a>> {
        // Paths of sockets are short.
        let files = tempfile::tempdir()?;
        let socket = files.path().join("socket");
        let target = SuperpageTarget::start(bench, variant, &command(files.path(), &socket))?;
        let keys = ((mib << 20) / BYTES).max(1000);
        let mut server = RedisServer { target, socket, _files: files, keys, pid: 0 };
        server.pid = server.wait()?;
        // The last values come when khugepaged may work: it learns of a process by its growth.
        let most = keys / 100 * 98;
        server.script(FILL, 0, most)?;
        server.target.ready(server.pid)?;
        server.script(FILL, most, keys)?;
        Ok(server)
    }

    /// Waits until it answers; its process.
    fn wait(&mut self) -> io::Result<u32> {
        for _ in 0..600 {
            go_on()?;
            if !self.target.talk.guard.alive() {
                break;
            }
            if let Some(pid) = self.cli(&["INFO", "server"]).ok().and_then(|text| process(&text)) {
                return Ok(pid);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(io::Error::other("redis-server does not answer"))
    }

    /// redis-cli with arguments; what it printed.
    ///
    /// # Errors
    /// When it fails.
    pub fn cli(&self, args: &[&str]) -> io::Result<String> {
        let mut command = Command::new("redis-cli");
        let command = command.arg("-s").arg(&self.socket).arg("-e").args(args);
        succeeds(command, PATIENCE).map(|end| end.text())
    }

    fn script(&self, script: &str, from: usize, to: usize) -> io::Result<()> {
        for start in (from..to).step_by(BITE) {
            go_on()?;
            let end = (start + BITE).min(to);
            self.cli(&["EVAL", script, "0", &start.to_string(), &end.to_string()])?;
        }
        Ok(())
    }

    /// Deletes nine of ten values and has their memory given back.
    fn delete(&self) -> io::Result<()> {
        self.script(DELETE, 0, self.keys)?;
        self.cli(&["MEMORY", "PURGE"]).map(|_| ())
    }

    /// redis-benchmark with random reads.
    ///
    /// # Errors
    /// When it fails.
    pub fn read(&self, requests: usize, options: &[&str]) -> io::Result<String> {
        let mut command = Command::new("redis-benchmark");
        command.arg("-s").arg(&self.socket).args(["-c", "32", "-n", &requests.to_string()]);
        command.args(["-r", &self.keys.to_string()]).args(options);
        succeeds(command.args(["GET", "key:__rand_int__"]), PATIENCE).map(|end| end.text())
    }

    /// Random reads for some time; requests per second in the last third.
    fn speed(&self, seconds: f64) -> io::Result<f64> {
        let (started, mut rates) = (Instant::now(), Vec::new());
        while rates.is_empty() || started.elapsed().as_secs_f64() < seconds {
            go_on()?;
            let text = self.read(REQUESTS, &["-P", "16", "--csv"])?;
            rates.push(rate(&text).ok_or_else(|| io::Error::other(text))?);
        }
        Ok(steady(&rates))
    }

    /// Its memory.
    ///
    /// # Errors
    /// When it is gone.
    pub fn memory(&self) -> io::Result<MemoryUse> {
        MemoryUse::of(self.pid)
    }

    /// Ends it; what huepage reported.
    ///
    /// # Errors
    /// When it fails.
    pub fn end(self) -> io::Result<Option<SuperpageCounts>> {
        // The answer is that the connection is closed.
        let _ = self.cli(&["SHUTDOWN", "NOSAVE"]);
        self.target.end()
    }
}

fn command(dir: &Path, socket: &Path) -> Command {
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--unixsocket"]).arg(socket).arg("--dir").arg(dir);
    command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]);
    command.args(["--disable-thp", "no", "--loglevel", "warning"]);
    command
}

fn process(info: &str) -> Option<u32> {
    info.lines().find_map(|line| line.strip_prefix("process_id:"))?.trim().parse().ok()
}

/// Requests per second, of redis-benchmark's CSV.
fn rate(csv: &str) -> Option<f64> {
    let line = csv.lines().rfind(|line| line.starts_with('"'))?;
    line.split(',').nth(1)?.trim_matches('"').parse().ok()
}

/// The latency that so many per cent of the requests were at most, in milliseconds: the first
/// one of redis-benchmark's list that is there for so many or more.
pub fn percentile(text: &str, percent: f64) -> Option<f64> {
    let (_, list) = text.split_once("Latency by percentile distribution:")?;
    list.lines().find_map(|line| {
        let (share, rest) = line.trim().split_once("% <= ")?;
        let enough = share.parse::<f64>().ok()? >= percent;
        enough.then(|| rest.split_once(' ')?.0.parse().ok())?
    })
}

/// One run: filled, thinned out if wished, read.
///
/// # Errors
/// When anything fails.
pub fn run(
    bench: SuperpageBench<'_>,
    variant: LargePages,
    sizes: &ProgramSizes,
    deleted: bool,
) -> io::Result<ProgramSample> {
    let server = RedisServer::start(bench, variant, sizes.redis_mib)?;
    if deleted {
        server.delete()?;
    }
    let speed = server.speed(sizes.seconds)?;
    let memory = Some(server.memory()?);
    Ok(ProgramSample { speed, memory, superpages: server.end()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\"\n\
                    \"GET key:__rand_int__\",\"169395.81\",\"2.885\"\n";
        assert_eq!(rate(text), Some(169_395.81));
        assert_eq!(rate("WARNING: nothing\n"), None);
        assert_eq!(process("# Server\r\nprocess_id:4711\r\n"), Some(4711));
    }

    #[test]
    fn percentiles_are_read() {
        let text = "GET: rps=0.0\n  100 requests completed\n99.990% <= 77 milliseconds\n\
                    Latency by percentile distribution:\n\
                    99.805% <= 5.959 milliseconds (cumulative count 99806)\n\
                    99.902% <= 6.143 milliseconds (cumulative count 99904)\n\
                    100.000% <= 12.807 milliseconds (cumulative count 100000)\n";
        assert_eq!(percentile(text, 99.9), Some(6.143));
        assert_eq!(percentile(text, 99.95), Some(12.807));
        assert_eq!(percentile("nothing", 99.9), None);
    }
}
