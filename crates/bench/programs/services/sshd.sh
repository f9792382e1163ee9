#!/bin/bash
# sshd with a session of an ordinary user. $DIR is a directory of its own, $PORT its port; what a call is
# for is $1. The user is one with a shell that a package brought.
set -eu
user=postgres
case $1 in
needs) [ -x /usr/sbin/sshd ] && command -v ssh >/dev/null && getent passwd "$user" | grep -q /bash ;;
prepare)
    mkdir -p /run/sshd
    ssh-keygen -q -t ed25519 -N '' -f "$DIR/host"
    ssh-keygen -q -t ed25519 -N '' -f "$DIR/key"
    cp "$DIR/key.pub" "$DIR/authorized" && chmod 644 "$DIR/authorized"
    ;;
start)
    exec /usr/sbin/sshd -D -e -f /dev/null -h "$DIR/host" -p "$PORT" -o ListenAddress=127.0.0.1 \
        -o AuthorizedKeysFile="$DIR/authorized" -o StrictModes=no -o UsePAM=yes -o PidFile=none
    ;;
ready) ssh-keyscan -p "$PORT" 127.0.0.1 2>/dev/null | grep -q ssh ;;
load)
    ssh -q -p "$PORT" -i "$DIR/key" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
        -o BatchMode=yes "$user@127.0.0.1" '/usr/bin/python3 -c "
import os, time
m = list(range(300000))
end = time.time() + 4
while time.time() < end:
    m = [(x * 5 + 1) % 1000003 for x in m[:200000]] + m[200000:]
print(os.getuid() != 0, len(m), sum(m[200000:]))"'
    ;;
stop) kill "$LEADER" ;;
esac
