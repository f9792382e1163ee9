-- A large table passes by, in memory, and each row of it is looked up in a small one.
create table small(id integer primary key, weight integer);
with recursive n(i) as (select 0 union all select i + 1 from n where i < 19999)
insert into small select i, i * 7919 % 1000 from n;
create table large(key integer, amount integer);
with recursive n(i) as (select 0 union all select i + 1 from n where i < 3999999)
insert into large select i * 104729 % 20000, i % 97 from n;
select sum(weight * amount) from large join small on id = key;
select sum(weight * amount) from large join small on id = key where amount > 3;
select sum(weight * amount) from large join small on id = key where amount > 5;
select sum(weight * amount) from large join small on id = key where amount > 7;
