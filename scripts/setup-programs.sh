#!/bin/bash
# Installs the programs that the live tests and benchmarks run under huepage, from Debian
# packages, and nothing else: what is there already is kept (a Go or a JDK of one's own
# counts). Without root or apt-get it says loudly what is missing and leaves it at that; the
# tests then skip, or fail under HUEPAGE_REQUIRE_LIVE=1. With --services also those of
# `huepage-bench services`.
set -euo pipefail

missing=()

# need COMMAND PACKAGE...: the packages are wanted if no such command can be found.
need() {
    local command=$1
    shift
    PATH=$PATH:/usr/sbin:/usr/games:/usr/local/go/bin command -v "$command" >/dev/null || missing+=("$@")
}

need gnugo gnugo
need povray povray
need gcc gcc libc6-dev
need xz xz-utils
need sqlite3 sqlite3
need bzip2 bzip2
# What `huepage trace` records with, and its fallback.
need qemu-x86_64 qemu-user
need valgrind valgrind
# What `huepage lab` boots guests with; their kernel is fetched below.
need qemu-system-x86_64 qemu-system-x86
need busybox busybox-static
need python3 python3-minimal
# What scripts/try-sweeps.sh makes a virtual environment with.
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
# Latencies of a real-time kernel.
need cyclictest rt-tests
# What checks the unit: no systemd has to run.
need systemd-analyze systemd
# What pages of HTML are looked at with.
need chromium chromium
# What checks figures and alerts for Prometheus.
need promtool prometheus
# Containers, and a program with a userfaultfd of its own.
need runc runc
need crun crun
need podman podman
need stress-ng stress-ng
# Services, each with a user of its own, and their clients.
need redis-server redis-server redis-tools
need nginx nginx-light
need curl curl
need sshd openssh-server openssh-client
# More services and clients, which only `huepage-bench services` and `served` start.
if [ "${1:-}" = --services ]; then
    need memcached memcached
    need apache2 apache2-bin
    need lighttpd lighttpd
    need haproxy haproxy
    need dnsmasq dnsmasq-base
    need unbound unbound
    need mosquitto mosquitto
    need mosquitto_pub mosquitto-clients
    need mariadbd mariadb-server
    # What `huepage-bench served` loads nginx with.
    need wrk wrk
fi
compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || missing+=(postgresql)
# What the worked example of docs/sweeps.md runs with.
need parallel parallel
need go golang-go
need javac default-jdk-headless
# Static linking needs the C library's archive, which a compiler alone does not bring.
if command -v gcc >/dev/null && [ ! -e "$(gcc -print-file-name=libc.a)" ]; then
    missing+=(libc6-dev)
fi

# Kernels for guests of `huepage lab`: one newer than what Debian 12 runs, one with PREEMPT_RT, and Debian 12's own,
# which is refused.
# Fetched and taken out of their packages, which takes longer than a tenth of a guest's life; not installed.
# $1: what its name begins with after "linux-image-"; $2: what follows, for "-amd64".
fetch_kernel() {
    local into=/var/cache/huepage-lab name new package
    if compgen -G "$into/vmlinuz-$1*-$2-amd64" >/dev/null; then
        return
    fi
    # What somebody put there serves as it is, only slower.
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        if ! compgen -G "$into/linux-image-$1*-$2-amd64*.deb" >/dev/null; then
            echo "SKIPPED setup-programs: a kernel for the lab; please \`apt-get download\` linux-image-$1*-$2-amd64* into $into" >&2
        fi
        return
    fi
    mkdir -p "$into"
    new=$(mktemp -d -p "$into")
    # A copy: what somebody put there stays.
    find "$into" -maxdepth 1 -name "linux-image-$1*-$2-amd64*.deb" -exec cp -t "$new" {} +
    if ! compgen -G "$new/*.deb" >/dev/null; then
        name=$(apt-cache search --names-only "^linux-image-${1//./\\.}.*-$2-amd64(-unsigned)?\$" | cut -d' ' -f1 | sort -V | tail -1)
        [ -z "$name" ] || (cd "$new" && apt-get download --quiet "$name" >/dev/null 2>&1) || true
    fi
    for package in "$new"/*.deb; do
        [ -e "$package" ] || continue
        dpkg-deb --fsys-tarfile "$package" | tar --extract --directory "$new" --wildcards --strip-components 2 './boot/vmlinuz-*'
    done
    if compgen -G "$new/vmlinuz-*" >/dev/null; then
        mv "$new"/vmlinuz-* "$into"
    else
        echo "SKIPPED setup-programs: no kernel $1*-$2 in the package lists, for the lab" >&2
    fi
    rm -rf "$new"
}
fetch_kernel 6.12. cloud
fetch_kernel 6.12. rt
fetch_kernel 6.1. cloud

if [ ${#missing[@]} -eq 0 ]; then
    echo "setup-programs: all programs are installed"
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "SKIPPED setup-programs: no apt-get here; please install: ${missing[*]}" >&2
    exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "SKIPPED setup-programs: not root; please run: apt-get install ${missing[*]}" >&2
    exit 0
fi

# Services are installed, not started: the tests start their own.
if [ ! -e /usr/sbin/policy-rc.d ]; then
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod +x /usr/sbin/policy-rc.d
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
fi

export DEBIAN_FRONTEND=noninteractive
install=(apt-get install --yes --quiet --no-install-recommends -- "${missing[@]}")
echo "setup-programs: installing ${missing[*]}"
# The lists of a fresh machine may be old or absent: only then is an update worth its time.
if ! "${install[@]}" >/dev/null 2>&1; then
    apt-get update --quiet >/dev/null
    "${install[@]}" >/dev/null
fi
