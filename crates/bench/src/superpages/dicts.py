# Builds dicts, one after the other, of so many entries, for so many seconds. The last one is
# kept while the next is built. Says and waits as huepage-superpages does with --hold.
import json
import os
import sys
import time

born = time.monotonic()
entries, seconds = int(sys.argv[1]), float(sys.argv[2])


def build(first):
    return {(i * 0x9E3779B97F4A7C15) & 0xFFFFFFFF: str(i) for i in range(first, first + entries)}


kept = build(0)
setup = time.monotonic() - born
print(json.dumps({"ready": os.getpid()}), flush=True)
sys.stdin.readline()
begun = time.monotonic()
slices, by_cpu = [], []
while not slices or time.monotonic() - begun < seconds:
    started, cpu = time.monotonic(), time.thread_time()
    kept = build(len(slices) * entries)
    by_cpu.append(entries / (time.thread_time() - cpu))
    slices.append(entries / (time.monotonic() - started))


def steady(speeds):
    last = sorted(speeds[len(speeds) * 2 // 3:])
    return last[len(last) // 2]


print(json.dumps({
    "pid": os.getpid(),
    "setup_seconds": setup,
    "seconds": time.monotonic() - begun,
    "operations": entries * len(slices),
    "steady": steady(slices),
    "steady_cpu": steady(by_cpu),
    "slices": slices,
}), flush=True)
sys.stdin.read()
