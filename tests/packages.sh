#!/usr/bin/env bash
# Installs what the tests drive (packages.txt: a program, its Debian package), where it is missing.
# Another list, from this folder, is an argument.
set -euo pipefail
cd "$(dirname "$0")"
list=${1:-packages.txt}
PATH=$PATH:/usr/sbin:/sbin

missing() {
    while read -r program package; do
        command -v "$program" >/dev/null || echo "$package"
    done <"$list"
}

mapfile -t packages < <(missing)
[ ${#packages[@]} -gt 0 ] || exit 0

give_up() {
    echo "NOT INSTALLED: ${packages[*]}: $1. Tests that drive them will fail." >&2
    echo "Run as root: apt-get update && apt-get install -y ${packages[*]}" >&2
    exit 1
}

command -v apt-get >/dev/null || give_up "there is no apt-get here"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || give_up "that takes root, or sudo without a password"
    as_root=(sudo -n)
fi
echo "Installing for the tests: ${packages[*]}"
# None of them is to run as a service here: no policy lets it start.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap '"${as_root[@]}" rm -f $policy' EXIT
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee $policy >/dev/null
    "${as_root[@]}" chmod 755 $policy
fi
apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -o DPkg::Lock::Timeout=120 "$@" >/dev/null
}
apt update || give_up "apt-get update failed"
apt install -y --no-install-recommends "${packages[@]}" || give_up "apt-get install failed"
mapfile -t packages < <(missing)
[ ${#packages[@]} -eq 0 ] || give_up "apt-get left them out"
