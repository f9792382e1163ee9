#!/bin/bash
# Records the three real programs of `huepage-repro romer` into a directory, on real input:
#   gcc   its compiler proper, on a file of the zstd library that huepage itself is built with
#   gs    Ghostscript, setting the manual of Perl's messages in type (300 KB)
#   perl  Perl, formatting the same manual
# Needs the packages gcc, ghostscript, perl and qemu-user, and a huepage (HUEPAGE, or the release
# build). Each trace ends after 40 million records, fetches of instructions included, so that it
# is the beginning of its program; LIMIT changes that. Say which are missing, and go on.
set -euo pipefail

cd "$(dirname "$0")/.."
out=${1:?give a directory for the traces}
huepage=${HUEPAGE:-target/release/huepage}
limit=${LIMIT:-40000000}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

record() {
    local name=$1
    shift
    rm -f "$out/$name.trace"
    "$huepage" trace -q --fetches --limit "$limit" --stop-at-limit -o "$out/$name.trace" -- "$@" \
        >"$work/$name.out" 2>"$work/$name.err" ||
        { echo "SKIPPED $name: $(tail -n 1 "$work/$name.err")" >&2; return; }
    echo "$name=$out/$name.trace"
}

manual=$(find /usr/share/perl -name perldiag.pod | head -n 1)
if command -v gcc >/dev/null; then
    source=$(find "${CARGO_HOME:-$HOME/.cargo}/registry/src" -path '*zstd-sys*' \
        -name zstd_decompress.c | sort | tail -n 1)
    gcc -E -P "$source" -o "$work/input.i"
    record gcc "$(gcc -print-prog-name=cc1)" -quiet -O2 "$work/input.i" -o /dev/null
else
    echo "SKIPPED gcc: install the package gcc" >&2
fi
if command -v gs >/dev/null; then
    record gs gs -q -dBATCH -dNOPAUSE -dNOSAFER -sDEVICE=ppmraw -r150 -sOutputFile=/dev/null \
        -- gslp.ps "$manual"
else
    echo "SKIPPED gs: install the package ghostscript" >&2
fi
record perl perl -MPod::Text -e 'Pod::Text->new->parse_file($ARGV[0])' "$manual"
