"""Tutti in Python: collectives over whatever memory a program has, without a copy.

    import array, tutti
    with tutti.Communicator.from_env() as comm:          # tuttirun -n 4 python3 program.py
        numbers = array.array("f", [comm.rank] * 1000)   # or a NumPy array, a tensor, bytes
        comm.all_reduce(numbers)                         # in place: each rank has the sum

It needs Python 3.9 and libtutti, nothing else. `import tutti.torch` makes the backend "tutti" known to
torch.distributed. The guide: docs/python.md.
"""
from .binding import (NO_SIGNAL, Collective, CommunicatorFailed, Error, Op, Result, Type, library)
from .buffers import Registered, alloc
from .communicator import Communicator, Window, create_id
from .request import Request, group, wait_all

SUM, PROD, MAX, MIN, AVG = Op.SUM, Op.PROD, Op.MAX, Op.MIN, Op.AVG


def version():
    """The version of the library in use, as (major, minor, patch)."""
    number = library.tutti_version()
    return number // 10000, number // 100 % 100, number % 100


__all__ = ["AVG", "Collective", "Communicator", "CommunicatorFailed", "Error", "MAX", "MIN",
           "NO_SIGNAL", "Op", "PROD", "Registered", "Request", "Result", "SUM", "Type", "Window",
           "alloc", "create_id", "group", "version", "wait_all"]
