#!/bin/bash
# Records the real programs of `huepage-repro srm` into a directory: PostgreSQL, on its own in
# single-user mode, with a fact table of 400,000 records of 128 bytes and a dimension table of
# 400,000 records of 256 bytes, both in its buffer pool before recording begins:
#   join  probes of a hash join of the fact table with a tenth of the dimension table
#   scan  a sequential scan of the fact table with an aggregate over a twentieth of it
# A cursor is planned for its first rows otherwise, with a hash table of the fact table instead.
# Needs the packages postgresql and qemu-user, and a huepage (HUEPAGE, or the release build). Run
# by root, PostgreSQL runs as nobody. Each trace ends after 200 million records; LIMIT changes that.
# WARM are the seconds that the first run of a query may take under QEMU.
set -euo pipefail

cd "$(dirname "$0")/.."
out=${1:?give a directory for the traces}
huepage=$(realpath "${HUEPAGE:-target/release/huepage}")
limit=${LIMIT:-200000000}
warm=${WARM:-60}
[ -x "$huepage" ] || { echo "there is no $huepage: cargo build --release --workspace" >&2; exit 1; }
mkdir -p "$out"
out=$(realpath "$out")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

bin=$(dirname "$(find /usr/lib/postgresql -name postgres -type f | sort -V | tail -n 1)")
as=()
if [ "$(id -u)" = 0 ]; then
    as=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
    chown nobody "$work"
    chmod 755 "$work"
fi
cd "$work"

"${as[@]}" "$bin/initdb" -D "$work/data" -U postgres --no-sync >"$work/initdb.log"
single=("$bin/postgres" --single -D "$work/data" -c shared_buffers=512MB -c fsync=off
    -c max_parallel_workers_per_gather=0 -c enable_mergejoin=off -c enable_nestloop=off
    -c cursor_tuple_fraction=1 -c jit=off postgres)
"${as[@]}" "${single[@]}" >"$work/make.log" <<'SQL'
create table fact(key int, value int, pad char(92));
insert into fact select (random()*399999)::int, i, 'x' from generate_series(1,400000) i;
create table dim(key int, weight int, pad char(220));
insert into dim select i, (random()*1000)::int, 'y' from generate_series(0,399999) i;
vacuum freeze analyze fact;
vacuum freeze analyze dim;
SQL

# What comes first is not recorded; then a rest, in which recording begins, and the rest.
record() {
    local name=$1 first=$2 then=$3
    rm -f "$work/$name.trace"
    { echo "$first"; sleep $((warm + 10)); for _ in 1 2 3 4 5 6; do echo "$then"; done; } |
        "${as[@]}" "$huepage" trace -q --skip "${warm}s" --limit "$limit" --stop-at-limit \
            -o "$work/$name.trace" -- "${single[@]}" >"$work/$name.out" 2>"$work/$name.err" ||
        { echo "SKIPPED $name: $(tail -n 1 "$work/$name.err")" >&2; return; }
    mv "$work/$name.trace" "$out/$name.trace"
    echo "$name=$out/$name.trace"
}

# The hash table is built when the first row is fetched.
join="begin
declare c cursor for select f.value + d.weight from fact f join dim d on f.key = d.key where d.weight < 100
fetch 1 in c"
record join "$join" "move 1000000 in c"
scan="select value % 64, count(*), sum(key) from fact where key < 20000 group by 1"
record scan "$scan" "$scan"
