#!/usr/bin/env bash
# NCCL's variables have the effect that docs/nccl.md names, or a warning that names Tutti's:
# test_nccl_variables.sh PROGRAM, which runs all operations.
set -euo pipefail
program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export TUTTI_DEVICE=host TUTTI_TIMEOUT=60 TUTTI_IFNAME=lo

fail() {
    echo "FAILED: $1; it said:" >&2
    cat "$folder/out" >&2
    exit 1
}
# says WHAT PATTERN [VARIABLE=VALUE...]: run with these, succeed, and say so.
says() {
    local what=$1 pattern=$2
    shift 2
    env "$@" "$program" 2 >"$folder/out" 2>&1 || fail "$what: exit status $?"
    grep -Eq "$pattern" "$folder/out" || fail "$what: no line like $pattern"
}

says "nothing asked for" ''
if grep -q NCCL "$folder/out"; then fail "lines that nobody asked for"; fi
says version '^NCCL version 2\.[0-9]+\.[0-9]+ \(Tutti ' NCCL_DEBUG=VERSION
[ "$(grep -c '^NCCL version' "$folder/out")" = 1 ] || fail "the version comes once a process"
says info "^[^ ]+:[0-9]+:[0-9]+ NCCL INFO .*rank 1 of 2.*ready" NCCL_DEBUG=INFO
says "warning instead of silence" 'NCCL WARN NCCL_ALGO=Ring has no effect on Tutti; instead: TUTTI_ALGO' \
    NCCL_DEBUG=WARN NCCL_ALGO=Ring
says "names that are not wanted" 'NCCL WARN NCCL_SOCKET_IFNAME is "\^eth".*TUTTI_IFNAME' \
    -u TUTTI_IFNAME NCCL_DEBUG=WARN NCCL_SOCKET_IFNAME=^eth TUTTI_TRANSPORT=inproc
says file '' NCCL_DEBUG=INFO NCCL_DEBUG_FILE="$folder/log.%h.%p"
log=$(echo "$folder/log.$(hostname)".[0-9]*)
if ! [ -f "$log" ] || ! grep -q 'NCCL INFO' "$log"; then fail "NCCL_DEBUG_FILE: no such file as it names"; fi
if grep -q 'NCCL INFO' "$folder/out"; then fail "lines both in the file and in the output"; fi

port=$((20000 + RANDOM % 10000))
says "the place to meet" '' NCCL_COMM_ID=127.0.0.1:$port
if env NCCL_COMM_ID=127.0.0.1 "$program" 2 >"$folder/out" 2>&1; then fail "NCCL_COMM_ID without a port"; fi
grep -q 'NCCL_COMM_ID is "127.0.0.1"; expected HOST:PORT' "$folder/out" || fail "NCCL_COMM_ID: no clear error"
if env -u TUTTI_IFNAME NCCL_SOCKET_IFNAME==nope0 TUTTI_TRANSPORT=tcp "$program" 2 >"$folder/out" 2>&1; then
    fail "an interface that is not there"
fi
grep -q 'nope0' "$folder/out" || fail "the interface that is not there has no name"
echo "all variables as told"
