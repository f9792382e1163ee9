//! Builds the agent (`agent/main.rs`) into a flat, position-independent image.
//!
//! It is its own freestanding program with its own flags, so the compiler is called directly;
//! no crate is used and nothing is fetched.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    for path in ["agent", "src/color/probe/timing.rs", "build.rs"] {
        println!("cargo:rerun-if-changed={path}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("agent.bin");
    let rustc = env::var_os("RUSTC").expect("cargo sets RUSTC");
    let flags = [
        "--edition=2024",
        "--crate-type=bin",
        "--crate-name=huepage_agent",
        "-Copt-level=2",
        "-Cpanic=abort",
        "-Crelocation-model=pic",
        "-Ccodegen-units=1",
        "-Coverflow-checks=off",
        "-Cdebug-assertions=off",
        "-Cforce-unwind-tables=no",
        "-Clink-arg=-nostdlib",
        "-Clink-arg=-nostartfiles",
        "-Clink-arg=-static",
        "-Clink-arg=-Wl,--build-id=none",
        "-Clink-arg=-Wl,--oformat=binary",
        "-Clink-arg=-Wl,-T,agent/link.ld",
        "-Crelro-level=off",
    ];
    let status = Command::new(rustc).args(flags).arg("-o").arg(&out).arg("agent/main.rs").status();
    match status {
        Ok(s) if s.success() => {}
        Ok(_) => panic!("the agent does not compile; see the messages above"),
        Err(e) => panic!("cannot run rustc for the agent: {e}"),
    }
}
