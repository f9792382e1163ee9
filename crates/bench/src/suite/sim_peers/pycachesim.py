# Loads of the addresses in a file (64-bit numbers) through pycachesim's C back end, on the caches
# that the other arguments name as SETSxWAYS. Prints CPU seconds and the misses of each level.
import array
import json
import sys
import time

from cachesim import Cache, CacheSimulator, MainMemory

addresses = array.array("Q")
with open(sys.argv[1], "rb") as file:
    addresses.frombytes(file.read())
addresses = addresses.tolist()
memory, levels = MainMemory(), []
for level, shape in reversed(list(enumerate(sys.argv[2:], 1))):
    sets, ways = map(int, shape.split("x"))
    below = {"store_to": levels[0], "load_from": levels[0]} if levels else {}
    levels.insert(0, Cache(f"L{level}", sets, ways, 64, "LRU", **below))
memory.load_to(levels[-1])
memory.store_from(levels[-1])
simulator = CacheSimulator(levels[0], memory)
start = time.process_time()
simulator.load(addresses, length=8)
seconds = time.process_time() - start
misses = [level.stats()["MISS_count"] for level in levels]
print(json.dumps({"seconds": seconds, "misses": misses}))
