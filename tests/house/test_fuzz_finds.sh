#!/usr/bin/env bash
# The runners behind `./dev fuzz` find a planted overflow, keep the input, and pass without one; the
# one that counts minutes goes on where it was.
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

count=("$TUTTI_SOURCE/tools/fuzz_minutes" "$folder/good" "$folder/minutes" --slice 2)
"${count[@]}" --minutes 0.01
"${count[@]}" --minutes 0.03 --page "$folder/page.md"
grep -q '"cpu": [1-9]' "$folder/minutes/minutes.json"
grep -q '^1 of 1 have had 0.03 CPU minutes or more; 0 have a finding' "$folder/page.md"
count[1]=$folder/bad
if output=$("${count[@]}" --minutes 1 --page "$folder/page.md" 2>&1); then
    echo "the planted overflow was not found by fuzz_minutes: $output"
    exit 1
fi
grep -q heap-buffer-overflow "$folder/page.md"
compgen -G "$folder/minutes/artifacts/overflow/crash-*" >/dev/null
