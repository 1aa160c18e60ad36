#!/usr/bin/env bash
# What ptxas said of the kernels when they were built (device/CMakeLists.txt; without warnings, or there
# would be no build): every architecture is there, and no kernel spills registers or keeps a stack.
# Skipped, loudly, where no kernels were built.
set -euo pipefail
images=${TUTTI_IMAGES:-}
if [ -z "$images" ]; then
    echo "SKIPPED: there is no nvcc on this machine, so that no GPU kernel was compiled"
    exit 77
fi
status=0
for file in "$TUTTI_SOURCE"/device/cuda/*.cu; do
    name=$(basename "$file" .cu)
    for architecture in $TUTTI_ARCHITECTURES; do
        # The lines about one architecture, from "Compiling entry function 'x' for 'sm_90'" on.
        said=$(awk -v sm="'sm_$architecture'" '
            /Compiling entry function/ { ours = $NF == sm } ours' "$images/$name.log")
        kernels=$(grep -c 'Compiling entry function' <<<"$said" || true)
        spilling=$(grep 'bytes stack frame' <<<"$said" |
            grep -cv '^ *0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads' || true)
        told=$(grep -c 'bytes stack frame' <<<"$said" || true)
        most=$(grep -o 'Used [0-9]* registers' <<<"$said" | grep -o '[0-9]*' | sort -n | tail -1)
        echo "sm_$architecture $name: $kernels kernels, at most $most registers, $spilling with a stack"
        [ "$kernels" -gt 0 ] && [ "$told" -ge "$kernels" ] && [ "$spilling" = 0 ] || status=1
    done
done
[ $status = 0 ] || echo "FAILED: see above; registers indexed at run time, or too many, go to memory"
exit $status
