#!/usr/bin/env python3
"""Training on a GPU: GPT-2's shape in bfloat16 by examples/transformer --device cuda beside PyTorch
(torch.compile, flash attention, autocast, fused AdamW), with one rank and with two that share the GPU:
tokens a second and MFU, runs interleaved, medians. Before it, the tiny size on the GPU, in float32 and in
bfloat16, against the CPU in float32: the same losses within what 8 bits allow. Needs a release build with
nvcc, cuBLASLt, and a Python with PyTorch for the peer (without: --no-torch).

    examples/compare/compare_gpu.py --size gpt2 --batch 32 --micro 16 --rounds 3

Not yet run on a GPU. --device sim goes through the same steps on the simulated one, for small shapes: its
speed means nothing."""

import argparse
import os
import statistics
import struct
import subprocess
import sys

import contest

VOCABULARY = 50257
PEAKS = (("H200", 989e12), ("H100", 989e12), ("A100", 312e12), ("B200", 2250e12))  # dense bfloat16
SIZES = {"tiny": (4, 128, 128), "small": (6, 384, 256), "gpt2": (12, 768, 1024)}  # layers, channels, context
# How far losses of the tiny size may be from the CPU's: rounding, and what 8 bits make of 60 steps.
NEAR = {"float32": 2e-3, "bfloat16": 0.05}


def shard(folder, count=2_000_000):
    """Tokens as llm.c has them: not text, but as unevenly frequent, and each telling of the next."""
    path, state, token, tokens = os.path.join(folder, "tokens.bin"), 1, 0, bytearray()
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        drawn = (state >> 40) / (1 << 24)
        token = (token * 31 + 7) % VOCABULARY if drawn < 0.5 else int(VOCABULARY ** (2 * drawn - 1)) - 1
        tokens += struct.pack("<H", token)
    with open(path, "wb") as out:
        out.write(struct.pack("<256i", 20240520, 1, count, *([0] * 253)) + tokens)
    return path


def work(o):
    """Operations for a token, forward and backward, as transformer counts them."""
    layers, channels, context = SIZES[o.size]
    layers, channels, context = o.layers or layers, o.channels or channels, o.context or context
    parameters = VOCABULARY * channels + context * channels + 2 * channels
    parameters += layers * (12 * channels * channels + 13 * channels)
    return 6 * parameters + 12 * layers * channels * context


def gpu_name(o):
    if o.device == "sim":
        return "a simulated GPU"
    return subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], text=True, check=True,
                          stdout=subprocess.PIPE).stdout.splitlines()[0]


def curves(o, folder):
    """The tiny size: lines for the page, and whether all are near."""
    packed = os.path.join(o.build, "text")  # of gpu_report --pack
    text, lines, good, logs = packed if os.path.exists(packed) else contest.text(folder), [], True, {}
    shape = ["--layers", "1", "--heads", "1", "--channels", "16", "--context", "16", "--batch", "4"]
    shape = [*shape, "--warmup", "1"] if o.device == "sim" else ["--size", "tiny"]
    for name, flags in (("CPU, float32", []), ("float32", ["--device", o.device]),
                        ("bfloat16", ["--device", o.device, "--bf16"])):
        log = os.path.join(folder, "curve")
        contest.start([os.path.join(o.build, "bin/transformer"), "--data", text, "--log", log, "--plot", "none",
                       "--sample", "0", "--check-every", "0", "--steps", str(o.curve), *shape, *flags], 1,
                      contest.free_port(), extra={"TUTTI_LIBCUBLASLT": o.cublas} if o.cublas else None)
        logs[name] = contest.read_log(log)[0]
    for name, most in NEAR.items():
        away = max(abs(a - b) for a, b in zip(logs["CPU, float32"], logs[name]))
        good = good and away <= most
        lines.append(f"tiny, {o.curve} steps, GPU in {name} against CPU in float32: losses {away:.1e} apart at "
                     f"most, {most:g} allowed; the last {logs[name][-1]:.4f} and {logs['CPU, float32'][-1]:.4f}")
    return lines, good


def speeds(o, folder, ranks, name):
    o.ranks = ranks
    shared = ["--bf16", "--micro", str(min(o.micro, o.batch // ranks))]
    all_of_them = [contest.Contender(f"Tutti, {how}", False, [*shared, "--device", o.device, *flags])
                   for how, flags in (("attention without scores", []),
                                      ("attention by products", ["--attention", "products"]))]
    shared += ["--device", "cuda"] if o.device == "cuda" else []
    if not o.no_torch:
        all_of_them += [contest.Contender("PyTorch, torch.compile", True, [*shared, "--compile"]),
                        contest.Contender("PyTorch, torch.compile, vocabulary filled up to 50304", True,
                                          [*shared, "--compile", "--pad", "64"])]
    for _ in range(o.rounds):
        for c in all_of_them:
            contest.run(c, o, folder, o.data, o.weights,
                        extra={"TUTTI_LIBCUBLASLT": o.cublas} if o.cublas else None)
    apart = max(abs(a - b) for c in all_of_them for a, b in zip(all_of_them[0].losses, c.losses))
    if apart > 0.1:  # the same work, in other roundings of 8 bits
        sys.exit(f"the contenders do not compute the same: losses are {apart:.2e} apart")
    tokens = o.batch * (o.context or SIZES[o.size][2])
    peak = next((peak for part, peak in PEAKS if part in name), None)
    lines = ["", f"{ranks} rank{'s that share the GPU' if ranks > 1 else ''}, {tokens} tokens a step; losses are "
             f"{apart:.1e} apart at most", "", "| | ms a step | tokens/s | MFU |", "|---|---|---|---|"]
    for c in all_of_them:
        ms = statistics.median(c.medians)
        mfu = f"{100 * tokens / ms * 1e3 * work(o) / peak:.1f}%" if peak else ""
        lines.append(f"| {c.name} | {ms:.1f} ({min(c.medians):.1f} .. {max(c.medians):.1f}) | "
                     f"{tokens / ms * 1e3:.0f} | {mfu} |")
    return lines


def torchs_cublas(o):
    """The cuBLASLt that PyTorch brings, for a machine that has no other."""
    code = "import nvidia, glob; print(*glob.glob(list(nvidia.__path__)[0] + '/*/lib/libcublasLt.so.*'))"
    said = subprocess.run([o.python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          check=False).stdout.split()
    return said[0] if said else None


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    contest.common_flags(p, "gpt2", 32, 40, 2)
    p.add_argument("--device", default="cuda", choices=("cuda", "sim"))
    p.add_argument("--micro", type=int, default=16, help="sequences at once on a rank")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--curve", type=int, default=60, help="steps of the tiny size")
    p.add_argument("--no-torch", action="store_true")
    o = p.parse_args()
    o.shape = contest.shape_of(o)
    o.cublas = os.environ.get("TUTTI_LIBCUBLASLT") or torchs_cublas(o)
    with contest.temporary() as folder:
        lines, good = curves(o, folder)
        print("\n".join(lines), flush=True)
        o.data = shard(folder, 2_000_000 if o.device == "cuda" else 20_000)
        o.weights = None if o.no_torch else contest.weights_for(o, folder, o.data)
        name = gpu_name(o)
        lines = [f"{o.size}{' ' if o.shape else ''}{' '.join(o.shape)} in bfloat16 on {name}; "
                 f"{contest.versions(o, not o.no_torch)}", "", *lines]
        for ranks in (1, o.ranks) if o.ranks > 1 else (1,):
            lines += speeds(o, folder, ranks, name)
    contest.put_out(o, "\n".join(lines))
    sys.exit(0 if good else "losses on the GPU are not those of the CPU")


main()
