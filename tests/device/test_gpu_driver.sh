#!/usr/bin/env bash
# A first look at a GPU's driver: it says its versions; one that is older than the kernels is told so, with what to
# do, and gpu_report then runs nothing else. And the benchmark's check: a kernel that writes nothing does not pass by
# the sums of the one that ran before it.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$TUTTI_BUILD/bin/gpu_bench" cuda look >"$work/log"
grep -q '"software": "driver for CUDA [1-9][0-9]*\.[0-9], kernels by CUDA [1-9][0-9]*\.[0-9]"' "$work/log"

status=0
TUTTI_FAKE_IDLE=tti_kernel_one_shot_ll128 "$TUTTI_BUILD/bin/gpu_bench" cuda 4096 ranks >"$work/log" 2>&1 || status=$?
if [ $status != 1 ] || ! grep -q "^gpu_bench: 1 ranks, 8 bytes: element 0 of rank 0 is " "$work/log"; then
    cat "$work/log"
    echo "FAILED: a kernel that does nothing passes (status $status)"
    exit 1
fi

export TUTTI_FAKE_VERSION=11020 # older than what any build is made with
if "$TUTTI_SOURCE/bench/gpu/gpu_report" --build "$TUTTI_BUILD" --device cuda --out "$work/out" >"$work/log" 2>&1; then
    cat "$work/log"
    echo "FAILED: a driver that takes no kernel is no failure"
    exit 1
fi
grep "older than the kernels (driver for CUDA 11.2, kernels by CUDA " "$work/log" && grep "nothing else was run" "$work/log"
[ ! -e "$work/out" ]
echo "first look: as expected"
