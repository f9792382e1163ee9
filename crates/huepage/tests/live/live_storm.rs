//! The stress targets while huepage moves every page again and again: not one wrong byte, no
//! thread that hangs, and pages really were moved. A short form of `huepage-bench torture`.

use crate::common;

fn storm(mode: &str, recolours: &str) {
    let Some(_turn) = common::live(&format!("storm: {mode}")) else { return };
    // Others may be at work here: how often memory cannot be registered for a moment hangs on that.
    let args = ["torture", "--loaded", "--mode", mode, "--recolours", recolours, "--slice", "6"];
    let verdict = common::holds(&[&args[..], &["--with=--colors-from=declared"]].concat());
    assert_eq!(verdict["totals"]["wrong"], 0);
    assert!(verdict["totals"]["checks"].as_u64() > Some(0), "{verdict}");
}

#[test]
fn writers() {
    storm("writers", "20000");
}

#[test]
fn forkers() {
    storm("forkers", "2000");
}

#[test]
fn odirect() {
    storm("odirect", "10000");
}

#[test]
fn churn() {
    storm("churn", "10000");
}

#[test]
fn threads() {
    storm("threads", "5000");
}

#[test]
fn everything_at_once() {
    storm("all", "10000");
}

/// Memory that moves while it is watched makes the agent begin with a new context; it must be
/// allowed to, or nothing is recoloured from then on.
#[test]
fn remaps_do_not_end_recolouring() {
    const GROWS: &str = "import mmap, time
end = time.time() + 2
while time.time() < end:
    maps = [mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(4)]
    for size in range(1, 9):
        for m in maps:
            m.resize(size << 20)
            m[(size - 1) << 20:size << 20] = bytes([size]) * (1 << 20)
    assert all(m[(s << 20) - 1] == s for m in maps for s in range(1, 9))
";
    let Some(_turn) = common::live("storm: remaps") else { return };
    let report = tempfile::NamedTempFile::new().unwrap();
    let path = report.path().to_str().unwrap();
    let wish = ["run", "--storm", "--share", "50%", "--colors-from", "declared"];
    let program = ["--report", path, "--", "python3", "-c", GROWS];
    let output = common::huepage(&[&wish[..], &program].concat());
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_reader(report).unwrap();
    for agent in report["processes"].as_array().unwrap() {
        assert_eq!(
            agent["unexpected_errors"]["count"], 0,
            "count, error and place of what should not occur: {agent}"
        );
    }
    assert!(report["recolored"].as_u64() > Some(1000), "{report}");
}

/// Memory in place of a shared mapping that ended what is watched is one area, so that one `mremap` takes it all. Without
/// asking where areas end right before they are watched, many are cut in two for good.
#[test]
fn memory_in_place_of_shared_memory_stays_one_area() {
    const REPLACES: &str = "import mmap, random, threading, time
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
end, tries, refused = time.time() + 4, [], []
def churn(seed):
    pick = random.Random(seed)
    while time.time() < end:
        shared = mmap.mmap(-1, pick.randrange(1, 64) * 4096)
        shared[0] = 1
        time.sleep(pick.random() * 3e-3)
        shared.close()
        size = pick.randrange(1, 256) * 4096
        memory = mmap.mmap(-1, size, flags=PRIVATE)
        memory[:] = bytes(size)
        time.sleep(pick.random() * 2e-3)
        tries.append(size)
        try:
            memory.resize(size + pick.randrange(1, 256) * 4096)
        except OSError:
            refused.append(size)
        memory.close()
threads = [threading.Thread(target=churn, args=[seed]) for seed in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(refused), len(tries))
";
    let Some(_turn) = common::live("storm: memory in place of shared memory") else { return };
    let wish = ["run", "--storm", "--share", "25%", "--colors-from", "declared", "--"];
    let output = common::huepage(&[&wish[..], &["python3", "-c", REPLACES]].concat());
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    let counts: Vec<u64> = said.split_whitespace().map(|n| n.parse().unwrap()).collect();
    assert!(counts[1] > 100, "{output:?}");
    assert!(counts[0] * 100 <= counts[1], "{} of {} refused", counts[0], counts[1]);
}
