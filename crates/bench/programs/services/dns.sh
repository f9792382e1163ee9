#!/bin/bash
# A name server: dnsmasq or unbound, as $2 says. $DIR is a directory of its own, $PORT its port; what a call is for
# is $1.
set -eu
names=20000
case $1 in
needs) command -v "$2" >/dev/null ;;
prepare)
    for i in $(seq $names); do echo "10.$((i / 65536)).$((i / 256 % 256)).$((i % 256)) n$i.test"; done >"$DIR/hosts"
    {
        printf '%s\n' server: "interface: 127.0.0.1" "port: $PORT" 'username: unbound' 'chroot: ""' 'num-threads: 2' \
            "directory: $DIR" "pidfile: $DIR/pid" 'use-syslog: no' 'local-zone: "test." static'
        awk '{ print "local-data: \"" $2 ". A " $1 "\"" }' "$DIR/hosts"
        printf '%s\n' remote-control: 'control-enable: no'
    } >"$DIR/conf"
    chmod -R a+rX "$DIR"
    ;;
start)
    case $2 in
    dnsmasq)
        exec dnsmasq --keep-in-foreground --conf-file=/dev/null --port="$PORT" --listen-address=127.0.0.1 \
            --bind-interfaces --no-resolv --no-hosts --addn-hosts="$DIR/hosts" --pid-file --log-facility=-
        ;;
    unbound) exec unbound -d -c "$DIR/conf" ;;
    esac
    ;;
ready | load)
    python3 - "$PORT" $names "$1" <<'PYTHON'
import socket, sys, time
port, names, what = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.connect(("127.0.0.1", port))
server.settimeout(5 if what == "load" else 0.5)
def address(i):
    name = b"n%d" % i
    server.send(b"\x12\x34\x01\0\0\1\0\0\0\0\0\0%c%s\4test\0\0\1\0\1" % (len(name), name))
    answer = server.recv(512)
    return int.from_bytes(answer[answer.index(b"\0\4", 12 + len(name) + 10) + 2:][:4], "big")
try:
    if what == "ready":
        sys.exit(address(1) != 10 << 24 | 1)
    end, rounds = time.monotonic() + 4, 0
    while time.monotonic() < end or not rounds:
        total, rounds = sum(address(i) for i in range(1, names + 1)), rounds + 1
    print(total)
except (OSError, ValueError) as error:
    sys.exit(str(error))
PYTHON
    ;;
stop) kill "$LEADER" ;;
esac
