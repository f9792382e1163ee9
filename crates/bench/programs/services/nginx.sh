#!/bin/bash
# nginx: a master of root's and workers of www-data. $DIR is a directory of its own, $PORT its port; what a
# call is for is $1.
set -eu
case $1 in
needs) command -v nginx >/dev/null && command -v curl >/dev/null ;;
prepare)
    mkdir "$DIR/www"
    for size in 1 100 5000 60000; do
        seq "$size" >"$DIR/www/$size.txt"
    done
    cat >"$DIR/nginx.conf" <<CONF
user www-data;
worker_processes 2;
pid $DIR/nginx.pid;
events { worker_connections 64; }
http {
    access_log off;
    gzip on;
    gzip_types text/plain;
    default_type text/plain;
    server { listen 127.0.0.1:$PORT; root $DIR/www; }
}
CONF
    ;;
start) exec nginx -c "$DIR/nginx.conf" -p "$DIR" -e "$DIR/error.log" -g 'daemon off;' ;;
ready) curl -sf -o /dev/null "http://127.0.0.1:$PORT/1.txt" ;;
load)
    end=$((SECONDS + 4))
    sum() { curl -s --compressed "http://127.0.0.1:$PORT/$1.txt" | md5sum; }
    expected=$(for size in 1 100 5000 60000; do md5sum <"$DIR/www/$size.txt"; done)
    while [ $SECONDS -lt $end ]; do
        got=$(for size in 1 100 5000 60000; do sum "$size"; done)
        [ "$got" = "$expected" ] || { echo "another body"; break; }
    done
    echo "$got"
    ;;
clients) command -v wrk >/dev/null ;;
measure)
    page() { wrk -t 1 -c 8 -d "$1" --latency "http://127.0.0.1:$PORT/5000.txt"; }
    page "$BEFORE" >/dev/null
    page "$SECONDS_LONG" | awk '
        $1 == "99%" { ms = $2 * (/us/ ? 0.001 : /ms/ ? 1 : 1000) }
        $1 == "Requests/sec:" { print $2, ms }'
    ;;
stop) kill "$LEADER" ;;
esac
