#!/usr/bin/env bash
# 65,536 ranks within a minute; all plans up to 64 ranks, which tests/algorithms verifies one by one,
# within three minutes, of which those up to 32 have their share here. Of processor time, so that a
# busy machine does not decide.
set -euo pipefail
plan=$TUTTI_BIN/tutti-plan
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# within SECONDS TEXT ARGUMENTS...
within() {
    local TIMEFORMAT='%U %S'
    { time "$plan" "${@:3}" >"$folder/out"; } 2>"$folder/time"
    if ! grep -qF -e "$2" "$folder/out"; then
        echo "tutti-plan ${*:3} does not say \"$2\":"
        cat "$folder/out"
        exit 1
    fi
    awk -v most="$1" '{ used = $1 + $2 } END { print used " s"; exit !(used < most) }' "$folder/time" ||
        { echo "tutti-plan ${*:3} took longer than $1 s"; exit 1; }
}
within 60 "simulations of 1 sizes" simulate --coll all_reduce --ranks 65536 -b 32M
for algorithm in ring tree recursive_doubling rabenseifner hierarchical; do
    grep -qE "[ *]$algorithm " "$folder/out" || { echo "$algorithm is not there"; exit 1; }
done
within 60 "bruck" simulate --coll all_gather --ranks 65536 -b 32M
within 20 "0 algorithms wrong" verify --all --max-ranks 32
