"""PyTorch's kernels for CUDA, done by the CPU: for the fake CUDA runtime (tests/device/fake_cudart.c), which
has PyTorch's devices, streams, events and memory, but runs no kernels. The simulated device's memory is the
host's, so a tensor of it is looked at as one of the CPU's; before each operation the host waits for what the
current stream has so far; random numbers are those of the CPU's generator. Nothing else of PyTorch changes:
its collectives, reducers and watchdogs run as they are.

    python3 tests/nccl/torch_on_host.py PROGRAM.py [ARGUMENT...]"""

import ctypes
import os
import runpy
import sys
import warnings

import torch

# What only makes memory, looks at a tensor's shape, or moves memory by the runtime; views stay as well.
KEPT = ("empty", "empty_strided", "set_", "resize_", "record_stream", "_pin_memory", "is_pinned",
        "_local_scalar_dense", "is_set_to")
library = torch.library.Library("aten", "IMPL")


def on_host(tensor):
    """The same memory as a tensor of the CPU."""
    storage = tensor.untyped_storage()
    if storage.nbytes() == 0:
        return torch.empty(tensor.size(), dtype=tensor.dtype)
    memory = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), torch.device("cpu"), storage.nbytes())
    return torch.empty(0, dtype=tensor.dtype).set_(memory, tensor.storage_offset(), tensor.size(), tensor.stride())


def operation(overload):
    returned = []  # for each result the argument that it is, or None
    for result in overload._schema.returns:
        sets = result.alias_info.before_set if result.alias_info else set()
        returned.append(next((a for a, argument in enumerate(overload._schema.arguments)
                              if sets and argument.alias_info and argument.alias_info.before_set & sets), None))
    names = [argument.name for argument in overload._schema.arguments]

    def run(*args, **kwargs):
        devices, pairs = [], []

        def give(value):
            if isinstance(value, torch.Tensor) and value.is_cuda:
                if value.device not in devices:
                    devices.append(value.device)
                    torch.cuda.current_stream(value.device).synchronize()
                pairs.append((value, on_host(value)))
                return pairs[-1][1]
            if isinstance(value, (list, tuple)):
                return type(value)(give(v) for v in value)
            if isinstance(value, torch.Generator):
                return None
            if isinstance(value, torch.device):
                devices.append(value)
                return torch.device("cpu")
            return value

        def take(value):
            if isinstance(value, torch.Tensor):
                made = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=devices[0])
                on_host(made).copy_(value)
                return made
            if isinstance(value, (list, tuple)):
                return type(value)(take(v) for v in value)
            return value

        found = overload(*[give(a) for a in args], **{k: give(v) for k, v in kwargs.items()})
        for original, alias in pairs:
            if alias.size() != original.size():  # an output that had to grow
                original.resize_(alias.size())
                on_host(original).copy_(alias)
        if not returned:
            return None
        several = len(returned) > 1
        given = dict(zip(names, args), **kwargs)
        results = [take(f) if a is None else given[names[a]] for f, a in zip(found if several else [found], returned)]
        return tuple(results) if several else results[0]

    return run


copy_on_host = operation(torch.ops.aten.copy_.default)
runtime = ctypes.CDLL(None)  # the fake one is preloaded


def copy(to, source, non_blocking=False):
    """As PyTorch does: what lies in one piece goes by the runtime, in the order of the stream."""
    plain = to.dtype == source.dtype and to.size() == source.size() and to.is_contiguous() and source.is_contiguous()
    same_device = to.device == source.device
    if not plain or source.is_conj() or source.is_neg() or (to.is_cuda and source.is_cuda and not same_device):
        return copy_on_host(to, source, non_blocking)
    stream = torch.cuda.current_stream(to.device if to.is_cuda else source.device)
    failed = runtime.cudaMemcpyAsync(ctypes.c_void_p(to.data_ptr()), ctypes.c_void_p(source.data_ptr()),
                                     ctypes.c_size_t(to.numel() * to.element_size()), 4,  # cudaMemcpyDefault
                                     ctypes.c_void_p(stream.cuda_stream))
    if failed:
        raise RuntimeError(f"cudaMemcpyAsync: {failed}")
    if not same_device and not non_blocking:
        stream.synchronize()
    return to


def take_over():
    warnings.filterwarnings("ignore", message="(?s).*Overriding a previously registered kernel")
    for name in torch._C._dispatch_get_registrations_for_dispatch_key("CUDA"):
        space, _, full = name.partition("::")
        base, _, variant = full.partition(".")
        if space != "aten" or base in KEPT:
            continue
        overload = getattr(getattr(torch.ops.aten, base), variant or "default")
        views = any(r.alias_info and not r.alias_info.is_write for r in overload._schema.returns)
        if not views:
            library.impl(full, operation(overload), "CUDA")
    library.impl("copy_", copy, "CUDA")
    for kernel in ("flash", "mem_efficient", "cudnn"):  # attention that only GPUs have
        getattr(torch.backends.cuda, f"enable_{kernel}_sdp")(False)


take_over()
if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))  # as for the program alone
    runpy.run_path(sys.argv[0], run_name="__main__")
