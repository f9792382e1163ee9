#!/bin/bash
# memcached as its own user. $DIR is a directory of its own, $PORT its port; what a call is for is $1.
set -eu
case $1 in
needs) command -v memcached >/dev/null ;;
prepare) ;;
start) exec memcached -u memcache -l 127.0.0.1 -p "$PORT" -m 256 -t 2 ;;
ready) (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null ;;
load)
    python3 - "$PORT" <<'PYTHON'
import socket, sys, time
server = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
reader, keys, end = server.makefile("rb"), 30000, time.monotonic() + 4
def all_values():
    found = 0
    for first in range(0, keys, 50):
        server.sendall(b"get " + b" ".join(b"k%d" % i for i in range(first, first + 50)) + b"\r\n")
        while (line := reader.readline()) != b"END\r\n":
            found += sum(reader.read(int(line.split()[3]) + 2))
    return found
rounds = 0
while time.monotonic() < end or rounds < 2:
    for i in range(keys):
        value = b"%d" % (i * 7919 % 1000003) * 20
        server.sendall(b"set k%d 0 0 %d noreply\r\n%s\r\n" % (i, len(value), value))
    total, rounds = all_values(), rounds + 1
print(total)
PYTHON
    ;;
stop) kill "$LEADER" ;;
esac
