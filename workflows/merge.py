"""Puts units of a sweep together: merge.py OUT.jsonl UNIT... also writes OUT.csv.

A unit is a file TRACE/MACHINE.jsonl that `huepage sim --json` wrote. Its rows get the names of both, and numbers
that go on from one unit to the next; the rest, and the order of the columns, is that of `huepage sim merge`.
"""

import json
import subprocess
import sys
from pathlib import Path

out, *units = map(Path, sys.argv[1:])
rows = []
for unit in units:
    names = {"trace": unit.parent.name, "machine_file": unit.stem}
    named = [{"name": name, "value": value} for name, value in names.items()]
    for row in map(json.loads, unit.read_text().splitlines()):
        rows.append({**row, "point": len(rows), "parameters": named + row["parameters"]})
part = out.with_suffix(".part")
part.write_text("".join(json.dumps(row) + "\n" for row in rows))
for end, options in [(".jsonl", []), (".csv", ["--csv"])]:
    with open(out.with_suffix(end), "w") as file:
        subprocess.run(["huepage", "sim", "merge", part, *options], stdout=file, check=True)
part.unlink()
