//! How many files this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Allows this process as many open files as it may allow itself: a process that is confined takes seven, and
/// shells give 1,024. Programs that it starts inherit that; `inject::launch` gives them what there was before.
pub fn allow_most_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // It goes on with what it has; what fails then says so.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_can_be_had_is_taken() {
        allow_most_files();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
    }
}
