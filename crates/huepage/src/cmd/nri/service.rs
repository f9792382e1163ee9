//! The plugin as the runtime sees it: what it answers to each call, and what it says of it. A state machine: frames in,
//! frames out.

use huepage_linux::kernel::procfs::printable;

use super::choice::HookChoice;
use super::frames::{FrameKind, FrameReader, FramingError, NriFrame, NriLane};
use super::messages::{self, NewContainer, PLUGIN_SERVICE, Refusal, RuntimeCall, RuntimeIdentity};
use super::protobuf::{DamagedMessage, WireMessage};
use crate::partition::CacheShare;

/// The number of the call that registers the plugin, the only one of ours.
const REGISTRATION: u32 = 1;
/// Longest share in bytes.
const LONGEST_SHARE: usize = 256;
/// Characters of a text of the runtime that are shown.
const SHOWN: usize = 100;

/// Why nothing more can be said to a runtime.
#[derive(Debug, thiserror::Error)]
pub enum NriError {
    /// Bytes that are no frames.
    #[error("the runtime sends {0}; is it the socket of NRI?")]
    Framing(#[from] FramingError),
    /// A message that is none.
    #[error("the runtime sends {0}; is its NRI of another version than v1alpha1?")]
    Message(#[from] DamagedMessage),
    /// The plugin is not wanted.
    #[error("the runtime does not register the plugin: {0}; see its log")]
    Refused(String),
    /// The configuration that the runtime has for the plugin makes no sense.
    #[error("the plugin's configuration: {0}")]
    Configuration(String),
}

/// What comes of bytes of the runtime.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NriTurn {
    /// Bytes to send.
    pub answers: Vec<u8>,
    /// Lines to tell people.
    pub said: Vec<String>,
}

/// The plugin on one connection.
#[derive(Debug)]
pub struct NriPlugin {
    /// The program that the hook calls.
    path: String,
    choice: HookChoice,
    /// Its index and its name, as runtimes write them.
    title: (String, String),
    reader: FrameReader,
    /// The runtime's name and version, once it has called.
    runtime: String,
    is_registered: bool,
    is_synchronized: bool,
}

impl NriPlugin {
    /// A plugin that is not registered yet. `index` is two digits; `path` is that of the huepage that the hook calls.
    pub fn new(index: &str, name: &str, path: &str, choice: &HookChoice) -> NriPlugin {
        NriPlugin {
            path: path.to_owned(),
            choice: choice.clone(),
            title: (index.to_owned(), name.to_owned()),
            reader: FrameReader::default(),
            runtime: String::new(),
            is_registered: false,
            is_synchronized: false,
        }
    }

    /// The first bytes to send.
    pub fn greeting(&self) -> Vec<u8> {
        let data = messages::registration(&self.title.1, &self.title.0);
        let kind = FrameKind::Request;
        NriFrame { lane: NriLane::Runtime, call: REGISTRATION, kind, data }.encoded()
    }

    /// Whether the runtime calls the plugin for containers from now on.
    pub const fn is_ready(&self) -> bool {
        self.is_registered && self.is_synchronized
    }

    /// Takes bytes of the runtime.
    ///
    /// # Errors
    /// [`NriError`]: the connection is of no use after it.
    pub fn take(&mut self, bytes: &[u8]) -> Result<NriTurn, NriError> {
        let (mut turn, mut frames) = (NriTurn::default(), Vec::new());
        let whole = self.reader.take(bytes, &mut frames);
        for frame in frames {
            let was_ready = self.is_ready();
            match (frame.lane, frame.kind) {
                (NriLane::Plugin, FrameKind::Request) => {
                    let data = self.answer(&frame.data, &mut turn.said)?;
                    let answer = NriFrame { kind: FrameKind::Response, data, ..frame };
                    turn.answers.extend(answer.encoded());
                }
                (NriLane::Runtime, FrameKind::Response) if frame.call == REGISTRATION => {
                    self.register(&frame.data)?;
                }
                // Kinds of a later version of the protocol.
                _ => {}
            }
            if self.is_ready() && !was_ready {
                let (index, name) = &self.title;
                turn.said.push(format!("registered with {} as {index}-{name}", self.runtime));
            }
        }
        whole?;
        Ok(turn)
    }

    fn register(&mut self, response: &[u8]) -> Result<(), NriError> {
        if let Some(said) = messages::objection(response)? {
            return Err(NriError::Refused(shown(said)));
        }
        self.is_registered = true;
        Ok(())
    }

    /// The message of the response to a call.
    fn answer(&mut self, call: &[u8], said: &mut Vec<String>) -> Result<Vec<u8>, NriError> {
        let call = RuntimeCall::read(call)?;
        let method = if call.service == PLUGIN_SERVICE { call.method } else { "" };
        Ok(match method {
            "Configure" => {
                self.configure(&RuntimeIdentity::read(call.payload)?)?;
                messages::answer(&messages::subscription())
            }
            "Synchronize" => {
                let more = messages::more_to_come(call.payload)?;
                self.is_synchronized |= !more;
                messages::answer(&messages::synchronized(more))
            }
            "CreateContainer" => self.create(&NewContainer::read(call.payload)?, said),
            "StateChange" | "Shutdown" => messages::answer(&WireMessage::default()),
            _ => {
                let what = format!("no {}/{} here", shown(call.service), shown(call.method));
                messages::refusal(Refusal::Unimplemented, &what)
            }
        })
    }

    fn configure(&mut self, identity: &RuntimeIdentity<'_>) -> Result<(), NriError> {
        self.choice = self.choice.with(identity.configuration).map_err(NriError::Configuration)?;
        self.runtime = format!("{} {}", shown(identity.name), shown(identity.version));
        Ok(())
    }

    fn create(&self, container: &NewContainer<'_>, said: &mut Vec<String>) -> Vec<u8> {
        let who = format!("container {} of pod {}", shown(container.name), shown(container.pod));
        let Some(share) = share(container) else {
            return messages::answer(&WireMessage::default());
        };
        match checked(share) {
            Ok(share) => {
                said.push(format!("{who}: share {share}"));
                messages::answer(&messages::adjustment(share, &self.path, &self.choice.words()))
            }
            Err(why) if self.choice.strict => {
                said.push(format!("{who}: {why}; refused, since --strict"));
                messages::refusal(Refusal::InvalidArgument, &format!("huepage: {who}: {why}"))
            }
            Err(why) => {
                said.push(format!("{who}: {why}; it starts without a share"));
                messages::answer(&WireMessage::default())
            }
        }
    }
}

/// The share that a container asks for: its own annotation, one of its pod for it, one of its pod, its schemata.
fn share<'a>(container: &NewContainer<'a>) -> Option<&'a str> {
    let for_it = format!("/container.{}", container.name);
    let of_pod = |wanted: &str| {
        container.of_pod.iter().find(|(rest, _)| *rest == wanted).map(|(_, share)| *share)
    };
    container.own.or_else(|| of_pod(&for_it)).or_else(|| of_pod("")).or(container.schemata)
}

/// A share without spaces around it, if it is one.
fn checked(share: &str) -> Result<&str, String> {
    let share = share.trim();
    if share.len() > LONGEST_SHARE {
        return Err(format!("its share has {} bytes; write for instance 25%", share.len()));
    }
    CacheShare::parse(share)
        .map_err(|why| format!("its share `{}` is none: {}", shown(share), shown(&why)))?;
    Ok(share)
}

/// Text of others on a line, cut where it is long.
fn shown(text: &str) -> String {
    printable(&text.chars().take(SHOWN).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(key: &str, value: &str) -> WireMessage {
        WireMessage::default().bytes(1, key).bytes(2, value)
    }

    fn plugin(strict: bool) -> NriPlugin {
        let choice = HookChoice { strict, options: Vec::new() };
        NriPlugin::new("10", "huepage", "/usr/bin/huepage", &choice)
    }

    /// A call's bytes on the socket.
    fn call(number: u32, service: &str, method: &str, payload: &WireMessage) -> Vec<u8> {
        let call = WireMessage::default().bytes(1, service).bytes(2, method).bytes(3, payload);
        let (lane, kind) = (NriLane::Plugin, FrameKind::Request);
        NriFrame { lane, call: number, kind, data: call.into_bytes() }.encoded()
    }

    fn container(of_pod: Pairs<'_>, own: Pairs<'_>) -> Vec<u8> {
        let add = |field, to: WireMessage, all: Pairs<'_>| {
            all.iter().fold(to, |to, (key, value)| to.bytes(field, pair(key, value)))
        };
        let pod = add(6, WireMessage::default().bytes(2, "shop"), of_pod);
        let container = add(6, WireMessage::default().bytes(3, "web"), own);
        let payload = WireMessage::default().bytes(1, pod).bytes(2, container);
        call(7, PLUGIN_SERVICE, "CreateContainer", &payload)
    }

    fn one(turn: &NriTurn) -> NriFrame {
        let mut frames = Vec::new();
        FrameReader::default().take(&turn.answers, &mut frames).unwrap();
        assert_eq!(frames.len(), 1);
        frames.remove(0)
    }

    const SHARE: &str = "org.huepage.share";
    /// Annotations with their values.
    type Pairs<'a> = &'a [(&'a str, &'a str)];

    #[test]
    fn a_container_gets_the_share_that_is_nearest_to_it() {
        let cases: [(Pairs<'_>, Pairs<'_>, Option<&str>); 6] = [
            (&[], &[(SHARE, " 25% ")], Some("25%")),
            (&[(SHARE, "50%")], &[], Some("50%")),
            (&[(SHARE, "50%"), ("org.huepage.share/container.web", "L2:0=1")], &[], Some("L2:0=1")),
            (&[(SHARE, "50%")], &[(SHARE, "512K")], Some("512K")),
            (&[("org.huepage.share/container.db", "5%"), ("org.huepage.shares", "5%")], &[], None),
            (&[], &[("other", "25%")], None),
        ];
        for (of_pod, own, expected) in cases {
            let turn = plugin(false).take(&container(of_pod, own)).unwrap();
            let frame = one(&turn);
            assert_eq!((frame.lane, frame.call), (NriLane::Plugin, 7));
            let words = HookChoice::default().words();
            let right = expected.map_or_else(WireMessage::default, |share| {
                messages::adjustment(share, "/usr/bin/huepage", &words)
            });
            assert_eq!(frame.data, messages::answer(&right), "{of_pod:?} {own:?}");
            assert_eq!(turn.said.len(), usize::from(expected.is_some()));
        }
    }

    #[test]
    fn a_share_that_makes_no_sense_is_said_and_refused_where_that_was_asked_for() {
        let long = "9".repeat(300);
        for share in ["lots", "", "200%", "L9:0=1", "a\nb", long.as_str()] {
            let bytes = container(&[], &[(SHARE, share)]);
            let turn = plugin(false).take(&bytes).unwrap();
            assert_eq!(one(&turn).data, messages::answer(&WireMessage::default()));
            assert_eq!(turn.said[0].lines().count(), 1, "{:?}", turn.said);
            assert!(turn.said[0].starts_with("container web of pod shop: its share"));
            let strict = one(&plugin(true).take(&bytes).unwrap());
            let told = messages::objection(&strict.data).unwrap().unwrap();
            assert!(told.starts_with("huepage: container web of pod shop: its share"), "{told}");
        }
    }

    #[test]
    fn calls_that_are_not_known_are_said_to_be_none() {
        for (service, method) in [(PLUGIN_SERVICE, "Later"), ("other.Plugin", "Configure")] {
            let bytes = call(1, service, method, &WireMessage::default());
            let frame = one(&plugin(false).take(&bytes).unwrap());
            let told = messages::objection(&frame.data).unwrap().unwrap();
            assert_eq!(told, format!("no {service}/{method} here"));
            assert!(frame.data.starts_with(b"\x0a") && frame.data[2..4] == *b"\x08\x0c");
        }
        let bytes = call(1, PLUGIN_SERVICE, "StateChange", &WireMessage::default());
        assert_eq!(one(&plugin(false).take(&bytes).unwrap()).data, b"\x12\0");
    }

    /// The response to the registration may come before or after the calls that follow it.
    #[test]
    fn the_plugin_is_ready_when_it_is_registered_and_knows_all() {
        let registered = NriFrame {
            lane: NriLane::Runtime,
            call: REGISTRATION,
            kind: FrameKind::Response,
            data: Vec::new(),
        };
        let identity = WireMessage::default().bytes(2, "containerd").bytes(3, "1.7.24");
        let configure = call(1, PLUGIN_SERVICE, "Configure", &identity);
        let part = WireMessage::default().number(3, 1);
        let synchronize =
            |number, payload: &WireMessage| call(number, PLUGIN_SERVICE, "Synchronize", payload);
        for first in [true, false] {
            let mut plugin = plugin(false);
            let early = plugin.take(&[registered.encoded(), Vec::new()][usize::from(!first)]);
            assert_eq!(early.unwrap(), NriTurn::default());
            let told = one(&plugin.take(&configure).unwrap());
            assert_eq!(told.data, messages::answer(&messages::subscription()));
            let told = one(&plugin.take(&synchronize(3, &part)).unwrap());
            assert_eq!(told.data, b"\x12\x02\x10\x01");
            assert!(!plugin.is_ready());
            let mut said = plugin.take(&synchronize(5, &WireMessage::default())).unwrap().said;
            if !first {
                assert!(said.is_empty() && !plugin.is_ready());
                said = plugin.take(&registered.encoded()).unwrap().said;
            }
            assert_eq!(said, ["registered with containerd 1.7.24 as 10-huepage"]);
            assert!(plugin.is_ready());
        }
    }

    #[test]
    fn what_ends_a_connection_is_one_line_that_says_what_to_do() {
        let refused = NriFrame {
            lane: NriLane::Runtime,
            call: REGISTRATION,
            kind: FrameKind::Response,
            data: messages::refusal(Refusal::InvalidArgument, "an index\nof 3"),
        };
        let bad = WireMessage::default().bytes(1, "--strickt");
        let cases = [
            (refused.encoded(), "an index\\012of 3; see its log"),
            (
                call(1, PLUGIN_SERVICE, "Configure", &bad),
                "configuration: unexpected argument '--strickt'",
            ),
            (container(&[("\u{1}", "")], &[])[..30].to_vec(), ""),
            (
                call(1, PLUGIN_SERVICE, "Synchronize", &WireMessage::default().bytes(3, "")),
                "a damaged message",
            ),
            (vec![0xff; 8], "4294967295 bytes"),
        ];
        for (bytes, expected) in cases {
            match plugin(false).take(&bytes) {
                Ok(turn) => assert_eq!((turn, expected), (NriTurn::default(), "")),
                Err(error) => {
                    let line = error.to_string();
                    assert!(line.contains(expected) && line.lines().count() == 1, "{line}");
                    assert!(!expected.is_empty() && line.contains([';', '?']), "{line}");
                }
            }
        }
    }
}
