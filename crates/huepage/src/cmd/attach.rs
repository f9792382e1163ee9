//! `huepage attach`: not built yet.

use crate::args::AttachArgs;
use crate::exit::CmdError;

/// Reports that this command does not exist yet.
pub fn run(_args: AttachArgs) -> Result<u8, CmdError> {
    Err(CmdError::internal("`attach` is not built yet"))
}
