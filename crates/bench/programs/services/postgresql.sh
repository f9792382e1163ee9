#!/bin/bash
# PostgreSQL as its own user. $DIR is a directory of its own, $PORT its port; what a call is for is $1.
set -eu
bin=$(find /usr/lib/postgresql -mindepth 2 -maxdepth 2 -name bin 2>/dev/null | sort | tail -n 1)
as=(setpriv --reuid postgres --regid postgres --init-groups)
client=(-h "$DIR" -p "$PORT" -U postgres)
case $1 in
needs) [ -x "$bin/postgres" ] ;;
prepare)
    mkdir "$DIR/data" && chown postgres "$DIR" "$DIR/data"
    "${as[@]}" "$bin/initdb" -D "$DIR/data" -A trust --no-sync -E UTF8 --locale C >/dev/null
    ;;
start)
    exec "${as[@]}" "$bin/postgres" -D "$DIR/data" -k "$DIR" -p "$PORT" \
        -c listen_addresses= -c fsync=off -c shared_buffers=32MB -c work_mem=64MB
    ;;
ready) "$bin/pg_isready" -q "${client[@]}" ;;
load)
    "$bin/pgbench" "${client[@]}" -i -q -s 4 postgres >/dev/null 2>&1
    "$bin/pgbench" "${client[@]}" -n -c 1 -t 3000 --random-seed 7 postgres >/dev/null 2>&1
    psql "${client[@]}" -At postgres <<'SQL'
select count(*), sum(abalance), sum(hashint4(abalance + aid)::bigint) from pgbench_accounts;
select count(*), sum(a.aid::bigint * b.abalance)
    from pgbench_accounts a join pgbench_accounts b on a.aid = b.aid;
select md5(string_agg(x::text, ',')) from (select x from generate_series(1, 300000) x order by md5(x::text)) y;
SQL
    ;;
clients) [ -x "$bin/pgbench" ] ;;
measure)
    # The same clients for all measurements: each of them has a process here, which settles once. They log one
    # request of ten.
    if ! kill -0 "$(cat "$DIR/clients" 2>/dev/null || echo none)" 2>/dev/null; then
        rm -f "$DIR"/log.*
        "$bin/pgbench" "${client[@]}" -n -S -M prepared -c 4 -T 1000000 -l --sampling-rate=0.1 \
            --log-prefix "$DIR/log" postgres >/dev/null 2>&1 &
        echo $! >"$DIR/clients"
    fi
    sleep "$BEFORE"
    from=$(($(date +%s) + 1))
    old=$(stat -c %s "$DIR"/log.*)
    sleep $((SECONDS_LONG + 2))
    tail -c +$((old + 1)) "$DIR"/log.* |
        awk -v from="$from" -v to=$((from + SECONDS_LONG)) '$5 >= from && $5 < to { print $3 }' |
        sort -n | awk -v long="$SECONDS_LONG" '{ us[NR] = $1 } END { print NR * 10 / long, us[int(NR * 0.99)] / 1000 }'
    ;;
stop)
    kill "$(cat "$DIR/clients" 2>/dev/null || echo none)" 2>/dev/null || true
    kill "$LEADER"
    ;;
esac
