#!/usr/bin/env bash
# tutti-plan from outside: each subcommand's output and exit status, and one clear line for each
# wrong use.
set -euo pipefail
plan=$TUTTI_BIN/tutti-plan
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# says STATUS TEXT ARGUMENTS...: tutti-plan exits with STATUS and TEXT is in what it prints.
says() {
    local status=0
    "$plan" "${@:3}" >"$folder/out" 2>"$folder/err" || status=$?
    if [ "$status" != "$1" ] || ! grep -qF -e "$2" "$folder/out" "$folder/err"; then
        echo "tutti-plan ${*:3}: must exit with $1 and say \"$2\"; exits with $status and says:"
        cat "$folder/out" "$folder/err"
        exit 1
    fi
}
# refuses TEXT ARGUMENTS...: wrong use: status 2, one line on stderr that says TEXT.
refuses() {
    says 2 "$@"
    if [ "$(wc -l <"$folder/err")" != 1 ] || [ -s "$folder/out" ]; then
        echo "tutti-plan ${*:2}: must say one line on stderr only; says:"
        cat "$folder/out" "$folder/err"
        exit 1
    fi
}
# near A B: the numbers differ by less than a thousandth.
near() {
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(d < b / 1000 && -d < b / 1000) }' ||
        { echo "$1 is not $2"; exit 1; }
}

says 0 "tutti-plan COMMAND" --help
for command in list print verify simulate draw; do
    says 0 "$command" --help
    says 0 "tutti-plan $command" "$command" --help
    refuses "no flag --nonsense" "$command" --nonsense
done
refuses "no command dance" dance
says 2 "tutti-plan COMMAND"

says 0 "recursive_doubling" list
says 0 "dissemination" list --coll barrier
if grep -q ring "$folder/out"; then
    echo "list --coll barrier lists other collectives"
    exit 1
fi
refuses "expected one of: all_reduce" list --coll all_reduction

says 0 "send" print --coll all_reduce --algo ring --ranks 4 --rank 1
all=$("$plan" print --algo ring --ranks 4 | grep -c recv_reduce)
one=$("$plan" print --algo ring --ranks=4 --rank=1 | grep -c recv_reduce)
[ "$all $one" = "12 3" ] || { echo "recv_reduce steps: $all, $one"; exit 1; }
refuses "--algo is missing; all_reduce has: ring" print
refuses '--algo is "rink"' print --algo rink
refuses "--rank is 4; there are ranks 0 to 3" print --algo ring --rank 4
refuses "--root is 9" print --coll broadcast --algo tree --root 9
refuses "--hosts is 5" print --algo ring --hosts 5
refuses '--ranks is "0"' print --algo ring --ranks 0
refuses "--ranks needs a value" print --algo ring --ranks

says 0 "OK (7 plans" verify --coll all_reduce --algo ring --ranks 7
says 0 "OK (6 plans" verify --coll all_reduce --algo hierarchical --ranks 6 --hosts 2 --lanes 2
says 0 "plans checked, 0 algorithms wrong" verify --all --max-ranks 9
refuses "give --all" verify
refuses "--plant is \"weeds\"" verify --all --plant weeds
refuses "no algorithm is called rink" verify --all --algo rink
for kind in drop-step repeat-step wrong-peer wrong-chunk drop-flag; do
    for seed in 1 32 555 4711; do
        says 1 "planted $kind" verify --all --max-ranks 7 --plant "$kind:$seed"
        grep -q ", 1 algorithms wrong" "$folder/out" ||
            { echo "the planted error is not counted"; cat "$folder/out" "$folder/err"; exit 1; }
        [ -s "$folder/err" ] || { echo "the planted error is not reported"; exit 1; }
    done
    says 1 "tutti-plan verify:" verify --algo ring --coll all_reduce --ranks 5 --plant "$kind"
done

# 8 ranks alone on their hosts, 1 MiB: 14 steps of 10 us and 128 KiB at 1 GB/s, 1 MiB at 14/8.
says 0 "*ring" simulate --algo ring --ranks 8 --ranks-per-host 1 --inter 10,1 -b 1M
row=$(grep -F '*ring' "$folder/out")
read -r size count _ _ time algbw busbw formula ratio messages _ <<<"$row"
[ "$size $count $ratio $messages" = "1048576 262144 1.000 112" ] || { echo "$row"; exit 1; }
near "$time" 1975.0
near "$formula" 1975.0
near "$algbw" 0.53
near "$busbw" 0.93
# nccl-tests' sizes: the larger buffer.
says 0 " 32768 *ring" simulate --coll all_gather --algo ring --ranks 8 -b 1M
says 0 "# 3 simulations of 3 sizes" simulate --coll reduce_scatter --algo ring --ranks 8 -b 1K -e 4K \
    --type half
says 0 "# 1 simulations of 1 sizes" simulate --algo ring --ranks 1 -b 1K
says 0 "# 2 simulations of 1 sizes" simulate --coll barrier --ranks 100
says 0 "# 2 simulations of 2 sizes" simulate --algo ring --ranks 4 -b 1K -e 1048575 -f 1000
refuses "-b is" simulate --ranks 4 -b 1M -e 1K
refuses '--inter is "fast"' simulate --ranks 4 --inter fast
refuses "expected one of: int8" simulate --ranks 4 --type quaternion
refuses "--trace shows one simulation" simulate --ranks 4 --trace "$folder/t.json"
says 1 "cannot simulate all_to_all direct" simulate --coll all_to_all --algo direct --ranks 65536

says 0 "timeline in" simulate --algo ring --ranks 6 --ranks-per-host 3 -b 64K --trace "$folder/t.json"
python3 - "$folder/t.json" <<'END'
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
phases = [event["ph"] for event in events]
assert phases.count("X") > 0 and phases.count("s") == phases.count("f") > 0, phases
END
says 1 "/nowhere/t.json" simulate --algo ring --ranks 4 -b 1K --trace /nowhere/t.json

says 0 "picture in" draw --coll all_reduce --algo ring --ranks 5 -o "$folder/plan.svg"
python3 -c 'import sys, xml.etree.ElementTree as t; assert t.parse(sys.argv[1]).getroot().tag.endswith("svg")' \
    "$folder/plan.svg"
refuses "-o is missing" draw --algo ring
refuses '--ranks is "65"' draw --algo ring --ranks 65 -o "$folder/no.svg"
says 1 "/nowhere/plan.svg" draw --algo ring -o /nowhere/plan.svg
[ ! -e "$folder/no.svg" ]
echo "tutti-plan: OK"
