//! `huepage oci-hook`: a container runtime calls it when a container runs, and the container's processes are
//! confined to the share that its configuration names.
//!
//! The runtime writes the container's state to standard input (OCI runtime specification, hooks). The share
//! is the annotation `org.huepage.share`, else the first line of `linux.intelRdt.schemata`, or `l3CacheSchema`, that
//! speaks of a cache.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use clap::Args;
use huepage_linux::kernel::containers::ContainerId;
use huepage_linux::kernel::procfs::ProcRoot;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::background_supervisor;
use crate::exit::{CmdError, ExitCode, bad_file};
use crate::json::parsed;
use crate::partition::{self, CacheShare};

/// Bytes of a state or a configuration, at most.
const MOST_BYTES: u64 = 16 << 20;
/// The annotation that names a share.
pub const ANNOTATION: &str = "org.huepage.share";
/// Where the system's log takes lines, and what a line of a service begins with that is a warning (RFC 3164).
const SYSTEM_LOG: &str = "/dev/log";
const WARNING: &str = "<28>";

const EXAMPLES: &str = "\
Examples, in the config.json of a bundle:
  \"annotations\": { \"org.huepage.share\": \"25%\" },
  \"hooks\": { \"poststart\": [
    { \"path\": \"/usr/bin/huepage\", \"args\": [\"huepage\", \"oci-hook\"] } ] }

Podman reads hooks from a directory: see /usr/share/containers/oci/hooks.d.
Without a share in the configuration it does nothing.";

/// Confine a container as its configuration says; container runtimes call this
///
/// A hook of the kind `poststart`: it reads the state of the container from standard input and its share from the
/// annotation `org.huepage.share` or from `linux.intelRdt`, and leaves a supervisor behind, which ends with the container.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct OciHookArgs {
    /// Let a container run that cannot be confined, and tell the system's log why
    ///
    /// Some runtimes, such as runc, end a container whose hook fails.
    #[arg(long)]
    lenient: bool,

    /// More options, as `huepage attach` has them
    #[arg(last = true, value_name = "OPTION")]
    options: Vec<String>,
}

/// What a runtime says of a container.
#[derive(Deserialize)]
struct State {
    id: String,
    #[serde(default)]
    pid: i32,
    bundle: PathBuf,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// What of a bundle's configuration is looked at.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Bundle {
    annotations: BTreeMap<String, String>,
    linux: Linux,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Linux {
    cgroups_path: String,
    intel_rdt: Rdt,
}

/// Shares of caches that the hardware divides.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Rdt {
    schemata: Vec<String>,
    l3_cache_schema: String,
}

/// Confines the container of standard input.
pub fn run(args: &OciHookArgs) -> Result<u8, CmdError> {
    match confine(args) {
        Err(error) if args.lenient => {
            error.report();
            // Nobody reads what a hook says that succeeds. Where there is no log, there is nobody to tell.
            let _ = log(&error, SYSTEM_LOG.as_ref());
            Ok(ExitCode::Ok.status())
        }
        confined => confined,
    }
}

/// Tells a system's log what was wrong.
fn log(error: &CmdError, place: &Path) -> io::Result<usize> {
    let line = format!("{WARNING}huepage[{}]: {error}", std::process::id());
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to(line.as_bytes(), place)
}

/// Reads the state and confines the container.
fn confine(args: &OciHookArgs) -> Result<u8, CmdError> {
    let state: State = read("standard input".as_ref(), io::stdin())?;
    let path = state.bundle.join("config.json");
    let file = File::open(&path).map_err(|e| bad_file(&path, format!("{e}; check the bundle")))?;
    let bundle: Bundle = read(&path, file)?;
    let Some(share) = share(&state, &bundle) else { return Ok(ExitCode::Ok.status()) };
    CacheShare::parse(&share).map_err(|e| bad_file(&path, e))?;
    partition::check_privileges()?;
    let mut words = vec!["attach".to_owned(), "--quiet".to_owned()];
    words.extend([format!("--share={share}"), place(&state, &bundle, &ProcRoot::default())]);
    words.extend(args.options.iter().cloned());
    let taken = |registry: &huepage_linux::color::partition_registry::Registry| {
        registry.find_member(state.pid).is_ok_and(|entry| entry.is_some())
    };
    background_supervisor::start(words.into_iter().map(Into::into), taken)?;
    Ok(ExitCode::Ok.status())
}

/// The option that names the processes: the container, or its control group where that has a name that nobody could
/// tell from others', as below the root, or one that the bundle chooses.
fn place(state: &State, bundle: &Bundle, root: &ProcRoot) -> String {
    let container = format!("--container={}", state.id);
    let paths = root.cgroups(state.pid).unwrap_or_default();
    let known = |id: ContainerId| paths.iter().any(|path| id.of_path(path).is_some());
    if state.id.parse().is_ok_and(known) {
        return container;
    }
    let chosen = bundle.linux.cgroups_path.trim_matches('/');
    let is_its = |path: &&String| {
        let (whole, last) = (path.trim_start_matches('/'), path.rsplit('/').next());
        last == Some(&state.id) || !chosen.is_empty() && whole == chosen
    };
    // Without the hierarchy of version 1, which comes before it.
    let own = paths.iter().filter(is_its).min_by_key(|path| path.len());
    own.map_or(container, |path| format!("--cgroup={path}"))
}

fn read<T: DeserializeOwned>(name: &Path, from: impl Read) -> Result<T, CmdError> {
    let mut json = Vec::new();
    from.take(MOST_BYTES).read_to_end(&mut json).map_err(|e| bad_file(name, e))?;
    parsed(&json).map_err(|e| {
        bad_file(name, format!("{e}; it is to be JSON as a container runtime writes it"))
    })
}

/// The share that is asked for, if any is.
fn share(state: &State, bundle: &Bundle) -> Option<String> {
    let annotated =
        state.annotations.get(ANNOTATION).or_else(|| bundle.annotations.get(ANNOTATION));
    let rdt = &bundle.linux.intel_rdt;
    let mut lines =
        rdt.schemata.iter().flat_map(|text| text.lines()).chain(rdt.l3_cache_schema.lines());
    annotated.cloned().or_else(|| lines.find_map(cache_line).map(str::to_owned))
}

/// A line of a schemata without spaces around it, if it speaks of a cache.
pub fn cache_line(line: &str) -> Option<&str> {
    let line = line.trim();
    ["L2:", "L3:"].iter().any(|name| line.starts_with(name)).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(state: &str, bundle: &str) -> Option<String> {
        let state: State = read("state".as_ref(), state.as_bytes()).unwrap();
        share(&state, &read("bundle".as_ref(), bundle.as_bytes()).unwrap())
    }

    #[test]
    fn the_share_is_an_annotation_or_a_schemata() {
        let state = r#"{"ociVersion":"1.0","id":"a","status":"running","pid":1,"bundle":"/b"}"#;
        let rdt = r#"{"linux":{"intelRdt":{"closID":"x","schemata":["MB:0=50","L2:0=0f;1=0f"]}}}"#;
        assert_eq!(found(state, rdt).as_deref(), Some("L2:0=0f;1=0f"));
        let old = r#"{"linux":{"intelRdt":{"l3CacheSchema":"MB:0=50\nL3:0=7"}}}"#;
        assert_eq!(found(state, old).as_deref(), Some("L3:0=7"));
        let both = r#"{"annotations":{"org.huepage.share":"25%"},"linux":{"intelRdt":{"l3CacheSchema":"L3:0=7"}}}"#;
        assert_eq!(found(state, both).as_deref(), Some("25%"));
        assert_eq!(found(state, r#"{"linux":{}}"#), None);
    }

    #[test]
    fn the_control_group_is_that_of_the_container_and_of_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        let root = ProcRoot(dir.path().to_owned());
        std::fs::create_dir(dir.path().join("7")).unwrap();
        let place_of = |id: &str, chosen: &str, groups: &str| {
            std::fs::write(dir.path().join("7/cgroup"), groups).unwrap();
            let state = format!(r#"{{"id":"{id}","pid":7,"bundle":"/b"}}"#);
            let state: State = read("state".as_ref(), state.as_bytes()).unwrap();
            let bundle = format!(r#"{{"linux":{{"cgroupsPath":"{chosen}"}}}}"#);
            place(&state, &read("bundle".as_ref(), bundle.as_bytes()).unwrap(), &root)
        };
        let scope = "0::/system.slice/runc-web.scope\n";
        assert_eq!(place_of("web", "system.slice:runc:web", scope), "--container=web");
        assert_eq!(place_of("web", "", "0::/web\n"), "--cgroup=/web");
        let version_1 = "4:memory:/own/place\n1:name=systemd:/user.slice\n";
        assert_eq!(place_of("web", "/own/place", version_1), "--cgroup=/own/place");
        assert_eq!(place_of("web", "", "0::/user.slice\n"), "--container=web");
        assert_eq!(place_of("web", "", "0::/\n"), "--container=web");
    }

    #[test]
    fn the_log_is_told_what_is_wrong_and_nobody_waits_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("log");
        let error = CmdError::new(ExitCode::Colors, "too small; ask for more");
        assert!(log(&error, &place).is_err());
        let socket = UnixDatagram::bind(&place).unwrap();
        log(&error, &place).unwrap();
        let mut line = [0; 100];
        let length = socket.recv(&mut line).unwrap();
        let expected = format!("<28>huepage[{}]: too small; ask for more", std::process::id());
        assert_eq!(line[..length], *expected.as_bytes());
        // One that nobody reads fills up.
        assert!((0..100_000).any(|_| log(&error, &place).is_err()));
    }

    #[test]
    fn other_text_is_refused_in_one_line() {
        for text in ["", "[]", "{\"id\": 7}", "\u{0}"] {
            let error = read::<State>("standard input".as_ref(), text.as_bytes()).err().unwrap();
            assert_eq!(error.message.lines().count(), 1, "{}", error.message);
        }
    }
}
