#!/usr/bin/env bash
# The TCP transport between two network namespaces joined by two pairs of veth interfaces: IPv4 only,
# IPv6 only, both; TUTTI_IFNAME; an address that swallows everything; strangers at the port; an
# interface taken down; taken ports. Needs the right to make namespaces (root or passwordless sudo); skips loudly without it.
set -euo pipefail

peer=${TUTTI_BUILD:?set by CTest}/tests/tutti-tcp-peer
here=tutti-tcp-$$
left=$here-a right=$here-b
folder=$(mktemp -d)
declare -a jobs=()
as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo -n)

clean_up() {
    local space pid
    [ -z "${watcher:-}" ] || kill "$watcher" 2>/dev/null || true
    for space in "$left" "$right"; do
        for pid in $("${as_root[@]}" ip netns pids "$space" 2>/dev/null); do
            "${as_root[@]}" kill "$pid" 2>/dev/null || true
        done
    done
    "${as_root[@]}" ip netns del "$left" 2>/dev/null || true
    "${as_root[@]}" ip netns del "$right" 2>/dev/null || true
    rm -rf "$folder"
}
trap clean_up EXIT

in_left() { "${as_root[@]}" ip netns exec "$left" "$@"; }
in_right() { "${as_root[@]}" ip netns exec "$right" "$@"; }

skip() {
    echo "SKIPPED: TCP between network namespaces was NOT tested: $1" >&2
    exit 77
}

command -v ip >/dev/null || skip "there is no ip command (Debian: iproute2)"
"${as_root[@]}" ip netns add "$left" 2>"$folder/why" || skip "ip netns add: $(cat "$folder/why")"
"${as_root[@]}" ip netns add "$right" 2>"$folder/why" || skip "ip netns add: $(cat "$folder/why")"
for i in 0 1; do
    in_left ip link add "net$i" type veth peer name "net$i" netns "$right" 2>"$folder/why" ||
        skip "no veth interfaces: $(cat "$folder/why")"
    in_left ip link set "net$i" up
    in_right ip link set "net$i" up
done
in_left ip link set lo up
in_right ip link set lo up

# No addresses but those of the two arguments, at the ends of link 0 and 1: "4", "6", "46" or "".
addresses() {
    local i way
    for i in 0 1; do
        in_left ip addr flush dev "net$i" scope global
        in_right ip addr flush dev "net$i" scope global
    done
    for i in 0 1; do
        way=$(($# > i ? 1 : 0))
        [ "$way" = 1 ] || continue
        local kinds
        [ "$i" = 0 ] && kinds=$1 || kinds=$2
        if [[ $kinds = *4* ]]; then
            in_left ip addr add "10.77.$i.1/24" dev "net$i"
            in_right ip addr add "10.77.$i.2/24" dev "net$i"
        fi
        if [[ $kinds = *6* ]]; then
            in_left ip addr add "fd77:$i::1/64" dev "net$i" nodad
            in_right ip addr add "fd77:$i::2/64" dev "net$i" nodad
        fi
    done
}

fail() {
    echo "FAILED: $1" >&2
    tail -n 20 "$folder"/out.* >&2
    exit 1
}

# start BYTES: both ranks in the background, with the settings in $settings.
declare -a settings=(TUTTI_LOG=info)
start() {
    rm -f "$folder"/address.* "$folder"/out.*
    in_left env "${settings[@]}" "$peer" 0 2 "$folder" "$1" >"$folder/out.0" 2>&1 &
    jobs=($!)
    in_right env "${settings[@]}" "$peer" 1 2 "$folder" "$1" >"$folder/out.1" 2>&1 &
    jobs+=($!)
}

finish() {
    local job
    for job in "${jobs[@]}"; do wait "$job" || fail "$1"; done
    jobs=()
    echo "ok: $1"
}

expect() { grep -qE "$1" "$folder/out.0" || fail "rank 0 did not say \"$1\""; }

addresses 4
start 3000000
finish "IPv4 only"
expect 'rank 0 -> rank 1 \(rank1:0\) over net0 10\.77\.0\.1:[0-9]+ -> 10\.77\.0\.2:[0-9]+, 2 sockets'

addresses 6
start 3000000
finish "IPv6 only"
expect 'over net0 \[fd77::1\]:[0-9]+ -> \[fd77::2\]:[0-9]+, 2 sockets'

addresses "" 46
start 3000000
finish "both families on the second link"
expect 'over net1 10\.77\.1\.1:'

addresses 4 46
settings=(TUTTI_LOG=info TUTTI_IFNAME==net1)
start 3000000
finish "TUTTI_IFNAME chooses an interface"
expect 'over net1 10\.77\.1\.1:'
settings=(TUTTI_LOG=info 'TUTTI_IFNAME=^net1,!lo')
start 3000000
finish "TUTTI_IFNAME excludes an interface"
expect 'over net0 10\.77\.0\.1:'

settings=(TUTTI_IFNAME=eth)
start 1000
for job in "${jobs[@]}"; do wait "$job" && fail "TUTTI_IFNAME=eth must be refused"; done
expect '"eth" matches no network interface .* there are: .*net0 10\.77\.0\.1'
echo "ok: TUTTI_IFNAME without a match lists what there is"
settings=(TUTTI_LOG=info)

# Adds up in a file the milliseconds that the machine stood still: what naps of 50 took too long.
watch_standstills() {
    local last=${EPOCHREALTIME/[.,]/} now still=0
    while sleep 0.05; do
        now=${EPOCHREALTIME/[.,]/}
        [ $((now - last)) -lt 250000 ] || still=$((still + (now - last) / 1000))
        echo "$still" >"$1.new" && mv "$1.new" "$1"
        last=$now
    done
}

# Answers over link 0 vanish; the connection must come about over link 1, and soon.
in_right ip route add blackhole 10.77.0.1/32
echo 0 >"$folder/still"
watch_standstills "$folder/still" &
watcher=$!
begin=$(date +%s%N)
start 1000000
finish "an address that swallows everything"
took=$((($(date +%s%N) - begin) / 1000000))
sleep 0.1 # a standstill that has just ended is in the file then
took=$((took - $(cat "$folder/still")))
kill "$watcher"
watcher=
expect 'over net1 10\.77\.1\.1:'
[ "$took" -ge 300 ] || fail "the dead address was not tried first: the test is void"
[ "$took" -lt 5000 ] || fail "it took $took ms to give up a dead address"
in_right ip route del blackhole 10.77.0.1/32

# Strangers at both ports while data flows.
touch "$folder/slowly"
start 60000000
until [ -e "$folder/address.0" ] && [ -e "$folder/address.1" ]; do sleep 0.01; done
port_of() { od -An -tu2 -j6 -N2 "$folder/address.$1" | tr -d ' '; }
strangers=0
while kill -0 "${jobs[0]}" 2>/dev/null && [ "$strangers" -lt 40 ]; do
    for way in "0 10.77.0.1" "1 10.77.0.2"; do
        read -r rank address <<<"$way"
        in_right timeout 2 bash -c "exec 3<>/dev/tcp/$address/$(port_of "$rank")
            head -c $((RANDOM % 3000)) /dev/urandom >&3" 2>/dev/null || true
        strangers=$((strangers + 1))
    done
done
[ "$strangers" = 40 ] || fail "the transfer was over before the strangers"
rm "$folder/slowly"
finish "$strangers strangers during a transfer"

# In mid-transfer the interface in use is taken down: the lanes go on over the other one.
touch "$folder/slowly"
start 60000000
until grep -q 'over net0' "$folder/out.0" 2>/dev/null; do sleep 0.01; done
sleep 0.1
in_left ip link set net0 down
went_on='the connection to rank 1 \(rank1:0\) goes on \(lane [01], (10\.77\.1\.2|\[fd77:1::2\]):'
while kill -0 "${jobs[0]}" 2>/dev/null && ! grep -qE "$went_on" "$folder/out.0"; do sleep 0.05; done
rm "$folder/slowly"
finish "an interface taken down in mid-transfer"
expect "$went_on"
in_left ip link set net0 up

# There is only one, and in mid-transfer answers vanish: the sender says so long before the kernel gives
# up, by name.
addresses 4
start 60000000000
until grep -q 'over net0' "$folder/out.0" 2>/dev/null; do sleep 0.01; done
sleep 0.2
in_right ip route add blackhole 10.77.0.1/32
for job in "${jobs[@]}"; do wait "$job" && fail "a transfer without answers came to an end"; done
expect 'connection to rank 1 \(rank1:0\) broke .*: nothing was acknowledged for 15 s'
in_right ip route del blackhole 10.77.0.1/32
echo "ok: a silent cut"

settings=(TUTTI_TCP_PORTS=23000-23003)
start 1000
finish "a range of ports"
settings=(TUTTI_TCP_PORTS=23000)
rm -f "$folder"/address.* "$folder"/out.*
in_left env "${settings[@]}" "$peer" 0 2 "$folder" 1000 >"$folder/out.1" 2>&1 &
jobs=($!)
until [ -e "$folder/address.0" ]; do sleep 0.01; done
in_left env "${settings[@]}" "$peer" 1 2 "$folder" 1000 >"$folder/out.0" 2>&1 &&
    fail "a taken port must be refused"
expect 'all 1 of TUTTI_TCP_PORTS=23000-23000 are taken'
echo "ok: a taken range of ports"
