//! What a service tells its manager (sd_notify(3)): that it is ready, reads its file again, ends, or is
//! alive. Datagrams to the socket that `NOTIFY_SOCKET` names, a path or an abstract name; nothing is sent
//! where there is none. Nobody waits for a manager that does not read, but for a moment with what it must not miss.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// Where the manager listens.
const SOCKET: &str = "NOTIFY_SOCKET";
/// Microseconds in which it wants to hear that the service is alive.
const PERIOD: &str = "WATCHDOG_USEC";
/// Of which process.
const PROCESS: &str = "WATCHDOG_PID";
/// For how long a manager that has not read what it was told before is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(10);
/// The part of that time after which it is told.
const PULSES_PER_PERIOD: u32 = 3;

/// The way to the service manager.
#[derive(Debug)]
pub struct Notifier {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// Time between two signs of life, if any are wanted.
    every: Option<Duration>,
    last: Option<Instant>,
}

impl Notifier {
    /// As the environment says.
    pub fn from_env() -> Notifier {
        let own = |pid: String| pid.parse() == Ok(std::process::id());
        let meant = std::env::var(PROCESS).map_or(true, own);
        let period =
            std::env::var(PERIOD).ok().filter(|_| meant).and_then(|text| text.parse().ok());
        let address = std::env::var_os(SOCKET);
        Notifier::new(address.as_deref().map(|a| a.as_bytes()), period.map(Duration::from_micros))
    }

    /// To a socket by its path, or by its abstract name behind `@`; `period` is the manager's patience.
    /// An address that is none counts as none, as the protocol has it.
    pub fn new(address: Option<&[u8]>, period: Option<Duration>) -> Notifier {
        let to = address.and_then(parse).and_then(|to| Some((UnixDatagram::unbound().ok()?, to)));
        if let Some((socket, _)) = &to {
            let _ = socket.set_nonblocking(true);
        }
        let every = period
            .filter(|time| to.is_some() && !time.is_zero())
            .map(|time| time / PULSES_PER_PERIOD);
        Notifier { to, every, last: None }
    }

    /// It does what it is there for, from now on or again.
    pub fn ready(&self) {
        self.send_surely("READY=1");
    }

    /// It reads its file again; [`Self::ready`] ends that.
    pub fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = Duration::try_from(now).unwrap_or_default().as_micros();
        self.send_surely(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// It ends.
    pub fn stopping(&self) {
        self.send_surely("STOPPING=1");
    }

    /// One line for whoever asks how it is.
    pub fn status(&self, text: &str) {
        self.send(&format!("STATUS={}", text.replace('\n', " ")));
    }

    /// It is alive: call this from the loop that must not hang, as often as it turns.
    pub fn alive(&mut self) {
        let Some(every) = self.every else { return };
        if self.last.is_none_or(|at| at.elapsed() >= every) {
            self.last = Some(Instant::now());
            self.send("WATCHDOG=1");
        }
    }

    /// Whether it was sent, or nobody listens: a manager that does not is none.
    fn send(&self, text: &str) -> bool {
        let Some((socket, to)) = &self.to else { return true };
        let sent = socket.send_to_addr(text.as_bytes(), to);
        !sent.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Without a word of these the manager takes a reload for one that never ends.
    fn send_surely(&self, text: &str) {
        let began = Instant::now();
        while !self.send(text) && began.elapsed() < PATIENCE {
            std::thread::sleep(PAUSE);
        }
    }
}

fn parse(address: &[u8]) -> Option<SocketAddr> {
    match address {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
        [b'/', ..] => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(address)).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> Option<String> {
        let mut room = [0; 256];
        socket.set_nonblocking(true).unwrap();
        let n = socket.recv(&mut room).ok()?;
        Some(String::from_utf8_lossy(&room[..n]).into_owned())
    }

    #[test]
    fn what_must_not_be_missed_waits_until_there_is_room() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("notify");
        let socket = UnixDatagram::bind(&place).unwrap();
        let notifier = Notifier::new(Some(place.as_os_str().as_bytes()), None);
        let full = (0..100_000).find(|_| !notifier.send("STATUS=busy"));
        let before = full.expect("the queue of a socket has an end");
        let reader = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut room = [0; 256];
            let mut said = || socket.recv(&mut room).map(|n| room[..n].to_vec()).unwrap();
            (0..=before).map(|_| said()).last().unwrap()
        });
        notifier.ready();
        assert_eq!(reader.join().unwrap(), b"READY=1");
    }

    #[test]
    fn a_path_and_an_abstract_name_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let abstract_name = format!("huepage-test-{}", std::process::id());
        let named = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let sockets =
            [UnixDatagram::bind(&path).unwrap(), UnixDatagram::bind_addr(&named).unwrap()];
        let addresses = [path.as_os_str().as_bytes().to_vec(), format!("@{abstract_name}").into()];
        for (socket, address) in sockets.iter().zip(&addresses) {
            let notifier = Notifier::new(Some(address), None);
            notifier.ready();
            assert_eq!(heard(socket).as_deref(), Some("READY=1"));
            notifier.reloading();
            let text = heard(socket).unwrap();
            let micros = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
            assert!(micros.parse::<u64>().unwrap() > 0, "{text}");
            notifier.stopping();
            notifier.status("two\nlines");
            assert_eq!(heard(socket).as_deref(), Some("STOPPING=1"));
            assert_eq!(heard(socket).as_deref(), Some("STATUS=two lines"));
        }
    }

    #[test]
    fn signs_of_life_come_as_often_as_they_are_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let address = path.as_os_str().as_bytes();
        let mut never = Notifier::new(Some(address), None);
        never.alive();
        assert_eq!(heard(&socket), None);
        let mut seldom = Notifier::new(Some(address), Some(Duration::from_secs(36_000)));
        (0..100).for_each(|_| seldom.alive());
        assert_eq!(heard(&socket).as_deref(), Some("WATCHDOG=1"));
        assert_eq!(heard(&socket), None, "once in a third of ten hours");
    }

    #[test]
    fn without_a_manager_nothing_happens() {
        for address in [None, Some(&b""[..]), Some(b"relative"), Some(b"/no/such/socket")] {
            let mut notifier = Notifier::new(address, Some(Duration::from_secs(1)));
            notifier.ready();
            notifier.alive();
            assert_eq!(notifier.last.is_some(), address == Some(b"/no/such/socket"));
        }
    }
}
