#!/bin/bash
# A web server: apache2, lighttpd or haproxy, as $2 says. $DIR is a directory of its own, $PORT its port; what a call
# is for is $1.
set -eu
sizes=(1 100 1000 3000)
case $1 in
needs) command -v "$2" >/dev/null && command -v curl >/dev/null ;;
prepare)
    mkdir "$DIR/www"
    for size in "${sizes[@]}"; do seq "$size" >"$DIR/www/$size.txt"; done
    chmod -R a+rX "$DIR"
    ;;&
prepare)
    case $2 in
    apache2)
        {
            for name in mpm_event authz_core dir mime; do
                echo "LoadModule ${name}_module /usr/lib/apache2/modules/mod_$name.so"
            done
            printf '%s\n' "Listen 127.0.0.1:$PORT" "ServerName localhost" "DocumentRoot $DIR/www" \
                "PidFile $DIR/pid" "ErrorLog $DIR/error.log" "TypesConfig /etc/mime.types" \
                "User www-data" "Group www-data" "<Directory $DIR/www>" "Require all granted" "</Directory>"
        } >"$DIR/conf"
        ;;
    lighttpd)
        printf '%s\n' "server.document-root = \"$DIR/www\"" "server.port = $PORT" 'server.bind = "127.0.0.1"' \
            'server.username = "www-data"' 'server.groupname = "www-data"' 'server.max-worker = 2' >"$DIR/conf"
        ;;
    haproxy)
        {
            printf '%s\n' global insecure-fork-wanted 'user haproxy' 'group haproxy' 'maxconn 64' 'tune.bufsize 65536' defaults 'mode http' \
                'timeout client 60s' 'timeout server 60s' 'timeout connect 5s' 'frontend all' "bind 127.0.0.1:$PORT"
            for size in "${sizes[@]}"; do
                echo "http-request return status 200 content-type text/plain file $DIR/www/$size.txt if { path /$size.txt }"
            done
        } >"$DIR/conf"
        ;;
    esac
    ;;
start)
    case $2 in
    apache2) exec apache2 -f "$DIR/conf" -DFOREGROUND ;;
    lighttpd) exec lighttpd -D -f "$DIR/conf" ;;
    haproxy) exec haproxy -db -f "$DIR/conf" ;;
    esac
    ;;
ready) curl -sf -o /dev/null "http://127.0.0.1:$PORT/1.txt" ;;
load)
    end=$((SECONDS + 4))
    sums() { for size in "${sizes[@]}"; do curl -s "http://127.0.0.1:$PORT/$size.txt" | md5sum; done; }
    expected=$(for size in "${sizes[@]}"; do md5sum <"$DIR/www/$size.txt"; done)
    while [ $SECONDS -lt $end ]; do
        got=$(sums)
        [ "$got" = "$expected" ] || { echo "another body"; break; }
    done
    echo "$got"
    ;;
# As the first process of a container haproxy takes no other signal for an end.
stop) kill "-$([ "$2" = haproxy ] && echo USR1 || echo TERM)" "$LEADER" ;;
esac
