//! The `huepage-repro` binary. All of it is in the library.

fn main() -> std::process::ExitCode {
    huepage_repro::main()
}
