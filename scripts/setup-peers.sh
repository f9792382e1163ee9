#!/bin/sh
# Installs the simulators that `huepage-bench sim-peers` is compared with and that are in a package
# registry, for the Python that runs this. Dinero IV is in none: it is measured where `dineroIV` is
# on the path.
set -eu

exec python3 -m pip install --quiet pycachesim libcachesim "$@"
