"""libtutti through ctypes: where it is found, its types and functions, its results as exceptions.

Nothing here has an opinion: what a function means stands in include/tutti/*.h, and
tests/python/test_binding.py holds every number and prototype below to these headers. Read
communicator.py next.
"""
import ctypes
import enum
import os
from ctypes import POINTER, c_bool, c_char, c_char_p, c_double, c_int, c_size_t, c_uint64, c_void_p

VERSION = (0, 1)  # of the headers that this follows: major, minor


class Result(enum.IntEnum):
    """enum tutti_result: grouped by what is damaged."""
    OK = 0
    IN_PROGRESS = 1
    ERR_ARGUMENT = 10
    ERR_UNSUPPORTED = 11
    ERR_USAGE = 12
    ERR_MEMORY = 20
    ERR_SYSTEM = 21
    ERR_LINK = 30
    ERR_PEER = 31
    ERR_TIMEOUT = 32
    ERR_MISMATCH = 33
    ERR_PROTOCOL = 34
    ERR_ABORTED = 40
    ERR_INTERNAL = 50


class Type(enum.IntEnum):
    """enum tutti_type: element types."""
    INT8 = 0
    UINT8 = 1
    INT32 = 2
    UINT32 = 3
    INT64 = 4
    UINT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BFLOAT16 = 9
    FLOAT8_E4M3 = 10
    FLOAT8_E5M2 = 11

    @property
    def size(self):
        """Bytes of one element."""
        return library.tutti_type_size(self)


class Op(enum.IntEnum):
    """enum tutti_op: reduction operators."""
    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4


class Collective(enum.IntEnum):
    """enum tutti_collective: for queries."""
    ALL_REDUCE = 0
    BROADCAST = 1
    REDUCE = 2
    REDUCE_SCATTER = 3
    ALL_GATHER = 4
    ALL_TO_ALL = 5
    GATHER = 6
    SCATTER = 7
    BARRIER = 8
    SEND_RECV = 9


NO_SIGNAL = -1


class Error(RuntimeError):
    """A call failed; `result` says with what, the text says on what and what to do. The communicator
    is as before, unless it is a CommunicatorFailed."""

    def __init__(self, result, text):
        super().__init__(text)
        self.result = result


class CommunicatorFailed(Error):
    """A link, a peer or the communicator itself failed: it can be shrunk or destroyed, no more."""


class Id(ctypes.Structure):
    """struct tutti_id."""
    _fields_ = [("text", c_char * 256)]


class Options(ctypes.Structure):
    """struct tutti_options."""
    _fields_ = [("size", c_size_t), ("timeout_s", c_double), ("init_timeout_s", c_double),
                ("transports", c_char_p), ("algorithms", c_char_p), ("lanes", c_int),
                ("plugins", c_char_p), ("reproducible", c_int)]


class Choice(ctypes.Structure):
    """struct tutti_choice."""
    _fields_ = [("algorithm", c_char * 32), ("path", c_char * 16), ("lanes", c_int),
                ("slices", c_int), ("predicted_us", c_double), ("modelled_us", c_double),
                ("measured", c_bool)]


class Memory(ctypes.Structure):
    """struct tutti_memory."""
    _fields_ = [("host", c_size_t), ("shared", c_size_t), ("shared_used", c_size_t),
                ("mapped", c_size_t), ("descriptors", c_int), ("device", c_size_t),
                ("pinned", c_size_t)]


# Handles are opaque. The types of arguments: a, address of elements; n, size_t; i, int or enum;
# c, communicator; N, array of size_t; and those that few functions have, by themselves.
_A, _N, _I, _C, _NS = c_void_p, c_size_t, c_int, c_void_p, POINTER(c_size_t)

# With an _async form: the same arguments, then the stream and where the request goes.
OPERATIONS = {
    "all_reduce": (_A, _A, _N, _I, _I, _C),
    "broadcast": (_A, _A, _N, _I, _I, _C),
    "reduce": (_A, _A, _N, _I, _I, _I, _C),
    "reduce_scatter": (_A, _A, _N, _I, _I, _C),
    "all_gather": (_A, _A, _N, _I, _C),
    "all_to_all": (_A, _A, _N, _I, _C),
    "gather": (_A, _A, _N, _I, _I, _C),
    "scatter": (_A, _A, _N, _I, _I, _C),
    "send": (_A, _N, _I, _I, _C),
    "recv": (_A, _N, _I, _I, _C),
    "barrier": (_C,),
    "all_gather_v": (_A, _A, _NS, _NS, _I, _C),
    "reduce_scatter_v": (_A, _A, _NS, _NS, _I, _I, _C),
    "all_to_all_v": (_A, _NS, _NS, _A, _NS, _NS, _I, _C),
    "gather_v": (_A, _N, _A, _NS, _NS, _I, _I, _C),
    "scatter_v": (_A, _NS, _NS, _A, _N, _I, _I, _C),
    "put": (_A, _N, _I, _I, c_void_p, _N, _I),
    "signal": (_I, _I, _C),
    "wait_signal": (_I, _I, c_uint64, _C),
}

# Name: what it returns, what it takes.
FUNCTIONS = {
    "result_text": (c_char_p, (_I,)),
    "last_error": (c_char_p, ()),
    "version": (c_int, ()),
    "type_size": (c_size_t, (_I,)),
    "type_name": (c_char_p, (_I,)),
    "op_name": (c_char_p, (_I,)),
    "id_create": (_I, (c_char_p, POINTER(Id))),
    "comm_create": (_I, (POINTER(Id), c_int, c_int, POINTER(Options), POINTER(c_void_p))),
    "comm_create_from_env": (_I, (POINTER(Options), POINTER(c_void_p))),
    "comm_split": (_I, (_C, c_int, c_int, POINTER(c_void_p))),
    "comm_shrink": (_I, (_C, POINTER(c_int), c_int, POINTER(c_void_p))),
    "comm_dead": (_I, (_C, POINTER(c_int), c_int, POINTER(c_int))),
    "comm_destroy": (None, (_C,)),
    "comm_abort": (None, (_C, c_char_p)),
    "comm_error": (_I, (_C,)),
    "comm_background": (_I, (_C, c_bool)),
    "comm_dump": (_I, (_C, c_char_p)),
    "comm_rank": (c_int, (_C,)),
    "comm_size": (c_int, (_C,)),
    "comm_local_rank": (c_int, (_C,)),
    "comm_local_size": (c_int, (_C,)),
    "comm_hosts": (c_int, (_C,)),
    "comm_host": (c_int, (_C, c_int)),
    "comm_rank_name": (c_char_p, (_C, c_int)),
    "comm_transport": (c_char_p, (_C, c_int)),
    "comm_reproducible": (c_bool, (_C,)),
    "test": (_I, (c_void_p,)),
    "wait": (_I, (c_void_p,)),
    "group_start": (_I, ()),
    "group_end": (_I, ()),
    "alloc": (_I, (c_size_t, POINTER(c_void_p))),
    "free": (None, (c_void_p,)),
    "register": (_I, (c_void_p, c_size_t)),
    "deregister": (_I, (c_void_p,)),
    "premul_sum_create": (_I, (_C, _I, c_void_p, POINTER(c_int))),
    "op_destroy": (_I, (_C, _I)),
    "comm_choice": (_I, (_C, _I, c_size_t, _I, POINTER(Choice))),
    "comm_memory": (_I, (_C, POINTER(Memory))),
    "window_create": (_I, (c_void_p, c_size_t, _C, POINTER(c_void_p))),
    "window_destroy": (None, (c_void_p,)),
}
FUNCTIONS.update((name, (_I, takes)) for name, takes in OPERATIONS.items())
FUNCTIONS.update((name + "_async", (_I, takes + (c_void_p, POINTER(c_void_p))))
                 for name, takes in OPERATIONS.items())


def _candidates():
    """Where libtutti may be: what TUTTI_LIBRARY names and nothing else; else beside this package, as
    in an installed prefix or a built repository; else where the loader looks."""
    named = os.environ.get("TUTTI_LIBRARY")
    if named:
        return [named]
    here = os.path.dirname(os.path.realpath(__file__))
    beside = [os.path.normpath(os.path.join(here, *way)) for way in (
        ("..", "..", "libtutti.so.0"),                    # PREFIX/lib/tutti-python/tutti
        ("..", "..", "build", "lib", "libtutti.so.0"))]   # python/tutti of the repository
    return [path for path in beside if os.path.exists(path)] + ["libtutti.so.0"]


def _load():
    tried = []
    for path in _candidates():
        try:
            loaded = ctypes.CDLL(path)
        except OSError as error:
            tried.append(str(error))
            continue
        for name, (returns, takes) in FUNCTIONS.items():
            try:
                function = getattr(loaded, "tutti_" + name)
            except AttributeError:
                raise ImportError(f"{path} has no tutti_{name}: it is another version than this "
                                  "package; take both from one installation") from None
            function.restype, function.argtypes = returns, takes
        version = loaded.tutti_version()
        if (version // 10000, version // 100 % 100) != VERSION:
            raise ImportError(f"{path} is version {version // 10000}.{version // 100 % 100}, this "
                              f"package {VERSION[0]}.{VERSION[1]}; take both from one installation")
        return loaded
    raise ImportError("libtutti.so.0 is not found: install Tutti (./dev install), or let "
                      f"TUTTI_LIBRARY name the file ({'; '.join(tried)})")


library = _load()


def check(result):
    """Raise what a result says, unless it is OK."""
    if result == Result.OK:
        return
    text = library.tutti_last_error().decode(errors="replace")
    code = Result(result)
    name = library.tutti_result_text(code).decode()
    failed = Result.ERR_LINK <= code < Result.ERR_INTERNAL
    raise (CommunicatorFailed if failed else Error)(code, f"{name}: {text}" if text else name)
