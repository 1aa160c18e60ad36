#!/usr/bin/env python3
"""What is Tutti's own of its backend for torch.distributed, beside what every backend must do
(bench/gpu/torch_collectives.py, torch_models.py): types and layouts, messages in any order, failures. Started by
test_torch.sh under tuttirun; a case is named on the command line."""
import datetime
import os
import signal
import sys
import threading

sys.dont_write_bytecode = True
from refused import refused
import torch
import torch.distributed as dist

import tutti
import tutti.torch

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def types():
    """Each type is reduced, or moved, or refused by name."""
    total = sum(range(1, SIZE + 1))
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64,
                  torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64):
        tensor = torch.full((70,), RANK + 1).to(dtype)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [total] * 70, dtype
        out = torch.zeros(10).to(dtype)
        dist.reduce_scatter_tensor(out, torch.full((10 * SIZE,), RANK + 1).to(dtype))
        assert out.tolist() == [total] * 10, dtype
        dist.reduce(tensor, 0)
        assert tensor.tolist() == [total * (SIZE if RANK == 0 else 1)] * 70 or dtype == torch.int8, dtype
    large = torch.tensor([30000, -30000], dtype=torch.int16)
    dist.all_reduce(large)  # wraps, as int16 does
    assert large.tolist() == torch.tensor([30000, -30000], dtype=torch.int16).mul(SIZE).tolist()
    for op, expected in ((dist.ReduceOp.SUM, [True, SIZE > 1 or RANK == 0, False]),
                         (dist.ReduceOp.PRODUCT, [True, False, False])):
        flags = torch.tensor([True, RANK == 0, False])
        dist.all_reduce(flags, op)
        assert SIZE == 1 or flags.tolist() == expected, (op, flags)
    refused(TypeError, "flags", lambda: dist.all_reduce(torch.ones(2, dtype=torch.bool), dist.ReduceOp.AVG))
    refused((TypeError, ValueError), "complex", lambda: dist.all_reduce(torch.ones(2, dtype=torch.complex64), dist.ReduceOp.MAX))
    refused(TypeError, "float32", lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND))
    for dtype in (torch.complex128, torch.bool, torch.float8_e4m3fn, torch.float8_e8m0fnu, torch.int16):
        tensor = torch.full((9,), RANK % 2).to(dtype)
        dist.broadcast(tensor, SIZE - 1)
        assert torch.equal(tensor.view(torch.uint8), torch.full((9,), (SIZE - 1) % 2).to(dtype).view(torch.uint8))


def layouts():
    """Dense in any order of dimensions; what is not is refused."""
    tensor = torch.full((2, 3, 4, 5), RANK + 1.0).to(memory_format=torch.channels_last)
    dist.all_reduce(tensor)
    assert bool((tensor == sum(range(1, SIZE + 1))).all())
    turned = (torch.arange(12.0).view(3, 4) + RANK).t()
    dist.broadcast(turned, SIZE - 1)
    assert torch.equal(turned, (torch.arange(12.0).view(3, 4) + SIZE - 1).t())
    refused(ValueError, "contiguous()", lambda: dist.all_reduce(torch.ones(4, 4)[:, ::2]))
    scalar = torch.tensor(RANK + 1.0)
    dist.all_reduce(scalar)
    assert scalar.item() == sum(range(1, SIZE + 1))
    parameter = torch.nn.Parameter(torch.full((3,), float(RANK)))
    dist.broadcast(parameter.data, 0)
    every = [torch.empty(3) for _ in range(SIZE)]
    dist.all_gather(every, parameter)
    assert [part[0].item() for part in every] == [0.0] * SIZE
    whole = torch.empty(SIZE, 4)  # the list is one tensor: gathered where it lies
    dist.all_gather(list(whole.unbind()), torch.full((4,), float(RANK)))
    assert whole[:, 0].tolist() == list(range(SIZE))


def messages():
    """Sends and receives in any order, several at once, while collectives run."""
    if SIZE == 1:
        refused(ValueError, "itself", lambda: dist.isend(torch.ones(1), 0))
        return
    peers = [peer for peer in range(SIZE) if peer != RANK]
    got = {peer: [torch.empty(50001) for _ in range(3)] for peer in peers}
    works = [dist.irecv(tensor, peer) for peer in peers for tensor in got[peer]]  # all receives first
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    works += [dist.isend(torch.full((50001,), 10.0 * RANK + k), peer) for k in range(3) for peer in peers]
    dist.all_reduce(tensor)
    for work in works:
        work.wait()
    for peer in peers:
        assert [int(each[-1]) for each in got[peer]] == [10 * peer + k for k in range(3)]
    refused(NotImplementedError, "name the source", lambda: dist.recv(tensor))
    refused((ValueError, RuntimeError), "", lambda: dist.send(tensor, RANK))
    late = torch.empty(3)
    work = dist.irecv(late, (RANK - 1) % SIZE)
    refused(RuntimeError, "is not over", lambda: work.wait(datetime.timedelta(milliseconds=50)))
    dist.barrier()
    dist.send(torch.full((3,), float(RANK)), (RANK + 1) % SIZE)
    work.wait()
    assert late[0] == (RANK - 1) % SIZE


def threads():
    """Futures of works that nobody waits for; works of another thread."""
    sums = [torch.full((5000 + k,), float(RANK)) for k in range(20)]
    seen = [dist.all_reduce(each, async_op=True).get_future().then(lambda f: f.value()[0][0].item()) for each in sums]
    assert [each.wait() for each in seen] == [sum(range(SIZE))] * 20
    works = [dist.all_reduce(each, async_op=True) for each in sums]
    waiters = [threading.Thread(target=work.wait) for work in works]
    for waiter in waiters:
        waiter.start()
    for waiter in waiters:
        waiter.join()
    assert all(each[0] == SIZE * sum(range(SIZE)) for each in sums)
    group = dist.new_group()
    tensor = torch.full((300000,), 1.0)
    dist.all_reduce(tensor, group=group, async_op=True)  # nobody waits for it
    dist.destroy_process_group(group)
    assert tensor[0] == SIZE


def killed():
    """The last rank dies: the others' calls, works and futures name it."""
    dist.barrier()
    if RANK == SIZE - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    tensor = torch.ones(10)
    refused(tutti.CommunicatorFailed, f"rank {SIZE - 1}", lambda: dist.all_reduce(tensor))
    work = None
    try:
        work = dist.all_reduce(tensor, async_op=True)
    except tutti.CommunicatorFailed as error:
        assert f"rank {SIZE - 1}" in str(error)
    if work is not None:
        refused(tutti.CommunicatorFailed, f"rank {SIZE - 1}", work.wait)
    print("the dead rank was named", flush=True)
    os._exit(0)


def sender_killed():
    """The last rank dies: receives from it end, whether it ever sent or not."""
    dist.barrier()
    got = torch.empty(4)
    if RANK == SIZE - 1:
        dist.send(got, 0)
        dist.barrier()
        os.kill(os.getpid(), signal.SIGKILL)
    if RANK == 0:
        dist.recv(got, SIZE - 1)
    works = [dist.irecv(got, SIZE - 1), dist.isend(got, SIZE - 1)]
    dist.barrier()
    for work in works:
        error = refused(RuntimeError, f"rank {SIZE - 1}", work.wait)
        refused(RuntimeError, str(error), work.wait)  # a second time, too
    print("its messages failed", flush=True)
    if RANK == 0:  # the store is in this process
        for peer in range(1, SIZE - 1):
            dist.recv(got, peer)
    else:
        dist.send(got, 0)
    os._exit(0)


def different():
    """Rank 0 makes another call than the others."""
    def call():
        if RANK == 0:
            dist.broadcast(torch.ones(7), 0)  # a root may be through before it is told
            dist.barrier()
        else:
            dist.all_reduce(torch.ones(7))
    error = refused(tutti.Error, "all_reduce", call)
    assert "broadcast" in str(error), error
    print("both sides were shown", flush=True)
    os._exit(0)


def unfinished():
    """A program that ends without destroy_process_group."""
    tensor = torch.ones(10)
    dist.all_reduce(tensor)
    assert tensor[0] == SIZE
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()


dist.init_process_group("tutti", timeout=datetime.timedelta(seconds=60))
for name in sys.argv[1:]:
    globals()[name]()
    if RANK == 0:
        print(f"ok {name}", flush=True)
if "unfinished" not in sys.argv:
    dist.destroy_process_group()
