//! The messages of ttrpc and of NRI (package `nri.pkg.api.v1alpha1`) that the plugin reads and writes, by their
//! numbers in the definitions. Of what a runtime tells of a container only what speaks of a share is looked at.

use super::protobuf::{DamagedMessage, WireFields, WireMessage};
use crate::cmd::oci_hook::{ANNOTATION, cache_line};

/// The plugin's service, which a runtime calls.
pub const PLUGIN_SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";
/// The runtime's service.
const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";
/// The event `CREATE_CONTAINER` in the mask of those that a plugin is called for.
const CREATE_CONTAINER: u64 = 1 << 3;
/// Nanoseconds that a runtime may take to register the plugin.
const PATIENCE: u64 = 5_000_000_000;

/// Why a call is refused, as gRPC numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Refusal {
    /// What the call asks for makes no sense.
    InvalidArgument = 3,
    /// There is no such call.
    Unimplemented = 12,
}

/// A call of the runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuntimeCall<'a> {
    /// The service that is called.
    pub service: &'a str,
    /// What it is to do.
    pub method: &'a str,
    /// With what.
    pub payload: &'a [u8],
}

impl<'a> RuntimeCall<'a> {
    /// Reads the message of a request.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(data: &'a [u8]) -> Result<RuntimeCall<'a>, DamagedMessage> {
        let mut call = RuntimeCall::default();
        for field in WireFields::of(data) {
            match field? {
                (1, value) => call.service = value.text()?,
                (2, value) => call.method = value.text()?,
                (3, value) => call.payload = value.bytes()?,
                _ => {}
            }
        }
        Ok(call)
    }
}

/// The message of a response that is right.
pub fn answer(payload: &WireMessage) -> Vec<u8> {
    WireMessage::default().bytes(2, payload).into_bytes()
}

/// The message of a response that is an error.
pub fn refusal(why: Refusal, said: &str) -> Vec<u8> {
    let status = WireMessage::default().number(1, u64::from(why as u32)).bytes(2, said);
    WireMessage::default().bytes(1, status).into_bytes()
}

/// What the runtime says against a call, from the message of its response.
///
/// # Errors
/// If it is none.
pub fn objection(data: &[u8]) -> Result<Option<&str>, DamagedMessage> {
    let (mut code, mut said) = (0, "");
    for field in WireFields::of(data) {
        let (1, status) = field? else { continue };
        for field in WireFields::of(status.bytes()?) {
            match field? {
                (1, value) => code = value.number()?,
                (2, value) => said = value.text()?,
                _ => {}
            }
        }
    }
    Ok((code != 0).then_some(said))
}

/// The message of the request that registers the plugin by its name and its index among other plugins.
pub fn registration(name: &str, index: &str) -> Vec<u8> {
    let plugin = WireMessage::default().bytes(1, name).bytes(2, index);
    let call = WireMessage::default().bytes(1, RUNTIME_SERVICE).bytes(2, "RegisterPlugin");
    call.bytes(3, plugin).number(4, PATIENCE).into_bytes()
}

/// What the runtime says of itself, and the plugin's configuration that it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuntimeIdentity<'a> {
    /// The text of the plugin's configuration, if the runtime started it.
    pub configuration: &'a str,
    /// The runtime's name.
    pub name: &'a str,
    /// Its version.
    pub version: &'a str,
}

impl<'a> RuntimeIdentity<'a> {
    /// Reads what `Configure` is called with.
    ///
    /// # Errors
    /// If it is something else.
    pub fn read(payload: &'a [u8]) -> Result<RuntimeIdentity<'a>, DamagedMessage> {
        let mut identity = RuntimeIdentity::default();
        for field in WireFields::of(payload) {
            match field? {
                (1, value) => identity.configuration = value.text()?,
                (2, value) => identity.name = value.text()?,
                (3, value) => identity.version = value.text()?,
                _ => {}
            }
        }
        Ok(identity)
    }
}

/// The answer to `Configure`: the events that the plugin wants.
pub fn subscription() -> WireMessage {
    WireMessage::default().number(2, CREATE_CONTAINER)
}

/// Whether `Synchronize` is called with more to come.
///
/// # Errors
/// If it is called with something else.
pub fn more_to_come(payload: &[u8]) -> Result<bool, DamagedMessage> {
    let mut more = false;
    for field in WireFields::of(payload) {
        if let (3, value) = field? {
            more = value.number()? != 0;
        }
    }
    Ok(more)
}

/// The answer to `Synchronize`; the runtime gives all in parts only to plugins that say so.
pub fn synchronized(more: bool) -> WireMessage {
    if more { WireMessage::default().number(2, 1) } else { WireMessage::default() }
}

/// A container that is about to be created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewContainer<'a> {
    /// Its name, which is its own in its pod.
    pub name: &'a str,
    /// The pod's name.
    pub pod: &'a str,
    /// The share that its annotation asks for.
    pub own: Option<&'a str>,
    /// Annotations of its pod that speak of shares, by what follows `org.huepage.share` in their names.
    pub of_pod: Vec<(&'a str, &'a str)>,
    /// The first line of the schemata of its `linux.intelRdt` that speaks of a cache.
    pub schemata: Option<&'a str>,
}

impl<'a> NewContainer<'a> {
    /// Reads what `CreateContainer` is called with.
    ///
    /// # Errors
    /// If it is something else.
    pub fn read(payload: &'a [u8]) -> Result<NewContainer<'a>, DamagedMessage> {
        let mut container = NewContainer::default();
        for field in WireFields::of(payload) {
            match field? {
                (1, value) => container.read_pod(value.bytes()?)?,
                (2, value) => container.read_container(value.bytes()?)?,
                _ => {}
            }
        }
        Ok(container)
    }

    fn read_pod(&mut self, pod: &'a [u8]) -> Result<(), DamagedMessage> {
        for field in WireFields::of(pod) {
            match field? {
                (2, value) => self.pod = value.text()?,
                (6, value) => {
                    let (key, value) = entry(value.bytes()?)?;
                    self.of_pod.extend(key.strip_prefix(ANNOTATION).map(|rest| (rest, value)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn read_container(&mut self, container: &'a [u8]) -> Result<(), DamagedMessage> {
        for field in WireFields::of(container) {
            match field? {
                (3, value) => self.name = value.text()?,
                (6, value) => {
                    let (key, value) = entry(value.bytes()?)?;
                    self.own = if key == ANNOTATION { Some(value) } else { self.own };
                }
                (11, value) => self.read_schemata(value.bytes()?)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// `linux.rdt.schemata.value`: messages one in another.
    fn read_schemata(&mut self, linux: &'a [u8]) -> Result<(), DamagedMessage> {
        for rdt in inner(linux, 12) {
            for schemata in inner(rdt?, 2) {
                for line in inner(schemata?, 1) {
                    let text = std::str::from_utf8(line?).map_err(|_| DamagedMessage)?;
                    self.schemata = self.schemata.or_else(|| text.lines().find_map(cache_line));
                }
            }
        }
        Ok(())
    }
}

/// The bytes of all fields of a number.
fn inner(message: &[u8], number: u64) -> impl Iterator<Item = Result<&[u8], DamagedMessage>> {
    WireFields::of(message).filter_map(move |field| match field {
        Ok((found, value)) => (found == number).then(|| value.bytes()),
        Err(error) => Some(Err(error)),
    })
}

/// An entry of a map of texts.
fn entry(bytes: &[u8]) -> Result<(&str, &str), DamagedMessage> {
    let (mut key, mut found) = ("", "");
    for field in WireFields::of(bytes) {
        match field? {
            (1, value) => key = value.text()?,
            (2, value) => found = value.text()?,
            _ => {}
        }
    }
    Ok((key, found))
}

/// The answer to `CreateContainer` that adds a hook after the start, and the annotation by which the hook finds the
/// share.
pub fn adjustment(share: &str, path: &str, words: &[String]) -> WireMessage {
    let entry = WireMessage::default().bytes(1, ANNOTATION).bytes(2, share);
    let hook = WireMessage::default().bytes(1, path);
    let hook = words.iter().fold(hook, |hook, word| hook.bytes(2, word));
    let hooks = WireMessage::default().bytes(5, hook);
    WireMessage::default().bytes(1, WireMessage::default().bytes(2, entry).bytes(5, hooks))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(key: &str, value: &str) -> WireMessage {
        WireMessage::default().bytes(1, key).bytes(2, value)
    }

    #[test]
    fn a_call_and_what_comes_of_it_are_told_apart() {
        let call = registration("huepage", "10");
        let call = RuntimeCall::read(&call).unwrap();
        assert_eq!((call.service, call.method), (RUNTIME_SERVICE, "RegisterPlugin"));
        assert_eq!(call.payload, b"\x0a\x07huepage\x12\x0210");
        assert_eq!(objection(&answer(&subscription())), Ok(None));
        assert_eq!(answer(&subscription()), b"\x12\x02\x10\x08");
        assert_eq!(objection(b""), Ok(None));
        assert_eq!(objection(&refusal(Refusal::Unimplemented, "no")), Ok(Some("no")));
        assert_eq!(objection(b"\x0a\x05"), Err(DamagedMessage));
    }

    #[test]
    fn what_containers_ask_for_is_found_in_the_places_of_the_definition() {
        let rdt = WireMessage::default().bytes(1, "MB:0=50\nL2:0=1").bytes(1, "L3:0=7");
        let linux = WireMessage::default().bytes(12, WireMessage::default().bytes(2, rdt));
        let container = WireMessage::default().bytes(1, "id").bytes(3, "web").bytes(11, linux);
        let container = container.bytes(6, pair("other", "1")).bytes(6, pair(ANNOTATION, "25%"));
        let pod =
            WireMessage::default().bytes(2, "shop").bytes(6, pair("org.huepage.share/x", "9%"));
        let call = WireMessage::default().bytes(1, pod).bytes(2, container).into_bytes();
        let found = NewContainer {
            name: "web",
            pod: "shop",
            own: Some("25%"),
            of_pod: vec![("/x", "9%")],
            schemata: Some("L2:0=1"),
        };
        assert_eq!(NewContainer::read(&call), Ok(found));
        assert_eq!(NewContainer::read(&call[..call.len() - 1]), Err(DamagedMessage));
    }

    #[test]
    fn what_a_runtime_says_of_itself_is_read() {
        let said = WireMessage::default().bytes(1, "--strict").bytes(2, "containerd");
        let said = said.bytes(3, "1.7").number(4, 5000).into_bytes();
        let identity = RuntimeIdentity::read(&said).unwrap();
        let RuntimeIdentity { configuration, name, version } = identity;
        assert_eq!([configuration, name, version], ["--strict", "containerd", "1.7"]);
        assert_eq!(more_to_come(b"\x18\x01"), Ok(true));
        assert_eq!(more_to_come(b""), Ok(false));
        assert_eq!(more_to_come(b"\x1a\x01a"), Err(DamagedMessage));
    }
}
