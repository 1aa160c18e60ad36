"""The backend "tutti" of torch.distributed, for tensors in host memory: where Gloo is used.

    import torch.distributed as dist, tutti.torch
    dist.init_process_group("tutti")                       # or "cpu:tutti,cuda:nccl"

Everything above works as it does: DistributedDataParallel, FSDP, DTensor, new_group, the collectives of
objects. For tensors on GPUs Tutti is a libnccl.so.2 (docs/nccl.md).

A group of n ranks has one communicator for collectives, and for messages one for each pair and direction
that is used, made when both ends first use it: an isend never waits behind an irecv. Collectives that
are not asynchronous run in the calling thread. docs/python.md has the whole of it.
"""
import os
import queue
import threading
import time

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist

from . import binding
from .binding import Op, Result
from .communicator import Communicator, create_id
from .torch_tensors import TYPES, WIDER, dealt, flat, joined, moved, only, plain
from .torch_work import DONE, AsRequest, Channel, Pending


def _base():
    """What PyTorch lets Python be: a backend of a group for one kind of device (2.15), or before that a whole
    group, whose methods have partly other names."""
    try:
        c10d.Backend(0, 1)
        return c10d.Backend
    except TypeError:
        return dist.ProcessGroup


Base = _base()
ReduceOp = dist.ReduceOp
# By number, as these enumerations are slow to look up, and every call does.
OPS = {int(kind): op for kind, op in ((ReduceOp.SUM, Op.SUM), (ReduceOp.PRODUCT, Op.PROD), (ReduceOp.MIN, Op.MIN),
                                      (ReduceOp.MAX, Op.MAX), (ReduceOp.AVG, Op.AVG))}
BITWISE = {int(kind): combine for kind, combine in (
    (ReduceOp.BAND, torch.bitwise_and), (ReduceOp.BOR, torch.bitwise_or), (ReduceOp.BXOR, torch.bitwise_xor))}
PREMUL_SUM = int(ReduceOp.PREMUL_SUM)
# Sums of flags ask whether any is set, products whether all are.
OF_FLAGS = {Op.SUM: Op.MAX, Op.PROD: Op.MIN, Op.MIN: Op.MIN, Op.MAX: Op.MAX}


class TuttiBackend(Base):
    """What torch.distributed calls, for one group."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self.store, self._timeout = store, timeout
        self.settings = {"init_timeout": timeout.total_seconds()}
        if "TUTTI_TIMEOUT" not in os.environ:
            self.settings["timeout"] = timeout.total_seconds()
        self._channels, self._lock = {}, threading.Lock()
        self._followed, self._premultiplied = None, {}
        self._group_name = self._group_description = "tutti"
        self._closed = False
        if rank == 0:
            store.set("id", create_id())
        self._communicator = Communicator(self.fetch("id"), rank, size, **self.settings)
        _living.add(self)
        if rank == 0:
            store.delete_key("id")  # all have it: the secret in it need not stay

    def fetch(self, key, peer=None):
        """What another rank puts into the store; `peer` is looked after meanwhile. Asked for, not waited for: a
        store lets no other thread in while it waits."""
        end, pause = time.monotonic() + self.settings["init_timeout"], 1e-4
        while not self.store.check([key]):
            if self._closed:
                raise RuntimeError("tutti: the process group was destroyed")
            if peer is not None and peer in self._communicator.dead():
                self._communicator.check()
                raise RuntimeError(f"tutti: rank {peer} ({self._communicator.rank_name(peer)}) died")
            if time.monotonic() > end:
                raise RuntimeError(f"tutti: nobody has put \"{key}\" into the group's store within "
                                   f"{self.settings['init_timeout']:.0f} s")
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        return self.store.get(key).decode()

    def follow(self, work):
        """Let a thread complete the work's future."""
        with self._lock:
            if self._followed is None:
                self._followed = queue.SimpleQueue()
                threading.Thread(target=_tell, args=(self._followed,), name="tutti futures", daemon=True).start()
            self._followed.put(work)

    def _run(self, result, opts, call, finish=None):
        """A collective: call(async_op=...) begins it."""
        if not getattr(opts, "asyncOp", True):  # who called waits at once, and looks at nothing else
            call(async_op=False)
            if finish is not None:
                finish()
            return DONE
        return Pending(self, (call(async_op=True),), result, finish)

    # ---- Reductions ----

    def _operand(self, tensor, reduce_op):
        """What the library reduces in the tensor's place, with which operator, and what moves the result back
        (None: it lies there)."""
        kind = int(reduce_op.op)
        if kind in OPS and plain(tensor):
            return tensor, OPS[kind], None
        elements = flat(tensor)
        if elements.dtype in WIDER:
            wide = elements.to(WIDER[elements.dtype])
            return wide, self._operator(kind, reduce_op, wide), lambda: elements.copy_(wide)
        if elements.dtype == torch.bool:
            op = OF_FLAGS.get(OPS.get(kind))
            if op is None:
                raise TypeError(f"tutti: {reduce_op.op} of flags (torch.bool)")
            return elements.view(torch.uint8), op, None
        if elements.is_complex():
            if OPS.get(kind) not in (Op.SUM, Op.AVG) and kind != PREMUL_SUM:
                raise TypeError(f"tutti: {reduce_op.op} of complex numbers")
            elements = torch.view_as_real(elements).view(-1)
        if elements.dtype not in TYPES:
            raise TypeError(f"tutti: elements of {elements.dtype} cannot be reduced, only moved")
        return elements, self._operator(kind, reduce_op, elements), None

    def _operator(self, kind, reduce_op, elements):
        if kind in OPS:
            return OPS[kind]
        if kind != PREMUL_SUM:
            raise ValueError(f"tutti: {reduce_op.op} in a collective that is no all_reduce")
        factor = reduce_op.__getstate__()[1]
        key = float(factor), elements.dtype
        if key not in self._premultiplied:
            raw = torch.tensor([key[0]], dtype=elements.dtype).view(torch.uint8)
            self._premultiplied[key] = self._communicator.premul_sum(bytes(raw.tolist()), TYPES[elements.dtype])
        return self._premultiplied[key]

    def _bitwise(self, tensor, opts, result):
        """By everybody's elements, since the library has no such operator."""
        if tensor.is_floating_point() or tensor.is_complex():
            raise TypeError(f"tutti: {opts.reduceOp.op} of {tensor.dtype}")
        combine, mine = BITWISE[int(opts.reduceOp.op)], moved(tensor).clone()
        everyone = torch.empty(self.size() * mine.numel(), dtype=mine.dtype)

        def finish():
            of_rank = everyone.view(tensor.dtype).view(self.size(), -1)
            combined = of_rank[0]
            for other in of_rank[1:]:
                combined = combine(combined, other)
            flat(tensor).copy_(combined)
        return self._run(result, opts, lambda **how: self._communicator.all_gather(mine, everyone, **how), finish)

    def allreduce(self, tensors, opts=c10d.AllreduceOptions()):
        tensor = only(tensors)
        reduce_op = opts.reduceOp
        if int(reduce_op.op) in BITWISE:
            return self._bitwise(tensor, opts, tensors)
        elements, op, finish = self._operand(tensor, reduce_op)
        return self._run(tensors, opts,
                         lambda **how: self._communicator.all_reduce(elements, op=op, **how), finish)

    def _each(self, result, works):
        """Several collectives as one."""
        return Pending(self, [AsRequest(work) for work in works], result)

    def allreduce_coalesced(self, tensors, opts=c10d.AllreduceCoalescedOptions()):
        return self._each(tensors, [self.allreduce([tensor], opts) for tensor in tensors])

    def reduce(self, tensors, opts=c10d.ReduceOptions()):
        elements, op, finish = self._operand(only(tensors), opts.reduceOp)
        if self.rank() != opts.rootRank:
            finish = None
        return self._run(tensors, opts, lambda **how: self._communicator.reduce(
            elements, op=op, root=opts.rootRank, **how), finish)

    def reduce_scatter_single(self, output, input, opts=c10d.ReduceScatterOptions()):
        given, op, _ = self._operand(input, opts.reduceOp)
        taken, _, finish = self._operand(output, opts.reduceOp)
        return self._run([output], opts, lambda **how: self._communicator.reduce_scatter(
            given, taken, op=op, **how), finish)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter(self, outputs, inputs, opts=c10d.ReduceScatterOptions()):
        output, parts = only(outputs), only(inputs)
        given, op, _ = self._operand(torch.cat([part.reshape(-1) for part in parts]), opts.reduceOp)
        taken, _, finish = self._operand(output, opts.reduceOp)
        scale = given.numel() // max(sum(part.numel() for part in parts), 1)
        counts = [part.numel() * scale for part in parts]
        if len(counts) != self.size():
            raise ValueError(f"tutti: reduce_scatter of {len(counts)} tensors among {self.size()} ranks")
        if len(set(counts)) > 1:
            def call(**how):
                return self._communicator.reduce_scatter_v(given, taken, counts, op=op, **how)
        else:
            def call(**how):
                return self._communicator.reduce_scatter(given, taken, op=op, **how)
        return self._run(outputs, opts, call, finish)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=c10d.ReduceScatterOptions()):
        return self._each(outputs, [self.reduce_scatter_single(output, input, opts)
                                    for output, input in zip(outputs, inputs)])

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # ---- What is only moved ----

    def broadcast(self, tensors, opts=c10d.BroadcastOptions()):
        elements = moved(only(tensors))
        return self._run(tensors, opts,
                         lambda **how: self._communicator.broadcast(elements, opts.rootRank, **how))

    def all_gather_single(self, output, input, opts=None):
        given, taken = moved(input), moved(output)
        return self._run([output], opts, lambda **how: self._communicator.all_gather(given, taken, **how))

    _allgather_base = all_gather_single

    def allgather(self, outputs, inputs, opts=None):
        given, parts = moved(only(inputs)), only(outputs)
        if len(parts) != self.size():
            raise ValueError(f"tutti: all_gather into {len(parts)} tensors from {self.size()} ranks")
        counts = [moved(part).numel() for part in parts]
        whole, theirs = joined(parts)
        if len(set(counts)) > 1:
            def call(**how):
                return self._communicator.all_gather_v(given, whole, counts, **how)
        else:
            def call(**how):
                return self._communicator.all_gather(given, whole, **how)
        return self._run(outputs, opts, call, None if theirs else lambda: dealt(whole, parts))

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        return self._each(outputs, [self.all_gather_single(output, input, opts)
                                    for output, input in zip(outputs, inputs)])

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather_coalesced(self, outputs, inputs, opts=None):
        return self._each(outputs, [
            self.allgather([[of_rank[index] for of_rank in outputs]], [input], opts)
            for index, input in enumerate(inputs)])

    def gather(self, outputs, inputs, opts=c10d.GatherOptions()):
        given, root = moved(only(inputs)), opts.rootRank
        if self.rank() != root:
            return self._run(outputs, opts, lambda **how: self._communicator.gather_v(given, root=root, **how))
        parts = only(outputs)
        counts = [moved(part).numel() for part in parts]
        whole, theirs = joined(parts)
        return self._run(outputs, opts, lambda **how: self._communicator.gather_v(
            given, whole, counts, root=root, **how), None if theirs else lambda: dealt(whole, parts))

    def scatter(self, outputs, inputs, opts=c10d.ScatterOptions()):
        taken, root = moved(only(outputs)), opts.rootRank
        if self.rank() != root:
            return self._run(outputs, opts,
                             lambda **how: self._communicator.scatter_v(None, taken, root=root, **how))
        parts = only(inputs)
        counts = [moved(part).numel() for part in parts]
        whole, _ = joined(parts)
        return self._run(outputs, opts, lambda **how: self._communicator.scatter_v(
            whole, taken, counts, root=root, **how))

    def all_to_all_single(self, output, input, output_splits, input_splits, opts=None):
        given, taken = moved(input), moved(output)
        if not output_splits and not input_splits:
            return self._run([output], opts, lambda **how: self._communicator.all_to_all(given, taken, **how))
        sends, takes = (self._split(tensor, elements, splits) for tensor, elements, splits in (
            (input, given, input_splits), (output, taken, output_splits)))
        return self._run([output], opts, lambda **how: self._communicator.all_to_all_v(
            given, sends, taken, takes, **how))

    alltoall_base = all_to_all_single

    def _split(self, tensor, elements, splits):
        """Elements for each rank, of splits in rows."""
        rows = tensor.shape[0] if tensor.dim() else 0
        if not splits:
            if rows % self.size():
                raise ValueError(f"tutti: {rows} rows cannot be split evenly among {self.size()} ranks")
            splits = [rows // self.size()] * self.size()
        if len(splits) != self.size() or sum(splits) != rows:
            raise ValueError(f"tutti: splits {splits} are not {rows} rows for {self.size()} ranks")
        return [split * (elements.numel() // rows if rows else 0) for split in splits]

    def alltoall(self, outputs, inputs, opts=None):
        if len(outputs) != self.size() or len(inputs) != self.size():
            raise ValueError(f"tutti: all_to_all of {len(inputs)} tensors into {len(outputs)} among "
                             f"{self.size()} ranks")
        given, _ = joined(inputs)
        taken, theirs = joined(outputs)
        sends, takes = ([moved(tensor).numel() for tensor in tensors] for tensors in (inputs, outputs))
        return self._run(outputs, opts, lambda **how: self._communicator.all_to_all_v(
            given, sends, taken, takes, **how), None if theirs else lambda: dealt(taken, outputs))

    def barrier(self, opts=None):
        return self._run([], opts, self._communicator.barrier)

    # ---- Messages ----

    def _channel(self, source, target):
        if source == target:
            raise ValueError(f"tutti: rank {source} sends to itself")
        if not 0 <= source < self.size() or not 0 <= target < self.size():
            raise ValueError(f"tutti: a message from rank {source} to {target} of {self.size()}")
        with self._lock:
            if (source, target) not in self._channels:
                self._channels[source, target] = Channel(self, source, target)
            return self._channels[source, target]

    def send(self, tensors, target, tag):
        """Tags do not tell messages apart: those of a pair arrive in the order of the calls."""
        request = self._channel(self.rank(), target).call(moved(only(tensors)))
        return Pending(self, (request,), tensors)

    def recv(self, tensors, source, tag):
        request = self._channel(source, self.rank()).call(moved(only(tensors)))
        return Pending(self, (request,), tensors)

    def recv_anysource(self, tensors, tag):
        raise NotImplementedError("tutti: a receive from any rank; name the source")

    # ---- Its own end ----

    def name(self):
        return "tutti"

    _get_backend_name = getBackendName = name

    @property
    def options(self):
        """What a split off group begins from."""
        return Base.Options("tutti", self._timeout)

    def split(self, store, ranks, options):
        """A group of some of this one's ranks, in that order; None for the others."""
        if self.rank() not in ranks:
            return None
        return TuttiBackend(dist.PrefixStore(f"{options.group_name}/", store), ranks.index(self.rank()), len(ranks),
                            options._timeout)

    supports_splitting = property(lambda self: True)
    supports_coalescing = supports_shrinking = supports_reconfigure = supports_window = _supports_time_estimate = \
        property(lambda self: False)

    # What a group remembers of itself where it is written in Python.

    def setGroupName(self, name):
        self._group_name = name

    def getGroupName(self):
        return self._group_name

    def setGroupDesc(self, description):
        self._group_description = description

    def getGroupDesc(self):
        return self._group_description

    def _set_sequence_number_for_group(self):
        pass  # calls are compared by the library

    def _get_sequence_number_for_group(self):
        return 0

    def get_error(self):
        """PyTorch's word for how the communicator is."""
        try:
            self._communicator.check()
        except binding.Error as error:
            return c10d.ErrorType.TIMEOUT if error.result == Result.ERR_TIMEOUT else c10d.ErrorType.COMM_ERROR
        return c10d.ErrorType.SUCCESS

    def abort(self):
        """Fail what is under way, here and on the other ranks."""
        self._end("the process group was aborted")

    def shutdown(self):
        """Wait for what is under way, and release everything."""
        self._end(None)

    def _end(self, reason):
        with self._lock:
            if self._closed:
                return
            self._closed = True
            channels, self._channels = list(self._channels.values()), {}
            if self._followed is not None:
                self._followed.put(None)
        if reason is not None:
            self._communicator.abort(reason)
        for channel in channels:
            channel.close(reason)
        self._communicator.destroy()
        _living.discard(self)


def _tell(followed):
    while (work := followed.get()) is not None:
        work.tell()


def _create(options, _backend_options):
    return TuttiBackend(options.store, options.group_rank, options.group_size, options.timeout)


# Until they end. PyTorch holds the part in C++, behind which there must be one in Python: with
# TORCH_DISTRIBUTED_DEBUG=DETAIL it forgets that.
_living = set()


if "TUTTI" not in dist.Backend._plugins:
    dist.Backend.register_backend("tutti", _create, extended_api=True, devices=["cpu"])
