//! The real programs that huepage is judged by: what each needs, how it is made ready, how
//! it is started, and what of it is compared.
//!
//! Each runs a few seconds and its output depends on nothing but its input, so that a run
//! under huepage can be compared byte for byte with a native one. Sources and inputs are in
//! `programs/` or made here; nothing is fetched. Installing packages is the business of
//! `scripts/setup-programs.sh`.

mod streams;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub use streams::STREAMS;

use crate::mix::Rng;

/// Why a program cannot be made ready.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A tool is missing.
    #[error(
        "{tool} is not installed; run scripts/setup-programs.sh as root, or apt-get install {package}"
    )]
    Missing {
        /// The command that was looked for.
        tool: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// A build step failed.
    #[error("cannot build {name}: {why}; run the command by hand")]
    Build {
        /// The program.
        name: &'static str,
        /// The command and its last line of output.
        why: String,
    },
    /// Files cannot be written.
    #[error("cannot write {}: {source}; give --dir a writable directory", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// One program of the table.
#[derive(Clone, Copy, Debug)]
pub struct BenchProgram {
    /// Its short name.
    pub name: &'static str,
    /// The command that must exist.
    tool: &'static str,
    /// The Debian package of that command.
    package: &'static str,
    /// Input files: name and contents.
    inputs: &'static [(&'static str, Input)],
    /// Build command, in the directory of the inputs; may be empty.
    build: &'static [&'static str],
    /// Arguments; `{tool}` is the tool's path, `{dir}/x` the input x.
    argv: &'static [&'static str],
    /// The input file fed to standard input.
    stdin: Option<&'static str>,
    /// Environment variables.
    env: &'static [(&'static str, &'static str)],
    /// Files that the program leaves in its working directory, compared too.
    pub files: &'static [&'static str],
    /// Whether its time is mostly allocation (a looser bound holds for it).
    pub allocating: bool,
}

/// Where an input comes from.
#[derive(Clone, Copy, Debug)]
enum Input {
    Text(&'static str),
    Made(fn() -> String),
}

const BASE: BenchProgram = BenchProgram {
    name: "",
    tool: "",
    package: "",
    inputs: &[],
    build: &[],
    argv: &[],
    stdin: None,
    env: &[],
    files: &[],
    allocating: false,
};

/// The programs, in the order of issue 2, and one that does nothing but allocate.
pub const PROGRAMS: [BenchProgram; 10] = [
    BenchProgram {
        name: "gnugo",
        tool: "gnugo",
        package: "gnugo",
        inputs: &[("game.gtp", Input::Text(include_str!("../programs/game.gtp")))],
        argv: &["{tool}", "--mode", "gtp", "--level", "10", "--seed", "1"],
        stdin: Some("game.gtp"),
        ..BASE
    },
    BenchProgram {
        name: "povray",
        tool: "povray",
        package: "povray",
        inputs: &[("scene.pov", Input::Text(include_str!("../programs/scene.pov")))],
        argv: &[
            "{tool}",
            "-D",
            "+I{dir}/scene.pov",
            "+Oscene.bmp",
            "+FB",
            "+W640",
            "+H480",
            "+WT2",
        ],
        files: &["scene.bmp"],
        ..BASE
    },
    BenchProgram {
        name: "gcc",
        tool: "gcc",
        package: "gcc",
        inputs: &[("large.c", Input::Made(large_c))],
        argv: &["{tool}", "-O2", "-c", "{dir}/large.c", "-o", "large.o"],
        files: &["large.o"],
        ..BASE
    },
    BenchProgram {
        name: "xz",
        tool: "xz",
        package: "xz-utils",
        inputs: &[("text", Input::Made(text))],
        argv: &["{tool}", "-6", "-T1", "-c", "{dir}/text"],
        ..BASE
    },
    BenchProgram {
        name: "sqlite3",
        tool: "sqlite3",
        package: "sqlite3",
        inputs: &[("work.sql", Input::Text(include_str!("../programs/work.sql")))],
        argv: &["{tool}", "-batch", "-init", "/dev/null", "work.db"],
        stdin: Some("work.sql"),
        files: &["work.db"],
        ..BASE
    },
    BenchProgram {
        name: "python3",
        tool: "python3",
        package: "python3",
        inputs: &[("work.py", Input::Text(include_str!("../programs/work.py")))],
        argv: &["{tool}", "{dir}/work.py"],
        env: &[("PYTHONHASHSEED", "0")],
        ..BASE
    },
    BenchProgram {
        name: "go",
        tool: "go",
        package: "golang-go",
        inputs: &[("goprog.go", Input::Text(include_str!("../programs/goprog.go")))],
        build: &["{tool}", "build", "-o", "goprog", "goprog.go"],
        argv: &["{dir}/goprog"],
        ..BASE
    },
    BenchProgram {
        name: "static",
        tool: "gcc",
        package: "gcc libc6-dev",
        inputs: &[("static.c", Input::Text(include_str!("../programs/static.c")))],
        build: &["{tool}", "-O2", "-static", "-o", "static", "static.c"],
        argv: &["{dir}/static"],
        ..BASE
    },
    BenchProgram {
        name: "java",
        tool: "javac",
        package: "default-jdk-headless",
        inputs: &[("Work.java", Input::Text(include_str!("../programs/Work.java")))],
        build: &["{tool}", "-d", ".", "Work.java"],
        argv: &["{java}", "-Xmx256m", "-cp", "{dir}", "Work"],
        ..BASE
    },
    BenchProgram {
        name: "alloc",
        tool: "gcc",
        package: "gcc libc6-dev",
        inputs: &[("alloc.c", Input::Text(include_str!("../programs/alloc.c")))],
        build: &["{tool}", "-O2", "-o", "alloc", "alloc.c"],
        argv: &["{dir}/alloc"],
        allocating: true,
        ..BASE
    },
];

/// A program that is ready to be started.
#[derive(Clone, Debug)]
pub struct ReadyProgram {
    /// The program.
    pub program: BenchProgram,
    /// Its command line.
    pub argv: Vec<OsString>,
    /// The file for its standard input.
    pub stdin: Option<PathBuf>,
}

impl ReadyProgram {
    /// A command with this program's environment and standard input, to which the caller
    /// gave a command line.
    ///
    /// # Errors
    /// When the input file cannot be opened.
    pub fn dress(&self, command: &mut Command) -> io::Result<()> {
        command.envs(self.program.env.iter().copied());
        command.stdin(match &self.stdin {
            Some(path) => Stdio::from(fs::File::open(path)?),
            None => Stdio::null(),
        });
        Ok(())
    }
}

/// The path of a command: Debian's own first, then what PATH says.
pub fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let fixed = ["/usr/bin", "/usr/games", "/bin", "/usr/local/go/bin"].map(PathBuf::from);
    let mut places = fixed.into_iter().chain(std::env::split_paths(&path));
    places.find_map(|dir| {
        let candidate = dir.join(tool);
        candidate.is_file().then_some(candidate)
    })
}

impl BenchProgram {
    /// Writes the inputs into a directory of its own under `base`, and builds.
    ///
    /// # Errors
    /// When the tool is missing, the build fails or files cannot be written.
    pub fn prepare(&self, base: &Path) -> Result<ReadyProgram, SetupError> {
        let missing = SetupError::Missing { tool: self.tool, package: self.package };
        let tool = find(self.tool).ok_or(missing)?;
        let dir = base.join(self.name);
        fs::create_dir_all(&dir).map_err(|source| SetupError::Io { path: dir.clone(), source })?;
        let mut stale = false;
        for (name, input) in self.inputs {
            let contents = match input {
                Input::Text(text) => (*text).to_owned(),
                Input::Made(make) => make(),
            };
            let path = dir.join(name);
            if fs::read(&path).ok().as_deref() != Some(contents.as_bytes()) {
                stale = true;
                fs::write(&path, contents).map_err(|source| SetupError::Io { path, source })?;
            }
        }
        if !self.build.is_empty() && (stale || !dir.join("built").exists()) {
            self.build(&tool, &dir)?;
        }
        let argv = self.argv.iter().map(|arg| expand(arg, &tool, &dir)).collect();
        Ok(ReadyProgram { program: *self, argv, stdin: self.stdin.map(|name| dir.join(name)) })
    }

    fn build(&self, tool: &Path, dir: &Path) -> Result<(), SetupError> {
        let argv: Vec<OsString> = self.build.iter().map(|arg| expand(arg, tool, dir)).collect();
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).current_dir(dir).env("GOCACHE", dir.join("cache"));
        command.env("GOFLAGS", "").env("GO111MODULE", "off").env("GOTOOLCHAIN", "local");
        let output = command.output().map_err(|e| e.to_string());
        let why = match output {
            Ok(output) if output.status.success() => {
                let stamp = dir.join("built");
                return fs::write(&stamp, "")
                    .map_err(|source| SetupError::Io { path: stamp, source });
            }
            Ok(output) => String::from_utf8_lossy(&output.stderr).lines().last().map(str::to_owned),
            Err(why) => Some(why),
        };
        let why = format!("{command:?}: {}", why.unwrap_or_default());
        Err(SetupError::Build { name: self.name, why })
    }
}

fn expand(arg: &str, tool: &Path, dir: &Path) -> OsString {
    if arg == "{java}" {
        return tool.with_file_name("java").into_os_string();
    }
    let text = arg.replace("{dir}", &dir.to_string_lossy());
    text.replace("{tool}", &tool.to_string_lossy()).into()
}

/// A C file large enough to keep a compiler busy for a few seconds.
pub(crate) fn large_c() -> String {
    let mut rng = Rng::with_seed(2024);
    let mut text = String::from("static unsigned v[64];\n");
    for function in 0..100 {
        let _ = writeln!(text, "unsigned f{function}(unsigned a, unsigned b) {{");
        let _ = writeln!(text, "  for (unsigned i = 0; i < b % 32; i++) {{");
        for _ in 0..6 {
            let (x, y, z) = (rng.usize(..64), rng.usize(..64), 1 + rng.usize(..30));
            let _ = writeln!(text, "    if (a > v[{x}]) a = (a << {z}) ^ v[{y}] * b; else");
            let _ = writeln!(text, "      switch (a % 5) {{ case 0: v[{x}] += a; break;");
            let _ = writeln!(text, "      case 3: a -= v[{y}] / (b | 1); break; default: b++; }}");
        }
        let callee = rng.usize(..function.max(1));
        let call = if function > 0 { format!("f{callee}(b, a)") } else { "a".to_owned() };
        let _ = writeln!(text, "  }}\n  return a % 3 ? {call} : b;\n}}");
    }
    text
}

/// Text that compresses like text: words of a skewed vocabulary.
pub(crate) fn text() -> String {
    let mut rng = Rng::with_seed(77);
    let mut text = String::new();
    while text.len() < 4 << 20 {
        let rank = rng.usize(..4000) * rng.usize(..4000) / 4000;
        let _ = write!(text, "{:x}", Rng::with_seed(rank as u64).u64(..) >> (20 + rank % 24));
        text.push(if rng.usize(..12) == 0 { '\n' } else { ' ' });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_tables_complete() {
        for (at, program) in PROGRAMS.iter().enumerate() {
            assert!(!program.package.is_empty() && !program.argv.is_empty());
            assert!(PROGRAMS[..at].iter().all(|p| p.name != program.name));
        }
    }

    #[test]
    fn made_inputs_are_the_same_each_time() {
        assert_eq!(large_c(), large_c());
        assert!(large_c().len() > 90_000);
        assert_eq!(text(), text());
    }

    #[test]
    fn a_missing_tool_is_said_with_its_package() {
        let program = BenchProgram { tool: "no-such-tool", package: "some-package", ..BASE };
        let error = program.prepare(Path::new("/nonexistent")).unwrap_err().to_string();
        assert!(error.contains("no-such-tool") && error.contains("some-package"));
        assert!(!error.contains('\n'));
    }
}
