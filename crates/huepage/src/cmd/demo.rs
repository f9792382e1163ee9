//! `huepage demo`: not built yet.

use crate::args::DemoArgs;
use crate::exit::CmdError;

/// Reports that this command does not exist yet.
pub fn run(_args: DemoArgs) -> Result<u8, CmdError> {
    Err(CmdError::internal("`demo` is not built yet"))
}
