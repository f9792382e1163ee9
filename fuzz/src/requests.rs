//! Control requests of the supervisor and of the daemon, through a real socket: lines cut anywhere, lines
//! without end, and what they say.

use std::io::Write as _;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

use huepage::fuzz_entry;
use huepage_linux::control::socket::{ControlServer, SupervisorRequest};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes that a socket takes at once: longer input is given in parts.
const PART: usize = 4096;

/// Requests of both kinds.
pub fn requests(bytes: &[u8]) {
    let dir = tempfile::tempdir().expect("a directory");
    ask::<SupervisorRequest>(bytes, &dir.path().join("supervisor"));
    ask::<fuzz_entry::DaemonRequest>(bytes, &dir.path().join("daemon"));
    fuzz_entry::daemon_answers(bytes);
}

/// Sends the bytes; what is understood must mean the same when it is written and read again.
fn ask<R: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(bytes: &[u8], path: &Path) {
    let mut server = ControlServer::<R>::bind(path).expect("a socket");
    let mut client = UnixStream::connect(path).expect("somebody listens");
    client.set_nonblocking(true).expect("a socket");
    for part in bytes.chunks(PART) {
        if client.write_all(part).is_err() {
            break;
        }
        answer(&mut server);
    }
    let _ = client.shutdown(Shutdown::Write);
    answer(&mut server);
}

fn answer<R: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(
    server: &mut ControlServer<R>,
) {
    for (request, responder) in server.poll_requests() {
        let text = serde_json::to_vec(&request).expect("requests are JSON");
        assert_eq!(serde_json::from_slice::<R>(&text).ok(), Some(request));
        responder.fail(1, "no\nmore");
    }
}
