#!/bin/bash
# Checks what the programs are made of by deny.toml: licences, crates in two versions, sources, and known
# vulnerabilities. Installs cargo-deny where it is missing, which takes some minutes. The list of
# vulnerabilities is fetched from the network: without it that part is skipped, and said to be. All else
# fails when it is violated.
set -euo pipefail
cd "$(dirname "$0")/.."

VERSION=0.20.2
# The workspace, and the fuzz targets, which are built apart from it.
manifests=(Cargo.toml fuzz/Cargo.toml)

export PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
if ! command -v cargo-deny >/dev/null; then
    cargo install --quiet --locked --version "$VERSION" cargo-deny
fi

check() { cargo deny --manifest-path "$1" --config "$PWD/deny.toml" check "${@:2}"; }

echo "the workspace: licences, bans, sources"
check Cargo.toml -D unmatched-skip -A license-exception-not-encountered licenses bans sources
echo "the fuzz targets: licences, bans, sources"
check fuzz/Cargo.toml -A license-not-encountered -A unmatched-skip licenses bans sources

if ! fetched=$(cargo deny fetch db 2>&1); then
    echo "SKIPPED advisories: the list of known vulnerabilities cannot be fetched here:" >&2
    echo "$fetched" >&2
    exit 0
fi
for manifest in "${manifests[@]}"; do
    echo "$manifest: advisories"
    check "$manifest" advisories
done
