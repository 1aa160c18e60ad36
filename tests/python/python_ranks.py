#!/usr/bin/env python3
"""What a rank does with the package: every operation on every kind of memory, wrong calls, failures. Started
by test_python.sh under tuttirun; a case is named on the command line."""
import array
import ctypes
import mmap
import os
import signal
import sys

sys.dont_write_bytecode = True
from refused import refused
import tutti
from tutti import Op, Type


def numbers(code, values):
    return array.array(code, values)


class Array:
    """What NumPy's arrays show of themselves, in memory of Python's own."""

    def __init__(self, values, typestr="<f4", code="f", readonly=False, strides=None, shape=None):
        self.memory = array.array(code, values)
        self.__array_interface__ = {
            "data": (self.memory.buffer_info()[0], readonly), "typestr": typestr, "version": 3,
            "shape": shape or (len(values),), "strides": strides}


class Tensor:
    """What PyTorch's tensors show of themselves."""

    def __init__(self, values, contiguous=True):
        self.memory, self.contiguous, self.dtype = array.array("H", values), contiguous, "torch.bfloat16"

    def is_contiguous(self):
        return self.contiguous

    def data_ptr(self):
        return self.memory.buffer_info()[0]

    def numel(self):
        return len(self.memory)

    def element_size(self):
        return 2


# ---- cases -------------------------------------------------------------------------------------


def memories(comm):
    """Each kind of memory, reduced in place."""
    total = sum(range(1, comm.size + 1))
    kinds = {
        "array": array.array("f", [comm.rank + 1.0] * 5),
        "bytearray": bytearray([comm.rank + 1] * 5),
        "memoryview": memoryview(array.array("q", [comm.rank + 1] * 5)),
        "ctypes": (ctypes.c_int * 5)(*[comm.rank + 1] * 5),
        "mmap": mmap.mmap(-1, 4096),
        "alloc": tutti.alloc(4096).cast("d"),
    }
    kinds["mmap"][:5] = bytes([comm.rank + 1] * 5)
    for index in range(5):
        kinds["alloc"][index] = comm.rank + 1.0
    for name, memory in kinds.items():
        comm.all_reduce(memory)
        assert list(memory[:5]) == [total] * 5, f"{name}: {list(memory[:5])}, not {total}"
    shown = Array([comm.rank + 1.0] * 6, shape=(2, 3), strides=(12, 4))
    comm.all_reduce(shown)
    assert list(shown.memory) == [total] * 6
    halves = Tensor([0x3F80] * 4)  # 1.0 in bfloat16
    comm.all_reduce(halves, op=Op.MAX)
    assert list(halves.memory) == [0x3F80] * 4
    read_only = bytes([comm.rank + 1] * 3)
    out = bytearray(3)
    comm.all_reduce(read_only, out)
    assert list(out) == [total] * 3 and list(read_only) == [comm.rank + 1] * 3
    comm.all_reduce(bytearray())  # of nothing
    assert len(tutti.alloc(0)) == 0


def registered(comm):
    """Memory of the program's own, with pages that peers map while it is registered."""
    memory = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[:] = bytes([comm.rank + 1]) * len(memory)
    with tutti.Registered(memory):
        comm.all_reduce(memory)
        assert memory[12345] == sum(range(1, comm.size + 1))
    assert memory[12345] == sum(range(1, comm.size + 1))


def operations(comm):
    """Every operation, in one form at least."""
    rank, size = comm.rank, comm.size
    everyone, total = list(range(size)), sum(range(size))
    mine = numbers("i", [rank] * 3)
    for op, expected in ((Op.SUM, total), (Op.MAX, size - 1), (Op.MIN, 0), (Op.AVG, total // size)):
        out = numbers("i", [-1] * 3)
        comm.all_reduce(mine, out, op=op)
        assert list(out) == [expected] * 3, (op, list(out))
    root = size - 1
    box = numbers("q", [rank, rank])
    comm.broadcast(box, root)
    assert list(box) == [root, root]
    out = numbers("i", [-1] * 3)
    comm.reduce(mine, out, root=root)
    assert list(out) == ([total] * 3 if rank == root else [-1] * 3)
    blocks = numbers("i", [100 * rank + k for k in everyone])
    out = numbers("i", [-1])
    comm.reduce_scatter(blocks, out)
    assert out[0] == 100 * total + size * rank
    whole = numbers("i", [-1] * 3 * size)
    comm.all_gather(mine, whole)
    assert list(whole) == [k for k in everyone for _ in range(3)]
    out = numbers("i", [-1] * size)
    comm.all_to_all(blocks, out)
    assert list(out) == [100 * k + rank for k in everyone]
    whole = numbers("i", [-1] * 3 * size) if rank == root else None
    comm.gather(mine, whole, root)
    assert rank != root or list(whole) == [k for k in everyone for _ in range(3)]
    out = numbers("i", [-1])
    comm.scatter(blocks if rank == root else None, out, root)
    assert out[0] == 100 * root + rank
    got = numbers("i", [-1] * 3)
    with tutti.group():
        comm.send(mine, (rank + 1) % size)
        comm.recv(got, (rank - 1) % size)
    assert list(got) == [(rank - 1) % size] * 3
    comm.barrier()


def uneven(comm):
    """Blocks that differ in size; a rank may have none."""
    rank, size = comm.rank, comm.size
    counts = list(range(size))
    mine, whole = numbers("f", [rank] * rank), numbers("f", [-1] * sum(counts))
    expected = [k for k in range(size) for _ in range(k)]
    comm.all_gather_v(mine, whole, counts)
    assert list(whole) == expected
    out = numbers("f", [-1] * rank)
    comm.reduce_scatter_v(whole, out, counts)
    assert list(out) == [rank * size] * rank
    apart = numbers("f", [-1] * (2 * sum(counts) + 1))
    displs = [2 * sum(counts[:k]) for k in range(size)]
    comm.all_gather_v(mine, apart, counts, displs)
    for k in range(size):
        assert list(apart[displs[k]:displs[k] + k]) == [k] * k
    gives, takes = [rank + k for k in range(size)], [rank + k for k in range(size)]
    out = numbers("f", [-1] * sum(takes))
    comm.all_to_all_v(numbers("f", [rank] * sum(gives)), gives, out, takes)
    assert list(out) == [k for k in range(size) for _ in range(takes[k])]
    whole = numbers("f", [-1] * sum(counts))
    comm.gather_v(mine, whole, counts, root=0)
    assert rank or list(whole) == expected
    out = numbers("f", [-1] * rank)
    comm.scatter_v(whole, out, counts, root=0)
    assert list(out) == [rank] * rank


def requests(comm):
    """Several at once; in a group; tested; dropped, and looked after."""
    total = sum(range(comm.size))
    arrays = [numbers("f", [comm.rank] * (1000 * k + 1)) for k in range(5)]
    begun = [comm.all_reduce(each, async_op=True) for each in arrays]
    tutti.wait_all(begun)
    for each in arrays:
        assert each[0] == each[-1] == total
    begun[0].wait()  # a second time: nothing
    assert begun[0].test()
    got = numbers("f", [-1])
    with tutti.group():
        sent = comm.send(numbers("f", [comm.rank]), (comm.rank + 1) % comm.size, async_op=True)
        taken = comm.recv(got, (comm.rank - 1) % comm.size, async_op=True)
    while not taken.test():
        pass
    tutti.wait_all([sent, taken])
    assert got[0] == (comm.rank - 1) % comm.size
    for index in range(2000):  # nobody waits for these
        comm.all_reduce(numbers("f", [1.0]), async_op=True)
        if index % 100 == 0:
            comm.barrier()
    held = len(comm._requests)
    assert held <= 512, f"{held} requests are held"
    dropped = numbers("f", [comm.rank] * 100000)
    comm.all_reduce(dropped, async_op=True)
    comm.barrier()
    other = comm.split(0)
    other.all_reduce(dropped, async_op=True)
    other.destroy()  # waits for it
    assert dropped[0] == total * comm.size


def others(comm):
    """Splitting, windows, operators, what is asked."""
    half = comm.split(comm.rank % 2, -comm.rank)
    ranks = [k for k in range(comm.size) if k % 2 == comm.rank % 2][::-1]
    assert half.size == len(ranks) and ranks[half.rank] == comm.rank
    half.destroy()
    assert comm.split(-1 if comm.rank == 0 else 0) is None or comm.rank
    memory = tutti.alloc(4096).cast("q")
    window = comm.window(memory)
    window.put(numbers("q", [comm.rank + 7]), (comm.rank + 1) % comm.size, 16, signal=3)
    comm.wait_signal((comm.rank - 1) % comm.size, 3)
    assert memory[2] == (comm.rank - 1) % comm.size + 7
    comm.barrier()
    window.close()
    refused(ValueError, "closed", lambda: window.put(memory, 0))
    comm.window(tutti.alloc(4096))  # nobody holds it here, the communicator does
    part = comm.split(0)
    part.window(bytearray(64))
    part.destroy()
    total = sum(range(comm.size))
    for type_, code, one in ((Type.FLOAT32, "f", 2.5), (Type.INT32, "i", 3), (Type.FLOAT64, "d", 0.5)):
        op = comm.premul_sum(one, type_)
        out = numbers(code, [comm.rank] * 2)
        comm.all_reduce(out, op=op)
        assert list(out) == [one * total] * 2
        comm.premul_sum_destroy(op)
    op = comm.premul_sum(1.5, Type.BFLOAT16)
    halves = Tensor([0x4000] * 2)  # 2.0; times 1.5 is 3.0
    comm.reduce(halves, op=op)
    if comm.rank == 0:
        assert list(halves.memory) == [{1: 0x4040, 2: 0x40C0, 3: 0x4110}[comm.size]] * 2
    choice = comm.choice(tutti.Collective.ALL_REDUCE, 1000, Type.FLOAT32)
    assert choice["algorithm"] and choice["lanes"] >= 1
    assert comm.memory()["host"] > 0 and comm.hosts == 1 and comm.local_size == comm.size
    assert comm.host(comm.rank) == 0 and comm.local_rank == comm.rank and not comm.reproducible
    assert str(os.getpid()) in comm.rank_name(comm.rank)
    assert comm.transport(comm.rank) == "self"
    assert tutti.version() >= (0, 1, 0)
    made = tutti.Communicator(tutti.create_id("127.0.0.1"), 0, 1, reproducible=True, timeout=5)
    assert made.reproducible
    made.destroy()
    made.destroy()
    refused(ValueError, "destroyed", made.barrier)
    assert "destroyed" in repr(made)


def wrong(comm):
    """Calls that cannot be: refused here, and nothing is started."""
    floats, ints = numbers("f", [1.0] * 4), numbers("i", [1] * 4)
    flags = memoryview(bytearray([comm.rank == 0, 1, 0])).cast("?")
    comm.all_reduce(flags, op=Op.MAX)
    assert flags.tolist() == [True, True, False]
    comm.broadcast(flags)
    size = comm.size
    for kind, part, call in (
            (TypeError, "no memory", lambda: comm.all_reduce(3)),
            (TypeError, "no memory", lambda: comm.all_reduce([1.0])),
            (ValueError, "writable", lambda: comm.all_reduce(b"1234")),
            (ValueError, "writable", lambda: comm.recv(b"1234", 0)),
            (TypeError, 'format "h"', lambda: comm.all_reduce(numbers("h", [1]))),
            (TypeError, "tutti.MAX", lambda: comm.all_reduce(flags)),
            (TypeError, "tutti.MAX", lambda: comm.reduce(Array([1.0], typestr="|b1"), op=Op.AVG)),
            (ValueError, "contiguous", lambda: comm.all_reduce(memoryview(floats)[::2])),
            (ValueError, "contiguous", lambda: comm.all_reduce(Array([1.0] * 4, strides=(8,), shape=(2,)))),
            (ValueError, "read-only", lambda: comm.all_reduce(Array([1.0], readonly=True))),
            (TypeError, "other order", lambda: comm.all_reduce(Array([1.0], typestr=">f4"))),
            (TypeError, "of type c", lambda: comm.all_reduce(Array([1.0, 2.0], typestr="<c8", shape=(1,)))),
            (ValueError, "tensor.contiguous()", lambda: comm.all_reduce(Tensor([0], contiguous=False))),
            (TypeError, "int32", lambda: comm.all_reduce(floats, ints)),
            (ValueError, "do not go with 3", lambda: comm.all_reduce(floats, floats[:3])),
            (ValueError, "all_gather of", lambda: comm.all_gather(floats, numbers("f", [0] * (4 * size + 1)))),
            (ValueError, "reduce_scatter of", lambda: comm.reduce_scatter(floats, numbers("f", [0] * 9))),
            (ValueError, "each of", lambda: comm.all_gather_v(floats, floats, [1] * (size + 1))),
            (ValueError, "counts says", lambda: comm.all_gather_v(floats, floats, [0] * size)),
            (ValueError, "blocks end", lambda: comm.all_gather_v(floats, floats, [5] * size)),
            (TypeError, "output of int32", lambda: comm.all_gather_v(floats, ints, [4] + [0] * (size - 1))),
            (TypeError, "output of int32", lambda: comm.reduce_scatter_v(floats, ints, [4] + [0] * (size - 1))),
            (TypeError, "output of int32", lambda: comm.gather_v(floats, ints, [4] + [0] * (size - 1), root=comm.rank)),
            (TypeError, "output of int32", lambda: comm.scatter_v(floats, ints, [4] + [0] * (size - 1), root=comm.rank)),
            (ValueError, "counts says", lambda: comm.gather_v(floats, floats, [1] * size, root=comm.rank)),
            (ValueError, "counts says", lambda: comm.scatter_v(floats, numbers("f", [0] * 9), [1] * size,
                                                               root=comm.rank)),
            (ValueError, "counts is missing", lambda: comm.gather_v(floats, floats, root=comm.rank)),
            (TypeError, "integer", lambda: comm.broadcast(floats, 1.5)),
            (ValueError, "no id", lambda: tutti.Communicator("x" * 300, 0, 1)),
            (tutti.Error, "root is 99", lambda: comm.broadcast(floats, 99)),
            (tutti.Error, "operator", lambda: comm.all_reduce(floats, op=77)),
            (TypeError, "no stream", lambda: comm.all_reduce(floats, stream="s")),
            (TypeError, "unexpected keyword", lambda: tutti.Communicator.from_env(timeouts=3)),
            (ValueError, "-1 bytes", lambda: tutti.alloc(-1))):
        error = refused(kind, part, call)
        assert not isinstance(error, tutti.CommunicatorFailed)
    comm.check()
    comm.all_reduce(floats)
    assert floats[0] == size


def killed(comm):
    """The last rank dies: the others are told who."""
    comm.barrier()
    if comm.rank == comm.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    error = refused(tutti.CommunicatorFailed, f"rank {comm.size - 1}", lambda: comm.all_reduce(numbers("f", [1.0])))
    assert error.result == tutti.Result.ERR_PEER, error.result
    refused(tutti.CommunicatorFailed, f"rank {comm.size - 1}", comm.check)
    while comm.dead() != [comm.size - 1]:
        pass
    rest = comm.shrink(comm.dead())
    out = numbers("f", [1.0])
    rest.all_reduce(out)
    assert out[0] == rest.size == comm.size - 1
    rest.destroy()
    print("went on without it", flush=True)


def left(comm):
    """An exception leaves the `with` of one rank: it ends the others' calls."""
    comm.barrier()
    if comm.rank == 0:
        raise KeyError("rank 0 gives up")
    refused(tutti.CommunicatorFailed, "KeyError on rank 0", comm.barrier)
    print("was told", flush=True)


def main():
    for name in sys.argv[1:]:
        with tutti.Communicator.from_env(timeout=60) as comm:
            globals()[name](comm)
            if comm.rank == 0:
                print(f"ok {name}", flush=True)


main()
