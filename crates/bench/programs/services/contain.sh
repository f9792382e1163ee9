#!/bin/bash
# Runs a service in a container of runc's: contain.sh ID SHARE HUEPAGE WORD... It has the host's files and network,
# the capabilities that Docker gives, and a control group as Docker names it. Where SHARE is not empty, a hook confines
# it to that. $DIR is a directory of the service's own.
set -eu
id=$1 bundle=$DIR/bundle
mkdir -p "$bundle/state" "$bundle/rootfs"/{usr,etc,var,tmp,run,proc,dev,sys}
for name in bin sbin lib lib64; do ln -sfn "usr/$name" "$bundle/rootfs/$name"; done
(cd "$bundle" && rm -f config.json && runc spec)
python3 - "$bundle" "$@" <<'PYTHON'
import json, os, sys
bundle, id, share, huepage, *words = sys.argv[1:]
config = json.load(open(bundle + "/config.json"))
given = {key: os.environ[key] for key in ("DIR", "PORT", "LEADER", "HUEPAGE_RUNTIME_DIR") if key in os.environ}
environment = ["%s=%s" % pair for pair in given.items()] + ["PATH=" + os.environ["PATH"]]
may = ["CAP_" + name for name in (
    "CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL "
    "AUDIT_WRITE").split()]
config["process"].update(
    terminal=False, args=words, env=environment, cwd="/", noNewPrivileges=False,
    capabilities={kind: may for kind in ("bounding", "effective", "permitted")}, rlimits=[])
bind = lambda path, how: {"destination": path, "type": "bind", "source": path, "options": ["rbind", how]}
config["mounts"] += [bind("/usr", "ro"), bind("/etc", "ro"), bind("/var", "rw"), bind("/run", "rw"), bind("/tmp", "rw")]
config["root"]["readonly"] = False
linux = config["linux"]
linux["namespaces"] = [one for one in linux["namespaces"] if one["type"] != "network"]
linux["cgroupsPath"] = "/huepage-bench/docker/" + id
linux["seccomp"] = {
    "defaultAction": "SCMP_ACT_ALLOW",
    "syscalls": [{"names": ["userfaultfd", "bpf", "keyctl"], "action": "SCMP_ACT_ERRNO"}],
}
if share:
    config["annotations"] = {"org.huepage.share": share}
    hook = {"path": huepage, "args": ["huepage", "oci-hook", "--", "--colors-from", "declared"], "env": environment}
    config["hooks"] = {"poststart": [hook]}
json.dump(config, open(bundle + "/config.json", "w"))
PYTHON
for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/*; do
    [ ! -e "$hierarchy/cgroup.procs" ] || mkdir -p "$hierarchy/huepage-bench/docker"
done
exec runc --root "$bundle/state" run --bundle "$bundle" "$id"
