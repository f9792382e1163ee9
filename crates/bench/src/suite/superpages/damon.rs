//! Hot regions promoted by DAMON: a kdamond that watches one process with DAMON's usual
//! intervals (5 ms, 100 ms, 1 s; 10 to 1000 regions) and two schemes as its authors evaluated
//! them under the name of `ethp`: `hugepage` for regions that are seen accessed in 5 % of the
//! samples or more, `nohugepage` for those of 2 MiB and more that are not for 7 s.
//!
//! The schemes only advise; it is khugepaged, and later faults, that build. A kdamond of
//! somebody else is left alone, since the kernel has one list of them and to change its length
//! stops all: where there is one, nothing can be measured.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where DAMON is.
pub const ADMIN: &str = "/sys/kernel/mm/damon/admin/kdamonds";

const CONTEXT: &str = "0/contexts/0";

/// A running kdamond, ended when dropped.
#[derive(Debug)]
pub struct Damon {
    root: PathBuf,
}

/// Why DAMON cannot be used here; `None` if it can.
pub fn obstacle(root: &Path) -> Option<String> {
    let Ok(count) = fs::read_to_string(root.join("nr_kdamonds")) else {
        return Some("this kernel has no DAMON in sysfs; CONFIG_DAMON_SYSFS and root".to_owned());
    };
    if count.trim() == "0" {
        return None;
    }
    let read = |name: &str| fs::read_to_string(root.join("0").join(name)).unwrap_or_default();
    let (state, action) = (read("state"), read("contexts/0/schemes/0/action"));
    Some(format!(
        "DAMON is somebody else's here (a kdamond that is {}, {}); end it first",
        state.trim(),
        action.trim()
    ))
}

impl Damon {
    /// Watches a process.
    ///
    /// # Errors
    /// When DAMON cannot be used, or refuses.
    pub fn watch(root: &Path, pid: u32) -> io::Result<Damon> {
        if let Some(why) = obstacle(root) {
            return Err(io::Error::other(why));
        }
        fs::write(root.join("nr_kdamonds"), "1")?;
        let damon = Damon { root: root.to_owned() };
        for (file, value) in settings(pid) {
            let path = root.join(&file);
            let why = |error| io::Error::other(format!("{}: {error}", path.display()));
            fs::write(&path, value).map_err(why)?;
        }
        Ok(damon)
    }
}

/// What to write, in order.
fn settings(pid: u32) -> Vec<(String, String)> {
    let mut all = vec![("0/contexts/nr_contexts".to_owned(), "1".to_owned())];
    let attributes = "monitoring_attrs";
    let context = [
        ("operations".to_owned(), "vaddr".to_owned()),
        (format!("{attributes}/intervals/sample_us"), "5000".to_owned()),
        (format!("{attributes}/intervals/aggr_us"), "100000".to_owned()),
        (format!("{attributes}/intervals/update_us"), "1000000".to_owned()),
        (format!("{attributes}/nr_regions/min"), "10".to_owned()),
        (format!("{attributes}/nr_regions/max"), "1000".to_owned()),
        ("targets/nr_targets".to_owned(), "1".to_owned()),
        ("targets/0/pid_target".to_owned(), pid.to_string()),
        ("schemes/nr_schemes".to_owned(), "2".to_owned()),
    ];
    // Of 20 samples, one is 5 %; an age is a number of aggregations.
    let hot = scheme(0, "hugepage", [(0, u64::MAX), (1, 20), (0, u64::MAX)]);
    let cold = scheme(1, "nohugepage", [(2 << 20, u64::MAX), (0, 0), (70, u64::MAX)]);
    let inside = context.into_iter().chain(hot).chain(cold);
    all.extend(inside.map(|(file, value)| (format!("{CONTEXT}/{file}"), value)));
    all.push(("0/state".to_owned(), "on".to_owned()));
    all
}

fn scheme(number: u32, action: &str, bounds: [(u64, u64); 3]) -> Vec<(String, String)> {
    let base = format!("schemes/{number}");
    let mut all = vec![(format!("{base}/action"), action.to_owned())];
    for (name, (least, most)) in ["sz", "nr_accesses", "age"].into_iter().zip(bounds) {
        // The kernel keeps them as unsigned numbers of 32 bits but for the size.
        let most = if name == "sz" { most } else { most.min(u64::from(u32::MAX)) };
        all.push((format!("{base}/access_pattern/{name}/min"), least.to_string()));
        all.push((format!("{base}/access_pattern/{name}/max"), most.to_string()));
    }
    all
}

impl Drop for Damon {
    fn drop(&mut self) {
        // A kdamond whose process has ended is off already, and says so.
        let _ = fs::write(self.root.join("0/state"), "off");
        let _ = fs::write(self.root.join("nr_kdamonds"), "0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("nr_kdamonds"), "0\n").unwrap();
        for (file, _) in settings(1) {
            fs::create_dir_all(dir.path().join(file).parent().unwrap()).unwrap();
        }
        dir
    }

    #[test]
    fn a_process_is_watched_until_the_end() {
        let dir = fake();
        let read = |file: &str| fs::read_to_string(dir.path().join(file)).unwrap();
        let damon = Damon::watch(dir.path(), 4711).unwrap();
        assert_eq!(read("0/contexts/0/targets/0/pid_target"), "4711");
        assert_eq!(read("0/contexts/0/schemes/0/action"), "hugepage");
        assert_eq!(read("0/contexts/0/schemes/1/access_pattern/sz/min"), "2097152");
        assert_eq!((read("0/state"), read("nr_kdamonds")), ("on".to_owned(), "1".to_owned()));
        drop(damon);
        assert_eq!((read("0/state"), read("nr_kdamonds")), ("off".to_owned(), "0".to_owned()));
    }

    #[test]
    fn another_s_kdamond_is_left_alone() {
        let dir = fake();
        fs::write(dir.path().join("nr_kdamonds"), "1\n").unwrap();
        fs::write(dir.path().join("0/state"), "on\n").unwrap();
        assert!(obstacle(dir.path()).unwrap().contains("is on"));
        assert!(Damon::watch(dir.path(), 1).is_err());
        assert_eq!(fs::read_to_string(dir.path().join("nr_kdamonds")).unwrap(), "1\n");
        assert!(obstacle(Path::new("/nonexistent")).is_some());
    }
}
