//! `huepage detach`: not built yet.

use crate::args::DetachArgs;
use crate::exit::CmdError;

/// Reports that this command does not exist yet.
pub fn run(_args: DetachArgs) -> Result<u8, CmdError> {
    Err(CmdError::internal("`detach` is not built yet"))
}
