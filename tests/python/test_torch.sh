#!/usr/bin/env bash
# The backend "tutti" of torch.distributed, by PyTorch's own layers on top of it. PyTorch is not installed for
# the tests (it is 3 GB): where python3, or the Python that TUTTI_TORCH_PYTHON names, has none, SKIPPED.
set -u
here=$(dirname "$(readlink -f "$0")")
python=${TUTTI_TORCH_PYTHON:-python3}
"$python" -c 'import torch, numpy' 2>/dev/null || { echo "SKIPPED: $python has no PyTorch and NumPy"; exit 77; }
. "$here/../from_outside.sh"
export TUTTI_LIBRARY=$TUTTI_BUILD/lib/libtutti.so.0 TORCH_CHECKS=tutti
for ranks in 1 2 3 4; do
    try 0 "$TUTTI_BIN/tuttirun" -n $ranks "$python" "$here/torch_ranks.py" types layouts messages threads
    for name in types layouts messages threads; do out_has "^\[0\] ok $name$"; done
    for checks in collectives models; do
        try 0 "$TUTTI_BIN/tuttirun" -n $ranks "$python" "$here/../../bench/gpu/torch_$checks.py"
        out_has "^\[0\] result $checks, $ranks processes: .* none failed on rank 0$"
    done
done
try 0 "$TUTTI_BIN/tuttirun" -n 2 "$python" "$here/torch_ranks.py" unfinished
try 0 "$TUTTI_BIN/tuttirun" --elastic -n 3 "$python" "$here/torch_ranks.py" killed
for rank in 0 1; do out_has "^\[$rank\] the dead rank was named$"; done
try 0 "$TUTTI_BIN/tuttirun" --elastic -n 3 "$python" "$here/torch_ranks.py" sender_killed
for rank in 0 1; do out_has "^\[$rank\] its messages failed$"; done
try 0 "$TUTTI_BIN/tuttirun" --elastic -n 3 "$python" "$here/torch_ranks.py" different
for rank in 0 1 2; do out_has "^\[$rank\] both sides were shown$"; done

[ $failed = 0 ] && echo "torch: all well"
exit $failed
