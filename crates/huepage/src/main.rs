//! The `huepage` binary. All of it is in the library beside it, so that tests and fuzz targets can call
//! its readers of foreign input.

fn main() -> std::process::ExitCode {
    huepage::main()
}
