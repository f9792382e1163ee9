#!/bin/sh
# Checks the unit for systemd: that it makes sense, and that its exposure is no more than its capabilities need.
# No systemd has to run. Exits with 1 where the unit is wrong, and with 2 where it cannot be checked.
#
#   scripts/check-unit.sh [UNIT]
set -eu

# The exposure that systemd works out, times ten; docs/daemon.md says line by line what it is made of.
MOST=32

unit=${1:-$(dirname "$0")/../docs/huepage.service}
if ! command -v systemd-analyze >/dev/null; then
    echo "$0: no systemd-analyze; install it with: apt-get install systemd" >&2
    exit 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
checked=$work/$(basename "$unit")
# Programs have to be there to be verified, and huepage may not be installed.
sed "s|/usr/local/bin/huepage|$(command -v true)|" "$unit" > "$checked"

# What it does not know it only warns of, so that a warning counts as well.
if ! systemd-analyze verify --recursive-errors=no --man=no "$checked" > "$work/said" 2>&1 \
    || grep -F "$(basename "$unit")" "$work/said" > /dev/null; then
    cat "$work/said" >&2
    exit 1
fi
if ! systemd-analyze security --offline=true --threshold="$MOST" --no-pager "$checked" > "$work/said" 2>&1; then
    cat "$work/said" >&2
    echo "$0: $unit is more exposed than $MOST" >&2
    exit 1
fi
tail -n 1 "$work/said"
