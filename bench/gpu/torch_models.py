"""What stands on PyTorch's collectives (torch_collectives.py) over NCCL: sharded tensors, data parallel in
its forms, FSDP, tensor and pipeline parallel, a sharded optimizer, each against the same without, or in
another form. Run by nccl_clients, or:

    LD_PRELOAD=build/nccl/libnccl.so.2 torchrun --nproc-per-node 2 bench/gpu/torch_models.py [NAME...]"""

import torch
import torch.distributed as dist

from torch_checks import DEVICE, ON_GPU, RANK, SIZE, Skipped, check, main, mine, same, total


@check
def sharded_tensors():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor, DTensor
    mesh = init_device_mesh(DEVICE.type, (SIZE,))
    whole = torch.arange(float(SIZE * 6 * 5)).reshape(SIZE * 6, 5).to(DEVICE)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    same(rows.to_local(), whole[RANK * 6:(RANK + 1) * 6])
    same(rows.full_tensor(), whole)
    columns = rows.redistribute(mesh, [Shard(1)])
    same(columns.redistribute(mesh, [Replicate()]).to_local(), whole)
    sums = DTensor.from_local(mine(6 * SIZE).to(DEVICE), mesh, [Partial()])
    same(sums.redistribute(mesh, [Replicate()]).to_local(), total(6 * SIZE))
    same(sums.redistribute(mesh, [Shard(0)]).to_local(), total(6 * SIZE)[RANK * 6:(RANK + 1) * 6])


def trained(wrap, steps=6):
    """The losses of a small model that is trained as `wrap` makes it."""
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32), torch.nn.Tanh(),
                              torch.nn.Linear(32, 4)).to(DEVICE)
    net = wrap(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        data = torch.randn(SIZE * 8, 16, generator=generator)[RANK * 8:(RANK + 1) * 8].to(DEVICE)
        loss = net(data).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses.append(mean.item())
    return torch.tensor(losses)


def data_parallel(**options):
    devices = [DEVICE.index] if ON_GPU else None
    return lambda net: torch.nn.parallel.DistributedDataParallel(net, device_ids=devices, **options)


@check
def data_parallel_forms():
    usual = trained(data_parallel())
    for options in ({"gradient_as_bucket_view": True}, {"static_graph": True}, {"find_unused_parameters": True},
                    {"bucket_cap_mb": 0.001}):
        assert torch.allclose(trained(data_parallel(**options)), usual, atol=1e-5), options


@check
def data_parallel_hooks():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    usual = trained(data_parallel())
    for hook, most in ((default_hooks.allreduce_hook, 1e-5), (default_hooks.bf16_compress_hook, 2e-2),
                       (default_hooks.fp16_compress_hook, 1e-2)):
        def hooked(net, hook=hook):
            net = data_parallel()(net)
            net.register_comm_hook(None, hook)
            return net
        assert torch.allclose(trained(hooked), usual, atol=most), hook


def as_replicated(shape):
    """Sharded over a mesh of that shape, as the data-parallel one."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh(DEVICE.type, shape, mesh_dim_names=("replicas", "shards")[-len(shape):])

    def shard(net):
        for layer in net:
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer, mesh=mesh)
        return fully_shard(net, mesh=mesh)
    assert torch.allclose(trained(shard), trained(data_parallel()), atol=1e-5)


@check
def fully_sharded():
    as_replicated((SIZE,))


@check
def fully_sharded_in_groups():
    """Sharded among half of the ranks, replicated in the other half: groups of both kinds at work at once."""
    if SIZE % 2 or SIZE < 4:
        raise Skipped("not an even number of ranks from 4 on")
    as_replicated((2, SIZE // 2))


@check
def tensor_parallel():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh(DEVICE.type, (SIZE,))
    torch.manual_seed(5)
    net = torch.nn.Sequential(torch.nn.Linear(8, 4 * SIZE), torch.nn.ReLU(), torch.nn.Linear(4 * SIZE, 8)).to(DEVICE)
    data = torch.randn(3, 8).to(DEVICE)
    expected = net(data).detach().cpu()
    parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    assert torch.allclose(net(data).detach().cpu(), expected, atol=1e-5)


@check
def pipeline():
    if SIZE == 1:
        raise Skipped("one rank")
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    torch.manual_seed(11)
    layers = [torch.nn.Linear(8, 8).to(DEVICE) for _ in range(SIZE)]
    chunks = max(4, SIZE)
    data, aim = torch.randn(2 * chunks, 8).to(DEVICE), torch.randn(2 * chunks, 8).to(DEVICE)
    expected = torch.nn.functional.mse_loss(torch.nn.Sequential(*layers)(data), aim)
    expected.backward()
    expected = expected.detach()
    gradient = layers[RANK].weight.grad.clone()
    layers[RANK].zero_grad()
    stage = PipelineStage(layers[RANK], RANK, SIZE, DEVICE)
    schedule = Schedule1F1B(stage, chunks, loss_fn=torch.nn.functional.mse_loss)
    losses = []
    if RANK == 0:
        schedule.step(data)
    elif RANK == SIZE - 1:
        schedule.step(target=aim, losses=losses)
        assert torch.allclose(torch.stack(losses).mean().cpu(), expected.cpu(), atol=1e-5)
    else:
        schedule.step()
    assert torch.allclose(layers[RANK].weight.grad.cpu(), gradient.cpu(), atol=1e-5)


@check
def sharded_optimizer():
    from torch.distributed.optim import ZeroRedundancyOptimizer
    torch.manual_seed(9)
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).to(DEVICE)
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.1)
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    for parameter in net.parameters():
        every = [torch.empty_like(parameter) for _ in range(SIZE)]
        dist.all_gather(every, parameter.detach())
        for other in every:
            same(other, every[0])


main("models")
