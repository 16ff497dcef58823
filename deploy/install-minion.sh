#!/bin/sh
# Make a host the minion of several Salt masters, by one file in minion.d.
#
#     install-minion.sh --finger FINGERPRINT 10.0.0.1 10.0.0.2
#     SALT_MASTER_HOSTS=10.0.0.1,10.0.0.2 install-minion.sh --finger FINGERPRINT
#
# --help tells the rest. POSIX sh; needs awk, sed, and sha256sum or openssl.

set -eu
umask 022

NAME=${0##*/}
DROP_IN=ha-masters.conf
# The state ha.multi_master writes the same file, and knows it by the same first line.
MARK='# Written for saltext-ha: the masters of this minion.'
REQUEST_PORT=4506

usage() {
    cat <<USAGE
Usage: $NAME [options] [MASTER…]

Writes /etc/salt/minion.d/$DROP_IN, and nothing else: no other file is changed.
When that file says already what it should, nothing is done.

MASTER is a host name or an IP address; HOST:PORT or [IPv6]:PORT when the request
port is not $REQUEST_PORT. NAME=HOST also tells the minion what that master is called in
its group, for  ha.failover to=NAME.  Several: as arguments, or with commas; without
any, those of the environment variable SALT_MASTER_HOSTS (comma list).
A master has two ports, the publish port (4505) and the request port (4506).
The one that is written behind a host is the request port.

How the minion knows its masters (one of the three is needed):
  --finger FP            the master key's fingerprint, the same on all masters
  --sign-finger FP       the masters sign: fingerprint of the master_sign.pub that
                         stands in the minion's pki_dir already
  --trust-first-use      by nothing: whoever answers first is its master
  On a master,  salt-run ha.minion_config  prints the fingerprint.

Options:
  --type failover|hot    one master at a time (default), or all at once
  --publish-port PORT    of all masters (default 4505); none: each tells a hot minion
                         its own
  --transport NAME       that of the masters: zeromq (default), tcp or ws
  --alive-interval SEC   failover: how often the master is looked at (default 30)
  --failback             failover: go back to the first master when it has been good
                         for a while. That is with --watchdog; without, Salt goes back
                         at its first answer, and then swings
  --watchdog             run the engine ha_watchdog (saltext-ha on this minion)
  --jitter SEC           watchdog: a move is put off by a random time up to this
                         (default 2; for thousands of minions 3 for each thousand)
  --install              install salt-minion when it is not there, with Salt's
                         bootstrap script
  --bootstrap-url URL    where that script is (https only)
  --bootstrap-sha256 HEX what it must be
  --restart              restart salt-minion when the file has changed
  --config-dir DIR       Salt's configuration (default /etc/salt); with another one, pki_dir
                         has to stand there, unless Salt was built for it
  --root DIR             work below DIR, as for an image: DIR/etc/salt (DIR/etc must
                         be there); never restarts anything
  --dry-run              show what would change, change nothing
  --help                 this text

Exit status: 0 as it should be (or, with --dry-run, would be), 1 refused or failed,
2 wrong arguments. Unless it is 0, or the text says otherwise, nothing was changed.
USAGE
}

say() { printf '%s\n' "$NAME: $*"; }
fail() {
    printf '%s\n' "$NAME: $*" >&2
    exit 1
}
misused() {
    printf '%s\n' "$NAME: $*" "$NAME: --help tells what it takes" >&2
    exit 2
}

# -- what is asked for

root='' config_dir=/etc/salt kind=failover publish_port=4505 transport=zeromq alive=30
failback=no watchdog=no jitter=2
finger='' sign_finger='' trust_first=no dry_run=no restart=no install=no sha256=''
url=https://github.com/saltstack/salt-bootstrap/releases/latest/download/bootstrap-salt.sh
hosts=''

while [ $# -gt 0 ]; do
    option=$1
    shift
    # Both --option VALUE and --option=VALUE.
    case $option in
        --*=*)
            set -- "${option#*=}" "$@"
            option=${option%%=*}
            case $option in
                --failback | --watchdog | --trust-first-use | --install | --restart | --dry-run | --help)
                    misused "$option takes no value"
                    ;;
            esac
            ;;
    esac
    case $option in
        --type | --publish-port | --transport | --alive-interval | --jitter | --finger | \
            --sign-finger | --config-dir | --root | --bootstrap-url | --bootstrap-sha256)
            [ $# -gt 0 ] && [ -n "$1" ] || misused "$option needs a value"
            value=$1
            shift
            ;;
    esac
    case $option in
        --type) kind=$value ;;
        --publish-port) publish_port=$value ;;
        --transport) transport=$value ;;
        --alive-interval) alive=$value ;;
        --jitter) jitter=$value ;;
        --finger) finger=$value ;;
        --sign-finger) sign_finger=$value ;;
        --config-dir) config_dir=${value%/} ;;
        --root) root=${value%/} ;;
        --bootstrap-url) url=$value ;;
        --bootstrap-sha256) sha256=$value ;;
        --failback) failback=yes ;;
        --watchdog) watchdog=yes ;;
        --trust-first-use) trust_first=yes ;;
        --install) install=yes ;;
        --restart) restart=yes ;;
        --dry-run) dry_run=yes ;;
        --help | -h)
            usage
            exit 0
            ;;
        --)
            for word in "$@"; do hosts="$hosts,$word"; done
            break
            ;;
        -*) misused "$option: no such option" ;;
        *) hosts="$hosts,$option" ;;
    esac
done
hosts=${hosts#,}
[ -n "$hosts" ] || hosts=${SALT_MASTER_HOSTS:-}
[ -n "$hosts" ] || misused "no masters: name them as arguments or in SALT_MASTER_HOSTS"

is_port() {
    case $1 in
        '' | *[!0-9]* | 0* | ??????*) return 1 ;;
    esac
    [ "$1" -le 65535 ]
}

case $kind in
    failover | hot) ;;
    *) misused "--type $kind: takes failover or hot" ;;
esac
if [ "$publish_port" = none ]; then
    [ "$kind" = hot ] || misused "--publish-port none is for --type hot: Salt's check for a lost master looks
at one port, so all masters of a failover minion must publish on the same"
    publish_port=''
else
    is_port "$publish_port" || misused "--publish-port $publish_port: is no port, and not none"
fi
case $transport in
    zeromq | tcp | ws) ;;
    *) misused "--transport $transport: takes zeromq, tcp or ws" ;;
esac
case $config_dir in
    /*) ;;
    *) misused "--config-dir $config_dir: takes a path that begins with /" ;;
esac
# A mistyped one would get a tree of its own, which no minion ever reads.
[ -z "$root" ] || [ -d "$root/etc" ] || [ -d "$root$config_dir" ] ||
    misused "--root $root: is no root of a host or an image: there is no $root/etc; nothing was changed"
case $alive in
    '' | *[!0-9]* | 0* | ??????*) misused "--alive-interval $alive: takes whole seconds, at least 1" ;;
esac
case $jitter in
    '' | *[!0-9]* | 0?* | ?????*) misused "--jitter $jitter: takes whole seconds, at most 3600" ;;
esac
[ "$jitter" -le 3600 ] || misused "--jitter $jitter: takes whole seconds, at most 3600"
if [ "$jitter" -ne 2 ] && [ "$watchdog" = no ]; then
    misused "--jitter is the watchdog's: it needs --watchdog, too"
fi
if [ "$kind" = hot ] && [ "$failback" = yes ]; then
    misused "--failback is for --type failover: a hot minion is with all its masters"
fi
case $url in
    https://*) ;;
    *) misused "--bootstrap-url $url: only https:// is fetched" ;;
esac

chosen=0
[ -z "$finger" ] || chosen=$((chosen + 1))
[ -z "$sign_finger" ] || chosen=$((chosen + 1))
[ "$trust_first" = no ] || chosen=$((chosen + 1))
[ "$chosen" -le 1 ] || misused "--finger, --sign-finger and --trust-first-use exclude each other"
[ "$chosen" -eq 1 ] || misused "how is the minion to know its masters? --finger FINGERPRINT, which" \
    "salt-run ha.minion_config  prints on a master (or --sign-finger, or --trust-first-use)"

# As Salt compares it: 64 hexadecimal digits in pairs, small letters.
fingerprint() {
    plain=$(printf '%s' "$2" | tr -d ': ' | tr 'A-F' 'a-f')
    case $plain in
        *[!0-9a-f]*) misused "$1 $2: is no fingerprint; it looks like 3a:9f:…, 32 pairs" ;;
    esac
    [ ${#plain} -ne 32 ] || misused "$1: that is an MD5 fingerprint; the SHA-256 one is needed, as" \
        "salt-run ha.minion_config  prints it"
    [ ${#plain} -eq 64 ] || misused "$1: it has ${#plain} digits, a SHA-256 fingerprint has 64"
    printf '%s' "$plain" | sed 's/../&:/g; s/:$//'
}
[ -z "$finger" ] || finger=$(fingerprint --finger "$finger") || exit 2
[ -z "$sign_finger" ] || sign_finger=$(fingerprint --sign-finger "$sign_finger") || exit 2

# -- the masters: request port and publish port told apart

# The one that nobody means as a request port.
its_publish_port=${publish_port:-4505}
why_ports="A master takes two ports, the publish port ($its_publish_port) and the request port; behind
a host stands the request port ($REQUEST_PORT, or what a port map leads there). The publish port is
given once, as --publish-port, or told by the master itself."

# The names (-: none), hosts and ports of the entries, each followed by a newline.
entry_names='' entry_hosts='' entry_ports=''
rest=$hosts,
while [ -n "$rest" ]; do
    entry=$(printf '%s' "${rest%%,*}" | sed 's/^[[:space:]]*//; s/[[:space:]]*$//')
    rest=${rest#*,}
    [ -n "$entry" ] || misused "an empty entry in the masters: $hosts"
    name=- port=$REQUEST_PORT
    case $entry in
        *=*)
            name=${entry%%=*} entry=${entry#*=}
            case $name in
                '' | [!A-Za-z0-9]* | *[!A-Za-z0-9._-]*) misused "$name=$entry: $name is no name of a master" ;;
            esac
            [ ${#name} -le 64 ] || misused "$name=$entry: a master's name has at most 64 characters"
            ;;
    esac
    case $entry in
        *://*) misused "$entry: a master is a host or host:port, no URL" ;;
        \[*\]) host=${entry#\[} host=${host%\]} ;;
        \[*\]:*)
            host=${entry#\[} host=${host%\]:*}
            port=${entry##*:}
            ;;
        *:*:*) host=$entry ;; # an IPv6 address without brackets has no port
        *:*) host=${entry%%:*} port=${entry#*:} ;;
        *) host=$entry ;;
    esac
    case $host in
        '' | -* | *[!A-Za-z0-9._:%-]*) misused "$entry: that is no host" ;;
        *:*) case ${host%%\%*} in *[!0-9a-fA-F:.]*) misused "$entry: that is no IPv6 address" ;; esac ;;
    esac
    is_port "$port" || misused "$entry: $port is no port; write $host:$REQUEST_PORT"
    [ "$port" != "$its_publish_port" ] || misused "$entry: $port is the publish port of the masters.
$why_ports
Write $host, or $host:$REQUEST_PORT"
    entry_names="$entry_names$name
" entry_hosts="$entry_hosts$host
" entry_ports="$entry_ports$port
"
done

pairs() { # "host port" of each entry, in lines
    # shellcheck disable=SC2086  # hosts and ports have no blanks in them: checked above
    set -- $entry_ports
    for host in $entry_hosts; do
        printf '%s %s\n' "$host" "$1"
        shift
    done
}

twice=$(pairs | sort | uniq -d | head -n 1)
[ -z "$twice" ] || misused "${twice% *} is named twice"
twice=$(printf '%s' "$entry_names" | sed '/^-$/d' | sort | uniq -d | head -n 1)
[ -z "$twice" ] || misused "two masters are called $twice"

# 4505/4506 on the first, 4507/4508 on the second: who writes 4507 means the second, and has taken
# its publish port.
beside=$(printf '%s' "$entry_ports" | sort -n | uniq | awk 'NR > 1 && $1 == last + 1 { print last, $1; exit } { last = $1 }')
[ -z "$beside" ] || misused "the ports ${beside% *} and ${beside#* } are next to each other: one of them is
a publish port. $why_ports
With 4507 and 4508 for the second master, its request port is 4508."

request_port=$(printf '%s' "$entry_ports" | sort -n | uniq)
case $request_port in
    *'
'*) request_port='' ;;
esac
same_host=$(printf '%s' "$entry_hosts" | sort | uniq -d | head -n 1)
[ -z "$same_host" ] || [ "$kind" = failover ] || misused "two masters at $same_host: a hot minion tells its masters
apart by their host, and would send every answer to both. Give each master an address of its own and
the same ports."
if [ -z "$request_port" ]; then
    [ "$kind" = hot ] || misused "the masters have different request ports. A failover minion needs the same
on all: Salt does not find a master written as host:port in its list again, and may not leave it
when it is dead. Give each master an address of its own and the same ports."
fi

# -- the file

written() { # each entry as it is written
    pairs | while read -r host port; do
        if [ -n "$request_port" ]; then
            printf '%s\n' "$host"
        else
            case $host in
                *:*) printf '[%s]:%s\n' "$host" "$port" ;;
                *) printf '%s:%s\n' "$host" "$port" ;;
            esac
        fi
    done
}

yaml_names() {
    # shellcheck disable=SC2046  # entries have no blanks in them: checked above
    set -- $(written)
    for name in $entry_names; do
        [ "$name" = - ] || printf '  "%s": "%s"\n' "$name" "$1"
        shift
    done
}

drop_in() {
    printf '%s\n' "$MARK"
    printf 'master:\n'
    written | sed 's/.*/  - "&"/'
    if [ "$kind" = failover ]; then
        printf 'master_type: failover\n'
    else
        printf 'master_type: str\n'
    fi
    names=$(yaml_names)
    [ -z "$names" ] || printf 'ha_masters:\n%s\n' "$names"
    if [ -n "$request_port" ]; then
        printf 'master_port: %s\n' "$request_port"
        [ -z "$publish_port" ] || printf 'publish_port: %s\n' "$publish_port"
    fi
    [ "$transport" = zeromq ] || printf 'transport: "%s"\n' "$transport"
    if [ "$kind" = failover ]; then
        printf 'retry_dns: 0\n'
        printf 'master_alive_interval: %s\n' "$alive"
        if [ "$failback" = yes ] && [ "$watchdog" = no ]; then
            printf 'master_failback: true\n'
            printf 'master_failback_interval: %s\n' "$alive"
        else
            printf 'master_failback: false\n'
        fi
    elif [ "$transport" = zeromq ]; then
        printf 'zmq_monitor: false\n'
    fi
    printf 'tcp_keepalive: true\n'
    if [ "$watchdog" = yes ]; then
        printf 'tcp_keepalive_idle: 5\ntcp_keepalive_intvl: 3\n'
    else
        printf 'tcp_keepalive_idle: 20\ntcp_keepalive_intvl: 5\n'
    fi
    printf 'tcp_keepalive_cnt: 3\n'
    if [ "$watchdog" = yes ]; then
        if [ "$kind" = failover ]; then
            printf 'master_tries: -1\n'
            printf 'auth_timeout: 10\n'
        fi
        printf 'engines:\n  - ha_watchdog: {}\n'
        if [ "$failback" = yes ] || [ "$jitter" -ne 2 ]; then
            printf 'ha:\n  watchdog:\n'
            [ "$jitter" -eq 2 ] || printf '    jitter: %s\n' "$jitter"
            [ "$failback" = no ] || printf '    failback: true\n'
        fi
    fi
    if [ -n "$finger" ]; then
        printf 'master_finger: "%s"\n' "$finger"
    elif [ -n "$sign_finger" ]; then
        printf 'verify_master_pubkey_sign: true\n'
    fi
}

# -- what is there already

config=$root$config_dir
folder=$config/minion.d
target=$folder/$DROP_IN
wanted=$(drop_in)
keys=$(printf '%s\n' "$wanted" | sed -n 's/^\([a-z_]*\):.*/\1/p')

# FILE: the options of ours that it sets, with their lines.
sets() {
    KEYS=$keys awk '
        BEGIN { split(ENVIRON["KEYS"], list, "\n"); for (i in list) ours[list[i]] = 1 }
        match($0, /^["\047]?[A-Za-z_]+["\047]?[ \t]*:/) {
            key = substr($0, 1, RLENGTH)
            gsub(/["\047 \t:]/, "", key)
            if (key in ours) printf "%s, line %d: %s\n", FILENAME, NR, key
        }' "$1"
}

if [ -f "$target" ]; then
    IFS= read -r first <"$target" || :
    [ "$first" = "$MARK" ] || fail "$target is there and was not written by this program. It is left as it
is: look at it, move it away, then run this again."
elif [ -e "$target" ] || [ -L "$target" ]; then
    fail "$target is no file"
fi

found=$(
    for file in "$folder"/*.conf; do
        if [ -f "$file" ] && [ "$file" != "$target" ]; then
            [ -r "$file" ] || fail "$file cannot be read: run this as root"
            sets "$file"
        fi
    done
) || exit 1
[ -z "$found" ] || fail "other files of minion.d set the same options. Salt puts lists of several
files together, and of single values the last file wins. They are left as they are: take these
options out of them, then run this again.
$found"

if [ -f "$config/minion" ]; then
    [ -r "$config/minion" ] || fail "$config/minion cannot be read: run this as root"
    ! grep -Eq '^["'\'']?default_include["'\'']?[[:space:]]*:' "$config/minion" ||
        fail "$config/minion sets default_include: whether minion.d is read is not certain. Take
it out, then run this again."
    ! grep -Eq '^["'\'']?include["'\'']?[[:space:]]*:' "$config/minion" ||
        say "note: what $config/minion names as include is read after minion.d, and was not looked
at here: none of those files may set the options of the new one."
    # A drop-in takes the place of a whole option: that is meant for master:, never for these.
    lost=$(sets "$config/minion" | grep -E ': (engines|ha)$' || :)
    [ -z "$lost" ] || fail "$config/minion has options that the new file would replace as a whole. Move them
into a file of minion.d and add what is needed there:
$lost"
    replaced=$(sets "$config/minion")
    [ -z "$replaced" ] || say "note: from now on these do not hold any more, the new file does:
$replaced"
fi

sum_of() {
    if command -v sha256sum >/dev/null 2>&1; then
        sha256sum | sed 's/ .*//'
    else
        openssl dgst -sha256 | sed 's/.* //'
    fi
}
# As Salt has it: of the lines between the first and the last.
key_finger() { sed '/^[[:space:]]*$/d' "$1" | sed '1d;$d' | sum_of | sed 's/../&:/g; s/:$//'; }

# OPTION: its value in the files beside the new one; of several the last one counts.
configured() {
    quote="[\"']\{0,1\}"
    for file in "$config/minion" "$folder"/*.conf; do
        [ ! -f "$file" ] || [ "$file" = "$target" ] ||
            sed -n "s/^$quote$1${quote}[[:space:]]*:[[:space:]]*$quote\([^\"'#]*[^\"'# ]\).*/\1/p" "$file"
    done | sed '$!d'
}

# A pki_dir that is configured is believed; the default is the one that Salt was built with.
pki=$(configured pki_dir)
pki=$root${pki:-$config_dir/pki/minion}
if [ -n "$sign_finger" ] && [ -n "$(configured master_finger)" ]; then
    fail "this minion's configuration has master_finger, which lets it be with masters of that one key only:
it ends when it comes to another one. Take it out, then run this again."
fi
of_all=$(configured publish_port)
# Salt takes 4506 for unset.
if { [ -z "$publish_port" ] || [ -z "$request_port" ]; } && [ "${of_all:-4506}" != 4506 ]; then
    fail "this minion's configuration has publish_port, which holds for all masters, and each is to tell
its own. Take it out, then run this again."
fi
hash_type=$(configured hash_type)
if [ -n "$finger" ] && [ "${hash_type:-sha256}" != sha256 ]; then
    fail "this minion has hash_type: $hash_type, by which it compares fingerprints, and --finger takes
one of SHA-256: with that file it would take none of these masters. Take hash_type out of its
configuration, or use --sign-finger or --trust-first-use."
fi
# shellcheck disable=SC2015  # the second is what the first must not be
if [ -n "$sign_finger" ]; then
    [ -r "$pki/master_sign.pub" ] || fail "$pki/master_sign.pub is not there (or not readable): with
--sign-finger the minion takes no master without it. Copy master_sign.pub from a master's pki_dir:
  install -D -m 644 master_sign.pub $pki/master_sign.pub"
    there=$(key_finger "$pki/master_sign.pub")
    [ "$there" = "$sign_finger" ] || fail "$pki/master_sign.pub is another key:
there      $there
should be  $sign_finger"
fi
if [ -n "$finger" ] && [ -r "$pki/minion_master.pub" ]; then
    there=$(key_finger "$pki/minion_master.pub")
    [ "$there" = "$finger" ] || fail "this minion knows its master by another key: with that file it would
take none of these masters. When that is meant, remove $pki/minion_master.pub first.
there      $there
should be  $finger"
fi

# -- Salt itself

# URL FILE: certificates are checked, nothing but https is followed. A startup file of the user's may
# say otherwise, so none is read; -q counts as the first argument only.
fetch() {
    if command -v curl >/dev/null 2>&1; then
        curl -q --fail --silent --show-error --location --proto '=https' --proto-redir '=https' \
            --tlsv1.2 --max-time 300 --output "$2" -- "$1"
    elif command -v wget >/dev/null 2>&1; then
        fetch_by_wget "$1" "$2"
    else
        fail "neither curl nor wget is there to fetch $1"
    fi
}

# wget has no switch against a redirection to http: it follows none, and each is looked at here.
fetch_by_wget() {
    from=$1 left=5
    until said=$(LC_ALL=C wget --no-config --no-verbose --server-response --max-redirect=0 \
        --secure-protocol=TLSv1_2 --timeout=300 --output-document="$2" -- "$from" 2>&1); do
        to=$(printf '%s\n' "$said" | tr -d '\r' | sed -n 's/^ *[Ll]ocation: *//p' | head -n 1)
        case $left$to in
            [1-5]https://*) ;;
            *)
                printf '%s\n' "$said" >&2
                [ -z "$to" ] || printf '%s\n' "$NAME: $to is not followed: only https, five times" >&2
                return 1
                ;;
        esac
        from=$to left=$((left - 1))
    done
}

work='' fresh='' changed=no
# shellcheck disable=SC2317,SC2329  # called by the trap
tidy() {
    [ -z "$work" ] || rm -rf "$work"
    [ -z "$fresh" ] || rm -f "$fresh"
}
trap tidy EXIT
trap 'exit 1' HUP INT TERM

restarter=''
if [ "$restart" = yes ] && [ -z "$root" ]; then
    for each in systemctl service; do
        [ -n "$restarter" ] || ! command -v "$each" >/dev/null 2>&1 || restarter=$each
    done
    [ -n "$restarter" ] || fail "--restart: neither systemctl nor service is there; run this without
--restart, then restart salt-minion yourself"
fi

if [ "$install" = yes ] && ! command -v salt-minion >/dev/null 2>&1; then
    [ -z "$root" ] || fail "--install works on this host only, not below --root"
    if [ "$dry_run" = yes ]; then
        say "would install salt-minion with $url"
    else
        work=$(mktemp -d)
        fetch "$url" "$work/bootstrap.sh" || fail "$url could not be fetched; nothing was changed"
        [ -s "$work/bootstrap.sh" ] || fail "$url gave nothing; nothing was changed"
        if [ -n "$sha256" ]; then
            there=$(sum_of <"$work/bootstrap.sh")
            [ "$there" = "$(printf '%s' "$sha256" | tr 'A-F' 'a-f')" ] ||
                fail "$url has the SHA-256 $there, not $sha256; it was not run"
        fi
        sh "$work/bootstrap.sh" -X || fail "the bootstrap script failed; no masters were written"
        say "installed salt-minion"
        changed=yes
    fi
fi

# Without its engine the minion runs, and nobody watches.
if [ "$watchdog" = yes ] && [ -z "$root" ] && command -v salt-minion >/dev/null 2>&1; then
    # It names the extensions that its own Python has.
    case $(salt-minion --versions-report 2>/dev/null || :) in
        '' | *saltext[-_]ha:*) ;;
        *) say "note: saltext-ha is not installed for this minion's Python, so the watchdog will not run.
Install it there (salt-pip install …), then restart salt-minion." ;;
    esac
fi

# -- write

if [ -f "$target" ] && [ "$(cat "$target")" = "$wanted" ]; then
    say "$target is as it should be"
elif [ "$dry_run" = yes ]; then
    say "would write $target:"
    if [ -f "$target" ]; then
        printf '%s\n' "$wanted" | diff -u "$target" - || :
    else
        printf '%s\n' "$wanted"
    fi
else
    mkdir -p "$folder" || fail "$folder cannot be made: run this as root"
    # Whole or not at all: beside it first (Salt reads *.conf only), then in its place.
    fresh=$folder/.$DROP_IN.new
    printf '%s\n' "$wanted" >"$fresh" || fail "$fresh cannot be written: run this as root"
    if [ -f "$target" ]; then
        cp -p "$target" "$target.old" || fail "$target.old cannot be written"
    fi
    mv -f "$fresh" "$target" || fail "$target cannot be written"
    changed=yes
    say "wrote $target"
fi

if [ "$changed" = no ] || [ -n "$root" ]; then
    exit 0
fi
case $restarter in
    systemctl) set -- systemctl restart salt-minion ;;
    service) set -- service salt-minion restart ;;
    *)
        say "restart the minion:  systemctl restart salt-minion"
        exit 0
        ;;
esac
"$@" || fail "$target was changed, and salt-minion could not be restarted ($*): restart it yourself,
another run of this does not"
say "restarted salt-minion"
