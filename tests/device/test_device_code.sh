#!/usr/bin/env bash
# The device code compiles for sm_80, sm_90 and sm_100 without warnings, and no kernel spills registers
# or keeps a stack. Skipped, loudly, without nvcc.
set -euo pipefail
nvcc=${TUTTI_NVCC:-}
if [ ! -x "$nvcc" ]; then
    echo "SKIPPED: there is no nvcc on this machine, so that no GPU kernel was compiled"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
for architecture in 80 90 100; do
    for file in "$TUTTI_SOURCE"/device/cuda/*.cu; do
        name=$(basename "$file" .cu)
        if ! "$nvcc" -std=c++17 -O3 -fmad=false -Werror all-warnings -Xptxas -v -cubin \
            -arch=sm_$architecture -I"$TUTTI_SOURCE" -I"$TUTTI_SOURCE/include" \
            -o "$work/$name.cubin" "$file" >"$work/log" 2>&1; then
            cat "$work/log"
            echo "FAILED: $name.cu does not compile for sm_$architecture"
            status=1
            continue
        fi
        kernels=$(grep -c 'Compiling entry function' "$work/log" || true)
        spilling=$(grep 'bytes stack frame' "$work/log" |
            grep -cv '^ *0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads' || true)
        most=$(grep -o 'Used [0-9]* registers' "$work/log" | grep -o '[0-9]*' | sort -n | tail -1)
        echo "sm_$architecture $name: $kernels kernels, at most $most registers, $spilling with a stack"
        [ "$kernels" -gt 0 ] && [ "$spilling" = 0 ] || status=1
    done
done
[ $status = 0 ] || echo "FAILED: see above; registers indexed at run time, or too many, go to memory"
exit $status
