//! What ptrace(2) takes requests as: it differs between C libraries.

#[cfg(target_env = "musl")]
pub(super) type PtraceRequest = libc::c_int;
#[cfg(not(target_env = "musl"))]
pub(super) type PtraceRequest = libc::c_uint;
