"""A PyTorch job, data parallel (DDP or FSDP) over backend "nccl", all processes on one GPU. Every rank
has its share of the same batch; rank 0 repeats the training alone, on the whole batch, and compares the
losses. Run by nccl_clients, or:

    LD_PRELOAD=build/nccl/libnccl.so.2 torchrun --nproc-per-node 2 bench/gpu/torch_train.py --mode fsdp"""

import argparse
import copy
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

STEPS, WARM, WIDTH = 30, 5, 512
BATCH = 96  # which 1, 2, 3, 4, 6 and 8 ranks share


def model():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH),
                         nn.GELU(), nn.Linear(WIDTH, 10)).cuda()


def batch(step):
    generator = torch.Generator().manual_seed(1000 + step)
    data = torch.randn(BATCH, WIDTH, generator=generator)
    return data.cuda(), (data[:, :10].argmax(1)).cuda()


def train(net, rank, size):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    losses, begin = [], 0.0
    for step in range(STEPS):
        if step == WARM:
            torch.cuda.synchronize()
            begin = time.perf_counter()
        data, label = batch(step)
        share = BATCH // size
        data, label = data[rank * share:(rank + 1) * share], label[rank * share:(rank + 1) * share]
        loss = nn.functional.cross_entropy(net(data), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        if size > 1:
            dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        losses.append(mean)
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - begin) / (STEPS - WARM)
    return torch.stack(losses).cpu(), seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=("ddp", "fsdp"), default="ddp")
    mode = parser.parse_args().mode
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", rank=rank, world_size=size)
    alone = model()
    net = copy.deepcopy(alone)
    if mode == "ddp":
        net = nn.parallel.DistributedDataParallel(net, device_ids=[0])
    else:
        from torch.distributed.fsdp import FullyShardedDataParallel
        net = FullyShardedDataParallel(net, device_id=0)
    losses, seconds = train(net, rank, size)
    status = 0
    if rank == 0:
        reference, _ = train(alone, 0, 1)
        worst = (losses - reference).abs().max().item()
        status = int(not worst < 1e-4)
        print(f"result {mode} {size} processes: {seconds * 1e3:.3f} ms a step, "
              f"losses differ by at most {worst:.2e}: {'FAILED' if status else 'passed'}")
    dist.barrier()
    dist.destroy_process_group()
    sys.exit(status)


main()
