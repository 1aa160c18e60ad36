#!/usr/bin/env python3
"""Writes tests/examples/gpt_reference.safetensors: a small GPT-2 with random weights, tokens, and
what PyTorch computes in float64 for its logits, loss and every gradient. Needs PyTorch; run it from
anywhere: python3 tests/examples/make_gpt_reference.py"""

import json
import os
import struct

import torch
import torch.nn.functional as F

LAYERS, HEADS, CHANNELS, CONTEXT, VOCABULARY, BATCH, ROWS = 2, 2, 8, 70, 40, 4, 20


def shapes():
    c = CHANNELS
    yield "wte.weight", (VOCABULARY, c)
    yield "wpe.weight", (CONTEXT, c)
    for l in range(LAYERS):
        for name, shape in (("ln_1", (c,)), ("attn.c_attn", (c, 3 * c)), ("attn.c_proj", (c, c)),
                            ("ln_2", (c,)), ("mlp.c_fc", (c, 4 * c)), ("mlp.c_proj", (4 * c, c))):
            yield f"h.{l}.{name}.weight", shape
            yield f"h.{l}.{name}.bias", shape[-1:]
    yield "ln_f.weight", (c,)
    yield "ln_f.bias", (c,)


def block(x, w, l):
    def norm(y, name):
        return F.layer_norm(y, (CHANNELS,), w[f"h.{l}.{name}.weight"], w[f"h.{l}.{name}.bias"], 1e-5)

    def linear(y, name):
        return y @ w[f"h.{l}.{name}.weight"] + w[f"h.{l}.{name}.bias"]
    b, t, c = x.shape
    q, k, v = (y.view(b, t, HEADS, c // HEADS).transpose(1, 2)
               for y in linear(norm(x, "ln_1"), "attn.c_attn").split(c, dim=2))
    scores = q @ k.transpose(2, 3) / (c // HEADS) ** 0.5
    scores = scores.masked_fill(torch.triu(torch.ones(t, t, dtype=torch.bool), 1), float("-inf"))
    mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)
    x = x + linear(mixed, "attn.c_proj")
    return x + linear(F.gelu(linear(norm(x, "ln_2"), "mlp.c_fc"), approximate="tanh"),
                      "mlp.c_proj")


def write(path, tensors):
    header, data = {}, b""
    for name, (kind, shape, raw) in tensors.items():
        header[name] = {"dtype": kind, "shape": list(shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


def floats(tensor):
    flat = tensor.detach().reshape(-1).tolist()
    return "F32", tensor.shape, struct.pack(f"<{len(flat)}f", *flat)


def main():
    torch.manual_seed(5)
    w = {}
    for name, shape in shapes():
        norm = ".ln_" in "." + name and name.endswith("weight")
        values = torch.randn(shape) * 0.3 + (1 if norm else 0)
        w[name] = values.float().double().requires_grad_()
    tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1))
    x = w["wte.weight"][tokens[:, :-1]] + w["wpe.weight"]
    for l in range(LAYERS):
        x = block(x, w, l)
    x = F.layer_norm(x, (CHANNELS,), w["ln_f.weight"], w["ln_f.bias"], 1e-5)
    logits = (x @ w["wte.weight"].T).reshape(-1, VOCABULARY)
    loss = F.cross_entropy(logits, tokens[:, 1:].reshape(-1))
    loss.backward()
    tensors = {name: floats(value) for name, value in w.items()}
    tensors.update({"gradient." + name: floats(value.grad) for name, value in w.items()})
    flat = tokens.reshape(-1).tolist()
    tensors["tokens"] = ("I32", tokens.shape, struct.pack(f"<{len(flat)}i", *flat))
    tensors["logits"] = floats(torch.cat([logits[:ROWS], logits[-ROWS:]]))
    tensors["loss"] = floats(loss)
    write(os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpt_reference.safetensors"),
          tensors)
    print(f"loss {loss.item():.9f}, PyTorch {torch.__version__}")


main()
