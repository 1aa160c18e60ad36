"""What PyTorch does with NCCL, beneath models (torch_models.py): each collective in each form that
torch.distributed has, groups within the group, streams, graphs, objects, memory. Every rank checks every
result. Run by nccl_clients, or:

    LD_PRELOAD=build/nccl/libnccl.so.2 torchrun --nproc-per-node 2 bench/gpu/torch_collectives.py [NAME...]
    TORCH_CHECKS=tutti tuttirun -n 2 python3 bench/gpu/torch_collectives.py [NAME...]"""

import functools
import time

import torch
import torch.cuda.nccl
import torch.distributed as dist

from torch_checks import (BACKEND, COUNT, DEVICE, ON_GPU, RANK, SIZE, Skipped, check, everyone, gpu_check, main, mine,
                          same, total)


# ---- collectives ----

@check
def all_reduce_types():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32,
                  torch.int64):
        tensor = mine(dtype=dtype).to(DEVICE)
        dist.all_reduce(tensor)
        same(tensor, total(dtype=dtype))
    flags = torch.tensor([True, False, RANK == 0]).to(DEVICE)
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    same(flags, torch.tensor([True, False, True]))
    complexes = torch.complex(mine(), 2 * mine()).to(DEVICE)
    dist.all_reduce(complexes)
    same(torch.view_as_real(complexes), torch.stack([total(), 2 * total()], -1))


@check
def all_reduce_operators():
    every = torch.stack(everyone(dtype=torch.float64))
    for op, expected in ((dist.ReduceOp.SUM, every.sum(0)), (dist.ReduceOp.PRODUCT, every.prod(0)),
                         (dist.ReduceOp.MIN, every.min(0).values), (dist.ReduceOp.MAX, every.max(0).values),
                         (dist.ReduceOp.AVG, every.mean(0))):
        if op == dist.ReduceOp.AVG and BACKEND == "gloo":
            continue
        tensor = mine(dtype=torch.float64).to(DEVICE)
        dist.all_reduce(tensor, op)
        assert torch.allclose(tensor.cpu(), expected), op
    if BACKEND == "gloo":
        return
    tensor = mine(dtype=torch.float32).to(DEVICE)
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(2.0))
    same(tensor, 2 * total())
    tensor = mine(dtype=torch.float32).to(DEVICE)
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(torch.tensor([3.0]).to(DEVICE)))
    same(tensor, 3 * total())


@check
def all_reduce_bits():
    if not ON_GPU:
        whole = everyone(dtype=torch.int32)
        for op, combine in ((dist.ReduceOp.BAND, torch.bitwise_and), (dist.ReduceOp.BOR, torch.bitwise_or),
                            (dist.ReduceOp.BXOR, torch.bitwise_xor)):
            tensor = mine(dtype=torch.int32)
            dist.all_reduce(tensor, op)
            same(tensor, functools.reduce(combine, whole))
        return
    try:
        dist.all_reduce(mine(dtype=torch.int32).to(DEVICE), dist.ReduceOp.BAND)
        raise AssertionError("bitwise and was taken")
    except (ValueError, RuntimeError):
        pass


@check
def all_reduce_sizes():
    for count in (0, 1, 3, 4097, 100003, 700001):
        tensor = mine(count).to(DEVICE)
        dist.all_reduce(tensor)
        same(tensor, total(count))


@check
def broadcast():
    for root in range(SIZE):
        tensor = mine().to(DEVICE)
        dist.broadcast(tensor, root)
        same(tensor, mine(rank=root))


@check
def reduce():
    for root in range(SIZE):
        tensor = mine().to(DEVICE)
        dist.reduce(tensor, root)
        if RANK == root:
            same(tensor, total())


@check
def all_gather():
    out = [torch.empty(COUNT).to(DEVICE) for _ in range(SIZE)]
    dist.all_gather(out, mine().to(DEVICE))
    for r in range(SIZE):
        same(out[r], mine(rank=r))
    whole = torch.empty(SIZE * COUNT).to(DEVICE)
    dist.all_gather_into_tensor(whole, mine().to(DEVICE))
    same(whole, torch.cat(everyone()))
    dist.all_gather_into_tensor(whole, whole[RANK * COUNT:(RANK + 1) * COUNT])  # in place
    same(whole, torch.cat(everyone()))


@check
def all_gather_uneven():
    out = [torch.empty(10 + 3 * r).to(DEVICE) for r in range(SIZE)]
    dist.all_gather(out, mine(10 + 3 * RANK).to(DEVICE))
    for r in range(SIZE):
        same(out[r], mine(10 + 3 * r, rank=r))


@check
def reduce_scatter():
    out = torch.empty(COUNT).to(DEVICE)
    dist.reduce_scatter(out, [(b + mine()).to(DEVICE) for b in range(SIZE)])
    same(out, total() + SIZE * RANK)
    dist.reduce_scatter_tensor(out, torch.cat([b + mine() for b in range(SIZE)]).to(DEVICE))
    same(out, total() + SIZE * RANK)
    dist.reduce_scatter_tensor(out, torch.cat([b + mine() for b in range(SIZE)]).to(DEVICE), dist.ReduceOp.AVG)
    assert torch.allclose(out.cpu(), (total() + SIZE * RANK) / SIZE)


@check
def reduce_scatter_uneven():
    out = torch.empty(10 + 3 * RANK).to(DEVICE)
    dist.reduce_scatter(out, [mine(10 + 3 * b).to(DEVICE) for b in range(SIZE)])
    same(out, total(10 + 3 * RANK))


@check
def all_to_all():
    out = torch.empty(SIZE * 5).to(DEVICE)
    dist.all_to_all_single(out, (torch.arange(SIZE * 5) + 100. * RANK).to(DEVICE))
    same(out, torch.cat([torch.arange(5) + 5 * RANK + 100. * r for r in range(SIZE)]))
    # Rank r gives b elements to each rank b, so it gets r from all; a split may be empty.
    give, get = [b for b in range(SIZE)], [RANK] * SIZE
    out = torch.empty(sum(get)).to(DEVICE)
    dist.all_to_all_single(out, torch.full((sum(give),), float(RANK)).to(DEVICE), get, give)
    same(out, torch.cat([torch.full((RANK,), float(r)) for r in range(SIZE)]))
    out = [torch.empty(4 + r).to(DEVICE) for r in range(SIZE)]
    dist.all_to_all(out, [torch.full((4 + RANK,), float(10 * RANK + b)).to(DEVICE) for b in range(SIZE)])
    for r in range(SIZE):
        same(out[r], float(10 * r + RANK))


@check
def gather_scatter():
    for root in range(SIZE):
        out = [torch.empty(COUNT).to(DEVICE) for _ in range(SIZE)] if RANK == root else None
        dist.gather(mine().to(DEVICE), out, root)
        if RANK == root:
            same(torch.cat(out), torch.cat(everyone()))
        block = torch.empty(COUNT).to(DEVICE)
        dist.scatter(block, [(mine(rank=root) + b).to(DEVICE) for b in range(SIZE)] if RANK == root else None, root)
        same(block, mine(rank=root) + RANK)


@check
def messages():
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    if SIZE > 1:
        tensor = mine().to(DEVICE)
        got = torch.empty(COUNT).to(DEVICE)
        if RANK % 2 == 0 and RANK + 1 < SIZE:
            dist.send(tensor, after)
        if RANK % 2 == 1:
            dist.recv(got, before)
            same(got, mine(rank=before))
    if SIZE == 1 and not ON_GPU:
        raise Skipped("no messages to itself")
    for count in (1, COUNT, 200000):
        got, back = torch.empty(count).to(DEVICE), torch.empty(count).to(DEVICE)
        works = dist.batch_isend_irecv([
            dist.P2POp(dist.isend, mine(count).to(DEVICE), after), dist.P2POp(dist.irecv, got, before),
            dist.P2POp(dist.isend, mine(count).to(DEVICE) + 1, before), dist.P2POp(dist.irecv, back, after)])
        for work in works:
            work.wait()
        same(got, mine(count, rank=before))  # of one other, or itself, they come in the order of sending
        same(back, mine(count, rank=after) + 1)


@check
def barriers():
    dist.barrier()
    dist.barrier(async_op=True).wait()


@check
def coalesced():
    tensors = [mine(10 * (i + 1)).to(DEVICE) for i in range(5)]
    with dist._coalescing_manager(device=DEVICE if ON_GPU else None, async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    for i, tensor in enumerate(tensors):
        same(tensor, total(10 * (i + 1)))
    outs = [torch.empty(SIZE * 10 * (i + 1)).to(DEVICE) for i in range(3)]
    with dist._coalescing_manager():
        for i, out in enumerate(outs):
            dist.all_gather_into_tensor(out, mine(10 * (i + 1)).to(DEVICE))
    for i, out in enumerate(outs):
        same(out, torch.cat(everyone(10 * (i + 1))))
    outs = [torch.empty(10 * (i + 1)).to(DEVICE) for i in range(3)]
    with dist._coalescing_manager():
        for i, out in enumerate(outs):
            dist.reduce_scatter_tensor(out, mine(10 * (i + 1)).repeat(SIZE).to(DEVICE))
    for i, out in enumerate(outs):
        same(out, total(10 * (i + 1)))
    tensors = [torch.full((7 + i,), float(RANK)).to(DEVICE) for i in range(3)]
    dist._broadcast_coalesced(dist.group.WORLD, tensors, 16, SIZE - 1)
    for tensor in tensors:
        same(tensor, float(SIZE - 1))


@check
def objects():
    out = [None] * SIZE
    dist.all_gather_object(out, {"rank": RANK, "text": "x" * (100 * RANK + 1)})
    assert [o["rank"] for o in out] == list(range(SIZE)) and len(out[-1]["text"]) == 100 * (SIZE - 1) + 1
    box = [("from", SIZE - 1, list(range(1000)))] if RANK == SIZE - 1 else [None]
    dist.broadcast_object_list(box, SIZE - 1)
    assert box == [("from", SIZE - 1, list(range(1000)))]
    out = [None] * SIZE if RANK == 0 else None
    dist.gather_object(RANK * 2, out, 0)
    assert RANK or out == [2 * r for r in range(SIZE)]
    box = [None]
    dist.scatter_object_list(box, [f"for {r}" for r in range(SIZE)] if RANK == 0 else [None] * SIZE, 0)
    assert box == [f"for {RANK}"]


# ---- order: streams, works, graphs ----

@gpu_check
def streams():
    side, tensor = torch.cuda.Stream(), torch.zeros(300000).to(DEVICE)
    for i in range(10):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            tensor += 1
            work = dist.all_reduce(tensor, async_op=True)
            work.wait()
            tensor /= SIZE
        torch.cuda.current_stream().wait_stream(side)
    same(tensor, 10.)


@check
def works():
    works = [(t, dist.all_reduce(t, async_op=True)) for t in (mine(50000 + i).to(DEVICE) for i in range(8))]
    for i, (tensor, work) in enumerate(works):
        work.wait()
        same(tensor, total(50000 + i))
    if ON_GPU:
        torch.cuda.synchronize()
    deadline = time.monotonic() + 30
    while BACKEND != "tutti" and not all(work.is_completed() for _, work in works):  # docs/python.md: why not
        assert time.monotonic() < deadline
    tensor = mine().to(DEVICE)
    future = dist.all_reduce(tensor, async_op=True).get_future().then(lambda f: f.value()[0] * 2)
    same(future.wait(), 2 * total())


@gpu_check
def graph():
    tensor, whole = mine().to(DEVICE), torch.empty(SIZE * COUNT).to(DEVICE)
    part, got = torch.empty(COUNT).to(DEVICE), torch.empty(COUNT).to(DEVICE)
    start = torch.empty(COUNT).to(DEVICE)
    blocks = torch.empty(SIZE * COUNT).to(DEVICE)
    dist.all_reduce(tensor.clone())  # the communicator is there before
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        dist.all_reduce(tensor)
        dist.all_gather_into_tensor(whole, start)
        dist.reduce_scatter_tensor(part, blocks)
        if SIZE > 1:
            for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, start, (RANK + 1) % SIZE),
                                                dist.P2POp(dist.irecv, got, (RANK - 1) % SIZE)]):
                work.wait()
    for i in range(3):
        tensor.copy_(mine() + i)
        start.copy_(mine() + i)
        blocks.copy_(mine().repeat(SIZE) + i)
        graph.replay()
        torch.cuda.synchronize()
        same(tensor, total() + SIZE * i)
        same(whole, torch.cat(everyone()) + i)
        same(part, total() + SIZE * i)
        if SIZE > 1:
            same(got, mine(rank=(RANK - 1) % SIZE) + i)


# ---- groups ----

@check
def groups():
    made = [dist.new_group(list(range(first, SIZE))) for first in range(SIZE)]
    for first, group in enumerate(made):
        if RANK < first:
            continue
        tensor = mine().to(DEVICE)
        dist.all_reduce(tensor, group=group)
        same(tensor, torch.stack(everyone()[first:]).sum(0))
    for first, group in enumerate(made):
        if RANK >= first:
            dist.destroy_process_group(group)


@check
def split():
    halves = [list(range(SIZE))[:(SIZE + 1) // 2], list(range(SIZE))[(SIZE + 1) // 2:]]
    try:
        dist.group.WORLD._get_backend(DEVICE)
    except RuntimeError:
        raise Skipped("this PyTorch splits no group that is written in Python") from None
    group = dist.split_group(split_ranks=[h for h in halves if h])
    own = halves[0] if RANK in halves[0] else halves[1]
    tensor = mine().to(DEVICE)
    dist.all_reduce(tensor, group=group)
    same(tensor, sum(mine(rank=r) for r in own))
    dist.destroy_process_group(group)


@check
def two_at_once():
    other = dist.new_group(list(range(SIZE)))
    first, second = [torch.zeros(200000).to(DEVICE) for _ in range(2)]
    for i in range(5):
        first += 1
        second += 2
        works = [dist.all_reduce(first, async_op=True), dist.all_reduce(second, group=other, async_op=True)]
        for work in works:
            work.wait()
        first /= SIZE
        second /= SIZE
    same(first, 5.)
    same(second, 10.)
    dist.destroy_process_group(other)


# ---- memory ----

def backend():
    return dist.group.WORLD._get_backend(torch.device("cuda"))


def pooled(count):
    """A pool of NCCL's memory, and a tensor in it."""
    if not hasattr(backend(), "register_mem_pool"):
        raise Skipped("no register_mem_pool: an older PyTorch, or TORCH_DISTRIBUTED_DEBUG=DETAIL")
    memory = torch.cuda.MemPool(backend().mem_allocator)
    with torch.cuda.use_mem_pool(memory):
        tensor = torch.empty(count, device="cuda")
    return memory, tensor


def summed(tensor):
    tensor.copy_(mine(tensor.numel()))
    dist.all_reduce(tensor)
    same(tensor, total(tensor.numel()))


@gpu_check
def pool():
    memory, tensor = pooled(1 << 20)
    backend().register_mem_pool(memory)
    summed(tensor)
    backend().deregister_mem_pool(memory)
    summed(tensor)


@gpu_check
def windows():
    memory, tensor = pooled(1 << 19)
    try:
        backend().register_mem_pool(memory, symm=True)
    except TypeError:
        raise Skipped("register_mem_pool has no symm") from None
    summed(tensor)
    backend().deregister_mem_pool(memory)


@gpu_check
def puts():
    nccl = backend()
    if SIZE == 1 or not getattr(nccl, "supports_window", False):
        raise Skipped("one rank" if SIZE == 1 else "the backend has no windows")
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    memory = torch.cuda.MemPool(nccl.mem_allocator)
    with torch.cuda.use_mem_pool(memory):
        target, source = torch.empty(1 << 20, device="cuda"), torch.empty(1 << 20, device="cuda")
    target.zero_()
    torch.cuda.synchronize()
    window, own = nccl.new_window(target), nccl.new_window(source)
    for i in range(3):
        source[:COUNT].copy_(mine() + i)
        window.put(source[:COUNT], after, RANK * COUNT, False)  # and signals
        window.wait_signal(before, False)
        torch.cuda.synchronize()
        same(target[before * COUNT:(before + 1) * COUNT], mine(rank=before) + i)
        window.signal(before, False)  # the next may come
        window.wait_signal(after, False)
    window.tensor_deregister()
    own.tensor_deregister()


@gpu_check
def statistics():
    nccl = backend()
    if not hasattr(nccl, "memory_stats"):
        raise Skipped("no memory_stats")
    found = nccl.memory_stats()
    assert found and all(v >= 0 for v in found.values()), found


@gpu_check
def rest():
    """A group's memory is given back and made again: of one of its own, since a captured one keeps it."""
    if not hasattr(backend(), "suspend"):
        raise Skipped("no suspend")
    group = dist.new_group(list(range(SIZE)))
    nccl = group._get_backend(torch.device("cuda"))
    for i in range(2):
        tensor = (mine() + i).to(DEVICE)
        dist.all_reduce(tensor, group=group)
        same(tensor, total() + i * SIZE)
        torch.cuda.synchronize()
        nccl.suspend()
        nccl.resume()
    dist.destroy_process_group(group)


@gpu_check
def estimate():
    nccl = backend()
    if not getattr(nccl, "_supports_time_estimate", False):
        raise Skipped("no time estimate")
    nccl._start_time_estimate()
    dist.all_reduce(torch.zeros(1 << 20).to(DEVICE))
    assert nccl._end_time_estimate() > 0


@gpu_check
def devices_of_one_process():
    """What needs no torch.distributed."""
    devices = range(torch.cuda.device_count())
    if len(devices) == 1 or SIZE > 1:
        raise Skipped("one device" if len(devices) == 1 else "several processes")
    sums = [(mine() + d).cuda(d) for d in devices]
    torch.cuda.nccl.all_reduce(sums)
    for tensor in sums:
        same(tensor, mine() * len(devices) + sum(devices))
    wholes = [torch.empty(COUNT * len(devices), device=d) for d in devices]
    torch.cuda.nccl.all_gather([(mine() + d).cuda(d) for d in devices], wholes)
    for tensor in wholes:
        same(tensor, torch.cat([mine() + d for d in devices]))
    torch.manual_seed(2)
    net = torch.nn.Linear(8, 4).cuda(0)
    data = torch.randn(4 * len(devices), 8).cuda(0)
    expected = net(data)
    parallel = torch.nn.DataParallel(net, list(devices))(data)
    assert torch.allclose(parallel.cpu(), expected.cpu(), atol=1e-6)
    gradient = torch.autograd.grad(expected.sum(), net.weight)[0]
    assert torch.allclose(torch.autograd.grad(parallel.sum(), net.weight)[0].cpu(), gradient.cpu(), atol=1e-5)


main("collectives")
