#!/usr/bin/env python3
"""The peer of examples/transformer: the same model, data, order of samples and optimizer, in PyTorch
with DistributedDataParallel over Gloo, as its users write it. One process a rank; RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT say which. The log is that of the transformer, so that both can be laid
side by side: equal losses show equal work.

    torch_ddp.py --write-init FILE --size tiny --data TEXT     the weights that both begin from
    torch_ddp.py --init FILE --size tiny --data TEXT --log LOG ...

With --device cuda all ranks compute on GPUs, which they may share: DDP then goes over Gloo too, as NCCL
takes one rank a GPU; with --backend nccl over Tutti's libnccl.so.2, which takes several, if that is
preloaded; with --backend tutti, on the CPU, over libtutti. --bf16 is autocast. compare_torch.py,
compare_gpu.py and overlap.py in this folder start it."""

import argparse
import contextlib
import ctypes
import json
import math
import os
import struct
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

SIZES = {"tiny": (4, 4, 128, 128), "small": (6, 6, 384, 256), "gpt2": (12, 12, 768, 1024)}
CHECK_SHARE = 20  # as transformer.c: one sequence in so many is not trained on


class Block(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(channels)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(channels, 3 * channels),
                                   "c_proj": nn.Linear(channels, channels)})
        self.ln_2 = nn.LayerNorm(channels)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(channels, 4 * channels),
                                  "c_proj": nn.Linear(4 * channels, channels)})

    def forward(self, x):
        batch, length, channels = x.shape
        q, k, v = (y.view(batch, length, self.heads, channels // self.heads).transpose(1, 2)
                   for y in self.attn["c_attn"](self.ln_1(x)).split(channels, dim=2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["c_proj"](mixed.transpose(1, 2).reshape(batch, length, channels))
        wide = F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        return x + self.mlp["c_proj"](wide)


class Gpt(nn.Module):
    def __init__(self, layers, heads, channels, context, vocabulary, pad=1):
        super().__init__()
        self.vocabulary = vocabulary
        self.wte = nn.Embedding(-(-vocabulary // pad) * pad, channels)
        self.wpe = nn.Embedding(context, channels)
        self.h = nn.ModuleList(Block(channels, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(channels)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                narrow = (2 * layers) ** -0.5 if name.endswith("c_proj.weight") else 1
                nn.init.normal_(p, 0, 0.02 * narrow)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)[..., :self.vocabulary]
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


# ---- Weights in files: safetensors with GPT-2's names, where matrices are [in, out] ---------------


def turned(name, tensor):
    return tensor.T if tensor.dim() == 2 and name.startswith("h.") else tensor


def write_weights(model, path):
    head, data, at = {}, [], 0
    for name, p in model.named_parameters():
        tensor = turned(name, p.detach()).contiguous()
        raw = ctypes.string_at(tensor.data_ptr(), 4 * tensor.numel())  # numpy may be missing
        head[name] = {"dtype": "F32", "shape": list(tensor.shape),
                      "data_offsets": [at, at + len(raw)]}
        data.append(raw)
        at += len(raw)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.writelines(data)


def read_weights(model, path):
    with open(path, "rb") as file:
        head = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    for name, p in model.named_parameters():
        begin, end = head[name]["data_offsets"]
        tensor = torch.frombuffer(data[begin:end], dtype=torch.float32)
        with torch.no_grad():
            tensor = turned(name, tensor.view(head[name]["shape"]))
            p[:len(tensor)].copy_(tensor)  # all of it, but for a vocabulary that is filled up


# ---- Training -------------------------------------------------------------------------------------


def read_tokens(path):
    with open(path, "rb") as file:
        data = bytearray(file.read())
    if len(data) >= 1024 and struct.unpack_from("<i", data)[0] == 20240520:  # llm.c's shards
        return torch.frombuffer(data, dtype=torch.int16, offset=1024).long() & 0xffff, 50257
    return torch.frombuffer(data, dtype=torch.uint8).long(), 256


class Order:
    """This rank's sequences, epoch after epoch, each step's batch whole."""

    def __init__(self, windows, rank, ranks, share):
        self.sampler = DistributedSampler(range(windows), ranks, rank, shuffle=True, seed=1)
        self.share, self.steps, self.epoch, self.at = share, windows // (share * ranks), 0, 0
        self.list = list(self.sampler)

    def next(self):
        if self.at == self.steps:
            self.epoch, self.at = self.epoch + 1, 0
            self.sampler.set_epoch(self.epoch)
            self.list = list(self.sampler)
        self.at += 1
        return self.list[(self.at - 1) * self.share:self.at * self.share]


def make_model(o, vocabulary, ranks):
    torch.manual_seed(1)
    model = Gpt(o.layers, o.heads, o.channels, o.context, vocabulary, o.pad)
    if o.init:
        read_weights(model, o.init)
    model.to(o.device)
    decays = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW([{"params": decays, "weight_decay": 0.1},
                                   {"params": others, "weight_decay": 0.0}],
                                  lr=o.rate, betas=(0.9, 0.95), fused=True)
    if ranks > 1:
        if o.no_overlap:  # one bucket, full when the backward pass is over
            dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << 40
        model = DistributedDataParallel(model, bucket_cap_mb=1 << 20 if o.no_overlap else o.bucket,
                                        gradient_as_bucket_view=True)
    return (torch.compile(model) if o.compile else model), optimizer


def train(o, rank, ranks):
    tokens, vocabulary = read_tokens(o.data)
    tokens = tokens.to(o.device)
    model, optimizer = make_model(o, vocabulary, ranks)
    whole = (len(tokens) - 1) // o.context
    share = o.batch // ranks
    order = Order(whole - max(whole // CHECK_SHARE, 1), rank, ranks, share)
    places = torch.arange(o.context + 1, device=o.device)
    micro = o.micro or share
    log = open(o.log, "w", encoding="ascii") if rank == 0 and o.log else contextlib.nullcontext()
    with log as out:
        for step in range(1, o.steps + 1):
            start = time.monotonic()
            windows = torch.tensor(order.next(), device=o.device)
            mean = torch.zeros((), dtype=torch.float64, device=o.device)
            for first in range(0, share, micro):
                taken = tokens[windows[first:first + micro, None] * o.context + places]
                last = first + micro >= share
                with contextlib.nullcontext() if last or ranks == 1 else model.no_sync():
                    with torch.autocast(o.kind, torch.bfloat16, enabled=o.bf16):
                        loss = model(taken[:, :-1], taken[:, 1:]) * (micro / share)
                    loss.backward()
                mean += loss.detach()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            if ranks > 1:
                dist.all_reduce(mean, dist.ReduceOp.SUM)
            mean = mean.item() / ranks
            ms = 1e3 * (time.monotonic() - start)
            if out:
                out.write(f"{step}\t{mean:.9g}\t{o.rate:g}\t{norm:.6g}\t{ms:.3f}\t"
                          f"{o.batch * o.context / ms * 1e3:.1f}\t{math.nan}\n")


def options():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--data", required=True)
    p.add_argument("--size", choices=SIZES, default="tiny")
    for name, kind, value in (("layers", int, 0), ("heads", int, 0), ("channels", int, 0),
                              ("context", int, 0), ("batch", int, 16), ("steps", int, 30),
                              ("cores", int, 1), ("micro", int, 0), ("pad", int, 1), ("bucket", float, 25), ("rate", float, 1e-3)):
        p.add_argument("--" + name, type=kind, default=value)
    for name in ("init", "write-init", "log"):
        p.add_argument("--" + name)
    p.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    p.add_argument("--backend", default="gloo", choices=("gloo", "nccl", "tutti"), help="of torch.distributed")
    p.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    p.add_argument("--compile", action="store_true", help="through torch.compile")
    p.add_argument("--no-overlap", action="store_true", help="reduce after the backward pass")
    o = p.parse_args()
    for name, value in zip(("layers", "heads", "channels", "context"), SIZES[o.size]):
        setattr(o, name, getattr(o, name) or value)
    return o


def main():
    o = options()
    torch.set_num_threads(o.cores)
    o.kind = o.device
    if o.device == "cuda":
        o.device = f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"
        torch.cuda.set_device(o.device)
    if o.write_init:
        torch.manual_seed(1)
        write_weights(Gpt(o.layers, o.heads, o.channels, o.context, read_tokens(o.data)[1]),
                      o.write_init)
        return
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        if o.backend == "tutti":
            sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "python"))
            import tutti.torch  # makes the backend known
        dist.init_process_group(o.backend)
    train(o, int(os.environ.get("RANK", "0")), ranks)
    if ranks > 1:
        dist.destroy_process_group()


main()
