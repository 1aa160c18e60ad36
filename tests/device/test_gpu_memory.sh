#!/usr/bin/env bash
# What a communicator of 8 ranks on one host holds on a device by default: some, and less than 64 MiB a rank.
set -euo pipefail
said=$(env -u TUTTI_DEVICE_MEMORY "$TUTTI_BUILD/bin/allreduce_bench" --device sim --ranks 8 --threads -b 64K -e 64K \
    -n 1 -w 1)
held=$(sed -n 's/^# *\([0-9.]*\) MiB on the device, \([0-9.]*\) MiB pinned.*/\1 \2/p' <<<"$said")
awk -v held="$held" 'BEGIN { split(held, mib, " "); exit !(mib[1] > 0 && mib[1] + mib[2] < 64) }' || {
    echo "$said"
    echo "FAILED: MiB a rank on the device and pinned: \"$held\"; wanted less than 64 in all"
    exit 1
}
echo "a rank of 8 holds $held MiB on the device and pinned"
