#!/bin/sh
# Tries the packages of target/packages where nothing of huepage has ever been: in clean trees of Debian 12 and 13,
# below a directory of its own. Each package is installed by apt, `huepage demo`, `huepage trace` and `huepage sim` run, and the packages
# are purged; every file that is left then and was not there before is named, and fails the check. The RPM is
# unpacked by rpm in the same trees. The static program runs in a tree of its own with nothing else. Needs root, and
# for the others mmdebstrap and Debian's archive.
#
#   packaging/check-packages.sh [bookworm] [trixie] [static]
set -eu
cd "$(dirname "$0")/.."

[ "$(id -u)" -eq 0 ] || { echo "$0: needs root" >&2; exit 2; }
packages=$PWD/target/packages
work=$(mktemp -d)
tree=
leave() {
    # Deepest first; a tree with mounts in it must not be removed.
    [ -z "$tree" ] || for at in dev sys proc; do umount -R "$tree/$at" 2>/dev/null || true; done
    grep -q " $work/" /proc/mounts || rm -rf "$work"
}
trap leave EXIT

# Everything in the tree but what installers and programs of Debian write themselves.
files() {
    (cd "$tree" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./packages \
        -o -path ./var/lib/apt -o -path ./var/lib/dpkg -o -path ./var/cache -o -path ./var/log -o -path ./tmp \
        -o -path ./var/lib/rpm -o -path ./root/.rpmdb \) -prune -o -print | sort)
}

inside() {
    chroot "$tree" env HOME=/root TERM=dumb LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}

check() {
    command -v mmdebstrap >/dev/null || { echo "$0: no mmdebstrap; apt-get install mmdebstrap" >&2; exit 2; }
    release=$1
    tree=$work/$release
    echo "== $release"
    # What the plugins are used with, and rpm, are there before.
    mmdebstrap --quiet --variant=apt --include=qemu-user,perl,rpm,valgrind "$release" "$tree"
    for at in proc sys dev; do mount --rbind "/$at" "$tree/$at" && mount --make-rslave "$tree/$at"; done
    mkdir "$tree/packages"
    cp "$packages"/*.deb "$tree/packages/"
    has_rpms=
    if [ -n "$(find "$packages" -name '*.rpm' -print -quit)" ]; then
        has_rpms=yes
        cp "$packages"/*.rpm "$tree/packages/"
    fi
    files > "$work/before"

    inside sh -c 'apt-get install -y -q --no-install-recommends /packages/huepage_*.deb /packages/huepage-qemu_*.deb' > "$work/log" 2>&1 \
        || { cat "$work/log" >&2; exit 1; }
    inside huepage --version
    inside test -e /usr/share/man/man1/huepage-run.1.gz
    inside huepage demo
    inside huepage trace -o /tmp/true.trace -- /bin/true
    inside huepage trace info /tmp/true.trace
    inside huepage sim -m cascade-lake-like /tmp/true.trace
    rm -f "$tree/tmp/true.trace"
    inside apt-get purge -y -q huepage huepage-qemu > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    gone
    if [ -n "$has_rpms" ]; then rpms; else echo "SKIPPED the RPMs: none in $packages; packaging/package.sh rpm" >&2; fi
    leave_tree
}

rpms() {
    # Debian's rpm had to be told that it is meant, once.
    force=$(inside rpm --help | grep -o -e --force-debian || true)
    # shellcheck disable=SC2086
    inside sh -c "rpm --nodeps $force -i /packages/*.rpm"
    inside huepage --version
    # shellcheck disable=SC2086
    # Its plugins want namespaces of their own, which a change of the root does not give.
    inside rpm $force --noplugins -e huepage-qemu huepage
    gone
}

# Nothing may be left.
gone() {
    files > "$work/after"
    if ! diff "$work/before" "$work/after"; then
        echo "$0: files are left in $release (above)" >&2
        exit 1
    fi
    echo "nothing is left"
}

# The static program in a tree of its own, in which there is nothing else.
alone() {
    tree=$work/alone
    for at in proc sys dev; do
        mkdir -p "$tree/$at" "$tree/tmp" "$tree/run"
        mount --rbind "/$at" "$tree/$at" && mount --make-rslave "$tree/$at"
    done
    cp "$packages/huepage-static" "$tree/huepage"
    for words in --version "run --share 25% -- /huepage --version" "demo --quick" "sim -m cascade-lake -w gups:size=1M,rounds=10"; do
        # shellcheck disable=SC2086
        chroot "$tree" /huepage $words
    done
    left=$(cd "$tree" && find . -xdev -path ./run -prune -o -type f -print)
    [ "$left" = ./huepage ] || { echo "$0: files are left (above): $left" >&2; exit 1; }
    leave_tree
}

leave_tree() {
    for at in dev sys proc; do umount -R "$tree/$at"; done
    rm -rf --one-file-system "$tree"
    tree=
}

for release in ${*:-bookworm trixie static}; do
    case $release in static) alone ;; *) check "$release" ;; esac
done
