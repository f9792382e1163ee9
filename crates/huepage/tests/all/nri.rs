//! `huepage nri` before a runtime that this test is: over a socket, with messages that are put together here from the
//! protocol's definition; and the bytes of a real containerd.

use crate::common::{self, HUEPAGE, Killed};

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use huepage::fuzz_entry;
use rustix::process::{Pid, Signal, kill_process};

/// What containerd 1.7.24 of Debian 13 sent to the plugin: one byte for the fuzzer, then registration, configuration,
/// what is there, containers without a share, with one of its own, with one of its pod, and with one that is none.
const CONTAINERD: &[u8] = include_bytes!("../../../../fuzz/seeds/nri/containerd-1.7");

const PLUGIN: &str = "nri.pkg.api.v1alpha1.Plugin";
const SHARE: &str = "org.huepage.share";

/// A field with a length; messages here are short, or in parts.
fn field(number: u8, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    let [low, high] = u16::try_from(bytes.len()).unwrap().to_le_bytes();
    assert!(high < 0x40);
    let length = [low | 0x80, high << 1 | low >> 7];
    [&[number << 3 | 2], &length[..], bytes].concat()
}

fn frame(lane: u8, call: u8, kind: u8, data: &[u8]) -> Vec<u8> {
    let number = |number: usize| u32::try_from(number).unwrap().to_be_bytes();
    let ttrpc = [&number(data.len()), &[0, 0, 0, call, kind, 0][..], data].concat();
    [&[0, 0, 0, lane], &number(ttrpc.len())[..], &ttrpc].concat()
}

fn call(number: u8, method: &str, payload: &[u8]) -> Vec<u8> {
    let call = [field(1, PLUGIN), field(2, method), field(3, payload)].concat();
    frame(1, number, 1, &call)
}

fn container(number: u8, annotations: &[(&str, &str)]) -> Vec<u8> {
    let pair = |(key, value): &(&str, &str)| field(6, [field(1, key), field(2, value)].concat());
    let own: Vec<u8> = annotations.iter().flat_map(pair).collect();
    let pod = field(1, field(2, "shop"));
    let container = field(2, [field(1, "0123"), field(3, "web"), own].concat());
    call(number, "CreateContainer", &[pod, container].concat())
}

/// A runtime with the plugin on its socket.
struct Runtime {
    listener: UnixListener,
    stream: UnixStream,
    plugin: Killed,
    said: BufReader<ChildStderr>,
    _dir: tempfile::TempDir,
}

impl Runtime {
    fn start(options: &[&str]) -> Runtime {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nri.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let mut plugin = nri(&path, options);
        let said = BufReader::new(plugin.stderr.take().unwrap());
        let stream = accepted(&listener);
        Runtime { listener, stream, plugin: Killed(plugin), said, _dir: dir }
    }

    /// Sends bytes, in two parts, and gives the message of the answer.
    fn ask(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (one, other) = bytes.split_at(bytes.len() / 2);
        self.stream.write_all(one).unwrap();
        self.stream.write_all(other).unwrap();
        let (lane, kind, data) = received(&mut self.stream);
        assert_eq!((lane, kind), (1, 2));
        data
    }

    /// Registers, configures and synchronises the plugin.
    fn register(&mut self) {
        let (lane, kind, data) = received(&mut self.stream);
        let name = b"\x1a\x0d\x0a\x07huepage\x12\x0210";
        assert!((lane, kind) == (2, 1) && data.windows(15).any(|part| part == name), "{data:?}");
        self.stream.write_all(&frame(2, 1, 2, b"")).unwrap();
        let identity = [field(2, "test"), field(3, "1.0")].concat();
        assert_eq!(self.ask(&call(1, "Configure", &identity)), b"\x12\x02\x10\x08");
        let pods: Vec<u8> = (0..300).flat_map(|_| field(1, field(2, "a pod"))).collect();
        let part = [pods, vec![0x18, 1]].concat();
        assert_eq!(self.ask(&call(3, "Synchronize", &part)), b"\x12\x02\x10\x01");
        assert_eq!(self.ask(&call(5, "Synchronize", b"")), b"\x12\0");
        assert_eq!(self.line(), "huepage: registered with test 1.0 as 10-huepage");
    }

    /// The next line that the plugin says.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// What it says up to its end, and its status.
    fn end(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.said.read_to_string(&mut said).unwrap();
        (self.plugin.0.wait().unwrap().code(), said)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.plugin.0), signal).unwrap();
    }
}

fn nri(path: &Path, options: &[&str]) -> Child {
    let mut command = Command::new(HUEPAGE);
    command.args(["nri", "--socket"]).arg(path).args(options);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

fn accepted(listener: &UnixListener) -> UnixStream {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(common::HANGS)).unwrap();
    stream
}

/// The next message: its connection, its kind and itself.
fn received(stream: &mut UnixStream) -> (u8, u8, Vec<u8>) {
    let mut head = [0; 18];
    stream.read_exact(&mut head).unwrap();
    let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
    assert_eq!(number(4), number(8) + 10, "a message in one part");
    let mut data = vec![0; usize::try_from(number(8)).unwrap()];
    stream.read_exact(&mut data).unwrap();
    (head[3], head[16], data)
}

/// The adjustment for a share: the annotation, and the hook with its path and words.
fn adjusted(share: &str, options: &[&str]) -> Vec<u8> {
    let short = |number: u8, bytes: &[u8]| {
        let length = u8::try_from(bytes.len()).unwrap();
        let head = if length < 0x80 {
            vec![number << 3 | 2, length]
        } else {
            vec![number << 3 | 2, length, 1]
        };
        [&head, bytes].concat()
    };
    let annotation = [short(1, SHARE.as_bytes()), short(2, share.as_bytes())].concat();
    let path = fs::canonicalize(HUEPAGE).unwrap();
    let words = ["huepage", "oci-hook"].iter().chain(options);
    let words: Vec<u8> = words.flat_map(|word| short(2, word.as_bytes())).collect();
    let hook = [short(1, path.to_str().unwrap().as_bytes()), words].concat();
    let adjust = [short(2, &annotation), short(5, &short(5, &hook))].concat();
    short(2, &short(1, &adjust))
}

#[test]
fn containers_get_the_hook_that_they_ask_for_also_from_a_runtime_that_begins_anew() {
    let mut runtime = Runtime::start(&["--", "--stock", "8M"]);
    runtime.register();
    assert_eq!(runtime.ask(&container(7, &[("other", "25%")])), b"\x12\0");
    let options = ["--lenient", "--", "--stock", "8M"];
    assert_eq!(runtime.ask(&container(9, &[(SHARE, "25%")])), adjusted("25%", &options));
    assert_eq!(runtime.line(), "huepage: container web of pod shop: share 25%");
    assert_eq!(runtime.ask(&container(11, &[(SHARE, "half")])), b"\x12\0");
    let line = runtime.line();
    assert!(
        line.contains("its share `half` is none") && line.ends_with("without a share"),
        "{line}"
    );
    let unknown = runtime.ask(&call(13, "Newer", b""));
    assert!(unknown.starts_with(b"\x0a") && unknown[2..4] == *b"\x08\x0c", "{unknown:?}");
    assert_eq!(runtime.ask(&call(15, "StateChange", b"\x08\x01")), b"\x12\0");
    assert_eq!(runtime.ask(&call(17, "Shutdown", b"")), b"\x12\0");
    runtime.stream.shutdown(std::net::Shutdown::Both).unwrap();
    let line = runtime.line();
    assert!(line.ends_with("the runtime closed the connection; waiting for it"), "{line}");
    // A runtime that ends before it registers anybody is waited for as well.
    drop(accepted(&runtime.listener));
    runtime.stream = accepted(&runtime.listener);
    runtime.register();
    assert_eq!(runtime.ask(&container(7, &[(SHARE, "L2:0=1")])), adjusted("L2:0=1", &options));
    runtime.signal(Signal::TERM);
    let (status, said) = runtime.end();
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(said, "huepage: container web of pod shop: share L2:0=1\n");
}

#[test]
fn strict_refuses_a_container_whose_share_makes_no_sense() {
    let mut runtime = Runtime::start(&["--strict"]);
    runtime.register();
    assert_eq!(runtime.ask(&container(5, &[(SHARE, "25%")])), adjusted("25%", &[]));
    let refused = runtime.ask(&container(7, &[(SHARE, "half")]));
    let said = String::from_utf8_lossy(&refused).into_owned();
    assert!(refused.starts_with(b"\x0a"), "a status: {said}");
    assert!(
        said.contains("huepage: container web of pod shop: its share `half` is none"),
        "{said}"
    );
    runtime.signal(Signal::INT);
    assert_eq!(runtime.end().0, Some(0));
}

/// Standard input that is no state, as a container that cannot be confined.
#[test]
fn the_hook_says_what_is_wrong_and_fails_only_where_that_is_wanted() {
    let hook = |options: &[&str]| {
        let output = common::huepage(&[&["oci-hook"], options].concat());
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (strict, lenient) = (hook(&[]), hook(&["--lenient"]));
    assert_eq!((strict.0, lenient.0), (Some(112), Some(0)));
    assert!(strict.1 == lenient.1 && strict.1.contains("standard input"), "{strict:?}");
}

#[test]
fn a_runtime_that_makes_no_sense_ends_it_with_a_line() {
    let cases: [(&[u8], &str); 4] = [
        (&[0, 0, 0, 1, 0xff, 0, 0, 0], "a part of 4278190080 bytes"),
        (
            &[0, 0, 0, 1, 0, 0, 0, 10, 0x7f, 0, 0, 0, 0, 0, 0, 1, 1, 0],
            "a message of 2130706432 bytes",
        ),
        (&frame(1, 1, 1, b"\xff\xff"), "a damaged message"),
        (&frame(2, 1, 2, &field(1, b"\x08\x02\x12\x02no")), "does not register the plugin: no"),
    ];
    for (bytes, expected) in cases {
        let mut runtime = Runtime::start(&[]);
        runtime.stream.write_all(bytes).unwrap();
        let (status, said) = runtime.end();
        assert_eq!((status, said.lines().count()), (Some(112), 1), "{said}");
        assert!(said.contains(expected) && said.contains([';', '?']), "{said}");
    }
    let runtime = Runtime::start(&[]);
    runtime.stream.shutdown(std::net::Shutdown::Both).unwrap();
    let (status, said) = runtime.end();
    assert_eq!((status, said.lines().count()), (Some(112), 1), "{said}");
}

#[test]
fn a_socket_that_is_not_there_and_options_that_are_none_are_said() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("none.sock");
    let said = |options: &[&str]| {
        let output = nri(&path, options).wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, text) = said(&[]);
    assert!(status == Some(112) && text.contains("enable NRI"), "{text}");
    let (status, text) = said(&["--", "--no-such-option"]);
    assert!(status == Some(2) && text.contains("--no-such-option"), "{text}");
}

/// As runtimes do: no word, a link with another name, and the connection in a descriptor.
#[test]
fn a_runtime_may_start_it_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("10-huepage");
    std::os::unix::fs::symlink(HUEPAGE, &link).unwrap();
    let (mut own, its) = UnixStream::pair().unwrap();
    let mut command = Command::new(&link);
    command.env_clear().env("NRI_PLUGIN_SOCKET", "0");
    command.env("NRI_PLUGIN_NAME", "colours").env("NRI_PLUGIN_IDX", "42");
    command.stdin(OwnedFd::from(its)).stdout(Stdio::null()).stderr(Stdio::piped());
    let plugin = command.spawn().unwrap();
    drop(command);
    let (lane, kind, data) = received(&mut own);
    let name = b"\x1a\x0d\x0a\x07colours\x12\x0242";
    assert!((lane, kind) == (2, 1) && data.windows(15).any(|part| part == name), "{data:?}");
    let configured = [field(1, "-- --stock 8M\n"), field(2, "test"), field(3, "1.0")].concat();
    for bytes in [call(1, "Configure", &configured), call(3, "Synchronize", b"")] {
        own.write_all(&bytes).unwrap();
        assert_eq!(received(&mut own).0, 1);
    }
    own.write_all(&[frame(2, 1, 2, b""), container(5, &[(SHARE, "50%")])].concat()).unwrap();
    let (_, _, data) = received(&mut own);
    assert_eq!(
        data,
        adjusted("50%", &["--lenient", "--", "--stock", "8M"]),
        "the program, not the link"
    );
    drop(own);
    let output = plugin.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.starts_with("huepage: registered with test 1.0 as 42-colours\n"), "{said}");
}

#[test]
fn what_no_runtime_has_opened_is_no_connection() {
    for (number, expected) in [("0", "NRI_PLUGIN_SOCKET=0"), ("9", "=9"), ("x", "=x")] {
        let mut command = Command::new(HUEPAGE);
        command.env("NRI_PLUGIN_SOCKET", number).stdin(Stdio::null());
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(expected), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn a_real_containerd_is_answered() {
    let answers = fuzz_entry::nri(&CONTAINERD[1..], 1000).unwrap();
    let text = String::from_utf8_lossy(&answers);
    // The container with a share of its own, and the one of a pod with another.
    let shares: Vec<&str> = text.split(SHARE).skip(1).map(|rest| &rest[2..5]).collect();
    assert_eq!(shares, ["25%", "50%"]);
    assert_eq!(text.matches("oci-hook").count(), 2);
}
