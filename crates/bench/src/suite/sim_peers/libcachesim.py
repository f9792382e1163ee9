# Uses of the objects in a trace (oracleGeneral) through libCacheSim's LRU, a cache of as many
# objects as the second argument says. Prints CPU seconds and the misses.
import json
import sys
import time

import libcachesim as lcs

settings = lcs.ReaderInitParam(ignore_obj_size=True)
reader = lcs.TraceReader(
    trace=sys.argv[1],
    trace_type=lcs.TraceType.ORACLE_GENERAL_TRACE,
    reader_init_params=settings,
)
uses = reader.get_num_of_req()
cache = lcs.LRU(cache_size=int(sys.argv[2]))
start = time.process_time()
rate, _ = cache.process_trace(reader)
seconds = time.process_time() - start
print(json.dumps({"seconds": seconds, "misses": [round(rate * uses)]}))
