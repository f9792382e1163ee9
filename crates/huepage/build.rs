//! Builds the plugin of `huepage trace` and puts it beside the binary.
//!
//! It has QEMU's licence and is loaded into QEMU's process, so it is a library of its own and
//! no part of the binary. It uses no crate: the compiler is called directly and nothing is
//! fetched. Its symbols are resolved when QEMU loads it, so nothing of QEMU is needed here.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const PLUGIN: &str = "libhuepage_qemu_trace.so";

fn main() {
    let own = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = own.join("../..");
    let source = root.join("plugins/qemu-trace/src");
    for path in
        [source.clone(), root.join("crates/linux/src/sensors/records"), own.join("build.rs")]
    {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    if !source.join("lib.rs").exists() {
        println!("cargo:warning=no plugins/qemu-trace here: `huepage trace` will need one");
        return;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let built = out.join(PLUGIN);
    compile(&source.join("lib.rs"), &built);
    // OUT_DIR is <target>/<profile>/build/<package>/out. Renamed, so that an emulator that has
    // the old one loaded keeps it.
    let beside = out.ancestors().nth(3).expect("OUT_DIR is four levels below the target");
    let fresh = beside.join(format!("{PLUGIN}.new"));
    let placed =
        std::fs::copy(&built, &fresh).and_then(|_| std::fs::rename(&fresh, beside.join(PLUGIN)));
    placed.unwrap_or_else(|e| panic!("cannot put {PLUGIN} into {}: {e}", beside.display()));
}

fn compile(source: &Path, built: &Path) {
    let rustc = env::var_os("RUSTC").expect("cargo sets RUSTC");
    let flags = [
        "--edition=2024",
        "--crate-type=cdylib",
        "--crate-name=huepage_qemu_trace",
        "-Copt-level=3",
        "-Cpanic=abort",
        "-Cstrip=debuginfo",
    ];
    let status = Command::new(rustc).args(flags).arg("-o").arg(built).arg(source).status();
    match status {
        Ok(s) if s.success() => {}
        Ok(_) => panic!("the plugin does not compile; see the messages above"),
        Err(e) => panic!("cannot run rustc for the plugin: {e}"),
    }
}
