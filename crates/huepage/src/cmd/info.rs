//! `huepage info`: not built yet.

use crate::args::InfoArgs;
use crate::exit::CmdError;

/// Reports that this command does not exist yet.
pub fn run(_args: InfoArgs) -> Result<u8, CmdError> {
    Err(CmdError::internal("`info` is not built yet"))
}
