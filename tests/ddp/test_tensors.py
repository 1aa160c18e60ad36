#!/usr/bin/env python3
"""Files that Tutti writes are read by Python's safetensors package where it is installed, and by a
plain reading of the format everywhere; and what the package writes is read by Tutti."""

import ctypes
import json
import os
import struct
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1]
NAMES = {"h.0.attn/weight": ("F32", [2, 3]), 'a "quoted" \\ näme': ("BF16", [2]),
         "longs": ("I64", [3]), "number": ("F32", []), "nothing": ("F16", [0, 4])}
SIZES = {"F32": 4, "BF16": 2, "I64": 8, "F16": 2}


def plain(path):
    """By the format's description."""
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    assert header.pop("__metadata__") == {"format": "pt", "note": '"x" \\ ö'}
    assert {n: (t["dtype"], t["shape"]) for n, t in header.items()} == NAMES
    body, end = data[8 + length:], 0
    assert (8 + length) % 8 == 0
    for name, t in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, stop = t["data_offsets"]
        count = 1
        for size in t["shape"]:
            count *= size
        assert begin == end and stop - begin == count * SIZES[t["dtype"]], name
        end = stop
    assert end == len(body)
    begin, stop = header["h.0.attn/weight"]["data_offsets"]
    values = struct.unpack("<6f", body[begin:stop])
    assert values[1] == -1.5 and values[4] == 65504, values
    begin, stop = header["longs"]["data_offsets"]
    assert struct.unpack("<3q", body[begin:stop]) == (-2**63, 0, 2**63 - 1)


def by_package(path, copy):
    try:
        import safetensors
    except ImportError:
        print("test_tensors: Python's safetensors package is not installed; only the plain reading")
        return
    with open(path, "rb") as file:
        read = dict(safetensors.deserialize(file.read()))
    assert {n: (t["dtype"], t["shape"]) for n, t in read.items()} == NAMES
    again, alive = {}, []
    for name, t in read.items():
        kind, data = PACKAGE_TYPES[t["dtype"]], bytes(t["data"])
        if hasattr(safetensors, "TensorSpec"):  # newer versions take an address
            alive.append(ctypes.create_string_buffer(data, max(len(data), 1)))
            again[name] = safetensors.TensorSpec(dtype=kind, shape=t["shape"], data_len=len(data),
                                                 data_ptr=ctypes.addressof(alive[-1]))
        else:
            again[name] = {"dtype": kind, "shape": t["shape"], "data": data}
    safetensors.serialize_file(again, copy, {"format": "pt", "note": '"x" \\ ö'})
    subprocess.run([PROGRAM, "read", copy], check=True)
    print("test_tensors: read and written by safetensors", safetensors.__version__)


PACKAGE_TYPES = {"F32": "float32", "BF16": "bfloat16", "I64": "int64", "F16": "float16"}


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ours.safetensors")
        subprocess.run([PROGRAM, "write", path], check=True)
        plain(path)
        by_package(path, os.path.join(folder, "theirs.safetensors"))
        assert sorted(os.listdir(folder))[0] == "ours.safetensors"  # and no .part


main()
