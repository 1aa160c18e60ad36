#!/usr/bin/env bash
# gpu_report: packs the programs, runs the packed ones on the simulated device, writes both reports; a
# test that fails makes it fail.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$TUTTI_SOURCE/bench/gpu/gpu_report" --build "$TUTTI_BUILD" --pack "$work/pack"
# The two long tests run by themselves (test_gpu_reduce, test_gpu_all_reduce): here they say that they
# were found, and by whom.
for name in test_gpu_reduce test_gpu_all_reduce; do
    [ -x "$work/pack/tests/$name" ]
    printf '#!/bin/sh\n[ "$TUTTI_TEST_GPU" = sim ] || exit 1\necho ran\n' >"$work/pack/tests/$name"
done
"$work/pack/gpu_report" --device sim --bytes 8192 --out "$work/out" >"$work/log" || {
    cat "$work/log"
    exit 1
}
grep -q "test_gpu_all_reduce .* passed" "$work/out/report.txt"
grep -q "all-reduce, two-shot, graph" "$work/out/report.txt"
grep -q "all passed" "$work/out/report.txt"
python3 -c 'import json, sys
report = json.load(open(sys.argv[1]))
assert report["passed"] and len(report["bench"]["lines"]) > 30, report' "$work/out/report.json"

printf '#!/bin/sh\necho planted; exit 3\n' >"$work/pack/tests/test_gpu"
printf '#!/bin/sh\nexit 0\n' >"$work/pack/bin/gpu_bench" # once is enough
if # The two long tests run by themselves (test_gpu_reduce, test_gpu_all_reduce): here they say that they
# were found, and by whom.
for name in test_gpu_reduce test_gpu_all_reduce; do
    [ -x "$work/pack/tests/$name" ]
    printf '#!/bin/sh\n[ "$TUTTI_TEST_GPU" = sim ] || exit 1\necho ran\n' >"$work/pack/tests/$name"
done
"$work/pack/gpu_report" --device sim --bytes 8192 --out "$work/out" >"$work/log"; then
    cat "$work/log"
    echo "FAILED: a test that fails was not reported"
    exit 1
fi
grep -q "| planted" "$work/out/report.txt"
echo "gpu_report: as expected"
