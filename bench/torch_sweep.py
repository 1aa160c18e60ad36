#!/usr/bin/env python3
"""torch.distributed over Tutti beside Gloo, on the CPU: both backends as groups of the same processes, by
turns, what a call takes to the end of its wait. Needs Python with PyTorch and NumPy:

    tuttirun -n 2 PYTHON bench/torch_sweep.py [--coll all_reduce] [-b 8] [-e 64M] [-f 4]

A row is a size: the median of the rounds, each of which is the mean of its calls on the rank that took
longest; then how many times as long Gloo took. The first result of each backend and size is compared with the
exact one."""

import argparse
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "python"))
import tutti.torch  # makes the backend known

BACKENDS = ("tutti", "gloo")
ROUNDS = 9
SECONDS = 0.1  # of a round, about


def size_of(text):
    """8, 64K, 1M."""
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    return int(text[:-1] if factor > 1 else text) * factor


class Operation:
    """One collective on float32, of `count` elements as nccl-tests counts sizes."""

    def __init__(self, name, count):
        rank, ranks = dist.get_rank(), dist.get_world_size()
        each = max(count // ranks, 1)
        self.name, self.ranks, self.rank = name, ranks, rank
        self.whole, self.part = torch.empty(each * ranks), torch.empty(each)
        self.tensor, self.got, self.other = torch.empty(count), torch.empty(count), torch.empty(each * ranks)

    def fill(self):
        for tensor in (self.tensor, self.got, self.whole, self.part, self.other):
            tensor.fill_(self.rank + 1.0)

    def call(self, group, async_op=False):
        if self.name == "all_reduce":
            return dist.all_reduce(self.tensor, group=group, async_op=async_op)
        if self.name == "broadcast":
            return dist.broadcast(self.tensor, 0, group=group, async_op=async_op)
        if self.name == "all_gather":
            return dist.all_gather_into_tensor(self.whole, self.part, group=group, async_op=async_op)
        if self.name == "reduce_scatter":
            return dist.reduce_scatter_tensor(self.part, self.whole, group=group, async_op=async_op)
        if self.name == "all_to_all":
            return dist.all_to_all_single(self.whole, self.other, group=group, async_op=async_op)
        peer = self.rank ^ 1  # send_recv: pairs exchange
        works = [dist.isend(self.tensor, peer, group=group), dist.irecv(self.got, peer, group=group)]
        for work in works:
            work.wait()
        return None

    def right(self):
        """After one call on what fill gave."""
        total = self.ranks * (self.ranks + 1) / 2
        found, expected = {
            "all_reduce": (self.tensor, total), "broadcast": (self.tensor, 1.0), "reduce_scatter": (self.part, total),
            "all_gather": (self.whole.view(self.ranks, -1), torch.arange(1.0, self.ranks + 1).unsqueeze(1)),
            "all_to_all": (self.whole.view(self.ranks, -1), torch.arange(1.0, self.ranks + 1).unsqueeze(1)),
            "send_recv": (self.got, (self.rank ^ 1) + 1.0)}[self.name]
        return bool((found == expected).all())


def timed(operation, group, calls, async_op):
    """Seconds a call, on the slowest rank."""
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        work = operation.call(group, async_op)
        if async_op and work is not None:
            work.wait()
    return slowest((time.perf_counter() - begin) / calls)


def slowest(seconds):
    told = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(told, dist.ReduceOp.MAX)
    return told.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--coll", default="all_reduce", choices=(
        "all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "send_recv"))
    parser.add_argument("-b", type=size_of, default=8, metavar="SIZE")
    parser.add_argument("-e", type=size_of, default=64 << 20, metavar="SIZE")
    parser.add_argument("-f", type=int, default=4, metavar="FACTOR")
    parser.add_argument("--async", dest="async_op", action="store_true", help="async_op=True, and wait")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("tutti")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if options.coll == "send_recv" and ranks % 2:
        sys.exit("send_recv exchanges in pairs: an even number of ranks")
    groups = {name: dist.new_group(backend=name) for name in BACKENDS}
    if rank == 0:
        print(f"# torch.distributed {options.coll}{' (async_op, wait)' if options.async_op else ''}, {ranks} processes, "
              f"PyTorch {torch.__version__}, float32, medians of {ROUNDS} rounds by turns")
        print(f"# {'bytes':>10} {'tutti us':>10} {'gloo us':>10} {'gloo/tutti':>10}", flush=True)
    ratios, size = [], options.b
    while size <= options.e:
        operation = Operation(options.coll, max(size // 4, 1))
        seconds, calls = {name: [] for name in BACKENDS}, {}
        for name, group in groups.items():
            operation.fill()
            operation.call(group)
            if not operation.right():
                sys.exit(f"rank {rank}: {name} gives a wrong {options.coll} of {size} bytes")
            calls[name] = max(1, min(200, int(SECONDS / timed(operation, group, 3, options.async_op))))
        operation.fill()
        for _ in range(ROUNDS):
            for name, group in groups.items():
                operation.tensor.fill_(0)  # sums of sums would overflow
                seconds[name].append(timed(operation, group, calls[name], options.async_op))
        ours, theirs = (statistics.median(seconds[name]) for name in BACKENDS)
        ratios.append(theirs / ours)
        if rank == 0:
            print(f"  {size:>10} {ours * 1e6:>10.1f} {theirs * 1e6:>10.1f} {ratios[-1]:>10.2f}", flush=True)
        size *= options.f
    if rank == 0:
        print(f"# geometric mean of gloo/tutti: {statistics.geometric_mean(ratios):.2f}, least {min(ratios):.2f}")
    dist.destroy_process_group()


main()
