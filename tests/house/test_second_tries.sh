#!/usr/bin/env bash
# What a second try of a test may hide and what not, with CTest itself and tests that fail as planted.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/test" <<'TEST'
#!/usr/bin/env bash
# test NAME HOW: passes, or the first time does not.
mkdir "${0%/*}/seen_$1" 2>/dev/null && case $2 in
    fails) echo "a first failure"; exit 1 ;;
    crashes | skips) ulimit -c 0; kill -SEGV $$ ;;
    hangs) exec sleep 30 ;;
    faults) echo "[  ERROR   ] --- Test failed with exception: Segmentation fault(11)"; exit 1 ;;
    races) echo "WARNING: ThreadSanitizer: data race (pid=1)"; exit 66 ;;
esac
[ "$2" != skips ] || exit 77
[ "$2" != always ] || { rmdir "${0%/*}/seen_$1"; exit 1; }
TEST
chmod +x "$folder/test"

# tries HOW...: what CTest and the filter say of one test for each word, and their status.
tries() {
    local number=0 how limit
    rm -rf "$folder"/seen_* "$folder/build"
    mkdir "$folder/build"
    for how in "$@"; do
        number=$((number + 1)) limit=60
        [ "$how" != hangs ] || limit=6 # its second try must come through
        printf 'add_test(%s_%d "%s" %d %s)\nset_tests_properties(%s_%d PROPERTIES TIMEOUT %d SKIP_RETURN_CODE 77)\n' \
            "$how" $number "$folder/test" $number "$how" "$how" $number $limit
    done >"$folder/build/CTestTestfile.cmake"
    status=0
    output=$(ctest --test-dir "$folder/build" -j 2 --output-on-failure --repeat until-pass:2 2>&1 |
        "$TUTTI_SOURCE/tools/second_tries" 2>&1) || status=$?
}
# expect STATUS TEXT...: of the last tries.
expect() {
    local text wrong=
    [ "$status" = "$1" ] || wrong="status $status"
    for text in "${@:2}"; do
        grep -qF "$text" <<<"$output" || wrong+=" no \"$text\""
    done
    [ -z "$wrong" ] || { printf '%s\nexpected status %s:%s\n' "$output" "$1" "$wrong"; exit 1; }
}

tries passes passes
expect 0 "100% tests passed, 0 tests failed out of 2"
! grep -q "run again" <<<"$output"
tries fails passes fails
expect 0 "a first failure" "passed when run again (the first output is above): fails_" \
    "100% tests passed, 0 tests failed out of 3"
tries always passes # the status is CTest's then
expect 8 "50% tests passed, 1 tests failed out of 2" "1 - always_1 (Failed)"
! grep -q "run again" <<<"$output"
tries fails fails fails
expect 1 "3 tests passed only when they were run again; at most 2 may"
tries crashes
expect 1 "crashes_1 ended with Exception: SegFault; that it passed when run again does not count"
tries faults
expect 1 'faults_1 printed "[  ERROR   ] --- Test failed with exception: Segmentation fault(11)"; that it passed'
tries skips
expect 1 "skips_1 ended with Exception: SegFault; that it passed"
tries hangs
expect 1 "hangs_1 ended with Timeout; that it passed"
tries races
expect 1 'races_1 printed "WARNING: ThreadSanitizer: data race (pid=1)"; that it passed'
