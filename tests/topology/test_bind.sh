#!/usr/bin/env bash
# Ranks that tuttirun and allreduce_bench start are bound to cores of their own with --bind core, and
# by themselves where each can have two CPUs; with hwloc and without.
set -u
run=$TUTTI_BIN/tuttirun
bench=("$TUTTI_BIN/allreduce_bench" -b 8 -e 8 -n 1 -w 0)
cores=$(nproc)
[ "$cores" -ge 2 ] || exit 77
failed=0
wrong() {
    echo "FAILED: $*"
    failed=1
}
mask='sed -n "s/^Cpus_allowed_list:\s*//p" /proc/self/status'
all=$(sh -c "$mask")

for library in libhwloc.so.15 /nowhere/libhwloc.so; do
    export TUTTI_LIBHWLOC=$library
    lists=$("$run" --no-prefix --bind core -n 2 sh -c "$mask" | sort -u)
    [ "$(echo "$lists" | wc -l)" = 2 ] || wrong "two ranks share CPUs: $lists"
    [ "$("$run" --no-prefix -n "$cores" sh -c "$mask" | sort -u)" = "$all" ] ||
        wrong "ranks are bound to one CPU each, unasked"
    if [ "$cores" -ge 4 ]; then
        lists=$("$run" --no-prefix -n 2 sh -c "$mask" | sort -u)
        [ "$(echo "$lists" | wc -l)" = 2 ] || wrong "two ranks share CPUs by themselves: $lists"
    fi
    [ "$("$run" --no-prefix -n $((cores + 1)) sh -c "$mask" | sort -u)" = "$all" ] ||
        wrong "too many ranks are bound"
    [ "$("$run" --no-prefix --bind none -n 2 sh -c "$mask" | sort -u)" = "$all" ] ||
        wrong "--bind none binds"
done
unset TUTTI_LIBHWLOC

"$run" --explain --bind core -n 2 true 2>/tmp/bind.$$ || wrong "--explain fails"
[ "$(grep -cE '^tuttirun: rank [01]: CPUs [0-9,-]+: ' /tmp/bind.$$)" = 2 ] ||
    wrong "--explain says: $(cat /tmp/bind.$$)"
"$run" --explain --bind none -n 2 true 2>/tmp/bind.$$ || wrong "--explain fails without binding"
grep -q '^tuttirun: 2 ranks are not bound' /tmp/bind.$$ || wrong "--explain says: $(cat /tmp/bind.$$)"
"$run" --bind core -n $((cores + 1)) true 2>/tmp/bind.$$ && wrong "--bind core with too many ranks"
grep -q "cannot bind $((cores + 1)) ranks" /tmp/bind.$$ || wrong "no reason: $(cat /tmp/bind.$$)"
"$run" --bind socket -n 1 true 2>/tmp/bind.$$
[ $? = 2 ] || wrong "--bind socket is no wrong command line"
[ "$(wc -l </tmp/bind.$$)" = 1 ] || wrong "not one line: $(cat /tmp/bind.$$)"
"${bench[@]}" --bind socket 2>/tmp/bind.$$
[ $? = 2 ] || wrong "bench --bind socket is no wrong command line"

for ranks in "--ranks 2" "-t 2"; do
    TUTTI_LOG=info "${bench[@]}" --bind core $ranks >/tmp/bind.$$ 2>&1 || wrong "bench $ranks: $(cat /tmp/bind.$$)"
    [ "$(grep -c 'local rank [01] of 2: CPUs' /tmp/bind.$$)" = 2 ] ||
        wrong "bench $ranks does not say what it bound: $(cat /tmp/bind.$$)"
done
rm -f /tmp/bind.$$
exit $failed
