#!/usr/bin/env bash
# Installs the Debian packages that the tests drive (packages.txt), where they are missing.
set -euo pipefail
cd "$(dirname "$0")"
missing=()
while read -r package; do
    dpkg-query --show --showformat='${db:Status-Status}\n' "$package" 2>/dev/null |
        grep -qx installed || missing+=("$package")
done < <(grep -v '^#' packages.txt)
[ ${#missing[@]} -gt 0 ] || exit 0
as_root=
if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
        echo "The tests need more than this user may install; run: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root="sudo -n"
fi
$as_root apt-get update -qq
# None of them is to run as a service here: no policy lets it start.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' | $as_root tee $policy >/dev/null
    $as_root chmod 755 $policy
    trap '$as_root rm -f $policy' EXIT
fi
$as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
