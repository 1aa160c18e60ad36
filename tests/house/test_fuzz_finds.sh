#!/usr/bin/env bash
# The runner behind `./dev fuzz` finds a planted overflow, keeps the input, and passes without one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bad" "$folder/good" "$folder/none"

flags=(-O1 -g "-fsanitize=fuzzer,address")
echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n > 1e9; }' \
    >"$folder/harmless.c"
if ! clang "${flags[@]}" -o "$folder/good/harmless" "$folder/harmless.c"; then
    echo "SKIPPED: no clang with libFuzzer on this machine"
    exit 77
fi
clang "${flags[@]}" -o "$folder/bad/overflow" "$TUTTI_SOURCE/tests/house/planted_overflow.c"

run=$TUTTI_SOURCE/tools/run_fuzzers
"$run" "$folder/good" 1 "$folder/out"
if output=$("$run" "$folder/bad" 30 "$folder/out"); then
    echo "the planted overflow was not found: $output"
    exit 1
fi
grep -q heap-buffer-overflow <<<"$output"
compgen -G "$folder/out/artifacts/overflow/crash-*" >/dev/null
if "$run" "$folder/none" 1 "$folder/out"; then
    echo "a folder without fuzzers passed"
    exit 1
fi
