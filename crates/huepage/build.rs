//! Builds the plugins of `huepage trace` and `huepage lab` and puts them beside the binary.
//!
//! They have QEMU's licence and are loaded into QEMU's process, so they are libraries of their own and
//! no part of the binary. They use no crate: the compiler is called directly and nothing is
//! fetched. Their symbols are resolved when QEMU loads them, so nothing of QEMU is needed here.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory in `plugins`, the library, and what is set for it: QEMU 9.0 refuses what was
/// built for those before.
const PLUGINS: [(&str, &str, &[&str]); 4] = [
    ("qemu-trace", "libhuepage_qemu_trace.so", &[]),
    ("qemu-trace", "libhuepage_qemu_trace_3.so", &["--cfg=since_9_0"]),
    ("qemu-lab", "libhuepage_qemu_lab.so", &[]),
    ("qemu-lab", "libhuepage_qemu_lab_3.so", &["--cfg=since_9_0"]),
];
/// What they compile besides.
const SHARED: [&str; 5] = [
    "crates/linux/src/sensors/records",
    "crates/model/src/guest_places.rs",
    "crates/model/src/lab.rs",
    "crates/model/src/page_tables.rs",
    "crates/model/src/translations.rs",
];

fn main() {
    let own = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = own.join("../..");
    for path in SHARED.iter().map(|path| root.join(path)).chain([own.join("build.rs")]) {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for (directory, library, flags) in PLUGINS {
        let source = root.join("plugins").join(directory).join("src");
        println!("cargo:rerun-if-changed={}", source.display());
        if source.join("lib.rs").exists() {
            let built = out.join(library);
            compile(&source.join("lib.rs"), &built, flags);
            place(&out, &built, library);
        } else {
            println!("cargo:warning=no plugins/{directory} here: a command will need {library}");
        }
    }
}

/// Puts a library beside the binary. OUT_DIR is <target>/<profile>/build/<package>/out. Renamed, so
/// that an emulator that has the old one loaded keeps it.
fn place(out: &Path, built: &Path, library: &str) {
    let beside = out.ancestors().nth(3).expect("OUT_DIR is four levels below the target");
    let fresh = beside.join(format!("{library}.new"));
    let placed =
        std::fs::copy(built, &fresh).and_then(|_| std::fs::rename(&fresh, beside.join(library)));
    placed.unwrap_or_else(|e| panic!("cannot put {library} into {}: {e}", beside.display()));
}

fn compile(source: &Path, built: &Path, more: &[&str]) {
    let rustc = env::var_os("RUSTC").expect("cargo sets RUSTC");
    let flags = [
        "--edition=2024",
        "--crate-type=cdylib",
        "--crate-name=huepage_qemu_plugin",
        "-Copt-level=3",
        "-Cpanic=abort",
        "-Cstrip=debuginfo",
    ];
    let mut command = Command::new(rustc);
    match command.args(flags).args(more).arg("-o").arg(built).arg(source).status() {
        Ok(s) if s.success() => {}
        Ok(_) => panic!("a plugin does not compile; see the messages above"),
        Err(e) => panic!("cannot run rustc for a plugin: {e}"),
    }
}
