//! `huepage lab`: a stock kernel on an emulated machine with the simulator's caches under it. QEMU emulates,
//! a plugin streams every access by its physical address, and the caches of a machine file take them here,
//! in the order in which they were made. Programs run alone, beside each other and with huepage, each time
//! in a machine booted anew.

pub mod args;
mod described;
mod emulator;
mod guest;
mod guest_ram;
mod initramfs;
mod kernel_image;
mod outcome;
mod plan;
mod recorder;
mod scatter;
mod seen_by_pmu;
mod show;
mod speed;

use std::fs;
use std::path::{Path, PathBuf};

use huepage_linux::kernel::machine::KernelRelease;
use huepage_sim::lab::EmulatedCaches;
use huepage_sim::lab::LabWord;
use huepage_sim::machine::Machine;
use tempfile::TempDir;

use crate::exit::{CmdError, ExitCode, bad_file};
use crate::json::{line, parsed};
use crate::machine_files::read_machine;
use crate::partition::{check_release, internal};
use crate::progress;
use crate::report;
use crate::signals::Interrupt;
use crate::style;
pub use args::LabMachineArgs;
use args::{LabArgs, LabCommand, LabRunArgs, LabSettle};
use emulator::{GuestFiles, Ingredients, in_path};
use guest_ram::GuestRam;
use initramfs::Initramfs;
use outcome::{Column, LabVerdict};
use plan::{GuestPlan, GuestProgram, GuestReport, HUEPAGE, PLAN};
use recorder::GuestRecorder;
use seen_by_pmu::SeenByPmu;
use show::LabReport;

/// Runs the command.
pub fn run(args: &LabArgs) -> Result<u8, CmdError> {
    match &args.command {
        None => in_lab(args, |lab| lab.compare(&args.run)),
        Some(LabCommand::Boot { script }) => in_lab(args, |lab| lab.boot(script)),
        Some(LabCommand::Shell) => in_lab(args, |lab| lab.shell()),
        Some(LabCommand::Guest { plan }) => guest::run(plan),
        Some(LabCommand::Scatter { file }) => scatter::fill(file).map(|()| 0),
        Some(LabCommand::As { owner, cpu, command }) => {
            Err(guest::become_program(*owner, *cpu, command))
        }
    }
}

fn in_lab(
    args: &LabArgs,
    work: impl FnOnce(&Lab<'_>) -> Result<u8, CmdError>,
) -> Result<u8, CmdError> {
    let lab = Lab::open(&args.machine, cpus_of(args))?;
    lab.ended(work(&lab))
}

/// Records what a guest does to memory while a program runs in it, from its start to its end, and the kernel with
/// it: `huepage trace --system`. Ends with its status.
pub fn record(args: &LabMachineArgs, words: Vec<String>, trace: &Path) -> Result<u8, CmdError> {
    let lab = Lab::open(args, 2)?;
    let name = words.join(" ");
    let programs = vec![GuestProgram { cpu: 0, words, with: None }];
    let plan = GuestPlan {
        programs,
        settle: LabSettle::Idle,
        count: 0.0,
        cpus: lab.cpus,
        daemon: false,
        pmu: false,
        tlbs: false,
        whole: true,
    };
    lab.ended(lab.recorded(&name, &plan, trace))
}

/// Processors of the guest.
fn cpus_of(args: &LabArgs) -> usize {
    let most = args.run.on.chunks(2).filter_map(|on| on[0].parse::<usize>().ok()).max();
    args.machine.cpus.map_or(most.map_or(2, |most| (most + 1).max(2)), usize::from)
}

/// The column in which huepage governs programs.
const GOVERNED: &str = "with huepage";

/// The machine, and what boots on it.
struct Lab<'a> {
    args: &'a LabMachineArgs,
    cpus: usize,
    machine: Machine,
    found: Ingredients,
    /// The kernel's, as far as its file says it.
    release: Option<KernelRelease>,
    /// The unpacked kernel and what guests write.
    directory: TempDir,
    /// Ends a guest.
    interrupt: Interrupt,
}

impl<'a> Lab<'a> {
    fn open(args: &'a LabMachineArgs, cpus: usize) -> Result<Lab<'a>, CmdError> {
        let Some(path) = &args.machine else {
            return Err(usage("which machine? give --machine FILE, one of `machines/`"));
        };
        let machine = read_machine(path)?;
        EmulatedCaches::new(&machine, cpus).map_err(|e| usage(&e.to_string()))?;
        let found = Ingredients::find(args)?;
        let interrupt = Interrupt::listen()?;
        let directory = tempfile::tempdir().map_err(CmdError::internal)?;
        let kernel = kernel_image::unpack(&found.kernel)?;
        write(&directory.path().join("vmlinux"), bootable(&kernel, args, &found.kernel)?)?;
        Ok(Lab { args, cpus, machine, found, release: kernel.release, directory, interrupt })
    }

    /// What came of it, unless a signal ended it.
    fn ended(&self, result: Result<u8, CmdError>) -> Result<u8, CmdError> {
        if self.interrupt.signal().is_some() { Ok(self.interrupt.end_status()) } else { result }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What every guest has: `job` is what its init runs.
    fn files(&self, job: &str) -> Result<Initramfs, CmdError> {
        let mut files = Initramfs::default();
        let own = std::env::current_exe().map_err(CmdError::internal)?;
        files.program(&self.found.busybox, "/bin/busybox")?;
        files.program(&own, HUEPAGE)?;
        files.link("/bin/sh", "busybox");
        for directory in ["/proc", "/sys", "/dev", "/tmp", "/run", "/root", "/etc", "/var/cache"] {
            files.directory(directory);
        }
        files.file("/init", 0o755, INIT);
        files.file("/etc/passwd", 0o644, USERS);
        let scatter = if self.args.scatter { scatter::JOB } else { "" };
        files.file("/lab/job", 0o755, format!("{scatter}{job}"));
        described::caches(&self.machine, self.cpus, &mut files);
        if let Some(hash) = described::hash(&self.machine) {
            files.file(described::HASH, 0o444, hash);
        }
        for path in &self.args.pack {
            files.tree(path)?;
        }
        Ok(files)
    }

    /// Writes the guest's files, and calls what boots it.
    fn with_files<T>(
        &self,
        files: &Initramfs,
        (pmu, memory): (Option<u64>, Option<&GuestRam>),
        boot: impl FnOnce(&GuestFiles<'_>) -> Result<T, CmdError>,
    ) -> Result<T, CmdError> {
        let [kernel, initramfs, console, answers, seen] =
            ["vmlinux", "initramfs", "console", "answers", "pmu"].map(|name| self.path(name));
        write(&initramfs, &files.archive())?;
        let [kernel, initramfs] = [&kernel, &initramfs].map(PathBuf::as_path);
        let pmu = pmu.map(|period| (seen.as_path(), period));
        boot(&GuestFiles { kernel, initramfs, console: &console, answers: &answers, pmu, memory })
    }

    /// Runs a script; its status.
    fn boot(&self, script: &str) -> Result<u8, CmdError> {
        let mut files =
            self.files(&format!("sh -c {}; echo $? >{}\n", quoted(script), plan::ANSWERS))?;
        self.programs_of(script, &mut files)?;
        self.interactive(&files)?;
        let said = fs::read_to_string(self.path("answers")).unwrap_or_default();
        let status = said.lines().last().and_then(|line| line.trim().parse().ok());
        status.ok_or_else(|| {
            CmdError::new(
                ExitCode::Internal,
                "the guest did not run the script; see what its kernel said",
            )
        })
    }

    fn shell(&self) -> Result<u8, CmdError> {
        self.interactive(&self.files(SHELL)?)?;
        Ok(0)
    }

    fn interactive(&self, files: &Initramfs) -> Result<(), CmdError> {
        self.with_files(files, (None, None), |guest| {
            emulator::interactive(&self.found, self.args, self.cpus, guest, &self.interrupt)
        })
    }

    /// Packs what a script names and the host has.
    fn programs_of(&self, script: &str, files: &mut Initramfs) -> Result<(), CmdError> {
        for word in script.split(|c: char| c.is_whitespace() || ";|&()'\"".contains(c)) {
            if let Some(path) = program(word).filter(|path| !is_in_busybox(path)) {
                pack(&path, word, files)?;
            }
        }
        Ok(())
    }

    /// The three columns and the verdict; status 0 whatever it is.
    fn compare(&self, args: &LabRunArgs) -> Result<u8, CmdError> {
        let programs = self.programs(args)?;
        let groups = args.config.as_deref().map(read).transpose()?;
        let governed = groups.is_some() || programs.iter().any(|program| program.with.is_some());
        self.check(governed)?;
        if let Some(directory) = &args.record {
            fs::create_dir_all(directory).map_err(|e| bad_file(directory, e))?;
        }
        let (mut kernel, mut done) = (String::new(), Vec::new());
        for (name, programs) in columns(&programs, governed) {
            let (settle, count, cpus) = (args.settle, args.count, self.cpus);
            let groups = groups.as_deref().filter(|_| name == GOVERNED);
            let daemon = groups.is_some();
            let pmu = args.pmu.is_some();
            let tlbs = self.tells_pages();
            let plan = GuestPlan { programs, settle, count, cpus, daemon, pmu, tlbs, whole: false };
            let trace = args.record.as_ref();
            let trace = trace.map(|into| into.join(format!("{}.trace", name.replace(' ', "-"))));
            let (mut column, guest) = self.column(name, &plan, (groups, args.pmu), trace)?;
            column.speed = column.speed.filter(|_| args.speed);
            outlived(guest.programs.last().filter(|_| daemon))?;
            kernel = guest.kernel;
            done.push(column);
        }
        let report = LabReport {
            machine: self.machine.name.clone(),
            cpus: self.cpus,
            kernel,
            deterministic: !self.args.fast,
            verdict: LabVerdict::of(&done, programs.len()),
            columns: done,
        };
        let text = match (args.json, args.html) {
            (true, _) => report::json(&report)?,
            (_, true) => report.html(),
            _ => report.text(),
        };
        style::print(&text).map_err(internal)?;
        Ok(0)
    }

    /// Whether TLBs are counted: the machine has some for data, and one thread emulates all processors.
    fn tells_pages(&self) -> bool {
        !self.machine.tlb_path(false).is_empty() && !self.args.fast
    }

    /// What can be said before anything boots.
    fn check(&self, governed: bool) -> Result<(), CmdError> {
        // What huepage would say in the guest.
        self.release.as_ref().filter(|_| governed).map_or(Ok(()), check_release)
    }

    /// Records the first program of a plan; its status.
    fn recorded(&self, name: &str, plan: &GuestPlan, trace: &Path) -> Result<u8, CmdError> {
        let (column, guest) = self.column(name, plan, (None, None), Some(trace.to_owned()))?;
        let (end, trace) = (&guest.programs[0], trace.display());
        eprint!("{}", end.said);
        eprintln!("huepage: {trace}: {} accesses by physical address", column.accesses);
        end.status.ok_or_else(|| {
            let how = end.ended_early.as_deref().unwrap_or("not at all");
            CmdError::new(ExitCode::Internal, format!("{name} ended by {how}"))
        })
    }

    /// The programs with the options of each.
    fn programs(&self, args: &LabRunArgs) -> Result<Vec<GuestProgram>, CmdError> {
        if args.on.is_empty() {
            return Err(usage(
                "which programs? give --on 0 'CMD', and --on 1 'CMD' for a neighbour",
            ));
        }
        let count = args.on.len() / 2;
        if args.shares.len().max(args.with.len()) > count {
            return Err(usage("more shares or options than programs; give an --on for each"));
        }
        if count >= guest::SUPERVISORS as usize {
            return Err(usage("too many programs; give at most 14"));
        }
        args.on
            .chunks(2)
            .enumerate()
            .map(|(number, on)| self.program_of(args, number, on))
            .collect()
    }

    fn program_of(
        &self,
        args: &LabRunArgs,
        number: usize,
        on: &[String],
    ) -> Result<GuestProgram, CmdError> {
        let cpu = on[0].parse().ok().filter(|cpu| *cpu < self.cpus);
        let cpu = cpu.ok_or_else(|| {
            usage(&format!("no processor `{}`; give 0 to {}", on[0], self.cpus - 1))
        })?;
        let words = plan::words(&on[1]);
        if words.is_empty() {
            return Err(usage("an empty command; give a program"));
        }
        let share = args.shares.get(number).map(|share| self.share(share));
        let with =
            args.with.get(number).map(|with| plan::words(with)).filter(|words| !words.is_empty());
        Ok(GuestProgram { cpu, words, with: share.or(with) })
    }

    /// The options that give a program a share of the last level, whose colours the guest can tell.
    fn share(&self, share: &str) -> Vec<String> {
        let from = if described::hash(&self.machine).is_some() {
            format!("declared={}", described::HASH)
        } else {
            "pfn".to_owned()
        };
        let level = described::last_level(&self.machine);
        ["--level", level, "--share", share, "--colors-from", &from].map(str::to_owned).to_vec()
    }

    /// Boots and counts; with what the guest told. A PMU samples one load in so many.
    fn column(
        &self,
        name: &str,
        plan: &GuestPlan,
        (groups, pmu): (Option<&str>, Option<u64>),
        trace: Option<PathBuf>,
    ) -> Result<(Column, GuestReport), CmdError> {
        let mut files = self.files(&format!("{HUEPAGE} lab guest {PLAN}\n"))?;
        files.file(PLAN, 0o444, line(plan).map_err(CmdError::internal)?);
        groups.into_iter().for_each(|groups| files.file(plan::DAEMON, 0o444, groups));
        for program in &plan.programs {
            self.programs_of(&program.words.join(" "), &mut files)?;
        }
        let mut caches = self.caches(plan)?;
        let memory = plan.tlbs.then(|| GuestRam::create(self.args)).transpose()?;
        let mut seen = SeenByPmu::create(pmu, &self.path("pmu"))?;
        let mut recorder = GuestRecorder::create(trace, name)?;
        let bar = progress::bar(true, None, "{spinner} {msg}");
        bar.set_message(format!("{name}: booting"));
        let meter = self.with_files(&files, (pmu, memory.as_ref()), |guest| {
            let mut take = |words: &[LabWord]| {
                let heard = caches.run(words);
                bar.set_message(format!("{name}: {} million accesses", caches.seen / 1_000_000));
                bar.tick();
                recorder.take(words)?;
                let asked = seen.as_mut().filter(|_| heard.asked > 0);
                asked.map_or(Ok(()), |seen| seen.update(&mut caches)).map(|()| heard)
            };
            let interrupt = &self.interrupt;
            emulator::watched(&self.found, self.args, self.cpus, guest, interrupt, &mut take)
        })?;
        bar.finish_and_clear();
        recorder.finish()?;
        let guest = self.answer()?;
        let mut column = Column::new(name, &self.machine, plan, &guest, &caches);
        column.speed = meter.speed(caches.seen);
        Ok((column, guest))
    }

    /// The caches below a guest, with what else a plan has counted.
    fn caches(&self, plan: &GuestPlan) -> Result<EmulatedCaches, CmdError> {
        let caches = EmulatedCaches::new(&self.machine, self.cpus);
        let mut caches = caches.map_err(|e| usage(&e.to_string()))?;
        if plan.tlbs {
            caches.with_tlbs(&self.machine);
        }
        if plan.pmu {
            caches.with_pmu(&self.machine);
        }
        Ok(caches)
    }

    /// What the guest told.
    fn answer(&self) -> Result<GuestReport, CmdError> {
        let told = fs::read_to_string(self.path("answers")).unwrap_or_default();
        parsed(told.trim().as_bytes()).map_err(|_| {
            let console = fs::read_to_string(self.path("console")).unwrap_or_default();
            let last = console.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
            CmdError::new(
                ExitCode::Internal,
                format!("the guest did not end well; the last it said: {}", last.trim()),
            )
        })
    }
}

/// The form of a kernel that is booted: unpacked, but for page tables of five levels, which are turned on by the part
/// that unpacks it, or not at all.
fn bootable<'a>(
    kernel: &'a kernel_image::KernelImage,
    args: &LabMachineArgs,
    path: &Path,
) -> Result<&'a [u8], CmdError> {
    if !args.features.contains("+la57") {
        return Ok(&kernel.elf);
    }
    let what = "an unpacked kernel turns on no page tables of five levels; give a vmlinuz";
    kernel.packed.as_deref().ok_or_else(|| bad_file(path, what))
}

/// What runs in each column.
fn columns(programs: &[GuestProgram], governed: bool) -> Vec<(&'static str, Vec<GuestProgram>)> {
    let without = |program: &GuestProgram| GuestProgram { with: None, ..program.clone() };
    let mut columns = vec![("alone", vec![without(&programs[0])])];
    if programs.len() > 1 {
        columns.push(("beside", programs.iter().map(without).collect()));
    }
    if governed {
        columns.push((GOVERNED, programs.to_vec()));
    }
    columns
}

/// The users of a guest: `huepage daemon` runs commands of metrics as nobody.
const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n";

/// Fails if a daemon has ended before the programs that it was to govern.
fn outlived(daemon: Option<&plan::ProgramEnd>) -> Result<(), CmdError> {
    let Some(end) = daemon.filter(|end| end.ended_early.is_some()) else { return Ok(()) };
    let said =
        end.said.lines().last().unwrap_or("it says nothing; run it with `huepage lab shell`");
    let said = said.trim_start_matches("huepage: ");
    let code = if end.status.is_some() { ExitCode::BadFile } else { ExitCode::Internal };
    Err(CmdError::new(code, format!("the daemon in the guest has ended: {said}")))
}

/// What the kernel of a guest starts: mounts what programs expect, shows the caches of the machine file,
/// runs the job, and ends the guest.
const INIT: &str = "\
#!/bin/sh
/bin/busybox --install -s /bin 2>/dev/null
export PATH=/bin HOME=/root NO_COLOR=1
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mount -t tmpfs run /run; mount -t cgroup2 cg /sys/fs/cgroup
mount -t tracefs t /sys/kernel/tracing; mount -t bpf bpf /sys/fs/bpf
for cpu in /lab/caches/*; do
    mount -o bind $cpu /sys/devices/system/cpu/${cpu##*/}/cache
done
stty -F /dev/ttyS1 raw
. /lab/job
# What was written last has to leave a line before the power goes: setting a line waits for that.
for line in /dev/ttyS0 /dev/ttyS1; do stty -F $line sane; done
poweroff -f
";

/// What a guest with a shell does. The kernel throws away what has not left a terminal when the first process of
/// its session ends, so that one waits for it after the shell; also if that was killed, and left others in front.
const SHELL: &str = "setsid cttyhack sh -c 'sh; trap \"\" TTOU; stty sane'\n";

/// A program that a word names: a path, a name on the path, or one beside this program.
fn program(word: &str) -> Option<PathBuf> {
    if word.is_empty() || word.starts_with('-') {
        return None;
    }
    let beside = std::env::current_exe().ok()?.with_file_name(word);
    let named = if word.contains('/') { Some(PathBuf::from(word)) } else { in_path(word) };
    named.filter(|path| path.is_file()).or_else(|| Some(beside).filter(|path| path.is_file()))
}

/// What every guest has anyway.
fn is_in_busybox(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    ["sh", "busybox", "huepage"].iter().any(|own| name == *own)
}

/// Packs a program under its path, or under its name where programs are looked for.
fn pack(path: &Path, word: &str, files: &mut Initramfs) -> Result<(), CmdError> {
    let place = if word.starts_with('/') {
        PathBuf::from(word)
    } else {
        Path::new("/bin").join(path.file_name().unwrap_or_default())
    };
    files.program(path, place)
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn usage(what: &str) -> CmdError {
    CmdError::new(ExitCode::Usage, what)
}

fn read(path: &Path) -> Result<String, CmdError> {
    fs::read_to_string(path).map_err(|e| bad_file(path, e))
}

fn write(path: &Path, content: &[u8]) -> Result<(), CmdError> {
    fs::write(path, content).map_err(|e| bad_file(path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_levels_need_the_part_that_unpacks_the_kernel() {
        let mut args = LabMachineArgs::plain(PathBuf::new(), None, Vec::new());
        let of = |packed| kernel_image::KernelImage { elf: vec![1], packed, release: None };
        let booted = |args: &LabMachineArgs, packed| {
            bootable(&of(packed), args, Path::new("k")).map(<[u8]>::to_vec).ok()
        };
        assert_eq!(booted(&args, Some(vec![2])), Some(vec![1]));
        args.features = "+la57".to_owned();
        assert_eq!(booted(&args, Some(vec![2])), Some(vec![2]));
        assert_eq!(booted(&args, None), None);
    }
}
