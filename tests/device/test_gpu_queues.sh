#!/usr/bin/env bash
# Many ranks of one process on a device, whose driver has few queues: it is said, and only then. With one queue it is
# said where streams wait for words, once a process.
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

one_queue() { # PATH: how often it is said
    TUTTI_DEVICE_PATH=$1 TUTTI_LOG=warn CUDA_DEVICE_MAX_CONNECTIONS=1 "$TUTTI_BUILD/bin/allreduce_bench" --device cuda \
        --ranks 2 -b 8 -e 8 -n 1 -w 1 2>&1 | grep -c "CUDA_DEVICE_MAX_CONNECTIONS is 1: .* go $2" || true
}
for way in "staged through the host" "window by windows"; do
    times=$(one_queue ${way%% *} "${way#* }")
    [ "$times" = 2 ] || { # processes
        echo "FAILED: ${way%% *}: said $times times by two processes"
        exit 1
    }
done
