#!/usr/bin/env bash
# NCCL's variables have the effect that docs/nccl.md names, or a warning that names Tutti's:
# test_nccl_variables.sh PROGRAM [NETWORK], which runs all operations; a plugin.
set -euo pipefail
program=$1 network=${2:-}
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

# maps VARIABLE=VALUE OURS [VARIABLE=VALUE...]: the first becomes ours, and the log says so.
maps() {
    local given=$1 ours=$2
    shift 2
    says "$given" "NCCL INFO ${ours//^/\\^}, by $(printf %s "$given" | sed 's/[\^*]/\\&/g')\$" -u TUTTI_IFNAME NCCL_DEBUG=INFO \
        TUTTI_TRANSPORT=inproc "$@" "$given"
}
maps NCCL_SOCKET_IFNAME=lo TUTTI_IFNAME=lo
maps NCCL_SOCKET_IFNAME==lo TUTTI_IFNAME==lo
maps NCCL_SOCKET_IFNAME=nope0,lo,nope1 TUTTI_IFNAME=lo
maps NCCL_SOCKET_IFNAME=^nope,other TUTTI_IFNAME=^nope,^other
maps NCCL_SOCKET_IFNAME=^=nope0 TUTTI_IFNAME=^=nope0
maps NCCL_IB_HCA=mlx5_0:1,mlx5_1 'TUTTI_RDMA_DEVICES=mlx5_0\*:1,mlx5_1\*'
maps NCCL_IB_HCA==mlx5_0 TUTTI_RDMA_DEVICES=mlx5_0
maps NCCL_IB_HCA=^mlx5_3 'TUTTI_RDMA_DEVICES=^mlx5_3\*'
maps NCCL_IB_GID_INDEX=3 TUTTI_RDMA_GID_INDEX=3
maps NCCL_IB_ROCE_VERSION_NUM=2 TUTTI_RDMA_ROCE=2
maps NCCL_IB_QPS_PER_CONNECTION=4 TUTTI_RDMA_QPS=4
maps NCCL_IB_TC=106 TUTTI_RDMA_TRAFFIC_CLASS=106
maps NCCL_IB_SL=5 TUTTI_RDMA_SERVICE_LEVEL=5
maps NCCL_IB_PKEY=3 TUTTI_RDMA_PKEY_INDEX=3
maps NCCL_HOSTID=a TUTTI_HOST_ID=a
maps NCCL_P2P_DISABLE=1 TUTTI_DEVICE_PATH=staged
maps NCCL_P2P_DIRECT_DISABLE=1 TUTTI_DEVICE_BUFFERS=window
maps NCCL_CUMEM_ENABLE=0 TUTTI_DEVICE_HANDLES=ipc
maps NCCL_NET_GDR_LEVEL=LOC TUTTI_DEVICE_DIRECT=off
says "RDMA not wanted" 'TUTTI_TRANSPORT=inproc,shm,tcp, by NCCL_IB_DISABLE=1$' NCCL_DEBUG=INFO NCCL_IB_DISABLE=1
says "sockets wanted" 'TUTTI_TRANSPORT=inproc,shm,tcp, by NCCL_NET=socket$' NCCL_DEBUG=INFO NCCL_NET=socket
says "sockets wanted, RDMA not refused" 'TUTTI_TRANSPORT=inproc,shm,tcp, by NCCL_NET=Socket$' NCCL_DEBUG=INFO \
    NCCL_NET=Socket NCCL_IB_DISABLE=0
says "a plugin that is not there" 'NCCL WARN NCCL_NET_PLUGIN=nothere: .*; going on without' \
    NCCL_DEBUG=WARN NCCL_NET_PLUGIN=nothere
if [ -n "$network" ]; then
    mkdir "$folder/default" "$folder/named"
    ln -s "$network" "$folder/default/libnccl-net.so"
    ln -s "$network" "$folder/named/libnccl-net-vendor.so"
    there=(TUTTI_TRANSPORT=ncclnet LD_LIBRARY_PATH="$folder/default:$folder/named")
    says "the plugin of the usual name" '' "${there[@]}"
    for name in vendor libnccl-net-vendor.so "nothere,vendor" "$network"; do
        says "the plugin $name" '' "${there[@]}" NCCL_NET_PLUGIN="$name"
    done
    for name in none nothere; do
        if env "${there[@]}" NCCL_NET_PLUGIN=$name "$program" 2 >"$folder/out" 2>&1; then fail "a plugin by NCCL_NET_PLUGIN=$name"; fi
        grep -q 'unknown transport "ncclnet"' "$folder/out" || fail "NCCL_NET_PLUGIN=$name: no clear error"
    done
else
    echo "plugins by their names: SKIPPED, this build has none"
fi
says "ours go before" 'rank 1 of 2.*ready' NCCL_DEBUG=INFO NCCL_SOCKET_IFNAME=nope TUTTI_TRANSPORT=tcp
if grep -q 'by NCCL_SOCKET' "$folder/out"; then fail "NCCL_SOCKET_IFNAME goes before TUTTI_IFNAME"; fi
says "a number that cannot be" 'WARN.*NCCL_IB_QPS_PER_CONNECTION.*TUTTI_RDMA_QPS' NCCL_DEBUG=WARN \
    NCCL_IB_QPS_PER_CONNECTION=128
for name in DEBUG_SUBSYS PROTO NTHREADS MIN_NCHANNELS MAX_NCHANNELS BUFFSIZE SHM_DISABLE P2P_LEVEL NVLS_ENABLE \
    LAUNCH_MODE IB_TIMEOUT IB_RETRY_CNT NET_GDR_READ CROSS_NIC SOCKET_FAMILY SOCKET_NTHREADS TOPO_FILE CHECK_POINTERS; do
    says "$name" "NCCL WARN NCCL_$name=1 has no effect on Tutti; instead: .*[A-Za-z]" NCCL_DEBUG=WARN NCCL_$name=1
done
says "one that nobody knows" 'WARN NCCL_NEW_KNOB=1 is not known to Tutti' NCCL_DEBUG=WARN NCCL_NEW_KNOB=1
says "those of others" '' NCCL_DEBUG=WARN NCCL_ASYNC_ERROR_HANDLING=1 NCCL_BLOCKING_WAIT=1 NCCL_VERSION=2.28
if grep -q 'WARN NCCL_' "$folder/out"; then fail "a warning for what is PyTorch's"; fi

# Files: the environment goes before NCCL_CONF_FILE, or ~/.nccl.conf.
printf '# a comment\n NCCL_DEBUG = VERSION # and another\nNCCL_NEW_KNOB=1\nLD_PRELOAD=/nope\nnonsense\n' >"$folder/conf"
says "a file of settings" '^NCCL version 2' NCCL_CONF_FILE="$folder/conf"
mkdir "$folder/home"
cp "$folder/conf" "$folder/home/.nccl.conf"
says "the file at home" '^NCCL version 2' HOME="$folder/home"
says "~ in the name" '^NCCL version 2' HOME="$folder/home" NCCL_CONF_FILE='~/.nccl.conf'
says "the environment before the file" 'WARN NCCL_NEW_KNOB=2 is not' HOME="$folder/home" NCCL_DEBUG=WARN NCCL_NEW_KNOB=2
says "a file that is not there" 'WARN NCCL_CONF_FILE: the file /nope cannot be read' NCCL_DEBUG=WARN NCCL_CONF_FILE=/nope
says file '' NCCL_DEBUG=INFO NCCL_DEBUG_FILE="$folder/log.%h.%p"
log=$(echo "$folder/log.$(hostname)".[0-9]*)
if ! [ -f "$log" ] || ! grep -q 'NCCL INFO' "$log"; then fail "NCCL_DEBUG_FILE: no such file as it names"; fi
if grep -q 'NCCL INFO' "$folder/out"; then fail "lines both in the file and in the output"; fi

port=$((24000 + RANDOM % 5000)) # not one that the kernel gives to others
says "the place to meet" '' NCCL_COMM_ID=127.0.0.1:$port
if env NCCL_COMM_ID=127.0.0.1 "$program" 2 >"$folder/out" 2>&1; then fail "NCCL_COMM_ID without a port"; fi
grep -q 'NCCL_COMM_ID is "127.0.0.1"; expected HOST:PORT' "$folder/out" || fail "NCCL_COMM_ID: no clear error"
if env -u TUTTI_IFNAME NCCL_SOCKET_IFNAME==nope0 TUTTI_TRANSPORT=tcp "$program" 2 >"$folder/out" 2>&1; then
    fail "an interface that is not there"
fi
grep -q 'nope0' "$folder/out" || fail "the interface that is not there has no name"
echo "all variables as told"
