#!/usr/bin/env bash
# ./dev answers from any folder: help lists every command, a wrong word gets one line and status 2.
set -euo pipefail
dev=$TUTTI_SOURCE/dev
cd /

help=$("$dev")
[ "$help" = "$("$dev" help)" ]
for command in setup build bench compare train test pictures check tidy asan tsan fuzz format install clean help; do
    grep -qE "^  (asan, )?$command\b" <<<"$help" || { echo "help does not list $command"; exit 1; }
done

# refused WHAT ARGUMENTS...: status 2, and one line that shows WHAT.
refused() {
    local output status=0
    output=$("$dev" "${@:2}" 2>&1) || status=$?
    if [ $status != 2 ] || [ "$(wc -l <<<"$output")" != 1 ] || [[ $output != *"\"$1\""* ]]; then
        echo "./dev ${*:2}: status $status, says: $output"
        exit 1
    fi
}
refused biuld biuld
refused --everything setup --everything
refused soon fuzz soon
refused nothing train nothing
refused 0 fuzz 0

# faults: what it could not read or write in the end is refused before half an hour of runs.
for arguments in "--output /dev/null/folder" "--rdma /dev/null/rows" "--only nonsense"; do
    status=0
    # shellcheck disable=SC2086 # words
    output=$("$TUTTI_SOURCE/tests/fault/faults.py" $arguments 2>&1) || status=$?
    if [ $status != 1 ] || [ "$(wc -l <<<"$output")" != 1 ] || [[ $output != "faults: "*"${arguments#* }"* ]]; then
        echo "faults.py $arguments: status $status, says: $output"
        exit 1
    fi
done

# What is missing is named, with what to do about it: here CMake, on a system without apt.
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
for tool in bash dirname env nproc readlink; do
    ln -s "$(command -v $tool)" "$tools/$tool"
done
status=0
output=$(PATH=$tools "$dev" bench 2>&1) || status=$?
if [ $status != 1 ] || [[ $output != *"no Debian or Ubuntu"*ninja-build*"there is no cmake: install it"* ]]; then
    echo "./dev bench without apt and cmake: status $status, says: $output"
    exit 1
fi
