#!/usr/bin/env bash
# All operations between three processes while the kernel is told again and again to end their TCP
# connections (ss -K, as a firewall's reset would): results stay exact, and lanes went on. It begins
# when all are made: one that is lost while it is being made is an error (docs/failures.md). Needs
# root and a kernel that ends connections on demand; skips loudly without.
set -euo pipefail

build=${TUTTI_BUILD:?set by CTest}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
first=$((22000 + $$ % 900)) # the transport's own: the rendezvous is not to be cut
ports="( sport >= :$first and sport <= :$((first + 99)) )"

skip() {
    echo "SKIPPED: operations over connections that are killed were NOT tested: $1" >&2
    exit 77
}

command -v ss >/dev/null || skip "there is no ss command (Debian: iproute2)"
ss -H -K -t state established "$ports" >"$folder/why" 2>&1 || skip "ss -K: $(cat "$folder/why")"
[ "$(id -u)" = 0 ] || skip "ss -K needs root"

: >"$folder/out" # is looked at before the job has opened it
TUTTI_LOG=info TUTTI_TCP_RESUME=1 TUTTI_TCP_PORTS=$first-$((first + 99)) \
    "$build/tests/test_operations" --ranks 3 --processes --transport tcp >>"$folder/out" 2>&1 &
job=$!
ends=6 # of connections, each of which both ranks tell of
while kill -0 "$job" 2>/dev/null &&
    [ "$(grep -cE 'tcp: rank [0-2] (->|<-) rank [0-2] ' "$folder/out")" -lt $ends ]; do
    sleep 0.01
done
rounds=0
while kill -0 "$job" 2>/dev/null; do
    ss -H -K -t state established "$ports" >>"$folder/killed" 2>/dev/null || true
    rounds=$((rounds + 1))
    sleep "0.0$((RANDOM % 9 + 1))"
done
wait "$job" || {
    tail -n 20 "$folder/out" >&2
    echo "FAILED: operations over connections that are killed" >&2
    exit 1
}
went=$(grep -c 'tcp: the connection .* goes on' "$folder/out" || true)
echo "$rounds rounds, $(wc -l <"$folder/killed") connections killed, lanes went on $went times"
[ "$went" -gt 0 ] || skip "this kernel killed no connection (CONFIG_INET_DIAG_DESTROY)"
