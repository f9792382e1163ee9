//! Whoever holds a lease on a file makes those wait who open it, for as long as the kernel gives him to return
//! it. Nobody else waits for that, though all who open files on that filesystem pass the service.

use crate::common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Holds a lease for writing on a file, and never returns it.
const HOLDER: &str = r#"
use Fcntl;
$SIG{IO} = "IGNORE";
open(my $file, "+<", $ARGV[0]) or die;
fcntl($file, 1024, 1) or die "no lease: $!";
$| = 1;
print "held\n";
sleep 600;
"#;
/// Opens a file and takes a lease for writing at once, a thousand times; how often that failed.
const TAKER: &str = r#"
use Fcntl;
$SIG{IO} = "IGNORE";
my $failed = 0;
for (1 .. 1000) {
    open(my $file, "+<", $ARGV[0]) or die;
    fcntl($file, 1024, 1) or $failed += 1;
    close($file);
}
print $failed;
"#;
/// Leases that are held at once: each holds a thread of the service up.
const LEASES: usize = 3;
/// An open of another file takes no longer, on a busy machine. The service is killed when it is silent for a
/// second more than an open may wait.
const BOUND: Duration = Duration::from_secs(5);

/// Ended with the test, whatever comes of it.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn holder(file: &Path) -> Ended {
    let mut perl = Command::new("perl");
    perl.args(["-e", HOLDER]).arg(file).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = Ended(perl.spawn().unwrap());
    let mut word = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut word).unwrap();
    assert_eq!(word, "held\n");
    child
}

fn opener(file: &Path) -> Ended {
    let mut cat = Command::new("cat");
    Ended(cat.arg(file).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
}

/// `huepage run --page-cache` for the files of `dir` while a program sleeps; once files are being placed.
fn huepage(dir: &Path) -> Ended {
    let mut command = Command::new(common::HUEPAGE);
    command.args([
        "run",
        "--page-cache",
        "srm",
        "--colors-from",
        "declared",
        "--colors",
        "1",
        "-q",
    ]);
    command.arg("--report").arg(dir.join("report.json")).arg("--page-cache-include").arg(dir);
    let begun = dir.join("begun");
    let script = format!("cat {0}/first >/dev/null; : > {0}/begun; exec cat", dir.display());
    let child = command.args(["--", "sh", "-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
    let child = Ended(child);
    let start = Instant::now();
    while !begun.exists() {
        assert!(start.elapsed() < common::HANGS, "the program does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

#[test]
fn who_holds_a_lease_holds_nobody_else_up() {
    let test = "who_holds_a_lease_holds_nobody_else_up";
    let Some(_turn) = common::live_alone(test) else { return };
    let Some(dir) = common::place_of_files(test) else { return };
    let put = |name: &str| fs::write(dir.path().join(name), [7; 9000]).unwrap();
    ["first", "other"].into_iter().for_each(put);
    let leased: Vec<_> = (0..LEASES).map(|i| dir.path().join(format!("leased{i}"))).collect();
    leased.iter().for_each(|path| fs::write(path, [7; 9000]).unwrap());
    let mut huepage = huepage(dir.path());
    let _holders: Vec<Ended> = leased.iter().map(|path| holder(path)).collect();
    let openers: Vec<Ended> = leased.iter().map(|path| opener(path)).collect();
    let longest = longest_open(&dir, Instant::now() + Duration::from_secs(4));
    assert!(longest < BOUND, "an open of another file took {longest:?}");
    drop(openers);
    // Waiting closes the input of its program, which ends by that.
    assert!(huepage.0.wait().unwrap().success());
    let report: Value =
        serde_json::from_slice(&fs::read(dir.path().join("report.json")).unwrap()).unwrap();
    assert!(report["page_cache"]["service_died"].is_null(), "{report}");
}

#[test]
fn who_opens_a_file_can_take_a_lease_at_once() {
    let test = "who_opens_a_file_can_take_a_lease_at_once";
    let Some(_turn) = common::live_alone(test) else { return };
    let Some(dir) = common::place_of_files(test) else { return };
    let put = |name: &str| fs::write(dir.path().join(name), [7; 9000]).unwrap();
    ["first", "leased"].into_iter().for_each(put);
    let mut huepage = huepage(dir.path());
    let taker = Command::new("perl").args(["-e", TAKER]).arg(dir.path().join("leased")).output();
    assert_eq!(String::from_utf8(taker.unwrap().stdout).unwrap(), "0");
    drop(huepage.0.stdin.take());
    assert!(huepage.0.wait().unwrap().success());
}

/// The longest of the opens of a file that nobody holds, until then.
fn longest_open(dir: &TempDir, end: Instant) -> Duration {
    let mut longest = Duration::ZERO;
    while Instant::now() < end {
        let start = Instant::now();
        assert_eq!(fs::read(dir.path().join("other")).unwrap().len(), 9000);
        longest = longest.max(start.elapsed());
        std::thread::sleep(Duration::from_millis(10));
    }
    longest
}
