#!/usr/bin/env bash
# tutti-tune from outside: it writes a file that allreduce_bench picks up by itself and goes by; a
# second run keeps what it did not measure; wrong input is one line and status 2. No times are
# asserted.
set -u
. "$(dirname "$0")/../from_outside.sh"
tune=$TUTTI_BIN/tutti-tune
bench=$TUTTI_BIN/allreduce_bench
unset TUTTI_TUNING
export XDG_CONFIG_HOME=$dir/config
file=$dir/config/tutti/tuning.json

try 0 "$tune" -n 2 -t 1 -e 32K --coll all_reduce,barrier
out_has '^# all_reduce, 2 ranks, mapped$'
out_has '^# all_reduce, 2 ranks, private$'
out_has '^# 2 ranks: [0-9]+ sizes measured in '
out_has '^# written to .*/config/tutti/tuning.json'
[ -f "$file" ] || wrong "no file"
command -v python3 >/dev/null && { python3 -m json.tool "$file" >/dev/null || wrong "no JSON"; }

# The sizes begin at the largest, whatever it is, and both kinds of memory have it.
try 0 "$tune" -n 2 -t 1 -e 1000 --coll all_reduce --quiet -o "$dir/odd.json"
[ "$(grep -c '\[1000, ' "$dir/odd.json")" -ge 2 ] || wrong "the largest size is not measured"

try 0 "$tune" -n 3 -t 1 -e 2K --coll broadcast --quiet
grep -q '"all_reduce"' "$file" || wrong "what was measured before is gone"
grep -q '"broadcast".*"ranks": 3' "$file" || wrong "what was measured now is not there"
try 0 "$TUTTI_BIN/tuttirun" -n 2 "$TUTTI_BIN/tutti-tune" -t 1 -e 2K --coll all_gather --quiet -o "$dir/by_launcher.json"
grep -q '"all_gather".*"ranks": 2' "$dir/by_launcher.json" || wrong "nothing by tuttirun"

cp "$file" "$dir/refit.json"
try 0 "$tune" --refit --constants -o "$dir/refit.json"
out_has '^#   touch_l2 +[0-9.e-]+$'
grep -o '"series".*' <(tr -d '\n' <"$file") >"$dir/series"
grep -o '"series".*' <(tr -d '\n' <"$dir/refit.json") | cmp -s - "$dir/series" ||
    wrong "--refit changes what was measured"

# Say that ring is the fastest by far at 128 B: it is chosen, by itself and by name.
sed -i -E '/"all_reduce", "medium": "mapped".*"ring"/{n;s/\[128, [^]]*\]/[128, 0.001]/}' "$file"
try 0 "$bench" -b 128 -e 128 -n 20
out_has ' ring$'
TUTTI_TUNING=$file try 0 "$bench" -b 128 -e 128 -n 20
out_has ' ring$'
try 0 "$bench" -b 128 -e 128 -n 20 --algo tree
out_has ' tree$'
TUTTI_TUNING=off try 0 "$bench" -b 128 -e 128 -n 20
grep -q ' ring$' "$dir/out" && wrong "TUTTI_TUNING=off does not switch it off"
try 0 "$bench" -b 128 -e 128 -n 20 --explain
out_has "^# Tuning: $file\$"
out_has '^ +128 +ring +plan +[12] .*\*'
out_has '^# [01] of 1 sizes within 25% of the prediction'
echo '{' >"$file"
try 0 "$bench" -b 128 -e 128 -n 20 --explain # a broken file is passed over
out_has '^# Tuning: none; ignored .*tuning.json: line 2 of the tuning'
try 2 "$bench" --coll sendrecv --explain

# A place that cannot be written is told before anything is measured.
try 1 "$tune" -n 2 -t 30 -o /dev/null/tuning.json
err_has 'cannot make the folder /dev/null|cannot write /dev/null'
err_lines 1
[ -s "$dir/out" ] && wrong "measured what it cannot write"
mkdir "$dir/folder"
try 1 "$tune" -n 2 -t 30 -o "$dir/folder"
err_has 'folder: that is a folder'
[ -s "$dir/out" ] && wrong "measured what it cannot write"
[ "$(ls "$dir" | grep -c new)" = 0 ] || wrong "leaves a file"

# As many ranks as it may run on, not as there are; two at least, so that a machine with two
# processors shows nothing (tests/base/test_host.c does).
try 0 taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')" "$tune" -t 1 -e 1K --coll broadcast -o "$dir/bound.json"
out_has '^# 2 ranks: '
grep -qE '^# ([013-9]|[0-9]{2,}) ranks: ' "$dir/out" && wrong "counts processors that are not its own"

refused '--ranks "1"' "$tune" -n 1
refused '--ranks "2;4"' "$tune" -n '2;4'
refused 'no collective' "$tune" --coll all_reduce,nothing
refused '--time' "$tune" --time 0
exit $failed
