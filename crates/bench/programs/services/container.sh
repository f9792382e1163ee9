#!/bin/bash
# A container that runc starts: of root, or of an ordinary user where $2 says so. $DIR is a directory of its
# own; what a call is for is $1. Its root file system is made on the spot from the host's /usr.
set -eu
id=$(printf '%s' "$DIR" | sha256sum | cut -c 1-64)
user=65534
as=()
[ "$2" = user ] && as=(setpriv --reuid $user --regid $user --clear-groups)
case $1 in
needs) command -v runc >/dev/null ;;
id) echo "$id" ;;
prepare)
    mkdir -p "$DIR/state" "$DIR/rootfs"/{usr,proc,dev,sys,tmp,etc,out} && mkdir -m 777 "$DIR/out"
    for name in bin lib lib64; do ln -s "usr/$name" "$DIR/rootfs/$name"; done
    (cd "$DIR" && runc spec $([ "$2" = user ] && echo --rootless))
    python3 - "$DIR" "$id" "$2" $user <<'PYTHON'
import json, sys
place, id, whose, user = sys.argv[1:]
config = json.load(open(place + "/config.json"))
script = """
import time
memory = bytearray(b'x' * (24 << 20))
open('/out/ready', 'w').close()
end = time.monotonic() + 6
while time.monotonic() < end:
    for at in range(0, len(memory), 4096):
        memory[at] = (memory[at] + 1) % 250
    time.sleep(0.01)
open('/out/answer', 'w').write('%d %d\\n' % (len(set(memory[0::4096])), len(memory)))
time.sleep(600)
"""
config["process"].update(terminal=False, args=["/usr/bin/python3", "-c", script])
config["mounts"] += [
    {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]},
    {"destination": "/out", "type": "bind", "source": place + "/out", "options": ["rbind", "rw"]},
]
config["linux"]["cgroupsPath"] = "/huepage-bench/docker/" + ("libpod-" + id if whose == "user" else id)
config["linux"]["seccomp"] = {
    "defaultAction": "SCMP_ACT_ALLOW",
    "syscalls": [{"names": ["userfaultfd", "bpf", "keyctl"], "action": "SCMP_ACT_ERRNO"}],
}
if whose == "user":
    own = [{"containerID": 0, "hostID": int(user), "size": 1}]
    config["linux"].update(uidMappings=own, gidMappings=own)
json.dump(config, open(place + "/config.json", "w"))
PYTHON
    for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/*; do
        [ -e "$hierarchy/cgroup.procs" ] || continue
        mkdir -p "$hierarchy/huepage-bench/docker"
        [ "$2" = root ] || chown -R $user:$user "$hierarchy/huepage-bench"
    done
    [ "$2" = root ] || chown -R $user:$user "$DIR"
    ;;
start)
    cd "$DIR"
    XDG_RUNTIME_DIR=$DIR exec "${as[@]}" runc --root "$DIR/state" run --bundle "$DIR" "$id"
    ;;
ready) [ -e "$DIR/out/ready" ] ;;
load)
    until [ -e "$DIR/out/answer" ]; do sleep 0.1; done
    cat "$DIR/out/answer"
    ;;
stop)
    XDG_RUNTIME_DIR=$DIR "${as[@]}" runc --root "$DIR/state" kill "$id" KILL
    ;;
esac
