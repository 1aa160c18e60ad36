#!/usr/bin/env bash
# Many ranks of one process on a device, whose driver has few queues: it is said, and only then.
set -euo pipefail
sweep() { # QUEUES
    TUTTI_LOG=warn CUDA_DEVICE_MAX_CONNECTIONS=$1 "$TUTTI_BUILD/bin/allreduce_bench" --device cuda --threads \
        --ranks 5 -b 8 -e 8 -n 1 -w 1 2>&1
}
said=$(sweep 8)
grep -m1 "5 ranks of this process share device 0.*set CUDA_DEVICE_MAX_CONNECTIONS=32" <<<"$said" || {
    printf '%s\nFAILED: it was not said\n' "$said"
    exit 1
}
said=$(sweep 10)
if grep "CUDA_DEVICE_MAX_CONNECTIONS" <<<"$said"; then
    echo "FAILED: there was nothing to say"
    exit 1
fi
grep "Avg bus bandwidth" <<<"$said"
