#!/usr/bin/env bash
# Without RDMA devices the transport says what is missing, by name, and the others go on without it.
set -u
bench=$TUTTI_BIN/allreduce_bench
said=$("$bench" --transport rdma -b 8 -e 8 2>&1) && [ ! -d /sys/class/infiniband ] &&
    { echo "--transport rdma worked without a device"; exit 1; }
if [ -n "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
    echo "SKIPPED: this machine has RDMA devices"
    exit 77
fi
case $said in
*"transport rdma was asked for"*"no RDMA"*) ;;
*) echo "no word about what is missing: $said"; exit 1 ;;
esac
"$bench" -b 8 -e 8 -n 2 >/dev/null || { echo "the other transports do not work either"; exit 1; }
