#!/bin/bash
# mosquitto as its own user. $DIR is a directory of its own, $PORT its port; what a call is for is $1.
set -eu
case $1 in
needs) command -v mosquitto >/dev/null && command -v mosquitto_pub >/dev/null ;;
prepare)
    printf '%s\n' "listener $PORT 127.0.0.1" 'allow_anonymous true' 'user mosquitto' 'max_queued_messages 0' >"$DIR/conf"
    chmod -R a+rX "$DIR"
    ;;
start) exec mosquitto -c "$DIR/conf" ;;
ready) mosquitto_pub -h 127.0.0.1 -p "$PORT" -t ready -n 2>/dev/null ;;
load)
    end=$((SECONDS + 4))
    while
        mosquitto_sub -h 127.0.0.1 -p "$PORT" -t t -q 1 -C 20000 -W 60 >"$DIR/got" &
        sleep 0.3
        seq -f 'message %.0f' 20000 | mosquitto_pub -h 127.0.0.1 -p "$PORT" -t t -q 1 -l
        wait $!
        # What is kept takes memory, too.
        for i in $(seq 100); do echo "$i"; done | mosquitto_pub -h 127.0.0.1 -p "$PORT" -t kept -r -l
        [ $SECONDS -lt $end ]
    do :; done
    md5sum <"$DIR/got"
    ;;
stop) kill "$LEADER" ;;
esac
