#!/usr/bin/env python3
"""Python programs on our libnccl.so.2: one that calls it through ctypes, as many do (vLLM, SGLang), on host memory or
the simulated device; and other people's bindings, unchanged, on host memory: CuPy's and NVIDIA's own (nccl4py), where
they are installed.

    LD_PRELOAD=.../libnccl.so.2 test_nccl_python.py     (TUTTI_DEVICE=host, or sim: ctypes alone)"""

import ctypes
import importlib
import os
import subprocess
import sys
import threading

COUNT, RANKS = 5000, 3
FLOAT, SUM, MAX, AVG = 7, 0, 2, 4
NO_COLOR = -1


def expect(array, value, what):
    if not (array == value).all():
        raise AssertionError(f"{what}: {array[:4]}, expected {value}")


def cupy_rank(nccl, numpy, unique, rank):
    comm = nccl.NcclCommunicator(RANKS, unique, rank)
    one = numpy.full(COUNT, rank + 1, numpy.float32)
    out, gathered = numpy.zeros_like(one), numpy.zeros(RANKS * COUNT, numpy.float32)
    at, to = one.ctypes.data, out.ctypes.data
    comm.allReduce(at, to, COUNT, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, 0)
    expect(out, 6, "allReduce")
    comm.allGather(at, gathered.ctypes.data, COUNT, nccl.NCCL_FLOAT32, 0)
    for r in range(RANKS):
        expect(gathered[r * COUNT:(r + 1) * COUNT], r + 1, "allGather")
    comm.broadcast(at, to, COUNT, nccl.NCCL_FLOAT32, RANKS - 1, 0)
    expect(out, RANKS, "broadcast")
    comm.reduceScatter(gathered.ctypes.data, to, COUNT, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, 0)
    expect(out, RANKS * (rank + 1), "reduceScatter")
    nccl.groupStart()
    comm.send(at, COUNT, nccl.NCCL_FLOAT32, (rank + 1) % RANKS, 0)
    comm.recv(to, COUNT, nccl.NCCL_FLOAT32, (rank - 1) % RANKS, 0)
    nccl.groupEnd()
    expect(out, (rank - 1) % RANKS + 1, "recv")
    comm.check_async_error()
    comm.destroy()


def nvidia_rank(nccl, numpy, unique, rank):
    """Made for a later version than ours, with a larger ncclConfig_t."""
    comm = nccl.comm_init_rank_config(RANKS, unique, rank, nccl.Config())
    one = numpy.full(COUNT, rank + 1, numpy.float32)
    out, factor = numpy.zeros_like(one), numpy.full(1, 2, numpy.float32)
    at, to = one.ctypes.data, out.ctypes.data
    nccl.all_reduce(at, to, COUNT, FLOAT, SUM, comm, 0)
    expect(out, 6, "all_reduce")
    part = nccl.comm_split(comm, 0, -rank, nccl.Config())
    if nccl.comm_user_rank(part) != RANKS - 1 - rank or nccl.comm_count(part) != RANKS:
        raise AssertionError("comm_split")
    nccl.group_start()
    nccl.all_reduce(to, to, COUNT, FLOAT, SUM, part, 0)
    nccl.group_end()
    expect(out, 18, "all_reduce of the part")
    op = nccl.red_op_create_pre_mul_sum(factor.ctypes.data, FLOAT, 1, comm)
    nccl.all_reduce(at, to, COUNT, FLOAT, op, comm, 0)
    nccl.red_op_destroy(op, comm)
    expect(out, 12, "the pre-multiplied sum")
    try:
        nccl.broadcast(at, to, COUNT, FLOAT, RANKS, comm, 0)
        raise AssertionError("a wrong root is taken")
    except nccl.NCCLError:
        if "root is 3" not in str(nccl.get_last_error(comm)):
            raise
    if nccl.comm_get_async_error(comm) != 0:
        raise AssertionError("comm_get_async_error")
    nccl.comm_destroy(part)
    nccl.comm_finalize(comm)
    nccl.comm_destroy(comm)


class UniqueId(ctypes.Structure):
    """Passed by value."""
    _fields_ = [("internal", ctypes.c_byte * 128)]


class Config(ctypes.Structure):
    """ncclConfig_t of NCCL 2.14, which programs of that time still pass."""
    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint),
                ("blocking", ctypes.c_int)]


class Nccl:
    """nccl.h as far as this program wants it: every argument has its C type."""
    POINTER, SIZE, INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    FUNCTIONS = {
        "GetVersion": [POINTER], "GetUniqueId": [POINTER],
        "CommInitRankConfig": [POINTER, INT, UniqueId, INT, POINTER],
        "CommSplit": [POINTER, INT, INT, POINTER, POINTER],
        "CommCount": [POINTER, POINTER], "CommUserRank": [POINTER, POINTER],
        "CommGetAsyncError": [POINTER, POINTER], "CommDestroy": [POINTER],
        "MemAlloc": [POINTER, SIZE], "MemFree": [POINTER],
        "CommRegister": [POINTER, POINTER, SIZE, POINTER], "CommDeregister": [POINTER, POINTER],
        "CommWindowRegister": [POINTER, POINTER, SIZE, POINTER, INT],
        "CommWindowDeregister": [POINTER, POINTER],
        "RedOpCreatePreMulSum": [POINTER, POINTER, INT, INT, POINTER],
        "RedOpDestroy": [INT, POINTER], "GroupStart": [], "GroupEnd": [],
        "AllReduce": [POINTER, POINTER, SIZE, INT, INT, POINTER, POINTER],
        "Reduce": [POINTER, POINTER, SIZE, INT, INT, INT, POINTER, POINTER],
        "ReduceScatter": [POINTER, POINTER, SIZE, INT, INT, POINTER, POINTER],
        "Broadcast": [POINTER, POINTER, SIZE, INT, INT, POINTER, POINTER],
        "AllGather": [POINTER, POINTER, SIZE, INT, POINTER, POINTER],
        "Send": [POINTER, SIZE, INT, INT, POINTER, POINTER],
        "Recv": [POINTER, SIZE, INT, INT, POINTER, POINTER]}

    def __init__(self):
        self.library = ctypes.CDLL("libnccl.so.2")
        self.library.ncclGetErrorString.restype = ctypes.c_char_p
        self.library.ncclGetLastError.restype = ctypes.c_char_p
        self.library.ncclGetLastError.argtypes = [ctypes.c_void_p]
        for name, types in self.FUNCTIONS.items():
            getattr(self.library, "nccl" + name).argtypes = types

    def __call__(self, name, *arguments):
        """Any function of FUNCTIONS; a result that is not ncclSuccess is an error with its text."""
        result = getattr(self.library, "nccl" + name)(*arguments)
        if result != 0:
            text = self.library.ncclGetErrorString(result).decode()
            raise RuntimeError(f"{name}: {text}: {self.library.ncclGetLastError(None).decode()}")

    def ask(self, name, *arguments, kind=ctypes.c_int):
        """The value that a function writes to its last argument."""
        value = kind()
        self(name, *arguments, ctypes.byref(value))
        return value.value

    def get_unique_id(self):
        unique = UniqueId()
        self("GetUniqueId", ctypes.byref(unique))
        return unique

    def get_version(self):
        return self.ask("GetVersion")


class Floats:
    """Memory of ncclMemAlloc: host memory, or the simulated device's, which may be looked at."""

    def __init__(self, nccl, count):
        address = ctypes.c_void_p()
        nccl("MemAlloc", ctypes.byref(address), 4 * count)
        self.nccl, self.at, self.count = nccl, address.value, count
        self.values = (ctypes.c_float * count).from_address(self.at)

    def fill(self, value):
        for i in range(self.count):
            self.values[i] = value

    def expect(self, value, what, begin=0, count=None):
        for i in range(begin, begin + (count or self.count)):
            if self.values[i] != value:
                raise AssertionError(f"{what}: {self.values[i]} at {i}, expected {value}")

    def free(self):
        self.nccl("MemFree", self.at)


def ctypes_collectives(nccl, comm, rank, one, out, gathered):
    at, to, all_at = one.at, out.at, gathered.at
    one.fill(rank + 1)
    nccl("AllReduce", at, to, COUNT, FLOAT, SUM, comm, None)
    out.expect(6, "AllReduce")
    nccl("AllReduce", at, to, COUNT, FLOAT, AVG, comm, None)
    out.expect(2, "AllReduce, average")
    nccl("AllGather", at, all_at, COUNT, FLOAT, comm, None)
    for r in range(RANKS):
        gathered.expect(r + 1, "AllGather", r * COUNT, COUNT)
    nccl("ReduceScatter", all_at, to, COUNT, FLOAT, SUM, comm, None)
    out.expect(RANKS * (rank + 1), "ReduceScatter")
    nccl("Broadcast", at, to, COUNT, FLOAT, RANKS - 1, comm, None)
    out.expect(RANKS, "Broadcast")
    out.fill(0)
    nccl("Reduce", at, to, COUNT, FLOAT, MAX, 1, comm, None)
    out.expect(3 if rank == 1 else 0, "Reduce")
    nccl("GroupStart")
    nccl("Send", at, COUNT, FLOAT, (rank + 1) % RANKS, comm, None)
    nccl("Recv", to, COUNT, FLOAT, (rank - 1) % RANKS, comm, None)
    nccl("GroupEnd")
    out.expect((rank - 1) % RANKS + 1, "Recv")


def ctypes_rest(nccl, comm, rank, one, out):
    """Registered memory and windows, an operator of the program's, a split."""
    handle, window = ctypes.c_void_p(), ctypes.c_void_p()
    nccl("CommRegister", comm, out.at, 4 * COUNT, ctypes.byref(handle))
    nccl("CommWindowRegister", comm, one.at, 4 * COUNT, ctypes.byref(window), 1)
    factor = ctypes.c_float(0.5)
    operator = ctypes.c_int()
    nccl("RedOpCreatePreMulSum", ctypes.byref(operator), ctypes.byref(factor), FLOAT, 1, comm)
    nccl("GroupStart")
    nccl("AllReduce", one.at, out.at, COUNT, FLOAT, operator, comm, None)
    nccl("RedOpDestroy", operator, comm)  # PyTorch does so, before the group ends
    nccl("GroupEnd")
    out.expect(3, "AllReduce of halves")
    nccl("CommWindowDeregister", comm, window)
    nccl("CommDeregister", comm, handle)
    part = ctypes.c_void_p(1)
    nccl("CommSplit", comm, 0 if rank else NO_COLOR, -rank, ctypes.byref(part), None)
    if (part.value is None) != (rank == 0):
        raise AssertionError(f"CommSplit gave rank {rank} {part}")
    if part:
        if nccl.ask("CommUserRank", part) != RANKS - 1 - rank or nccl.ask("CommCount", part) != 2:
            raise AssertionError("CommSplit made another order")
        nccl("AllReduce", one.at, out.at, COUNT, FLOAT, SUM, part, None)
        out.expect(5, "AllReduce of the part")
        nccl("CommDestroy", part)


def ctypes_rank(nccl, _, unique, rank):
    comm = ctypes.c_void_p()
    config = Config(ctypes.sizeof(Config), 0xcafebeef, 21400, 1)
    nccl("CommInitRankConfig", ctypes.byref(comm), RANKS, unique, rank, ctypes.byref(config))
    one, out, gathered = (Floats(nccl, n) for n in (COUNT, COUNT, RANKS * COUNT))
    ctypes_collectives(nccl, comm, rank, one, out, gathered)
    ctypes_rest(nccl, comm, rank, one, out)
    try:
        nccl("Broadcast", one.at, out.at, COUNT, FLOAT, RANKS, comm, None)
        raise AssertionError("a wrong root is taken")
    except RuntimeError as error:
        if "root is 3" not in str(error):
            raise
    if nccl.ask("CommGetAsyncError", comm) != 0:
        raise AssertionError("CommGetAsyncError")
    nccl("CommDestroy", comm)
    for memory in (one, out, gathered):
        memory.free()


def ranks_run(name, body, nccl, numpy):
    unique, failed = nccl.get_unique_id(), []

    def one(rank):
        try:
            body(nccl, numpy, unique, rank)
        except Exception as error:  # threads must not swallow it
            failed.append(f"rank {rank}: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{name}, version {nccl.get_version()}: {failed or 'all right'}")
    return not failed


def others():
    """Other people's bindings, those that are here: whether all went well."""
    passed = True
    try:
        numpy = importlib.import_module("numpy")
    except ImportError:
        print("SKIPPED cupy.cuda.nccl and nccl.bindings.nccl: there is no numpy")
        return True
    for name, body in (("cupy.cuda.nccl", cupy_rank), ("nccl.bindings.nccl", nvidia_rank)):
        try:
            nccl = importlib.import_module(name)
            nccl.get_version()
        except (ImportError, AttributeError) as error:
            print(f"SKIPPED {name}: {error}")
            continue
        passed = ranks_run(name, body, nccl, numpy) and passed
    return passed


def children_see():
    """What a child's environment has of ours: nothing that NCCL's variables have set for this process alone."""
    program = "import os; print(*(n for n in os.environ if n == 'TUTTI_HOST_ID'))"
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


def main():
    os.environ["NCCL_HOSTID"] = "a-host"
    passed = ranks_run("ctypes", ctypes_rank, Nccl(), None)
    if children_see():
        sys.exit(f"FAILED: children inherit {children_see()}")
    if os.environ.get("TUTTI_DEVICE") == "host":
        passed = others() and passed
    with open("/proc/self/maps") as maps:
        loaded = {line.rstrip("\n").split(None, 5)[-1] for line in maps if "libnccl.so" in line}
    # LD_PRELOAD cannot hold a path with a space: the name alone, then, and the folder beside it.
    named = os.path.join(os.environ.get("LD_LIBRARY_PATH", ""), os.environ["LD_PRELOAD"])
    if loaded != {os.path.realpath(named)}:
        sys.exit(f"FAILED: loaded are {loaded}")
    sys.exit(0 if passed else 1)


main()
