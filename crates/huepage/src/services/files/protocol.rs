//! What supervisor and service say to each other: one JSON text per packet of a socket. The service
//! reports all it has seen each time, so that nothing is lost but the last moments when it dies.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use huepage_linux::kernel::process_tree::ProcessRoots;
use huepage_linux::services::files::gate::GateReport;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::options::PageCacheArgs;
use crate::json::{line, parsed};
use crate::partition::PartitionArgs;

/// Largest packet.
const LARGEST: usize = 1 << 16;

/// What the service is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerOrder {
    /// Which colours of which cache, and how they are known: all of it decided.
    pub partition: PartitionArgs,
    /// Which files, and how long to wait.
    pub files: PageCacheArgs,
    /// Whose files.
    pub roots: ProcessRoots,
    /// The supervisor, whose own files are not placed.
    pub supervisor: i32,
}

/// From the supervisor, after the order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerCommand {
    /// Processes are of the group from now on.
    Admit(Vec<i32>),
    /// A process is not of the group any more.
    Release(i32),
    /// The service is to end.
    End,
}

/// From the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerMessage {
    /// All is ready but the marks: from now on a service that hangs holds up the machine.
    Prepared,
    /// Files are being placed. Directories that were named in vain, with the reason.
    Watching(Vec<(PathBuf, String)>),
    /// It lives; what it has done so far.
    Beat(GateReport),
    /// It gave up: an exit status and one line of text.
    Failed(u8, String),
    /// It ends as it was told to.
    Ended(GateReport),
}

/// Sends one packet; never waits. `WouldBlock` if the other side does not read.
pub fn tell(socket: BorrowedFd<'_>, what: &impl Serialize) -> io::Result<()> {
    let text = line(what)?;
    send(socket, text.as_bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

/// The next packet; `None` when the other side is gone. Waits for one unless `now`.
pub fn hear<T: DeserializeOwned>(socket: BorrowedFd<'_>, now: bool) -> io::Result<Option<T>> {
    let mut buffer = vec![0; LARGEST];
    let flags = if now { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
    let (length, _) = rustix::io::retry_on_intr(|| recv(socket, &mut buffer[..], flags))?;
    if length == 0 { Ok(None) } else { Ok(Some(parsed(&buffer[..length])?)) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn messages_arrive_whole_and_the_end_is_told() {
        let (here, there) = pair();
        let report = GateReport { opens: 7, ..GateReport::default() };
        let said = [
            ServerMessage::Prepared,
            ServerMessage::Beat(report),
            ServerMessage::Failed(9, "why".into()),
        ];
        said.iter().for_each(|message| tell(here.as_fd(), message).unwrap());
        for message in said {
            assert_eq!(hear(there.as_fd(), false).unwrap(), Some(message));
        }
        let nothing = hear::<ServerMessage>(there.as_fd(), true).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        drop(here);
        assert_eq!(hear::<ServerMessage>(there.as_fd(), false).unwrap(), None);
    }

    #[test]
    fn who_does_not_read_holds_nobody_up() {
        let (here, _there) = pair();
        let beat = ServerMessage::Beat(GateReport::default());
        let full = (0..100_000).find_map(|_| tell(here.as_fd(), &beat).err());
        assert_eq!(full.unwrap().kind(), io::ErrorKind::WouldBlock);
    }
}
