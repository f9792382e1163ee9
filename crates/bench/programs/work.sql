-- Work for sqlite3 in huepage's benchmarks: inserts, an index, joins, a window, and a file
-- that is compared too.
PRAGMA journal_mode = DELETE;
PRAGMA cache_size = -32000;
CREATE TABLE item (id INTEGER PRIMARY KEY, grp INTEGER, name TEXT, price REAL);
WITH RECURSIVE n(i, x) AS (
    SELECT 1, 12345
    UNION ALL
    SELECT i + 1, (x * 1103515245 + 12345) % 2147483648 FROM n WHERE i < 400000
)
INSERT INTO item SELECT i, x % 997, 'item-' || (x % 100003), (x % 10000) / 100.0 FROM n;
CREATE INDEX by_name ON item (name);
SELECT count(*), count(DISTINCT name), printf('%.2f', sum(price)) FROM item;
SELECT grp, count(*) AS n, printf('%.2f', avg(price)) FROM item GROUP BY grp ORDER BY n DESC, grp LIMIT 5;
SELECT a.name, count(*) FROM item a JOIN item b ON a.name = b.name AND a.id < b.id
    GROUP BY a.name ORDER BY 2 DESC, 1 LIMIT 5;
SELECT max(r) FROM (SELECT row_number() OVER (PARTITION BY grp ORDER BY price, id) AS r FROM item);
UPDATE item SET price = price * 1.1 WHERE grp % 3 = 0;
DELETE FROM item WHERE grp % 5 = 0;
VACUUM;
SELECT count(*), printf('%.2f', sum(price)) FROM item;
