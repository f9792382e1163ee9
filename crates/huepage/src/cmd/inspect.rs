//! `huepage inspect`: not built yet.

use crate::args::InspectArgs;
use crate::exit::CmdError;

/// Reports that this command does not exist yet.
pub fn run(_args: InspectArgs) -> Result<u8, CmdError> {
    Err(CmdError::internal("`inspect` is not built yet"))
}
