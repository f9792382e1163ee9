//! The socket of a runtime: where it is, and the plugin's turns on it until one side ends. All waits have an end, or end
//! with a signal.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use super::service::{NriError, NriPlugin, NriTurn};
use crate::exit::CmdError;
use crate::partition::internal;
use crate::signals::Interrupt;

/// Longest that a runtime may take from a connection to the last call before containers: it serves one plugin after
/// another.
const REGISTRATION: Duration = Duration::from_secs(30);
/// Longest that it may take to read an answer.
const READING: Duration = Duration::from_secs(5);
/// Bytes read at once.
const AT_ONCE: usize = 1 << 16;

/// Why a connection is over.
#[derive(Debug)]
pub enum ConnectionEnd {
    /// A signal asked for the end of the plugin.
    Signal,
    /// The runtime ended it, or does not answer: in words.
    Lost(String),
    /// The runtime says what nobody understands, or does not want the plugin.
    Failed(NriError),
}

impl From<io::Error> for ConnectionEnd {
    fn from(error: io::Error) -> ConnectionEnd {
        ConnectionEnd::Lost(format!("the connection to the runtime: {error}"))
    }
}

/// What somebody waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// A signal.
    Signal,
    /// There is something to read.
    Data,
    /// The time is over.
    Late,
}

/// Waits for a signal, for something to read, or for the time to be over.
pub fn wait(
    interrupt: &Interrupt,
    stream: Option<&UnixStream>,
    most: Option<Duration>,
) -> Result<Woken, CmdError> {
    let signals = interrupt.fd();
    let readable = stream.map(|stream| PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN));
    let mut fds: Vec<PollFd<'_>> = readable.into_iter().collect();
    fds.push(PollFd::from_borrowed_fd(signals, PollFlags::IN));
    let end = most.map(|most| Instant::now() + most);
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let left = left.map(Timespec::try_from).transpose().map_err(internal)?;
        match poll(&mut fds, left.as_ref()) {
            Ok(0) => return Ok(Woken::Late),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(internal(error)),
        }
        if interrupt.signal().is_some() {
            return Ok(Woken::Signal);
        }
        if stream.is_some() && !fds[0].revents().is_empty() {
            return Ok(Woken::Data);
        }
    }
}

/// The plugin's turns on a connection, until it is over.
pub fn serve(
    plugin: &mut NriPlugin,
    mut stream: &UnixStream,
    interrupt: &Interrupt,
) -> Result<ConnectionEnd, CmdError> {
    let (start, mut buffer) = (Instant::now(), vec![0; AT_ONCE]);
    stream.set_write_timeout(Some(READING)).map_err(internal)?;
    let mut turn = NriTurn { answers: plugin.greeting(), said: Vec::new() };
    loop {
        // Answers first: the runtime waits for them.
        if let Err(error) = stream.write_all(&turn.answers) {
            return Ok(error.into());
        }
        turn.said.iter().for_each(|line| say(line));
        let left = REGISTRATION.saturating_sub(start.elapsed());
        match wait(interrupt, Some(stream), (!plugin.is_ready()).then_some(left))? {
            Woken::Signal => return Ok(ConnectionEnd::Signal),
            Woken::Late => return Ok(io::Error::from(io::ErrorKind::TimedOut).into()),
            Woken::Data => {}
        }
        match next_turn(plugin, stream, &mut buffer) {
            Ok(next) => turn = next,
            Err(end) => return Ok(end),
        }
    }
}

fn next_turn(
    plugin: &mut NriPlugin,
    mut stream: &UnixStream,
    buffer: &mut [u8],
) -> Result<NriTurn, ConnectionEnd> {
    match stream.read(buffer)? {
        0 => Err(ConnectionEnd::Lost("the runtime closed the connection".to_owned())),
        length => plugin.take(&buffer[..length]).map_err(ConnectionEnd::Failed),
    }
}

/// Tells people a line. That nobody reads it is no reason to end.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "huepage: {line}");
}

/// The connection of a descriptor that this process was started with.
///
/// # Errors
/// If it is none, or no socket.
pub fn inherited(number: &str) -> io::Result<UnixStream> {
    let number: i32 = number.trim().parse().map_err(io::Error::other)?;
    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    let stream = UnixStream::from(pidfd_getfd(own, number, PidfdGetfdFlags::empty())?);
    stream.local_addr()?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}
