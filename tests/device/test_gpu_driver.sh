#!/usr/bin/env bash
# A first look at a GPU's driver: it says its versions; one that is older than the kernels is told so, with what to
# do, and gpu_report then runs nothing else.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$TUTTI_BUILD/bin/gpu_bench" cuda look >"$work/log"
grep -q '"software": "driver for CUDA [1-9][0-9]*\.[0-9], kernels by CUDA [1-9][0-9]*\.[0-9]"' "$work/log"

export TUTTI_FAKE_VERSION=12000
if "$TUTTI_SOURCE/bench/gpu/gpu_report" --build "$TUTTI_BUILD" --device cuda --out "$work/out" >"$work/log" 2>&1; then
    cat "$work/log"
    echo "FAILED: a driver that takes no kernel is no failure"
    exit 1
fi
grep "older than the kernels (driver for CUDA 12.0, kernels by CUDA " "$work/log" && grep "nothing else was run" "$work/log"
[ ! -e "$work/out" ]
echo "first look: as expected"
