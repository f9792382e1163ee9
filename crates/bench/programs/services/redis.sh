#!/bin/bash
# redis as its own user. $DIR is a directory of its own, $PORT its port; what a call is for is $1.
set -eu
client=(redis-cli -p "$PORT")
case $1 in
needs) command -v redis-server >/dev/null ;;
prepare) chown redis "$DIR" ;;
start)
    exec setpriv --reuid redis --regid redis --init-groups redis-server --port "$PORT" \
        --bind 127.0.0.1 --save '' --daemonize no --dir "$DIR" --logfile "$DIR/log"
    ;;
ready) [ "$("${client[@]}" ping 2>/dev/null)" = PONG ] ;;
load)
    redis-benchmark -p "$PORT" -q -n 60000 -t set,get,lpush,lpop -r 20000 -d 100 >/dev/null
    "${client[@]}" flushall >/dev/null
    for round in 1 2 3 4 5 6; do
        "${client[@]}" eval "for i = 1, 100000 do
            redis.call('set', 'key:' .. i, i * $round % 1000003 .. string.rep('x', i % 90)) end" 0 >/dev/null
    done
    "${client[@]}" eval "local all = 0
        for i = 1, 100000 do local v = redis.call('get', 'key:' .. i)
            all = (all * 31 + #v + tonumber(string.match(v, '%d+'))) % 1000000007 end
        return all" 0
    "${client[@]}" dbsize
    ;;
clients) command -v redis-benchmark >/dev/null ;;
measure)
    requests() { redis-benchmark -p "$PORT" -c 8 -n "$2" -r 100000 -d 100 -t "$1" --csv; }
    # Its own keys, most of which exist then.
    requests set $((30000 * BEFORE)) >/dev/null
    requests get $((30000 * BEFORE)) >/dev/null
    requests get $((80000 * SECONDS_LONG)) | awk -F'"' '$2 == "GET" { print $4, $14 }'
    ;;
stop) kill "$LEADER" ;;
esac
