#!/usr/bin/env python3
"""Other people's bindings for NCCL, unchanged, on our libnccl.so.2 and host memory: CuPy's and NVIDIA's own (nccl4py),
where they are installed; exit status 77 where neither is.

    LD_PRELOAD=.../libnccl.so.2 test_nccl_python.py     (TUTTI_DEVICE=host)"""

import importlib
import os
import sys
import threading

COUNT, RANKS = 5000, 3
FLOAT, SUM = 7, 0


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


def main():
    try:
        numpy = importlib.import_module("numpy")
    except ImportError:
        print("SKIPPED: there is no numpy")
        sys.exit(77)
    found, passed = 0, True
    for name, body in (("cupy.cuda.nccl", cupy_rank), ("nccl.bindings.nccl", nvidia_rank)):
        try:
            nccl = importlib.import_module(name)
            nccl.get_version()
        except (ImportError, AttributeError) as error:
            print(f"SKIPPED {name}: {error}")
            continue
        found += 1
        passed = ranks_run(name, body, nccl, numpy) and passed
    with open("/proc/self/maps") as maps:
        loaded = {line.split()[-1] for line in maps if "libnccl.so" in line}
    if found and loaded != {os.path.realpath(os.environ["LD_PRELOAD"])}:
        sys.exit(f"FAILED: loaded are {loaded}")
    sys.exit(77 if not found else 0 if passed else 1)


main()
