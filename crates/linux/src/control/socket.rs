//! How commands talk to a running supervisor: one JSON object per line over a Unix socket.
//!
//! The server never blocks: it lives in the supervisor's event loop, which polls the
//! descriptors it names. It neither decides nor executes requests, it hands them on with a
//! [`Responder`]. Who may connect is a matter of the socket's directory (see `registry`).

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Longest request in bytes; a client that sends more is cut off.
const MAX_REQUEST: usize = 64 << 10;
/// Most clients at once; further ones are turned away until one leaves.
const MAX_CLIENTS: usize = 32;
/// Code of answers that the server itself gives: a request it cannot read, or dropped.
pub const CODE_PROTOCOL: i32 = 125;

/// Why a supervisor could not be asked, or what it refused.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody listens.
    #[error("no supervisor answers at {}: it has ended; run `huepage attach` to confine the process again", .0.display())]
    Absent(PathBuf),
    /// The socket is another user's.
    #[error("not allowed to talk to {}: run huepage as root", .0.display())]
    Denied(PathBuf),
    /// No answer in time.
    #[error("the supervisor did not answer within {} ms: it is busy, try again", .0.as_millis())]
    Timeout(Duration),
    /// The supervisor refused; the text is its own.
    #[error("{message}")]
    Refused {
        /// What went wrong and what to do.
        message: String,
        /// Exit status that the asking command should end with.
        code: i32,
    },
    /// The answer is not one.
    #[error(
        "the supervisor's answer makes no sense ({0}): use the same version of huepage for both"
    )]
    Garbled(String),
    /// The socket failed.
    #[error("cannot use the control socket {}: {source}; try again", .path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// What can be asked of a supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum SupervisorRequest {
    /// Where the pages of a process are.
    Status {
        /// The process.
        pid: i32,
    },
    /// Release a process.
    Detach {
        /// The process.
        pid: i32,
    },
    /// Is anybody there?
    Ping,
    /// Take a process into the group.
    Take {
        /// The process.
        pid: i32,
    },
    /// Release everybody and end.
    Dissolve,
}

/// The other direction.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    ok: bool,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    data: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<i32>,
}

impl Answer {
    fn done(data: Value) -> Answer {
        Answer { ok: true, data, error: None, code: None }
    }

    fn refused(code: i32, message: &str) -> Answer {
        let error = Some(message.replace('\n', " "));
        Answer { ok: false, data: Value::Null, error, code: Some(code) }
    }

    fn line(&self) -> Vec<u8> {
        // Answers hold only strings, numbers and values that are JSON already.
        let mut line = serde_json::to_vec(self).unwrap_or_else(|_| b"{\"ok\":false}".to_vec());
        line.push(b'\n');
        line
    }
}

/// One client: what it sent that is not yet a line, and what it has not yet taken.
#[derive(Debug)]
struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Requests handed out and not answered.
    open: usize,
    /// Nothing more will come from the client.
    ended: bool,
}

impl Client {
    fn new(stream: UnixStream) -> io::Result<Client> {
        stream.set_nonblocking(true)?;
        Ok(Client { stream, input: Vec::new(), output: Vec::new(), open: 0, ended: false })
    }

    /// Takes in what has arrived.
    fn receive(&mut self) {
        let mut chunk = [0u8; 4096];
        while !self.ended && self.input.len() <= MAX_REQUEST {
            match self.stream.read(&mut chunk) {
                Ok(0) => self.ended = true,
                Ok(n) => self.input.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.ended = true,
            }
        }
    }

    fn next_line(&mut self) -> Option<Vec<u8>> {
        if let Some(end) = self.input.iter().position(|&b| b == b'\n') {
            return Some(self.input.drain(..=end).collect());
        }
        if self.input.len() > MAX_REQUEST {
            self.input.clear();
            self.ended = true;
            self.send(&Answer::refused(CODE_PROTOCOL, "request too long: send one short line"));
        }
        None
    }

    fn send(&mut self, answer: &Answer) {
        self.output.extend(answer.line());
        self.flush();
    }

    /// Gives the client what it will take now; a client that is gone loses the rest.
    fn flush(&mut self) {
        while !self.output.is_empty() {
            match send_quietly(&self.stream, &self.output) {
                Ok(n) => drop(self.output.drain(..n)),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.output.clear();
                    self.ended = true;
                }
            }
        }
    }

    fn is_finished(&self) -> bool {
        self.ended && self.open == 0 && self.output.is_empty()
    }

    fn interest(&self) -> i16 {
        let read = if self.ended { 0 } else { libc::POLLIN };
        let write = if self.output.is_empty() { 0 } else { libc::POLLOUT };
        read | write
    }
}

/// write(2) that answers EPIPE with an error instead of a signal.
fn send_quietly(stream: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(stream, bytes, rustix::net::SendFlags::NOSIGNAL)?)
}

type Shared = Arc<Mutex<Client>>;

fn lock(client: &Shared) -> MutexGuard<'_, Client> {
    client.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right and the duty to answer one request; it may be moved to another thread.
/// Dropped without an answer, it tells the client so.
#[derive(Debug)]
pub struct Responder {
    client: Shared,
    answered: bool,
}

impl Responder {
    /// The request was carried out.
    pub fn ok(mut self, data: Value) {
        self.answer(&Answer::done(data));
    }

    /// The request was refused. `message` is one line that says what to do; `code` is the
    /// exit status for the asking command.
    pub fn fail(mut self, code: i32, message: &str) {
        self.answer(&Answer::refused(code, message));
    }

    fn answer(&mut self, answer: &Answer) {
        let mut client = lock(&self.client);
        client.open -= 1;
        client.send(answer);
        self.answered = true;
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.answered {
            let text = "the supervisor gave up on the request: try again";
            self.answer(&Answer::refused(CODE_PROTOCOL, text));
        }
    }
}

/// The listening side, for an event loop of one thread: of a supervisor, or of whatever else understands
/// requests of its own.
#[derive(Debug)]
pub struct ControlServer<R = SupervisorRequest> {
    listener: UnixListener,
    clients: Vec<Shared>,
    path: PathBuf,
    owner: u32,
    requests: PhantomData<fn() -> R>,
}

impl<R: DeserializeOwned> ControlServer<R> {
    /// Listens at `path` (at most 107 bytes), replacing what a dead supervisor left there.
    pub fn bind(path: &Path) -> Result<ControlServer<R>, ControlError> {
        let fault = |source| ControlError::Io { path: path.to_owned(), source };
        match fs::remove_file(path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(fault(e)),
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(fault)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(fault)?;
        listener.set_nonblocking(true).map_err(fault)?;
        let owner = std::process::id();
        let (path, requests) = (path.to_owned(), PhantomData);
        Ok(ControlServer { listener, clients: Vec::new(), path, owner, requests })
    }

    /// The descriptors to poll(2) and the events to poll them for. It changes with every
    /// client; ask again before each poll.
    pub fn poll_set(&self) -> Vec<(RawFd, i16)> {
        let listener = (self.listener.as_raw_fd(), libc::POLLIN);
        let client = |c: &Shared| {
            let client = lock(c);
            (client.stream.as_raw_fd(), client.interest())
        };
        let waiting = self.clients.iter().map(client).filter(|(_, events)| *events != 0);
        std::iter::once(listener).chain(waiting).collect()
    }

    /// Accepts clients, sends what is left to send, and returns the requests that have come.
    /// Never blocks; call it when poll(2) reports any of [`ControlServer::poll_set`].
    pub fn poll_requests(&mut self) -> Vec<(R, Responder)> {
        self.accept();
        let mut requests = Vec::new();
        for client in &self.clients {
            lock(client).flush();
            lock(client).receive();
            while let Some(line) = next_line(client) {
                requests.extend(understand(client, &line));
            }
        }
        self.clients.retain(|client| !lock(client).is_finished());
        requests
    }

    fn accept(&mut self) {
        // Errors other than "nobody waits" (a client gone again, no descriptors left) are
        // left to the next round as well.
        while let Ok((stream, _)) = self.listener.accept() {
            if self.clients.len() < MAX_CLIENTS {
                self.clients.extend(Client::new(stream).map(|c| Arc::new(Mutex::new(c))));
            }
        }
    }
}

impl<R> Drop for ControlServer<R> {
    fn drop(&mut self) {
        if self.owner == std::process::id() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn next_line(client: &Shared) -> Option<Vec<u8>> {
    lock(client).next_line()
}

/// A request with its responder; what cannot be read is answered at once.
fn understand<R: DeserializeOwned>(client: &Shared, line: &[u8]) -> Option<(R, Responder)> {
    match serde_json::from_slice(line) {
        Ok(request) => {
            lock(client).open += 1;
            Some((request, Responder { client: client.clone(), answered: false }))
        }
        Err(e) => {
            let text = format!("not a request ({e}): use the same version of huepage for both");
            lock(client).send(&Answer::refused(CODE_PROTOCOL, &text));
            None
        }
    }
}

/// Asks the supervisor at `path` and waits up to `timeout` for its answer.
pub fn call<R: Serialize>(
    path: &Path,
    request: &R,
    timeout: Duration,
) -> Result<Value, ControlError> {
    let fault = |e| connection_error(path, timeout, e);
    let stream = UnixStream::connect(path).map_err(fault)?;
    stream.set_write_timeout(Some(timeout.max(Duration::from_millis(1)))).map_err(fault)?;
    let mut line = serde_json::to_vec(request).map_err(|e| ControlError::Garbled(e.to_string()))?;
    line.push(b'\n');
    let mut rest = line.as_slice();
    while !rest.is_empty() {
        let sent = send_quietly(&stream, rest).map_err(fault)?;
        rest = &rest[sent..];
    }
    let answer = read_line(&stream, timeout).map_err(fault)?;
    interpret(&answer)
}

fn read_line(mut stream: &UnixStream, timeout: Duration) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + timeout;
    let (mut line, mut chunk) = (Vec::new(), [0u8; 16 << 10]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(line),
            Ok(n) => line.extend_from_slice(&chunk[..n]),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        if line.ends_with(b"\n") {
            return Ok(line);
        }
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
    }
}

fn interpret(line: &[u8]) -> Result<Value, ControlError> {
    if line.is_empty() {
        return Err(ControlError::Garbled("it hung up".to_owned()));
    }
    let answer: Answer =
        serde_json::from_slice(line).map_err(|e| ControlError::Garbled(e.to_string()))?;
    if answer.ok {
        return Ok(answer.data);
    }
    let message = answer.error.unwrap_or_else(|| "refused without a reason: try again".to_owned());
    Err(ControlError::Refused { message, code: answer.code.unwrap_or(CODE_PROTOCOL) })
}

fn connection_error(path: &Path, timeout: Duration, source: io::Error) -> ControlError {
    let path = path.to_owned();
    match source.kind() {
        ErrorKind::NotFound
        | ErrorKind::ConnectionRefused
        | ErrorKind::ConnectionReset
        | ErrorKind::BrokenPipe => ControlError::Absent(path),
        ErrorKind::PermissionDenied => ControlError::Denied(path),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => ControlError::Timeout(timeout),
        _ => ControlError::Io { path, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::Write;
    use std::thread;

    const SECOND: Duration = Duration::from_secs(5);

    fn server() -> (tempfile::TempDir, ControlServer) {
        let dir = tempfile::tempdir().expect("temporary directory");
        let server = ControlServer::bind(&dir.path().join("1.sock")).expect("bound");
        (dir, server)
    }

    /// Polls as an event loop does until `handle` has seen `n` requests.
    fn serve(
        server: &mut ControlServer,
        n: usize,
        mut handle: impl FnMut(SupervisorRequest, Responder),
    ) {
        let (mut seen, deadline) = (0, Instant::now() + SECOND);
        while seen < n {
            assert!(Instant::now() < deadline, "{seen} of {n} requests came");
            wait(server);
            for (request, responder) in server.poll_requests() {
                seen += 1;
                handle(request, responder);
            }
        }
    }

    fn wait(server: &ControlServer) {
        let entry = |(fd, events)| libc::pollfd { fd, events, revents: 0 };
        let mut set: Vec<libc::pollfd> = server.poll_set().into_iter().map(entry).collect();
        let n = libc::nfds_t::try_from(set.len()).expect("few");
        // SAFETY: `set` holds `n` entries and lives over the call.
        let ready = unsafe { libc::poll(set.as_mut_ptr(), n, 50) };
        assert!(ready >= 0);
    }

    fn ask(
        server: &ControlServer,
        request: SupervisorRequest,
    ) -> thread::JoinHandle<Result<Value, ControlError>> {
        let path = server.path.clone();
        thread::spawn(move || call(&path, &request, SECOND))
    }

    #[test]
    fn requests_are_written_as_documented() {
        let text = |r: SupervisorRequest| serde_json::to_string(&r).expect("serialised");
        assert_eq!(text(SupervisorRequest::Ping), r#"{"op":"ping"}"#);
        assert_eq!(text(SupervisorRequest::Status { pid: 4 }), r#"{"op":"status","pid":4}"#);
        let detach: SupervisorRequest =
            serde_json::from_str(r#"{"op":"detach","pid":7}"#).expect("valid");
        assert_eq!(detach, SupervisorRequest::Detach { pid: 7 });
    }

    #[test]
    fn answers_reach_the_asker() {
        let (_dir, mut server) = server();
        let asked = ask(&server, SupervisorRequest::Status { pid: 12 });
        serve(&mut server, 1, |request, responder| {
            assert_eq!(request, SupervisorRequest::Status { pid: 12 });
            responder.ok(json!({"resident": 5}));
        });
        assert_eq!(asked.join().expect("ran").expect("answered"), json!({"resident": 5}));
    }

    #[test]
    fn refusals_carry_text_and_code() {
        let (_dir, mut server) = server();
        let asked = ask(&server, SupervisorRequest::Detach { pid: 12 });
        serve(&mut server, 1, |_, responder| responder.fail(111, "not here:\ntry there"));
        match asked.join().expect("ran") {
            Err(ControlError::Refused { message, code }) => {
                assert_eq!((message.as_str(), code), ("not here: try there", 111));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_forgotten_request_is_answered_too() {
        let (_dir, mut server) = server();
        let asked = ask(&server, SupervisorRequest::Ping);
        serve(&mut server, 1, |_, responder| drop(responder));
        let result = asked.join().expect("ran");
        assert!(matches!(result, Err(ControlError::Refused { code: CODE_PROTOCOL, .. })));
    }

    #[test]
    fn long_answers_arrive_whole_and_do_not_block_the_server() {
        let (_dir, mut server) = server();
        let text = "x".repeat(4 << 20);
        let asked = ask(&server, SupervisorRequest::Ping);
        serve(&mut server, 1, |_, responder| responder.ok(json!(text)));
        while !asked.is_finished() {
            wait(&server);
            assert!(server.poll_requests().is_empty());
        }
        assert_eq!(asked.join().expect("ran").expect("answered"), json!(text));
    }

    #[test]
    fn an_answer_from_another_thread_arrives() {
        let (_dir, mut server) = server();
        let asked = ask(&server, SupervisorRequest::Detach { pid: 1 });
        let mut worker = None;
        serve(&mut server, 1, |_, responder| {
            worker = Some(thread::spawn(move || responder.ok(json!(2))));
        });
        worker.expect("started").join().expect("ran");
        assert_eq!(asked.join().expect("ran").expect("answered"), json!(2));
    }

    #[test]
    fn several_requests_on_one_connection_in_pieces() {
        let (_dir, mut server) = server();
        let mut stream = UnixStream::connect(&server.path).expect("connected");
        stream.write_all(b"{\"op\":\"ping\"}\n{\"op\":").expect("sent");
        serve(&mut server, 1, |_, responder| responder.ok(json!(1)));
        stream.write_all(b"\"ping\"}\nnonsense\n").expect("sent");
        serve(&mut server, 1, |_, responder| responder.ok(json!(2)));
        stream.shutdown(std::net::Shutdown::Write).expect("shut down");
        while !server.clients.is_empty() {
            wait(&server);
            assert!(server.poll_requests().is_empty());
        }
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("read");
        let lines: Vec<Answer> =
            text.lines().map(|l| serde_json::from_str(l).expect("an answer")).collect();
        assert_eq!(lines.iter().map(|a| a.ok).collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn endless_requests_are_cut_off() {
        let (_dir, mut server) = server();
        let path = server.path.clone();
        let flood = thread::spawn(move || {
            let mut stream = UnixStream::connect(path).expect("connected");
            let _ = stream.write_all(&vec![b'x'; 4 * MAX_REQUEST]);
        });
        let deadline = Instant::now() + SECOND;
        while !(flood.is_finished() && server.clients.is_empty()) {
            assert!(Instant::now() < deadline);
            wait(&server);
            assert!(server.poll_requests().is_empty());
        }
        flood.join().expect("ran");
    }

    #[test]
    fn nobody_there_is_said_so() {
        let (dir, server) = server();
        let path = server.path.clone();
        drop(server);
        assert!(!path.exists());
        let absent = call(&path, &SupervisorRequest::Ping, SECOND);
        assert!(matches!(absent, Err(ControlError::Absent(_))));
        let stale = dir.path().join("2.sock");
        drop(UnixListener::bind(&stale).expect("bound"));
        assert!(matches!(
            call(&stale, &SupervisorRequest::Ping, SECOND),
            Err(ControlError::Absent(_))
        ));
        drop(ControlServer::<SupervisorRequest>::bind(&stale).expect("a stale socket is replaced"));
    }

    #[test]
    fn silence_times_out() {
        let (_dir, server) = server();
        let result = call(&server.path, &SupervisorRequest::Ping, Duration::from_millis(20));
        assert!(matches!(result, Err(ControlError::Timeout(_))));
    }
}
