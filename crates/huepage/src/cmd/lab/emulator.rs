//! QEMU: what is needed to run it, its command line, and the stream of accesses that its plugin writes to
//! standard output, which goes through the caches as it comes.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use huepage_linux::inject::launch::relay::own_child;
use huepage_linux::sensors::records::{LATER, plugin_at, qemu_version};
use huepage_sim::lab::{LabRequests, LabWord};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::args::LabMachineArgs;
use super::guest_ram::{GuestRam, low_bytes, node_bytes};
use super::kernel_image;
use super::speed::SpeedMeter;
use crate::exit::{CmdError, ExitCode, bad_file};
use crate::signals::Interrupt;

/// The emulator.
const QEMU: &str = "qemu-system-x86_64";
/// The processor that is emulated: one with caches, without chance, and without a sign of an emulator; of a
/// model that nobody made, so that nothing is believed of its slices. Without `cmpxchg16b`: QEMU 7.2 leaves
/// impossible flags behind where an interrupt follows it (2 of 200,000), and with them the kernel faults twice.
const PROCESSOR: &str = "EPYC,model=2,-hypervisor,-rdrand,-rdseed,-cx16";
/// What makes kernels repeat themselves, and not spend time on what is no matter here.
const KERNEL_LINE: &str = "console=ttyS0 quiet loglevel=1 panic=-1 nokaslr norandmaps tsc=reliable mitigations=off random.trust_cpu=off \
    cryptomgr.notests";
/// log2 of the nanoseconds that an instruction takes: slower, and what is done so often in a second (ticks of the
/// kernel, huepage's looks) weighs far more than on any machine.
const ICOUNT: &str = "shift=2,sleep=off";
/// Accesses after which a processor has to let the next one go on, where they share a thread.
const TURN: u32 = 4096;
/// The first emulator whose plugins see the addresses that the guest has.
const TELLS_PHYSICAL: (u32, u32) = (8, 2);
/// How long a guest may run, by the clock of the host.
const LIMIT: Duration = Duration::from_secs(3600);
/// Bytes that the pipe from the emulator holds.
const PIPE: usize = 1 << 20;
/// Bytes read at once.
const CHUNK: usize = 1 << 19;

/// What is there to boot a guest with.
#[derive(Debug)]
pub struct Ingredients {
    qemu: PathBuf,
    /// A static one.
    pub busybox: PathBuf,
    /// The kernel's file.
    pub kernel: PathBuf,
}

impl Ingredients {
    /// Looks for all; says in one line which packages bring what is missing.
    pub fn find(args: &LabMachineArgs) -> Result<Ingredients, CmdError> {
        let kernel = kernel_image::find(args.kernel.as_deref());
        if let (Some(wanted), None) = (&args.kernel, &kernel) {
            return Err(kernel_image::none(wanted));
        }
        let found = (in_path(QEMU), in_path("busybox"), kernel);
        let missing = [
            found.0.is_none().then_some("qemu-system-x86"),
            found.1.is_none().then_some("busybox-static"),
            found.2.is_none().then_some(
                "linux-image-cloud-amd64 (6.8 or newer; or `apt-get download` one for --kernel)",
            ),
        ];
        match found {
            (Some(qemu), Some(busybox), Some(kernel)) => Ok(Ingredients { qemu, busybox, kernel }),
            _ => {
                let missing: Vec<&str> = missing.into_iter().flatten().collect();
                let what =
                    format!("the lab needs packages that are not here: {}", missing.join(", "));
                Err(CmdError::new(ExitCode::Lacking, format!("{what}; install them with apt-get")))
            }
        }
    }

    /// The plugin that this QEMU takes.
    fn plugin(&self, fast: bool) -> Result<PathBuf, CmdError> {
        let new = qemu_version(&self.qemu).is_some_and(|version| version >= LATER);
        if new && !fast {
            let what = "this QEMU numbers processors wrongly when they share a thread; take one before 9.0, or --fast";
            return Err(CmdError::new(ExitCode::Kernel, what));
        }
        let name = if new { "libhuepage_qemu_lab_3.so" } else { "libhuepage_qemu_lab.so" };
        plugin_at(name).map_err(|e| CmdError::new(ExitCode::Kernel, e))
    }
}

/// A program of the path, or of the directories where administrators' programs are.
pub fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let all = std::env::split_paths(&path).chain(more).map(|directory| directory.join(name));
    all.into_iter().find(|path| path.is_file())
}

/// What a guest is booted from, and where it writes.
#[derive(Debug)]
pub struct GuestFiles<'a> {
    /// The unpacked kernel.
    pub kernel: &'a Path,
    /// Its files.
    pub initramfs: &'a Path,
    /// Its first serial line.
    pub console: &'a Path,
    /// Its second one.
    pub answers: &'a Path,
    /// What its PMU has seen, and how many loads there are for each that it samples, if it has one.
    pub pmu: Option<(&'a Path, u64)>,
    /// Its memory, where page tables in that are read, so that others have to open it.
    pub memory: Option<&'a GuestRam>,
}

/// The command line of a guest; `console`: what its first serial line is.
fn command(
    found: &Ingredients,
    args: &LabMachineArgs,
    cpus: usize,
    files: &GuestFiles<'_>,
    console: &str,
) -> Command {
    let mut command = Command::new(&found.qemu);
    own_child(&mut command);
    let file = |path: &Path| {
        let mut text = OsString::from("file:");
        text.push(path);
        text
    };
    let processor = format!("{PROCESSOR},{}", args.features);
    command.args(["-M", "q35", "-cpu", processor.trim_end_matches(',')]);
    command.args(["-nodefaults", "-no-user-config", "-no-reboot"]);
    command.args(["-display", "none", "-serial", console, "-serial"]).arg(file(files.answers));
    command.args(["-seed", "1", "-rtc", "base=2026-01-01,clock=vm"]);
    command.args(["-smp", &format!("{cpus},sockets=1,cores={cpus}")]);
    command.args(["-m", &format!("{}K", args.memory >> 10)]);
    command.args(nodes(args, cpus, files.memory));
    command.args(devices(args, files));
    if args.fast {
        command.args(["-accel", "tcg,thread=multi"]);
    } else {
        command.args(["-accel", "tcg,thread=single", "-icount", ICOUNT]);
    }
    command.arg("-kernel").arg(files.kernel).arg("-initrd").arg(files.initramfs);
    command.args(["-append", format!("{KERNEL_LINE} {}", args.append).trim_end()]);
    command
}

/// Options for what others read and write in the guest: its memory, and the device that is its PMU.
fn devices(args: &LabMachineArgs, files: &GuestFiles<'_>) -> Vec<OsString> {
    let mut options: Vec<OsString> = Vec::new();
    if args.numa == 1 && (files.pmu.is_some() || files.memory.is_some()) {
        // Memory that is made first is where it says it is for plugins.
        let own = own_memory(args, files.memory);
        options.extend(["-object", &own, "-machine", "memory-backend=own"].map(OsString::from));
    }
    if let Some((path, _)) = files.pmu {
        let mut seen = OsString::from("memory-backend-file,id=pmu,share=on,size=2M,mem-path=");
        seen.push(path);
        let device = ["-device", "ivshmem-plain,memdev=pmu,addr=0x10"].map(OsString::from);
        options.extend([OsString::from("-object"), seen].into_iter().chain(device));
    }
    options
}

/// The guest's memory, where others have to know where it is.
fn own_memory(args: &LabMachineArgs, shared: Option<&GuestRam>) -> String {
    let bytes = args.memory >> 10 << 10;
    backend("own", bytes, shared.and_then(|shared| shared.paths().next()))
}

/// Memory of so many bytes, in a file if others use it.
fn backend(name: &str, bytes: u64, shared: Option<PathBuf>) -> String {
    let rest = format!("id={name},size={bytes}");
    match shared {
        None => format!("memory-backend-ram,{rest}"),
        Some(path) => format!("memory-backend-file,{rest},share=on,mem-path={}", path.display()),
    }
}

/// Options that divide processors and memory among NUMA nodes, if there are several.
fn nodes(args: &LabMachineArgs, cpus: usize, shared: Option<&GuestRam>) -> Vec<String> {
    let nodes = usize::from(args.numa);
    if nodes == 1 {
        return Vec::new();
    }
    let mut files = shared.into_iter().flat_map(GuestRam::paths);
    let node = |(node, bytes): (usize, u64)| {
        let (first, end) = (cpus * node / nodes, cpus * (node + 1) / nodes);
        let cpus = if first < end { format!(",cpus={first}-{}", end - 1) } else { String::new() };
        let memory = backend(&format!("node{node}"), bytes, files.next());
        [
            "-object".into(),
            memory,
            "-numa".into(),
            format!("node,nodeid={node}{cpus},memdev=node{node}"),
        ]
    };
    node_bytes(args).into_iter().enumerate().flat_map(node).collect()
}

/// The option that loads the plugin.
fn plugin_option(
    found: &Ingredients,
    args: &LabMachineArgs,
    files: &GuestFiles<'_>,
) -> Result<OsString, CmdError> {
    let mut option = found.plugin(args.fast)?.into_os_string();
    if !args.fast {
        option.push(format!(",turns={TURN}"));
    }
    let nodes: Vec<String> = node_bytes(args).iter().map(u64::to_string).collect();
    option.push(format!(",nodes={},low={}", nodes.join(":"), low_bytes(args)));
    if qemu_version(&found.qemu).is_some_and(|version| version >= TELLS_PHYSICAL) {
        option.push(",physical=1");
    }
    files.pmu.into_iter().for_each(|(_, period)| option.push(format!(",sampled={period}")));
    for path in files.memory.into_iter().flat_map(GuestRam::paths) {
        option.push(format!(",memory={}", path.display()));
    }
    Ok(option)
}

/// Boots a guest with the terminal, or what else this process has, as its console.
pub fn interactive(
    found: &Ingredients,
    args: &LabMachineArgs,
    cpus: usize,
    files: &GuestFiles<'_>,
    interrupt: &Interrupt,
) -> Result<(), CmdError> {
    let mut command = command(found, args, cpus, files, "stdio");
    // Nothing is counted, but a busy processor leaves others hardly any time without turns.
    if let (false, Ok(plugin)) = (args.fast, plugin_option(found, args, files)) {
        command.arg("-plugin").arg(plugin);
    }
    let said = QemuLog::of(files);
    let child = command.stderr(said.create()?).spawn();
    let mut running = Running(child.map_err(|e| failed(&e.to_string()))?);
    loop {
        if let Some(status) = running.0.try_wait().map_err(|e| failed(&e.to_string()))? {
            return said.judge(status);
        }
        // The end of the emulator is a signal, too.
        wait_for(&mut [PollFd::new(&interrupt.fd(), PollFlags::IN)], LIMIT, interrupt)?;
    }
}

/// Waits for one of these; whether there is any before the time is over.
fn wait_for(
    fds: &mut [PollFd<'_>],
    most: Duration,
    interrupt: &Interrupt,
) -> Result<bool, CmdError> {
    let most = Timespec { tv_sec: i64::try_from(most.as_secs()).unwrap_or(0), tv_nsec: 1000 };
    let ready = match poll(fds, Some(&most)) {
        Err(rustix::io::Errno::INTR) => 1,
        ready => ready.map_err(|error| failed(&error.to_string()))?,
    };
    match interrupt.signal() {
        Some(signal) => Err(failed(&format!("signal {signal} came"))),
        None => Ok(ready > 0),
    }
}

/// What takes words, and says what they asked for.
type Taker<'a> = dyn FnMut(&[LabWord]) -> Result<LabRequests, CmdError> + 'a;

/// Boots a guest, and runs what it does to memory through caches, until it has ended; how fast that was.
pub fn watched(
    found: &Ingredients,
    args: &LabMachineArgs,
    cpus: usize,
    files: &GuestFiles<'_>,
    interrupt: &Interrupt,
    take: &mut Taker<'_>,
) -> Result<SpeedMeter, CmdError> {
    let console = format!("file:{}", files.console.display());
    let mut command = command(found, args, cpus, files, &console);
    command.arg("-plugin").arg(plugin_option(found, args, files)?);
    let said = QemuLog::of(files);
    let answers = if files.pmu.is_some() { Stdio::piped() } else { Stdio::null() };
    let child = command.stdin(answers).stdout(Stdio::piped()).stderr(said.create()?).spawn();
    let mut running = Running(child.map_err(|e| failed(&e.to_string()))?);
    let stream = running.0.stdout.take().ok_or_else(|| failed("no standard output"))?;
    // A smaller pipe is slower, and no worse.
    let _ = rustix::pipe::fcntl_setpipe_size(&stream, PIPE);
    let (deadline, answers) = (Instant::now() + LIMIT, running.0.stdin.take());
    let mut meter = SpeedMeter::of(running.0.id());
    let bytes = vec![0; CHUNK];
    Stream { stream, answers, interrupt, deadline, bytes, kept: 0 }.drain(take, &mut meter)?;
    let status = running.0.wait().map_err(|e| failed(&e.to_string()))?;
    said.judge(status).map(|()| meter)
}

/// What the emulator says on standard error, of which only the last line before its end matters.
struct QemuLog(PathBuf);

impl QemuLog {
    fn of(files: &GuestFiles<'_>) -> QemuLog {
        QemuLog(files.console.with_extension("qemu"))
    }

    fn create(&self) -> Result<File, CmdError> {
        File::create(&self.0).map_err(|e| bad_file(&self.0, e))
    }

    fn judge(&self, status: ExitStatus) -> Result<(), CmdError> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        let last = text.lines().last().map_or_else(|| status.to_string(), str::to_owned);
        if status.success() { Ok(()) } else { Err(failed(&last)) }
    }
}

/// An emulator that is killed when nobody waits for it any more.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Words on their way here.
struct Stream<'a> {
    stream: ChildStdout,
    /// Where a guest that asked is answered.
    answers: Option<ChildStdin>,
    interrupt: &'a Interrupt,
    deadline: Instant,
    bytes: Vec<u8>,
    /// Bytes of a word that has not come whole.
    kept: usize,
}

impl Stream<'_> {
    /// Gives all words to `take`, until the emulator closes its end.
    fn drain(&mut self, take: &mut Taker<'_>, meter: &mut SpeedMeter) -> Result<(), CmdError> {
        let mut words = Vec::with_capacity(CHUNK / 8);
        loop {
            let end = self.kept + self.read()?;
            if end == self.kept {
                return Ok(());
            }
            words.clear();
            let (whole, rest) = self.bytes[..end].as_chunks::<8>();
            words.extend(whole.iter().map(|word| LabWord(u64::from_le_bytes(*word))));
            let (from, rest) = (end - rest.len(), rest.len());
            self.bytes.copy_within(from..end, 0);
            self.kept = rest;
            meter.begin();
            let heard = take(&words)?;
            if heard.ended {
                meter.end();
            }
            if let Some(answers) = &mut self.answers {
                let answer = answers.write_all(&vec![1; heard.asked]);
                answer.map_err(|e| failed(&e.to_string()))?;
            }
        }
    }

    /// Reads what there is; waits for it.
    fn read(&mut self) -> Result<usize, CmdError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let of = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds = [of(self.stream.as_fd()), of(self.interrupt.fd())];
        loop {
            if !wait_for(&mut fds, left, self.interrupt)? {
                return Err(failed("the guest did not end in time"));
            }
            if !fds[0].revents().is_empty() {
                break;
            }
        }
        loop {
            match self.stream.read(&mut self.bytes[self.kept..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done.map_err(|e| failed(&e.to_string())),
            }
        }
    }
}

fn failed(what: &str) -> CmdError {
    CmdError::new(ExitCode::Internal, format!("{QEMU} failed: {what}; try `huepage lab shell`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        machine: LabMachineArgs,
    }

    #[test]
    fn nodes_share_processors_and_memory_whole() {
        let args = Cli::parse_from(["lab", "--numa", "2", "--memory", "1G"]).machine;
        let options = nodes(&args, 3, None).join(" ");
        assert_eq!(
            options,
            "-object memory-backend-ram,id=node0,size=536870912 -numa node,nodeid=0,cpus=0-0,memdev=node0 \
             -object memory-backend-ram,id=node1,size=536870912 -numa node,nodeid=1,cpus=1-2,memdev=node1"
        );
        let shared = GuestRam::create(&args).unwrap();
        let options = nodes(&args, 3, Some(&shared)).join(" ");
        for (node, path) in shared.paths().enumerate() {
            let file =
                format!("id=node{node},size=536870912,share=on,mem-path={} ", path.display());
            assert!(options.contains(&file), "{options}");
        }
        let args = Cli::parse_from(["lab"]).machine;
        assert!(nodes(&args, 3, None).is_empty());
    }
}
