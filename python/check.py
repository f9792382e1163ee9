"""Checks that the rows of the module `huepage` are those that the program prints: check.py [PROGRAM]"""

import csv
import subprocess
import sys
import tempfile
from pathlib import Path

import huepage

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else "huepage"


def run(*words, text=None):
    done = subprocess.run([PROGRAM, *words], input=text, capture_output=True, check=True, text=True)
    return done.stdout


def check(words, **options):
    """One call against one run, in the module's types; a cell that a row does not have is empty in CSV."""
    rows = huepage.sim("cascade-lake-like", **options)
    printed = list(csv.DictReader(run("sim", "-m", "cascade-lake-like", *words, "--csv").splitlines()))
    assert len(rows) == len(printed) > 0, (len(rows), len(printed))
    for row, cells in zip(rows, printed):
        assert list(row) == [name for name in cells if cells[name] != ""]
        for name, value in row.items():
            cell = cells[name] == "true" if isinstance(value, bool) else type(value)(cells[name])
            assert cell == value, (name, cell, value)
    print(f"{len(rows)} rows of {len(rows[0])} columns: {' '.join(words)}")


def refused(part, *args, **options):
    try:
        huepage.sim(*args, **options)
    except ValueError as error:
        assert part in str(error), error
    else:
        raise AssertionError(f"taken: {args} {options}")


with tempfile.TemporaryDirectory() as directory:
    trace = str(Path(directory, "p.trace"))
    lines = (f"{i % 2} {i * 0x9E3779B9 % (1 << 20):x}\n" for i in range(20_000))
    run("trace", "import", "--format", "din", "-", "-o", trace, text="".join(lines))

    check([trace], traces=trace)
    check([trace, "--policy", "none"], traces=Path(trace), policy="none")
    check([trace, "--policy", "approx-online"], traces=trace, policy="approx-online")
    check([trace, trace, "--restart"], traces=[trace, trace], restart=True)
    both = ["colors=1..8", "seed=1,2"]
    words = [trace, "--level", "2", "--sweep", both[0], "--sweep", both[1]]
    check(words, traces=trace, level=2, sweep=both)
    words = ["-w", "gups:size=64K", "--limit", "1000"]
    check(words, traces=[], workload="gups:size=64K", limit=1000)

    refused("name one", "nowhere", trace)
    refused("--no-such", "cascade-lake-like", trace, no_such=1)
    refused("leave out", "cascade-lake-like", trace, csv=True)
    refused("name one", "cascade-lake-like", trace, policy="list")
    refused("nowhere.trace", "cascade-lake-like", "nowhere.trace")
