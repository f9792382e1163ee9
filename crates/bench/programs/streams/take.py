# A join as numpy does it: keys pass by, and each is looked up in a table that fits the cache.
import numpy

random = numpy.random.RandomState(1)
table = random.randint(0, 1 << 30, 157286)
keys = random.randint(0, table.size, 16 << 20)
total = 0
for turn in range(120):
    for first in range(0, keys.size, 8192):
        total += int(table[keys[first:first + 8192]].sum())
print(total)
