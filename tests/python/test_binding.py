#!/usr/bin/env python3
"""python/tutti/binding.py says what the headers say: every number, struct and prototype."""
import ctypes
import os
import re
import sys

TOP = os.environ.get("TUTTI_SOURCE") or os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..")
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "python"))
from tutti import binding

SIMPLE = {"void": None, "int": ctypes.c_int, "bool": ctypes.c_bool, "size_t": ctypes.c_size_t,
          "double": ctypes.c_double, "uint64_t": ctypes.c_uint64, "tutti_stream": ctypes.c_void_p,
          "enum tutti_result": ctypes.c_int, "enum tutti_type": ctypes.c_int, "enum tutti_op": ctypes.c_int,
          "enum tutti_collective": ctypes.c_int, "char *": ctypes.c_char_p, "void *": ctypes.c_void_p}
HANDLES = ("tutti_comm", "tutti_request", "tutti_window")
STRUCTS = {"tutti_id": binding.Id, "tutti_options": binding.Options, "tutti_choice": binding.Choice,
           "tutti_memory": binding.Memory}
# What Python has no use for: it waits in a loop, lists no algorithms, and holds one version's enums.
LEFT_OUT = {"tutti_wait_all", "tutti_comm_choices", "tutti_comm_tuning", "tutti_algorithm_name",
            "tutti_transport_name", "tutti_collective_name"}
wrong = []


def expect(holds, text):
    if not holds:
        wrong.append(text)


def headers():
    text = ""
    for name in ("tutti", "uneven", "windows"):
        with open(os.path.join(TOP, "include", "tutti", f"{name}.h"), encoding="utf-8") as file:
            text += file.read()
    return re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/|^#.*?$", " ", text, flags=re.S | re.M))


def as_ctypes(declared):
    """The type of an argument or result."""
    kind = re.sub(r"\bconst ", "", declared).strip()
    if kind in SIMPLE:
        return SIMPLE[kind]
    base = kind.removesuffix("*").strip()
    if kind.endswith("*") and base in HANDLES:
        return ctypes.c_void_p
    if kind.endswith("*") and base.removeprefix("struct ") in STRUCTS:
        return ctypes.POINTER(STRUCTS[base.removeprefix("struct ")])
    if kind.endswith("*"):
        inner = as_ctypes(base)
        return inner and ctypes.POINTER(inner)
    return None


def argument(text):
    """Without the name: "const void *in" is "const void *"."""
    return re.match(r"(.*?[ *])\w+$", text.strip())[1].strip() if text.strip() != "void" else None


def prototypes(text):
    found = {}
    for returns, name, takes in re.findall(r"TUTTI_API ([^;{}()]*?)\b(tutti_\w+)\(([^;{}]*?)\);", text):
        arguments = [argument(each) for each in takes.split(",")]
        found[name] = as_ctypes(returns.strip()), tuple(as_ctypes(each) for each in arguments if each)
    return found


def check_functions(text):
    declared = prototypes(text)
    expect(len(declared) > 70, f"only {len(declared)} functions are found in the headers")
    for name, (returns, takes) in binding.FUNCTIONS.items():
        expect(declared.get("tutti_" + name) == (returns, takes),
               f"tutti_{name}: {returns} {takes}, the headers say {declared.get('tutti_' + name)}")
    missing = set(declared) - {"tutti_" + name for name in binding.FUNCTIONS} - LEFT_OUT
    expect(not missing, f"the binding lacks {sorted(missing)}")


def check_enums(text):
    for name, ours in (("result", binding.Result), ("type", binding.Type), ("op", binding.Op),
                       ("collective", binding.Collective)):
        body = re.search(rf"enum tutti_{name} \{{(.*?)\}}", text)[1]
        theirs = {key: int(value) for key, value in re.findall(r"TUTTI_(\w+) = (-?\d+)", body)}
        theirs = {key: value for key, value in theirs.items() if not re.search(r"_COUNT$|^OP_USER$", key)}
        mine = {each.name: each.value for each in ours}
        expect(mine == theirs, f"enum tutti_{name}: {mine}, the header says {theirs}")
    version = [int(re.search(rf"TUTTI_VERSION_{part} (\d+)", VERSIONS)[1]) for part in ("MAJOR", "MINOR")]
    expect(tuple(version) == binding.VERSION, f"version {binding.VERSION}, the header says {version}")
    expect(binding.NO_SIGNAL == int(re.search(r"TUTTI_NO_SIGNAL = (-?\d+)", text)[1]), "NO_SIGNAL")


def check_structs(text):
    for name, ours in STRUCTS.items():
        body = re.search(rf"struct {name} \{{(.*?)\}}", text)[1]
        theirs = []
        for kind, field, length in re.findall(r"((?:const )?\w+ \*?)(\w+)(\[\d+\])?;", body):
            kind = as_ctypes(kind) if not length else ctypes.c_char * int(length[1:-1])
            theirs.append((field, kind))
        expect(ours._fields_ == theirs, f"struct {name}: {ours._fields_}, the header says {theirs}")


with open(os.path.join(TOP, "include", "tutti", "tutti.h"), encoding="utf-8") as file:
    VERSIONS = file.read()
TEXT = headers()
check_functions(TEXT)
check_enums(TEXT)
check_structs(TEXT)
for finding in wrong:
    print(finding)
print(f"binding: {len(binding.FUNCTIONS)} functions, {'all as the headers say' if not wrong else 'WRONG'}")
sys.exit(bool(wrong))
