#!/bin/bash
# Runs the sweep of workflows/ on real engines and compares each result, byte for byte, with that of `huepage sim`
# alone: Snakemake on this machine; Snakemake on a Slurm of one node, where the node's daemon is killed with all that
# runs on it and started again, and a job is cancelled; HyperQueue. Then the notebook draws the result. Slurm and
# munge are Debian's packages, unpacked into a temporary directory and not installed; Snakemake and the others come
# from PyPI into a virtual environment there. Everything ends and goes with the script. Needs root, python3-venv, a
# built huepage (the first argument, or the one of target/release), a gigabyte in the temporary directory, and a few
# minutes. Manifests for Kubernetes in the documents are held against its schemas on the way. Ends with 77, and says
# so loudly, where packages or rights cannot be had.
#
#   scripts/try-sweeps.sh [HUEPAGE]
set -euo pipefail
cd "$(dirname "$0")/.."
repository=$PWD
huepage=$(realpath "${1:-target/release/huepage}")
[ "$(id -u)" -eq 0 ] || { echo "$0: needs root, as Slurm's daemon does" >&2; exit 2; }
[ -x "$huepage" ] || { echo "$0: no $huepage; cargo build --release" >&2; exit 2; }

work=$(mktemp -d)
started=()
leave() {
    # At once: Snakemake would wait for its jobs. What runs on the node ends with `unshare`.
    [ ${#started[@]} -eq 0 ] || kill -KILL "${started[@]}" 2>/dev/null || true
    wait 2>/dev/null
    rm -rf "$work"
}
trap leave EXIT
fail() {
    echo "$0: $1" >&2
    for log in "$work"/*.log; do echo "== ${log##*/}"; tail -n 30 "$log"; done >&2
    exit 1
}
# Nothing was tried, for want of something that is no fault of this repository.
lacks() {
    echo "SKIPPED the sweeps on engines: $1" >&2
    exit 77
}
# Waits up to a number of seconds until a command succeeds.
await() {
    local seconds=$1
    shift
    for ((i = 0; i < seconds * 10; i++)); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    fail "not within $seconds seconds: $*"
}

echo "== packages"
mkdir -p "$work"/{bin,debs/partial,node,own}
command -v apt-get >/dev/null || lacks "no apt-get"
python3 -c 'import ensurepip' 2>/dev/null || lacks "no python3-venv"
unshare --pid --fork --mount-proc true 2>/dev/null || lacks "no right to make a namespace"
fetch() {
    apt-get install -q -y --download-only --no-install-recommends -o APT::Sandbox::User=root -o Debug::NoLocking=1 \
        -o Dir::Cache::archives="$work/debs" slurmctld slurmd slurm-client munge >> "$work/apt.log" 2>&1
}
# The lists may be old or absent.
fetch || { apt-get update -q -o APT::Update::Error-Mode=any >> "$work/apt.log" 2>&1 || lacks "no packages of Debian"; }
fetch || fail "Slurm cannot be fetched"
for deb in "$work"/debs/*.deb; do [ ! -e "$deb" ] || dpkg -x "$deb" "$work/node"; done
python3 -m venv "$work/python"
pip() { "$work/python/bin/pip" -q "$@" >> "$work/pip.log" 2>&1; }
if ! pip install -r workflows/requirements.txt kubernetes-validate==1.37.0; then
    pip download --no-deps -d "$work" pyyaml || lacks "no packages of PyPI"
    fail "workflows/requirements.txt cannot be installed"
fi
ln -s "$huepage" "$work/bin/huepage"
plugins=$(dirname "$(find "$work/node" / -xdev -name select_cons_tres.so -print -quit)")
LD_LIBRARY_PATH=$(dirname "$plugins"):$plugins
export LD_LIBRARY_PATH SLURM_CONF=$work/slurm.conf
export PATH=$work/bin:$work/python/bin:$work/node/usr/sbin:$work/node/usr/bin:$PATH:/usr/sbin

echo "== manifests for Kubernetes"
python3 - docs/sweeps.md docs/howto/groups.md << 'END' || fail "a manifest is not as Kubernetes wants it"
import copy, pathlib, re, sys
import kubernetes_validate, yaml

for path in sys.argv[1:]:
    blocks = re.findall(r"^```yaml\n(apiVersion:.*?)^```", pathlib.Path(path).read_text(), re.M | re.S)
    assert blocks, f"{path} has no manifest"
    for manifest in map(yaml.safe_load, blocks):
        kubernetes_validate.validate(manifest, "1.30", strict=True)
        wrong = copy.deepcopy(manifest)
        wrong["spec"]["containres"] = []
        try:
            kubernetes_validate.validate(wrong, "1.30", strict=True)
        except kubernetes_validate.ValidationError:
            print(f"{path}: {manifest['kind']} {manifest['metadata']['name']} is as its schema wants it")
        else:
            sys.exit("the schemas accept anything")
END

echo "== the sweep by huepage sim alone"
mkdir -p "$work/alone/traces" "$work/alone/results/units"
cd "$work/alone"
# A walk in lines with a part that is hot, and lines in a random order.
python3 - << 'END' | huepage trace import --format din - -o traces/first.trace
for i in range(2_000_000):
    print(i % 2, format(i * 64 % (1 << 20) if i % 4 else i * 0x9E3779B9 % (1 << 17), "x"))
END
python3 - << 'END' | huepage trace import --format din - -o traces/second.trace
for i in range(2_000_000):
    print(0, format((i * 0x9E3779B9 >> 12) % (3 << 17), "x"))
END
cat > config.yaml << 'END'
traces: [traces/first.trace, traces/second.trace]
machines: [cascade-lake-like, xeon-e5506]
options: --level 2 --sweep colors=1..8 --sweep seed=1..8
END
for trace in first second; do
    mkdir "results/units/$trace"
    for machine in cascade-lake-like xeon-e5506; do
        huepage sim -m $machine traces/$trace.trace --level 2 --sweep colors=1..8 --sweep seed=1..8 --json \
            > results/units/$trace/$machine.jsonl
    done
done
python3 "$repository/workflows/merge.py" results/all.jsonl results/units/*/*.jsonl

# A directory with the same traces for an engine.
prepare() {
    mkdir "$work/$1"
    cd "$work/$1"
    ln -s ../alone/traces ../alone/config.yaml .
}
# Every file of the result of an engine against that of huepage alone.
compare() {
    local differs
    differs=$(diff -rq --exclude=kept "$work/alone/results" results 2>&1) || fail "$1: $differs"
    [ "$(wc -l < results/all.jsonl)" -eq 256 ] || fail "$1: not all points"
    echo "$1: 256 points, $(cat results/all.jsonl results/all.csv | wc -c) bytes, the same as of huepage alone"
}
# A program of its own and no function, so that its number is that of the process to end.
snakemake=(snakemake -s "$repository/workflows/Snakefile" --profile)
profiles=$repository/workflows/profiles

echo "== Snakemake on this machine"
prepare local
"${snakemake[@]}" "$profiles/local" > "$work/snakemake.log" 2>&1 || fail "Snakemake failed"
compare Snakemake

echo "== a Slurm of one node"
node=$(hostname -s)
cat > "$SLURM_CONF" << END
ClusterName=try
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=26817
SlurmdPort=26818
AuthType=auth/munge
# A job that is queued again starts when its old credentials have expired.
AuthInfo=socket=$work/own/munge.socket,cred_expire=10
SlurmUser=root
StateSaveLocation=$work/own
SlurmdSpoolDir=$work/own/spool
SlurmctldPidFile=$work/own/slurmctld.pid
SlurmdPidFile=$work/own/slurmd.pid
PluginDir=$plugins
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
SlurmdTimeout=15
MinJobAge=600
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=4000
PartitionName=try Nodes=ALL Default=YES
END
# Steps of jobs lose SLURM_CONF to Snakemake.
printf '#!/bin/sh\nSLURM_CONF=%s exec %s "$@"\n' "$SLURM_CONF" "$(command -v srun)" > "$work/bin/srun"
chmod 755 "$work" "$work/bin/srun"
chmod 700 "$work/own"
find_daemon() { command -v "$1-wlm" || command -v "$1"; }
start_node() {
    # Process 1 of a namespace of its own: with it ends all that runs on the node, as by a loss of power. What jobs
    # left behind in files goes at the next start (-c).
    unshare --pid --fork --kill-child --mount-proc sh -c '"$@" & wait' sh \
        "$(find_daemon slurmd)" -D -c -d "$(find_daemon slurmstepd)" >> "$work/slurmd.log" 2>&1 &
    node_pid=$!
    started+=("$node_pid")
}
mungekey --create --keyfile "$work/own/munge.key"
munged --foreground --force --key-file "$work/own/munge.key" --socket "$work/own/munge.socket" \
    --pid-file "$work/own/munge.pid" --seed-file "$work/own/munge.seed" --log-file "$work/munge.log" \
    2>/dev/null &
started+=($!)
await 120 munge -S "$work/own/munge.socket" -n
"$(find_daemon slurmctld)" -D -i > "$work/slurmctld.log" 2>&1 &
started+=($!)
await 120 scontrol ping
start_node
is_node() { sinfo -h -o %T | grep -qx "$1"; }
await 300 is_node idle

echo "== Snakemake on Slurm"
prepare slurm
# On one processor: a unit must still be under way when it is seen to be. Results do not depend on it.
cpu=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
rm "$work/bin/huepage"
printf '#!/bin/sh\nexec taskset -c %s %s "$@"\n' "$cpu" "$huepage" > "$work/bin/huepage"
chmod 755 "$work/bin/huepage"
timeout 1200 "${snakemake[@]}" "$profiles/slurm" --set-threads unit="$(nproc)" --slurm-status-command squeue \
    --slurm-init-seconds-before-status-checks 5 > "$work/snakemake-slurm.log" 2>&1 &
sweeping=$!
started+=("$sweeping")
# Finished points of unfinished units that came after a mark.
kept() { find results/kept -name '*.jsonl' -newer "$work/mark" -exec grep -h '"point"' {} + 2>/dev/null | wc -l; }
is_under_way() { [ "$(kept)" -gt 0 ]; }
touch "$work/mark"
await 600 is_under_way
kill -KILL "$node_pid"
wait "$node_pid" 2>/dev/null || true
echo "the node ended, with $(kept) points of a unit of 64 finished"
await 300 is_node 'down\*'
touch "$work/mark"
start_node
await 600 is_under_way
job=$(squeue -h -t R -o %i | head -n 1)
scancel "$job"
echo "job $job was cancelled, with $(kept) points of a unit of 64 finished"
wait "$sweeping" || fail "the sweep on Slurm failed"
scontrol show jobs > "$work/jobs.log"
grep -q Restarts=1 "$work/jobs.log" || fail "no job was queued again"
grep -A 3 "JobId=$job " "$work/jobs.log" | grep -q JobState=CANCELLED || fail "job $job was not cancelled"
compare "Snakemake on Slurm, ended twice,"

echo "== HyperQueue"
prepare hyperqueue
python3 "$repository/workflows/hyperqueue_sweep.py" > "$work/hyperqueue.log" 2>&1 || fail "HyperQueue failed"
compare HyperQueue

echo "== notebook"
python3 "$repository/workflows/notebook.py" > "$work/notebook.log" 2>&1 || fail "the notebook failed"
for figure in results/misses.svg results/heat.svg; do
    grep -q '</svg>' "$figure" || fail "no $figure"
    echo "$figure: $(wc -c < "$figure") bytes"
done
