#!/bin/sh
# Builds what is installed elsewhere, into target/packages: a Debian package and an RPM of the program, the same of
# the plugins for QEMU (their licence is another), and a static program that needs no C library.
#
#   packaging/package.sh [deb] [rpm] [static]      all of them where none is named
#
# Needs: cargo install cargo-deb cargo-generate-rpm; for the static program also apt-get install musl-tools and
# rustup target add x86_64-unknown-linux-musl. Exits with 2 where something is missing.
set -eu
cd "$(dirname "$0")/.."

need() {
    command -v "$1" >/dev/null || { echo "$0: no $1; $2" >&2; exit 2; }
}

out=target/packages
pages=target/pages
musl=x86_64-unknown-linux-musl
mkdir -p "$out"

# The program, and what is made from it: manual pages, completions, the unit with its place in a package.
build() {
    cargo build --release -p huepage
    rm -rf "$pages"
    target/release/huepage man-pages "$pages"
    gzip -9n "$pages"/*.1
    sed -e 's|/usr/local/bin/huepage|/usr/bin/huepage|' -e '1,2d' docs/huepage.service > "$pages/huepage.service"
}

deb() {
    need cargo-deb "cargo install cargo-deb"
    for variant in huepage qemu; do
        cargo deb -p huepage --no-build --no-strip --variant "$variant" --output "$out/"
    done
}

rpm() {
    need cargo-generate-rpm "cargo install cargo-generate-rpm"
    cargo generate-rpm -p crates/huepage --output "$out/"
    cargo generate-rpm -p crates/huepage --variant qemu --output "$out/"
}

static() {
    need musl-gcc "apt-get install musl-tools"
    rustup target list --installed | grep -qx "$musl" || { echo "$0: rustup target add $musl" >&2; exit 2; }
    # Relocations take 0.8 MB less so; musl reads them since 1.2.4, which Rust brings along.
    cargo rustc --release -p huepage --bin huepage --target "$musl" -- -C link-arg=-Wl,-z,pack-relative-relocs
    cp "target/$musl/release/huepage" "$out/huepage-static"
}

build
for what in "${@:-deb rpm static}"; do
    # Unquoted: the default is three words.
    for each in $what; do
        case $each in
            deb | rpm | static) "$each" ;;
            *) echo "$0: $each is none of deb, rpm and static" >&2; exit 2 ;;
        esac
    done
done
ls -l "$out"
