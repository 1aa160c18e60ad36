#!/usr/bin/env bash
# A replayed corpus that is missing or empty fails: test_replay.sh FUZZER
set -euo pipefail
fuzzer=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# fails TEXT ARGUMENTS...
fails() {
    local output
    if output=$("$fuzzer" "${@:2}" 2>&1) || ! grep -qF "$1" <<<"$output"; then
        echo "must fail and say \"$1\": $fuzzer ${*:2}; says: $output"
        exit 1
    fi
}
fails usage
fails "cannot open the corpus" "$folder/missing"
mkdir "$folder/empty"
fails "has no files" "$folder/empty"
echo 8 >"$folder/one"
"$fuzzer" "$folder"
fails "has no files" "$folder" "$folder/empty"
