#!/bin/bash
# Builds the module of Python as `pip install ./python` does, into a virtual environment of its own, and holds its
# rows against those that the program prints (python/check.py). Built as for tests: a wheel for users takes several
# times as long. Needs python3-venv, a built huepage (the first argument, or the one of target/release), and on the
# first run PyPI and the registry of crates. Ends with 77, and says so loudly, where maturin or a crate cannot be had.
#
#   scripts/check-python.sh [HUEPAGE]
set -euo pipefail
cd "$(dirname "$0")/.."
huepage=$(realpath "${1:-target/release/huepage}")
[ -x "$huepage" ] || { echo "$0: no $huepage; cargo build --release" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "$0: $1" >&2
    tail -n 40 "$work/log" >&2
    exit 1
}
# Nothing was tried, for want of something that is no fault of this repository.
lacks() {
    echo "SKIPPED the module of Python: $1" >&2
    tail -n 5 "$work/log" >&2
    exit 77
}
touch "$work/log"

python3 -c 'import ensurepip' 2>> "$work/log" || lacks "no python3-venv"
python3 -m venv "$work/python"
export PATH=$work/python/bin:$PATH
requirement=$(sed -n 's/^requires = \["\(.*\)"\]$/\1/p' python/pyproject.toml)
if ! pip install -q "$requirement" >> "$work/log" 2>&1; then
    pip download -q --no-deps -d "$work" maturin >> "$work/log" 2>&1 || lacks "no maturin"
    fail "no $requirement"
fi
if ! cargo fetch --locked --manifest-path python/Cargo.toml 2> "$work/log"; then
    # By what cargo says of the network: a manifest that is wrong, or a lock that is behind it, fails.
    unreachable='failed to download|failed to query|unable to update|network failure|network error|offline mode'
    ! grep -Eqi "$unreachable" "$work/log" || lacks "no crates"
    fail "the crates of python/Cargo.lock cannot be fetched"
fi

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/python CARGO_PROFILE_DEV_DEBUG=false CARGO_NET_OFFLINE=true
pip install --no-build-isolation --no-deps --config-settings=build-args="--profile=dev --locked" ./python \
    > "$work/log" 2>&1 || fail "the module cannot be built"
python python/check.py "$huepage"
