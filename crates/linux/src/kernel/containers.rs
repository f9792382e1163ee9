//! Which processes are in a container: by the path of their control group, where every runtime puts the
//! container's identifier. Docker, Podman, containerd (also below Kubernetes), CRI-O and runc itself are
//! known, with systemd's scopes and with plain directories, with versions 1 and 2, and as an ordinary user's.
//! No runtime is asked, and nothing is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::kernel::cgroup::{Cgroup, CgroupError};
use crate::kernel::procfs::{ProcError, ProcRoot};

/// Digits of the identifiers that Docker and Podman make, and Kubernetes has made.
const ID_DIGITS: usize = 64;
/// Fewest digits of one that stand for the whole: what `docker ps` shows.
const FEWEST_ID_DIGITS: usize = 12;
/// Longest name that containerd takes for an identifier.
const LONGEST_ID_BYTES: usize = 76;
/// Scopes of systemd whose containers have identifiers of 64 digits.
const SCOPES: [&str; 3] = ["docker-", "libpod-", "crio-"];
/// Those whose containers may have a name for an identifier.
const NAMING_SCOPES: [&str; 5] = ["cri-containerd-", "containerd-", "nerdctl-", "runc-", "crun-"];
/// Directories whose children are containers that may have a name for an identifier.
const PARENTS: [&str; 6] = ["docker", "libpod", "k8s.io", "moby", "default", "nerdctl"];

/// Why the processes of a container are not known.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// No identifier.
    #[error(
        "`{0}` is no identifier of a container; use 12 to 64 hexadecimal digits, or the name that containerd or runc knows it by"
    )]
    Malformed(String),
    /// Too few digits.
    #[error("`{0}` is too short for an identifier; give 12 digits of it, as `docker ps` shows")]
    Short(String),
    /// Nobody is in such a container.
    #[error("no process is in a container {0}; see `docker ps`, `podman ps` or `ctr tasks ls`")]
    Absent(ContainerId),
    /// Several begin like this.
    #[error("{} containers begin with {id}: {}; give more digits", .found.len(), .found.join(", "))]
    Ambiguous {
        /// As given.
        id: ContainerId,
        /// All that begin so.
        found: Vec<String>,
    },
    /// Its control group cannot be read.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// `/proc` does not answer.
    #[error(transparent)]
    Proc(#[from] ProcError),
}

/// An identifier of a container as a person gives it: all of it, or at least 12 of its 64 digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerId(String);

impl FromStr for ContainerId {
    type Err = ContainerError;

    fn from_str(text: &str) -> Result<ContainerId, ContainerError> {
        let first = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        let fine = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if !first || text.len() > LONGEST_ID_BYTES || !text.chars().all(fine) {
            return Err(ContainerError::Malformed(text.to_owned()));
        }
        Ok(ContainerId(text.to_owned()))
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl ContainerId {
    /// Whether it stands for a container with this whole identifier.
    fn fits(&self, whole: &str) -> bool {
        let short = is_hex(&self.0) && self.0.len() >= FEWEST_ID_DIGITS && is_made(whole);
        whole == self.0 || short && whole.starts_with(&self.0.to_ascii_lowercase())
    }

    /// The container of this identifier that a control group is in: its whole identifier, and the path of
    /// the container's own control group. The outermost one, if it is in several.
    pub fn of_path<'a>(&self, path: &'a str) -> Option<(&'a str, &'a str)> {
        let mut parent = "";
        let mut end = 0;
        for name in path.split('/') {
            end += name.len();
            if let Some(whole) = identifier(parent, name).filter(|whole| self.fits(whole)) {
                return Some((whole, &path[..end]));
            }
            parent = name;
            end += 1;
        }
        None
    }
}

/// The identifier in the name of a control group, if it is a container's.
fn identifier<'a>(parent: &str, name: &'a str) -> Option<&'a str> {
    if let Some(scope) = name.strip_suffix(".scope") {
        let made = SCOPES.iter().find_map(|prefix| scope.strip_prefix(prefix));
        let named = NAMING_SCOPES.iter().find_map(|prefix| scope.strip_prefix(prefix));
        return made.filter(|id| is_made(id)).or(named).filter(|id| !id.is_empty());
    }
    // Podman without systemd.
    let bare = name.strip_prefix("libpod-").unwrap_or(name);
    (is_made(bare) || PARENTS.contains(&parent)).then_some(bare).filter(|id| !id.is_empty())
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether it is an identifier that a runtime has made.
fn is_made(text: &str) -> bool {
    text.len() == ID_DIGITS && is_hex(text)
}

/// A container that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its whole identifier.
    pub id: String,
    groups: Vec<Cgroup>,
}

impl Container {
    /// Finds the container in which some process is now; control groups are mounted at `mount`. Costs some
    /// microseconds for each process there is.
    ///
    /// # Errors
    /// When there is none, or more than one, of that identifier, or its control group cannot be read.
    pub fn find(
        id: &ContainerId,
        root: &ProcRoot,
        mount: &Path,
    ) -> Result<Container, ContainerError> {
        let mut found = running(id, root)?;
        if found.len() > 1 {
            let found = found.into_keys().collect();
            return Err(ContainerError::Ambiguous { id: id.clone(), found });
        }
        let Some((whole, paths)) = found.pop_first() else {
            let short = is_hex(&id.0) && id.0.len() < FEWEST_ID_DIGITS;
            return Err(if short {
                ContainerError::Short(id.0.clone())
            } else {
                ContainerError::Absent(id.clone())
            });
        };
        let groups: Result<Vec<Cgroup>, CgroupError> =
            bare(&paths).map(|path| group(path, &paths, mount)).collect();
        Ok(Container { id: whole, groups: groups? })
    }

    /// Pids of the processes that are in it now, ascending; also those of containers inside it. None
    /// when it has ended.
    ///
    /// # Errors
    /// When a control group cannot be read.
    pub fn processes(&self) -> Result<Vec<i32>, ContainerError> {
        let mut pids = BTreeSet::new();
        for group in &self.groups {
            pids.extend(group.processes()?);
        }
        Ok(pids.into_iter().collect())
    }
}

/// Those of some paths that have no hierarchy of version 1 before them.
fn bare(paths: &BTreeSet<String>) -> impl Iterator<Item = &String> {
    paths.iter().filter(|path| !paths.iter().any(|other| is_named(path, other)))
}

/// Whether a path is another one with a hierarchy of version 1 before it.
fn is_named(path: &str, other: &str) -> bool {
    let hierarchy = path.strip_suffix(other).and_then(|rest| rest.strip_prefix('/'));
    hierarchy.is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

/// The control group of a path: in a hierarchy that some process is known to have it in, where there are
/// several. Others may have an empty one of that name.
fn group(path: &str, paths: &BTreeSet<String>, mount: &Path) -> Result<Cgroup, CgroupError> {
    let mut named = paths.iter().filter(|other| is_named(other, path));
    let found = named.find_map(|path| Cgroup::find(path, mount).ok());
    found.map_or_else(|| Cgroup::find(path, mount), Ok)
}

/// The containers that an identifier stands for, with the paths of their control groups.
fn running(
    id: &ContainerId,
    root: &ProcRoot,
) -> Result<BTreeMap<String, BTreeSet<String>>, ContainerError> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for pid in root.pids()? {
        // One that ends meanwhile is in no container any more.
        for path in root.cgroups(pid).unwrap_or_default() {
            if let Some((whole, own)) = id.of_path(&path) {
                found.entry(whole.to_owned()).or_default().insert(own.to_owned());
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::kernel::procfs::fake::Fake;

    const ID: &str = "3f4e9d1c0b2a4f5e6d7c8b9a0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c";
    const OTHER: &str = "3f4e9d1c0b2bffffffffffffffffffffffffffffffffffffffffffffffffffff";

    fn id(text: &str) -> ContainerId {
        text.parse().expect("an identifier")
    }

    #[test]
    fn paths_of_every_runtime_are_known() {
        for path in [
            format!("/docker/{ID}"),
            format!("/system.slice/docker-{ID}.scope"),
            format!("/system.slice/docker-{ID}.scope/init.scope"),
            format!("/machine.slice/libpod-{ID}.scope/container"),
            format!("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope"),
            format!("/libpod_parent/libpod-{ID}"),
            format!("/libpod/{ID}"),
            format!("/kubepods.slice/kubepods-pod9.slice/cri-containerd-{ID}.scope"),
            format!("/kubepods/burstable/pod9/{ID}"),
            format!("/kubepods.slice/crio-{ID}.scope"),
            format!("/k8s.io/{ID}"),
            format!("/memory/docker/{ID}"),
            format!("/docker/{OTHER}/docker/{ID}"),
            format!("/../../docker-{ID}.scope"),
        ] {
            for given in [ID, &ID[..12], &ID[..12].to_uppercase()] {
                let (whole, own) = id(given).of_path(&path).expect(&path);
                assert_eq!(whole, ID, "{path}");
                assert!(path.starts_with(own) && own.contains(ID), "{own}");
            }
            assert_eq!(id("3f4e9d1c0b2c").of_path(&path), None, "{path}");
            assert_eq!(id(&ID[..11]).of_path(&path), None, "too short: {path}");
        }
    }

    #[test]
    fn names_stand_for_themselves() {
        for path in ["/default/web", "/k8s.io/web", "/system.slice/runc-web.scope/x", "/moby/web"] {
            assert_eq!(id("web").of_path(path).map(|found| found.0), Some("web"), "{path}");
            assert_eq!(id("we").of_path(path), None, "{path}");
        }
        for path in ["/system.slice/web", "/web", "/system.slice/docker-web.scope", "/", ""] {
            assert_eq!(id("web").of_path(path), None, "{path}");
        }
        // What watches a container is not in it.
        let path = format!("/machine.slice/libpod-conmon-{ID}.scope");
        assert_eq!(id(ID).of_path(&path), None);
    }

    #[test]
    fn what_is_no_identifier_is_refused() {
        for text in ["", "/docker/x", "..", "-x", "a b", &"a".repeat(77)] {
            let error = text.parse::<ContainerId>().expect_err(text);
            assert!(matches!(error, ContainerError::Malformed(_)), "{error}");
        }
    }

    /// Processes with their control groups, and these as directories.
    fn machine(version_1: bool, processes: &[(i32, String)]) -> (Fake, tempfile::TempDir) {
        let (fake, mount) = (Fake::new(), tempfile::tempdir().expect("a directory"));
        let top = if version_1 { mount.path().join("memory") } else { mount.path().to_owned() };
        fs::create_dir_all(&top).expect("a directory");
        fs::write(top.join("cgroup.procs"), "1\n").expect("a file");
        for (pid, path) in processes {
            let line =
                if version_1 { format!("4:memory:{path}\n") } else { format!("0::{path}\n") };
            fake.put(&format!("{pid}/cgroup"), line);
            let own = top.join(path.trim_start_matches('/'));
            fs::create_dir_all(&own).expect("a directory");
            let file = own.join("cgroup.procs");
            let before = fs::read_to_string(&file).unwrap_or_default();
            fs::write(&file, format!("{before}{pid}\n")).expect("a file");
            for above in own.ancestors().skip(1).take_while(|above| above.starts_with(&top)) {
                let file = above.join("cgroup.procs");
                if !file.exists() {
                    fs::write(file, "").expect("a file");
                }
            }
        }
        (fake, mount)
    }

    #[test]
    fn processes_of_a_container_and_of_those_inside_it_are_found() {
        for version_1 in [false, true] {
            let (fake, mount) = machine(
                version_1,
                &[
                    (1, "/init.scope".into()),
                    (10, format!("/docker/{ID}")),
                    (11, format!("/docker/{ID}/worker")),
                    (12, format!("/docker/{ID}/docker/{OTHER}")),
                    (13, "/system.slice/x.service".into()),
                ],
            );
            if version_1 {
                // Version 2 beside it, where nobody is in the control group.
                let empty = mount.path().join("unified/docker").join(ID);
                fs::create_dir_all(&empty).expect("a directory");
                fs::write(empty.join("cgroup.procs"), "").expect("a file");
            }
            let find = |text: &str| Container::find(&id(text), &fake.root, mount.path());
            let found = find(&ID[..20]).expect("it runs");
            assert_eq!(
                (found.id.as_str(), found.processes().expect("read")),
                (ID, vec![10, 11, 12])
            );
            assert_eq!(find(OTHER).expect("it runs").processes().expect("read"), [12]);
            fs::remove_dir_all(mount.path()).expect("it ends");
            assert_eq!(found.processes().expect("ended"), [] as [i32; 0]);
        }
    }

    #[test]
    fn none_and_several_are_errors_that_say_what_to_do() {
        let both = [(10, format!("/docker/{ID}")), (11, format!("/docker/{OTHER}"))];
        let (fake, mount) = machine(false, &both);
        let error = |text: &str| {
            let found = Container::find(&id(text), &fake.root, mount.path());
            found.expect_err(text).to_string()
        };
        let several = error(&ID[..11].repeat(2)[..12]);
        assert!(several.contains("no process is in a container"), "{several}");
        let text = error("aaaaaaaaaaaa");
        assert!(text.contains("docker ps") && !text.contains('\n'), "{text}");
        let text = error("3f4e9d");
        assert!(text.contains("too short") && text.contains("12 digits"), "{text}");
        let twins = [(10, format!("/docker/{ID}")), (11, format!("/docker/{}", twin()))];
        let (fake, mount) = machine(false, &twins);
        let found = Container::find(&id(&ID[..12]), &fake.root, mount.path());
        let text = found.expect_err("two").to_string();
        assert!(
            text.contains("2 containers") && text.contains(&twin()) && text.contains("more digits")
        );
    }

    /// Another identifier that begins as [`ID`].
    fn twin() -> String {
        format!("{}{}", &ID[..12], "0".repeat(52))
    }
}
