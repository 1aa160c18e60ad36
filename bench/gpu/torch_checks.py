"""What the checks of PyTorch's collectives share (torch_collectives.py, torch_models.py): values, comparing,
and a main program that runs them on every rank, with a line for each and an exit status that is not 0 if one
failed. Each process takes the GPU of its local rank if there are so many, else they share.

TORCH_CHECKS=tutti, or gloo, is that backend on the CPU in place of NCCL; checks of GPUs are skipped then."""

import datetime
import functools
import os
import sys
import time
import traceback

import torch
import torch.distributed as dist

RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
BACKEND = os.environ.get("TORCH_CHECKS", "nccl")
ON_GPU = BACKEND == "nccl"
DEVICE = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()) if ON_GPU else \
    torch.device("cpu")
COUNT = 1000
CHECKS = []


class Skipped(Exception):
    """This check has nothing to look at here: why."""


def check(function):
    CHECKS.append(function)
    return function


def gpu_check(function):
    """A check that has nothing to look at on a CPU."""
    @functools.wraps(function)
    def checked():
        if not ON_GPU:
            raise Skipped("no GPU")
        function()
    return check(checked)


def same(tensor, expected):
    if not isinstance(expected, torch.Tensor):
        expected = torch.full(tuple(tensor.shape), expected, dtype=tensor.dtype)
    found = tensor.detach().cpu()
    assert found.shape == expected.shape and torch.equal(found, expected.cpu().to(found.dtype)), \
        f"rank {RANK}: found {found.flatten()[:8].tolist()}, expected {expected.flatten()[:8].tolist()}"


def mine(count=COUNT, dtype=torch.float32, rank=None):
    """Small whole numbers, others on each rank."""
    return ((torch.arange(count) % 5 + 1 + (RANK if rank is None else rank)) % 7).to(dtype)


def everyone(count=COUNT, dtype=torch.float32):
    return [mine(count, dtype, r) for r in range(SIZE)]


def total(count=COUNT, dtype=torch.float32):
    return torch.stack(everyone(count, torch.float64)).sum(0).to(dtype)


def run(function):
    """What became of it."""
    begin, why = time.monotonic(), ""
    try:
        function()
        state = "passed"
    except Skipped as skipped:
        state, why = "skipped", f": {skipped}"
    except Exception:
        traceback.print_exc()
        state = "FAILED"
    if RANK == 0 or state == "FAILED":
        print(f"{state} {function.__name__} (rank {RANK}, {time.monotonic() - begin:.1f} s){why}", flush=True)
    return state


def main(name):
    wanted = sys.argv[1:] or [function.__name__ for function in CHECKS]
    unknown = set(wanted) - {function.__name__ for function in CHECKS}
    if unknown:
        sys.exit(f"no such check: {', '.join(sorted(unknown))}")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29512")
    if ON_GPU:
        torch.cuda.set_device(DEVICE)
    elif BACKEND == "tutti":
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "python"))
        import tutti.torch  # makes the backend known
    dist.init_process_group(BACKEND, rank=RANK, world_size=SIZE, device_id=DEVICE if ON_GPU else None,
                            timeout=datetime.timedelta(seconds=60))
    states = [run(function) for function in CHECKS if function.__name__ in wanted]
    if RANK == 0:
        failed = states.count("FAILED")
        print(f"result {name}, {SIZE} processes: {states.count('passed')} checks passed, {states.count('skipped')} "
              f"skipped, {f'{failed} FAILED' if failed else 'none failed'} on rank 0", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    sys.exit("FAILED" in states)
