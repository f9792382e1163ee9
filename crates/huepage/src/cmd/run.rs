//! `huepage run`: not built yet.

use crate::args::RunArgs;
use crate::exit::CmdError;

/// Reports that this command does not exist yet.
pub fn run(_args: RunArgs) -> Result<u8, CmdError> {
    Err(CmdError::internal("`run` is not built yet"))
}
