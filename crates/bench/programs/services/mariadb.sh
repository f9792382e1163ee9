#!/bin/bash
# MariaDB as its own user. $DIR is a directory of its own, $PORT its port; what a call is for is $1.
set -eu
client=(mariadb --no-defaults -S "$DIR/socket" -u root -N -B)
case $1 in
needs) command -v mariadbd >/dev/null && command -v mariadb-install-db >/dev/null ;;
prepare)
    mkdir "$DIR/data" && chown mysql "$DIR" "$DIR/data"
    mariadb-install-db --no-defaults --user=mysql --datadir="$DIR/data" --skip-test-db \
        --auth-root-authentication-method=normal >/dev/null 2>&1
    ;;
start)
    exec mariadbd --no-defaults --user=mysql --datadir="$DIR/data" --socket="$DIR/socket" --port="$PORT" \
        --bind-address=127.0.0.1 --innodb-buffer-pool-size=64M --innodb-flush-log-at-trx-commit=0
    ;;
ready) "${client[@]}" -e 'select 1' >/dev/null 2>&1 ;;
load)
    "${client[@]}" <<'SQL'
create database d; use d;
create table t (a int primary key, b bigint, c varchar(100), key (b)) engine=innodb;
insert into t select seq, seq * 7919 % 1000003, repeat(md5(seq), 3) from seq_1_to_150000;
select count(*), sum(b), sum(crc32(c)) from t;
select count(*), sum(x.a * y.b) from t x join t y on x.a = y.b;
update t set b = b * 31 % 1000003;
select sum(b), md5(group_concat(b order by b limit 1000)) from t;
select count(*), sum(x.a * y.b) from t x join t y on x.a = y.b;
select sleep(2);
SQL
    ;;
stop) kill "$LEADER" ;;
esac
