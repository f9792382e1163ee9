#!/bin/bash
# Records the four real programs of `huepage-repro coloris` into a directory, on real input:
#   gnugo   answering the game of the benchmarks, the program in the foreground
#   povray  ray tracing the scene of the benchmarks
#   hmmer   hmmsearch: a profile of sequences made here against 20,000 others
#   bzip2   packing the program perl
# Needs the packages gnugo, povray, hmmer, bzip2, perl and qemu-user, and a huepage (HUEPAGE, or
# the release build). Each trace ends after 30 million accesses; LIMIT changes that. Says which
# are missing, and goes on.
set -euo pipefail

cd "$(dirname "$0")/.."
out=${1:?give a directory for the traces}
huepage=${HUEPAGE:-target/release/huepage}
limit=${LIMIT:-30000000}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PATH=$PATH:/usr/games

record() {
    local name=$1
    shift
    if ! command -v "$1" >/dev/null; then
        echo "SKIPPED $name: install the package $name" >&2
        return
    fi
    rm -f "$out/$name.trace"
    "$huepage" trace -q --limit "$limit" --stop-at-limit -o "$out/$name.trace" -- "$@" \
        >"$work/$name.out" 2>"$work/$name.err" ||
        { echo "SKIPPED $name: $(tail -n 1 "$work/$name.err")" >&2; return; }
    echo "$name=$out/$name.trace"
}

# The same sequences everywhere: proteins of 120 residues, each family a parent with changes.
sequences() {
    perl -e 'my ($seed, $count, $change) = @ARGV; srand $seed;
        my @letters = split //, "ACDEFGHIKLMNPQRSTVWY";
        my @parent = map { $letters[int rand 20] } 1 .. 120;
        for my $i (1 .. $count) {
            print ">s$i\n", (map { rand() < $change ? $letters[int rand 20] : $_ } @parent), "\n";
        }' "$@"
}

programs=crates/bench/programs
cp "$programs/game.gtp" "$programs/scene.pov" "$work"
record gnugo gnugo --mode gtp --level 10 --seed 1 <"$work/game.gtp"
record povray povray -D "+I$work/scene.pov" "+O$work/scene.bmp" +FB +W640 +H480 +WT1
if command -v hmmbuild >/dev/null; then
    sequences 1 40 0.4 >"$work/family.afa"
    sequences 2 20000 0.9 >"$work/others.fa"
    hmmbuild --amino "$work/family.hmm" "$work/family.afa" >/dev/null
fi
record hmmer hmmsearch --cpu 0 --max "$work/family.hmm" "$work/others.fa"
record bzip2 bzip2 -9 -k -c "$(command -v perl)"
