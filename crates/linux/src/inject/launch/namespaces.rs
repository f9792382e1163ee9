//! Programs that may give themselves a user namespace. The kernel refuses that to who shares memory with
//! another thread, such as an agent's, so that such a program is left alone until it has done so: launchers of
//! containers and sandboxes do it first of all.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use object::read::ReadCache;
use object::{Object as _, ObjectSymbol as _};

/// Functions of the C library that need a process of a single thread.
const CALLS: [&str; 2] = ["unshare", "setns"];

/// Whether a program's file names a call that makes or enters namespaces. Only what is linked against
/// the C library is seen; reads no more than its tables of symbols. What cannot be read names none.
pub fn may_make_namespaces(program: &Path) -> bool {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let Ok(file) = OpenOptions::new().read(true).custom_flags(flags).open(program) else {
        return false;
    };
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return false;
    }
    let cache = ReadCache::new(file);
    let Ok(parsed) = object::File::parse(&cache) else { return false };
    let names = |symbol: object::Symbol<'_, '_, _>| {
        symbol.is_undefined() && symbol.name().is_ok_and(|name| CALLS.contains(&name))
    };
    parsed.dynamic_symbols().any(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_of_namespaces_are_known_by_what_they_call() {
        let unshare = Path::new("/usr/bin/unshare");
        assert_eq!(may_make_namespaces(unshare), unshare.exists());
        assert!(!may_make_namespaces(Path::new("/bin/true")));
        assert!(!may_make_namespaces(Path::new("/proc/self/status")));
        assert!(!may_make_namespaces(Path::new("/dev/zero")));
        assert!(!may_make_namespaces(Path::new("/nowhere")));
    }
}
