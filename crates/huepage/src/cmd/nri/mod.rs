//! `huepage nri`: a plugin for the Node Resource Interface of containerd and CRI-O. Containers that ask for a share get
//! the hook of `huepage oci-hook` when they are created, so that nobody edits hooks.
//!
//! `frames` and `protobuf` are the protocol, `messages` its messages, `service` what the plugin answers, `choice` its
//! options, `connection` the socket; here is what connects them, again where a runtime has ended.

mod choice;
mod connection;
mod frames;
mod messages;
mod protobuf;
mod service;

use std::env;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use huepage_policy::backoff::Doubling;

use choice::HookChoice;
use connection::{ConnectionEnd, Woken, say};
use service::NriPlugin;

use crate::exit::{CmdError, ExitCode, bad_file};
use crate::partition::internal;
use crate::signals::Interrupt;

/// The descriptor of the connection, where a runtime starts the plugin by itself.
pub const SOCKET_VARIABLE: &str = "NRI_PLUGIN_SOCKET";
/// Milliseconds before a runtime that has ended is looked for again, and how often that doubles: up to half a minute.
const FIRST_REST: u64 = 100;
const DOUBLINGS: u32 = 8;

const EXAMPLES: &str = "\
Examples:
  huepage nri                                     until SIGTERM or Ctrl-C
  huepage nri --strict -- --superpages throttle   more options for all of them
  ln -s /usr/bin/huepage /opt/nri/plugins/10-huepage   the runtime starts it

A container asks by the annotation org.huepage.share, of its own or of its pod; \
org.huepage.share/container.NAME of a pod is for one of its containers. A runtime that starts the plugin \
has its options in a file: /etc/nri/conf.d/10-huepage.conf.";

/// Have containerd or CRI-O start containers in the shares that they ask for
///
/// A plugin of the Node Resource Interface (NRI): a container with the annotation `org.huepage.share`, or in a pod with
/// it, or with a schemata in `linux.intelRdt`, gets the hook of `huepage oci-hook`. Others stay as they are.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct NriArgs {
    /// The socket of the runtime's NRI
    #[arg(long, value_name = "PATH", default_value = "/var/run/nri/nri.sock")]
    socket: PathBuf,

    #[command(flatten)]
    choice: HookChoice,
}

/// The plugin that each connection begins with.
struct Beginning {
    index: String,
    name: String,
    path: String,
    choice: HookChoice,
}

impl Beginning {
    fn new(choice: HookChoice) -> Result<Beginning, CmdError> {
        let own = env::current_exe().map_err(internal)?;
        let path = own.into_os_string().into_string();
        let path = path
            .map_err(|path| bad_file(Path::new(&path), "not UTF-8, as NRI has paths; rename it"))?;
        let named = |name: &str, usual: &str| env::var(name).unwrap_or_else(|_| usual.to_owned());
        let (index, name) = (named("NRI_PLUGIN_IDX", "10"), named("NRI_PLUGIN_NAME", "huepage"));
        Ok(Beginning { index, name, path, choice })
    }

    fn plugin(&self) -> NriPlugin {
        NriPlugin::new(&self.index, &self.name, &self.path, &self.choice)
    }
}

/// Serves a runtime until a signal comes.
pub fn run(args: NriArgs) -> Result<u8, CmdError> {
    args.choice.check().map_err(|what| CmdError::new(ExitCode::Usage, what))?;
    let beginning = Beginning::new(args.choice)?;
    let interrupt = Interrupt::listen()?;
    match env::var(SOCKET_VARIABLE) {
        Ok(number) => serve_inherited(&beginning, &number, &interrupt)?,
        Err(_) => serve_socket(&beginning, &args.socket, &interrupt)?,
    }
    Ok(ExitCode::Ok.status())
}

/// A runtime that started the plugin starts it again, too.
fn serve_inherited(
    beginning: &Beginning,
    number: &str,
    interrupt: &Interrupt,
) -> Result<(), CmdError> {
    let stream = connection::inherited(number).map_err(|error| {
        let what = format!("{SOCKET_VARIABLE}={number}: {error}; unset it to use --socket");
        CmdError::new(ExitCode::Usage, what)
    })?;
    let mut plugin = beginning.plugin();
    match connection::serve(&mut plugin, &stream, interrupt)? {
        ConnectionEnd::Failed(error) => Err(CmdError::new(ExitCode::BadFile, error)),
        ConnectionEnd::Lost(why) if !plugin.is_ready() => {
            Err(CmdError::new(ExitCode::BadFile, format!("{why}; see the log of the runtime")))
        }
        ConnectionEnd::Lost(_) | ConnectionEnd::Signal => Ok(()),
    }
}

/// Connects, and again whenever a runtime that was there has gone. One that never was is an error.
fn serve_socket(beginning: &Beginning, path: &Path, interrupt: &Interrupt) -> Result<(), CmdError> {
    let (mut rests, mut was_ready) = (Doubling::new(FIRST_REST, DOUBLINGS), false);
    loop {
        let mut plugin = beginning.plugin();
        let why = match UnixStream::connect(path) {
            Ok(stream) => match connection::serve(&mut plugin, &stream, interrupt)? {
                ConnectionEnd::Signal => return Ok(()),
                ConnectionEnd::Failed(error) => return Err(bad_file(path, error)),
                ConnectionEnd::Lost(why) => why,
            },
            Err(error) if was_ready => error.to_string(),
            Err(error) => return Err(unreachable(path, &error)),
        };
        if plugin.is_ready() {
            (was_ready, rests) = (true, Doubling::new(FIRST_REST, DOUBLINGS));
            say(&format!("{}: {why}; waiting for it", path.display()));
        } else if !was_ready {
            return Err(bad_file(path, format!("{why}; see the log of the runtime")));
        }
        if connection::wait(interrupt, None, Some(Duration::from_millis(rests.take())))?
            == Woken::Signal
        {
            return Ok(());
        }
    }
}

fn unreachable(path: &Path, error: &std::io::Error) -> CmdError {
    let denied = error.kind() == std::io::ErrorKind::PermissionDenied;
    let code = if denied { ExitCode::Privilege } else { ExitCode::BadFile };
    let what = if denied {
        "run it as root"
    } else {
        "enable NRI in the configuration of containerd or CRI-O, or name its socket by --socket"
    };
    CmdError::new(code, format!("{}: {error}; {what}", path.display()))
}

/// What a plugin answers to the bytes of a runtime, for the tests.
///
/// # Errors
/// What ends the connection.
pub fn answers<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Result<Vec<u8>, String> {
    let mut plugin = NriPlugin::new("10", "huepage", "/usr/bin/huepage", &HookChoice::default());
    let mut answers = Vec::new();
    for part in parts {
        answers.extend(plugin.take(part).map_err(|error| error.to_string())?.answers);
    }
    Ok(answers)
}
