#!/usr/bin/env bash
# The package for Python as jobs: every operation with 1, 2 and 3 ranks, failures with 3, a missing library.
set -u
here=$(dirname "$(readlink -f "$0")")
. "$here/../from_outside.sh"
export TUTTI_LIBRARY=$TUTTI_BUILD/lib/libtutti.so.0
cases=(memories registered operations uneven requests others wrong)
for ranks in 1 2 3; do
    try 0 "$TUTTI_BIN/tuttirun" -n $ranks python3 "$here/python_ranks.py" "${cases[@]}"
    for name in "${cases[@]}"; do out_has "^\[0\] ok $name$"; done
done
try 0 "$TUTTI_BIN/tuttirun" --elastic -n 3 python3 "$here/python_ranks.py" killed
for rank in 0 1; do out_has "^\[$rank\] went on without it$"; done
try 0 "$TUTTI_BIN/tuttirun" --elastic -n 3 python3 "$here/python_ranks.py" left
for rank in 1 2; do out_has "^\[$rank\] was told$"; done

TUTTI_LIBRARY=/nowhere/libtutti.so try 1 python3 "$here/python_ranks.py" memories
err_has 'TUTTI_LIBRARY name the file'
TUTTI_LIBRARY=libc.so.6 try 1 python3 "$here/python_ranks.py" memories
err_has 'libc.so.6 has no tutti_result_text'

[ $failed = 0 ] && echo "python: all well"
exit $failed
