"""A communicator: ranks, operations, windows.

The operations are those of include/tutti/tutti.h, under the same names and with the same meaning; n is
the number of ranks. Arrays are what buffers.py takes; an output is written in place, nothing is
copied. Two keywords that all operations have:

  async_op=True   return a Request at once; the arrays are the library's until it has been waited for
  stream=STREAM   of device memory: queue the operation there and return (a cudaStream_t as a number, or
                  what has it as .cuda_stream or .ptr); without one the device's default stream

While an operation waits, other threads of Python run. Ctrl-C is seen when the operation is over.
"""
import ctypes
import struct
from operator import index

from . import binding
from .binding import NO_SIGNAL, Op, Type, check, library
from .buffers import view
from .request import MANY, Request, keep


def create_id(address=None):
    """An id for Communicator: text with a secret of the job, to be passed to all ranks. This host can
    be reached at `address` (None: the best guess); this process must live until all have come."""
    made = binding.Id()
    check(library.tutti_id_create(_text(address), made))
    return made.text.decode()


def _text(value):
    return None if value is None else str(value).encode()


def _options(timeout=0, init_timeout=0, transports=None, algorithms=None, lanes=0, plugins=None,
             reproducible=False):
    return binding.Options(ctypes.sizeof(binding.Options), timeout, init_timeout, _text(transports),
                           _text(algorithms), lanes, _text(plugins), int(reproducible))


def _stream(stream):
    if stream is None or isinstance(stream, int):
        return stream
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return getattr(stream, name)
    raise TypeError(f"stream: a {type(stream).__name__} is no stream; pass a cudaStream_t as a number")


def _sizes(what, values, ranks):
    """An array of size_t with an entry a rank, or None."""
    if values is None:
        return None
    values = [index(value) for value in values]
    if len(values) != ranks:
        raise ValueError(f"{what}: {len(values)} entries for {ranks} ranks")
    if any(value < 0 for value in values):
        raise ValueError(f"{what}: an entry is negative: {values}")
    return (ctypes.c_size_t * ranks)(*values)


class Communicator:
    """The ranks that work together, of which this process (or thread) is one.

    Communicator(id, rank, size) makes one of ranks that have the same id; from_env() by what tuttirun,
    mpirun, srun or torchrun say; both wait for all to arrive. Settings, by keyword: timeout and
    init_timeout (seconds), transports, algorithms, lanes, plugins, reproducible, as struct
    tutti_options has them. As a context manager it is destroyed at the end."""

    def __init__(self, id, rank, size, **settings):
        made = binding.Id()
        raw = id.encode()
        if len(raw) >= ctypes.sizeof(made):
            raise ValueError(f"id: {len(raw)} bytes are no id of create_id")
        made.text = raw
        handle = ctypes.c_void_p()
        check(library.tutti_comm_create(made, rank, size, _options(**settings), handle))
        self._take(handle)

    @classmethod
    def from_env(cls, **settings):
        """As the launcher says; of one rank without any."""
        handle = ctypes.c_void_p()
        check(library.tutti_comm_create_from_env(_options(**settings), handle))
        return cls._of(handle)

    @classmethod
    def _of(cls, handle):
        self = cls.__new__(cls)
        self._take(handle)
        return self

    def _take(self, handle):
        self._handle = handle
        self._requests, self._many = set(), MANY
        self._windows = set()  # open ones, whose memory others may write to
        self.rank = library.tutti_comm_rank(handle)
        self.size = library.tutti_comm_size(handle)

    def _live(self):
        if self._handle is None:
            raise ValueError("the communicator was destroyed")
        return self._handle

    def _look_after(self, request):
        """Nobody may wait for it: the arrays must stay until it is over, and not much longer."""
        if len(self._requests) >= self._many:
            for other in list(self._requests):
                if other.test():
                    other.end()
            self._many = max(MANY, 2 * len(self._requests))
        self._requests.add(request)

    def destroy(self):
        """Wait for operations under way, and release everything; not collective. A second time:
        nothing."""
        if getattr(self, "_handle", None) is None:
            return
        for request in list(self._requests):
            request.end()
        for window in list(self._windows):
            window.close()
        handle, self._handle = self._handle, None
        library.tutti_comm_destroy(handle)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        # Others may wait for what this rank will not call any more: they are told.
        if kind is not None and self._handle is not None:
            self.abort(f"{kind.__name__} on rank {self.rank}")
        self.destroy()

    def __del__(self):
        self.destroy()

    def __repr__(self):
        return f"<tutti.Communicator rank {self.rank} of {self.size}" + \
            ("" if self._handle is not None else ", destroyed") + ">"

    # ---- Other communicators, failures ----

    def split(self, color, key=0):
        """One communicator for each colour, ranked by key; None for a negative colour. Collective."""
        handle = ctypes.c_void_p()
        check(library.tutti_comm_split(self._live(), color, key, handle))
        return self._of(handle) if handle else None

    def shrink(self, excluded):
        """A communicator of all ranks but these, also after a failure: what survivors go on with."""
        ranks = (ctypes.c_int * len(excluded))(*excluded)
        handle = ctypes.c_void_p()
        check(library.tutti_comm_shrink(self._live(), ranks, len(excluded), handle))
        return self._of(handle)

    def dead(self):
        """The ranks that are known to have died."""
        ranks, count = (ctypes.c_int * self.size)(), ctypes.c_int()
        check(library.tutti_comm_dead(self._live(), ranks, self.size, count))
        return list(ranks[:count.value])

    def abort(self, reason=None):
        """Fail all operations, here and on all ranks, with `reason`. From any thread."""
        library.tutti_comm_abort(self._live(), _text(reason))

    def check(self):
        """Raise what the communicator failed with, if it did. Never blocks."""
        check(library.tutti_comm_error(self._live()))

    # ---- Operations ----

    def _run(self, name, views, *arguments, async_op=False, stream=None):
        keep(views)
        if not async_op and stream is None:
            check(getattr(library, "tutti_" + name)(*arguments))
            return None
        handle = ctypes.c_void_p() if async_op else None
        check(getattr(library, f"tutti_{name}_async")(*arguments, _stream(stream), handle))
        return Request(self, handle, views) if async_op else None

    @staticmethod
    def _same_type(given, taken):
        if given.type != taken.type:
            raise TypeError(f"input has elements of {given.type.name.lower()}, output of "
                            f"{taken.type.name.lower()}")

    def _alike(self, given, taken, factor, what):
        """The output has `factor` elements for each of the input (or 1/-factor of one)."""
        self._same_type(given, taken)
        many, few = (taken.count, given.count) if factor > 0 else (given.count, taken.count)
        if many != few * abs(factor):
            raise ValueError(f"{what}: {given.count} elements of input do not go with {taken.count} "
                             "of output")

    def all_reduce(self, input, output=None, op=Op.SUM, **how):
        """output = the ranks' inputs, combined. Without output: in place."""
        given = view("input", input, output is None)
        taken = given if output is None else view("output", output, True)
        self._alike(given, taken, 1, "all_reduce")
        given.reduced_by("all_reduce", op)
        return self._run("all_reduce", (given, taken), given.address, taken.address, given.count,
                         given.type, op, self._live(), **how)

    def broadcast(self, array, root=0, **how):
        """array = the root's."""
        whole = view("array", array, self.rank != root)
        return self._run("broadcast", (whole,), whole.address, whole.address, whole.count,
                         whole.type, index(root), self._live(), **how)

    def reduce(self, input, output=None, op=Op.SUM, root=0, **how):
        """output = the ranks' inputs, combined, at the root; without output there: in place."""
        given = view("input", input, output is None and self.rank == root)
        taken = given
        if output is not None and self.rank == root:
            taken = view("output", output, True)
            self._alike(given, taken, 1, "reduce")
        given.reduced_by("reduce", op)
        return self._run("reduce", (given, taken), given.address, taken.address, given.count,
                         given.type, op, index(root), self._live(), **how)

    def reduce_scatter(self, input, output, op=Op.SUM, **how):
        """Of n blocks of input, combined over the ranks, this rank's to output."""
        given, taken = view("input", input), view("output", output, True)
        self._alike(given, taken, -self.size, f"reduce_scatter of {self.size} ranks")
        given.reduced_by("reduce_scatter", op)
        return self._run("reduce_scatter", (given, taken), given.address, taken.address,
                         taken.count, taken.type, op, self._live(), **how)

    def all_gather(self, input, output, **how):
        """output = the n ranks' inputs, one after the other."""
        given, taken = view("input", input), view("output", output, True)
        self._alike(given, taken, self.size, f"all_gather of {self.size} ranks")
        return self._run("all_gather", (given, taken), given.address, taken.address, given.count,
                         given.type, self._live(), **how)

    def all_to_all(self, input, output, **how):
        """Of n blocks of input the k-th goes to rank k; the k-th of output comes from there."""
        given, taken = view("input", input), view("output", output, True)
        self._alike(given, taken, 1, "all_to_all")
        if given.count % self.size:
            raise ValueError(f"all_to_all: {given.count} elements are no {self.size} blocks; "
                             "all_to_all_v takes counts")
        return self._run("all_to_all", (given, taken), given.address, taken.address,
                         given.count // self.size, given.type, self._live(), **how)

    def gather(self, input, output=None, root=0, **how):
        """output = the n ranks' inputs, one after the other, at the root."""
        given, taken = view("input", input), None
        if self.rank == root:
            taken = view("output", output, True)
            self._alike(given, taken, self.size, f"gather of {self.size} ranks")
        return self._run("gather", (given, taken), given.address, taken and taken.address,
                         given.count, given.type, index(root), self._live(), **how)

    def scatter(self, input, output, root=0, **how):
        """Of the root's n blocks of input (elsewhere None) this rank's to output."""
        given, taken = None, view("output", output, True)
        if self.rank == root:
            given = view("input", input)
            self._alike(given, taken, -self.size, f"scatter of {self.size} ranks")
        return self._run("scatter", (given, taken), given and given.address, taken.address,
                         taken.count, taken.type, index(root), self._live(), **how)

    def send(self, array, peer, **how):
        """To a receive of as many elements of the same type there. Who sends and receives does both in
        a group()."""
        given = view("array", array)
        return self._run("send", (given,), given.address, given.count, given.type, index(peer),
                         self._live(), **how)

    def recv(self, array, peer, **how):
        """What that rank sends."""
        taken = view("array", array, True)
        return self._run("recv", (taken,), taken.address, taken.count, taken.type, index(peer),
                         self._live(), **how)

    def barrier(self, **how):
        """Returns when every rank has called it."""
        return self._run("barrier", (), self._live(), **how)

    # ---- Blocks that differ in size: counts[k] elements from displs[k] on (None: in a row) ----

    def all_gather_v(self, input, output, counts, displs=None, **how):
        """output's block k = rank k's input."""
        given, taken = view("input", input), view("output", output, True)
        self._same_type(given, taken)
        self._blocks("output", taken, counts, displs)
        self._whole("input", given, counts[self.rank])
        return self._run("all_gather_v", (given, taken), given.address, taken.address,
                         _sizes("counts", counts, self.size), _sizes("displs", displs, self.size),
                         taken.type, self._live(), **how)

    def reduce_scatter_v(self, input, output, counts, displs=None, op=Op.SUM, **how):
        """Of the blocks of input, combined over the ranks, this rank's to output."""
        given, taken = view("input", input), view("output", output, True)
        self._same_type(given, taken)
        self._blocks("input", given, counts, displs)
        self._whole("output", taken, counts[self.rank])
        given.reduced_by("reduce_scatter_v", op)
        return self._run("reduce_scatter_v", (given, taken), given.address, taken.address,
                         _sizes("counts", counts, self.size), _sizes("displs", displs, self.size),
                         given.type, op, self._live(), **how)

    def all_to_all_v(self, input, in_counts, output, out_counts, in_displs=None, out_displs=None,
                     **how):
        """Block k of input to rank k, block k of output from there."""
        given, taken = view("input", input), view("output", output, True)
        self._blocks("input", given, in_counts, in_displs)
        self._blocks("output", taken, out_counts, out_displs)
        self._same_type(given, taken)
        return self._run("all_to_all_v", (given, taken), given.address,
                         _sizes("in_counts", in_counts, self.size),
                         _sizes("in_displs", in_displs, self.size), taken.address,
                         _sizes("out_counts", out_counts, self.size),
                         _sizes("out_displs", out_displs, self.size), given.type, self._live(),
                         **how)

    def gather_v(self, input, output=None, counts=None, displs=None, root=0, **how):
        """At the root output's block k = rank k's input."""
        given, taken = view("input", input), None
        if self.rank == root:
            taken = view("output", output, True)
            self._same_type(given, taken)
            self._blocks("output", taken, counts, displs)
            self._whole("input", given, counts[self.rank])
        return self._run("gather_v", (given, taken), given.address, given.count,
                         taken and taken.address, _sizes("counts", counts, self.size),
                         _sizes("displs", displs, self.size), given.type, index(root), self._live(), **how)

    def scatter_v(self, input, output, counts=None, displs=None, root=0, **how):
        """Of the blocks of the root's input this rank's to output."""
        given, taken = None, view("output", output, True)
        if self.rank == root:
            given = view("input", input)
            self._same_type(given, taken)
            self._blocks("input", given, counts, displs)
            self._whole("output", taken, counts[self.rank])
        return self._run("scatter_v", (given, taken), given and given.address,
                         _sizes("counts", counts, self.size), _sizes("displs", displs, self.size),
                         taken.address, taken.count, taken.type, index(root), self._live(), **how)

    def _blocks(self, what, whole, counts, displs):
        """All blocks lie within the array."""
        if counts is None:
            raise ValueError(f"{what}: counts is missing")
        if len(counts) != self.size or (displs is not None and len(displs) != self.size):
            raise ValueError(f"{what}: counts and displs have an entry for each of {self.size} ranks")
        ends = [sum(counts)] if displs is None else [
            displ + count for displ, count in zip(displs, counts) if count]
        if max(ends, default=0) > whole.count:
            raise ValueError(f"{what}: its blocks end at element {max(ends)}, it has {whole.count}")

    @staticmethod
    def _whole(what, part, count):
        if part.count != count:
            raise ValueError(f"{what}: {part.count} elements, counts says {count}")

    # ---- Windows ----

    def window(self, array):
        """Let all ranks put into `array`, which stays where it is; None: nothing. Collective."""
        return Window(self, array)

    def signal(self, peer, signal=0, **how):
        """Tell a rank that what was put there before is in place."""
        return self._run("signal", (), index(peer), index(signal), self._live(), **how)

    def wait_signal(self, peer, signal=0, count=1, **how):
        """Wait for so many signals of a rank."""
        return self._run("wait_signal", (), index(peer), index(signal), index(count), self._live(), **how)

    # ---- Expert ----

    def premul_sum(self, scalar, type):
        """An operator that sums each rank's elements times its own scalar; the communicator's."""
        type, op = Type(type), ctypes.c_int()
        raw = ctypes.create_string_buffer(_scalar(scalar, type), type.size)
        check(library.tutti_premul_sum_create(self._live(), type, raw, op))
        return op.value

    def premul_sum_destroy(self, op):
        """Give an operator of premul_sum back."""
        check(library.tutti_op_destroy(self._live(), op))

    def background(self, yes=True):
        """Say that operations run beside computation on the same cores."""
        check(library.tutti_comm_background(self._live(), yes))

    def dump(self, path):
        """Write what this rank did last, for tutti-dump."""
        check(library.tutti_comm_dump(self._live(), _text(path)))

    @property
    def local_rank(self):
        """0 .. local_size-1, on this host."""
        return library.tutti_comm_local_rank(self._live())

    @property
    def local_size(self):
        """Ranks on this host."""
        return library.tutti_comm_local_size(self._live())

    @property
    def hosts(self):
        """Number of hosts."""
        return library.tutti_comm_hosts(self._live())

    @property
    def reproducible(self):
        """Is the reproducible mode on?"""
        return library.tutti_comm_reproducible(self._live())

    def host(self, rank):
        """On which host a rank is: 0 .. hosts-1."""
        return library.tutti_comm_host(self._live(), rank)

    def rank_name(self, rank):
        """"host:pid", as errors name a rank."""
        return library.tutti_comm_rank_name(self._live(), rank).decode()

    def transport(self, peer):
        """The transport towards a rank: "shm", "tcp", ..."""
        return library.tutti_comm_transport(self._live(), peer).decode()

    def choice(self, collective, count, type):
        """What would be run: algorithm, path, lanes, slices, predicted_us, modelled_us, measured."""
        made = binding.Choice()
        check(library.tutti_comm_choice(self._live(), collective, count, type, made))
        return {name: value.decode() if isinstance(value, bytes) else value
                for name, value in ((name, getattr(made, name)) for name, _ in made._fields_)}

    def memory(self):
        """What the communicator holds on this rank: bytes of host, shared, shared_used, mapped, device
        and pinned memory, and descriptors."""
        held = binding.Memory()
        check(library.tutti_comm_memory(self._live(), held))
        return {name: getattr(held, name) for name, _ in held._fields_}


class Window:
    """Memory that other ranks put into without a call here. Let the others know (by signals or a
    barrier) before close(); it ends with its communicator at the latest."""

    def __init__(self, communicator, array):
        self._communicator = communicator
        self._view = view("array", bytearray() if array is None else array, True, Type.UINT8)
        self._handle = ctypes.c_void_p()
        check(library.tutti_window_create(self._view.address, self._view.count,
                                          communicator._live(), self._handle))
        communicator._windows.add(self)

    def put(self, array, peer, offset=0, signal=NO_SIGNAL, **how):
        """Copy `array` to `offset` bytes from the window's beginning at a rank, then signal it (a
        number, or NO_SIGNAL)."""
        if self._handle is None:
            raise ValueError("the window was closed")
        given = view("array", array)
        return self._communicator._run("put", (given, self), given.address, given.count, given.type,
                                       index(peer), self._handle, index(offset), index(signal), **how)

    def close(self):
        """Release it; local."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            library.tutti_window_destroy(handle)
            self._communicator._windows.discard(self)
            self._view = None


def _scalar(value, type):
    """The bytes of one element. bytes are taken as they are."""
    if isinstance(value, bytes):
        if len(value) != type.size:
            raise ValueError(f"a {type.name.lower()} has {type.size} bytes, not {len(value)}")
        return value
    codes = {Type.INT8: "b", Type.UINT8: "B", Type.INT32: "i", Type.UINT32: "I", Type.INT64: "q",
             Type.UINT64: "Q", Type.FLOAT16: "e", Type.FLOAT32: "f", Type.FLOAT64: "d"}
    if type == Type.BFLOAT16:  # round the float32 to nearest, ties to even
        bits = struct.unpack("=I", struct.pack("=f", value))[0]
        return struct.pack("=H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF)
    if type not in codes:
        raise TypeError(f"pass a scalar of {type.name.lower()} as its bytes")
    return struct.pack("=" + codes[type], value)
