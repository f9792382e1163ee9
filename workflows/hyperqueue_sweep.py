"""The sweep of config.yaml by HyperQueue: hyperqueue_sweep.py [SERVER]

SERVER is the directory of a running server (`hq server start --server-dir`). Without one, a server and a worker
run on this machine until the sweep ends. A unit that fails is tried again by running this once more.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import yaml
from hyperqueue import Client, Job, LocalCluster
from hyperqueue.ffi.protocol import ResourceRequest

config = yaml.safe_load(Path("config.yaml").read_text())
job, units = Job(max_fails=None), []
for trace in config["traces"]:
    for machine in config["machines"]:
        name = f"{Path(trace).stem}/{Path(machine).stem}.jsonl"
        unit, kept = Path("results/units", name), Path("results/kept", name)
        units.append(unit)
        if unit.exists():
            continue
        unit.parent.mkdir(parents=True, exist_ok=True)
        kept.parent.mkdir(parents=True, exist_ok=True)
        command = ["huepage", "sim", "-m", machine, *shlex.split(config["options"])]
        command = shlex.join([*command, "--resume", str(kept), "--json", "--", trace])
        script = f"{command} > {kept}.out && mv {kept}.out {unit} && rm {kept}"
        # One unit uses a whole machine.
        whole, log = ResourceRequest(cpus="all"), f"{kept}.log"
        job.program(["sh", "-c", script], name=name, cwd=os.getcwd(), stdout=None, stderr=log, resources=whole)


def run(client):
    client.wait_for_jobs([client.submit(job)])


if job.tasks and len(sys.argv) > 1:
    run(Client(sys.argv[1]))
elif job.tasks:
    with LocalCluster() as cluster:
        cluster.start_worker()
        run(cluster.client())
merge = Path(__file__).with_name("merge.py")
subprocess.run([sys.executable, merge, "results/all.jsonl", *units], check=True)
