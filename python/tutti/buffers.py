"""What a program hands over, as an address, a count and a type: arrays, tensors, bytes.

Taken as they lie, never copied: whatever has the buffer protocol (bytes, bytearray, memoryview,
array.array, mmap, ctypes), NumPy's __array_interface__, __cuda_array_interface__ (CuPy, Numba), and
PyTorch's tensors. None of these packages is imported here.
"""
import ctypes

from .binding import Op, Type, check, library

# By the names that NumPy, ml_dtypes and PyTorch have.
NAMED = {
    "int8": Type.INT8, "uint8": Type.UINT8, "bool": Type.UINT8, "int32": Type.INT32,
    "uint32": Type.UINT32, "int64": Type.INT64, "uint64": Type.UINT64, "float16": Type.FLOAT16,
    "float32": Type.FLOAT32, "float64": Type.FLOAT64, "bfloat16": Type.BFLOAT16,
    "float8_e4m3fn": Type.FLOAT8_E4M3, "float8_e5m2": Type.FLOAT8_E5M2,
}
# By the kind and bytes of an array interface's typestr, and of a buffer's format.
KINDS = {("i", 1): Type.INT8, ("u", 1): Type.UINT8, ("b", 1): Type.UINT8, ("i", 4): Type.INT32,
         ("u", 4): Type.UINT32, ("i", 8): Type.INT64, ("u", 8): Type.UINT64,
         ("f", 2): Type.FLOAT16, ("f", 4): Type.FLOAT32, ("f", 8): Type.FLOAT64}
FORMATS = {"b": "i", "B": "u", "c": "u", "?": "b", "i": "i", "I": "u", "l": "i", "L": "u",
           "q": "i", "Q": "u", "n": "i", "N": "u", "e": "f", "f": "f", "d": "f"}


class View:
    """Elements in memory. Holds what they belong to, so that they stay while it lives."""
    __slots__ = ("address", "count", "type", "owner", "flags")

    def __init__(self, address, count, type_, owner, flags=False):
        self.address, self.count, self.type, self.owner, self.flags = address, count, type_, owner, flags

    def reduced_by(self, what, op):
        """Flags are bytes that are 0 or 1, and must stay so."""
        if self.flags and op not in (Op.MAX, Op.MIN):
            raise TypeError(f"{what}: flags are combined by tutti.MAX (is any set?) or tutti.MIN (are all?)")


class _PyBuffer(ctypes.Structure):
    """Py_buffer of Python's C interface (stable since 3.11, the same before)."""
    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p),
                ("internal", ctypes.c_void_p)]


_GET = ctypes.pythonapi.PyObject_GetBuffer
_GET.argtypes, _GET.restype = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int], ctypes.c_int
_RELEASE = ctypes.pythonapi.PyBuffer_Release
_RELEASE.argtypes, _RELEASE.restype = [ctypes.POINTER(_PyBuffer)], None
_WRITABLE, _FORMAT, _CONTIGUOUS = 0x0001, 0x0004, 0x0008 | 0x0010 | 0x0020


class _Exported:
    """A buffer that its owner keeps in place until this is gone."""

    def __init__(self, owner, writable):
        self.buffer = _PyBuffer()
        self.held = False
        _GET(owner, self.buffer, _CONTIGUOUS | _FORMAT | (_WRITABLE if writable else 0))
        self.held = True

    def __del__(self):
        if self.held:
            _RELEASE(self.buffer)


def _named(what, name):
    if name not in NAMED:
        raise TypeError(f"{what}: no operation has elements of type {name}; it can be moved as bytes "
                        "(memoryview(it).cast('B'), numpy's view('u1')), not reduced")
    return NAMED[name]


def _counted(what, nbytes, type_):
    size = type_.size
    if nbytes % size:
        raise ValueError(f"{what}: {nbytes} bytes are no whole number of {type_.name.lower()}")
    return nbytes // size


_OF_TENSORS = {}  # torch.dtype: Type and whether these are flags, of those that have been here


def _of_tensor(what, tensor, type_):
    if not tensor.is_contiguous():
        raise ValueError(f"{what}: the tensor is not contiguous; pass tensor.contiguous()")
    if type_ is not None:
        return View(tensor.data_ptr(), _counted(what, tensor.numel() * tensor.element_size(), type_), type_, tensor)
    dtype = tensor.dtype
    known = _OF_TENSORS.get(dtype)
    if known is None:
        name = str(dtype).rpartition(".")[2]
        known = _OF_TENSORS[dtype] = _named(what, name), name == "bool"
    return View(tensor.data_ptr(), tensor.numel(), known[0], tensor, known[1])


def _of_array(what, array, interface, writable, type_):
    address, readonly = interface["data"]
    if writable and readonly:
        raise ValueError(f"{what}: the array is read-only")
    kind, size = interface["typestr"][1:2], int(interface["typestr"][2:])
    shape, strides = interface["shape"], interface.get("strides")
    nbytes = size
    for length, stride in zip(reversed(shape), reversed(strides or (None,) * len(shape))):
        if stride is not None and stride != nbytes and length > 1 and 0 not in shape:
            raise ValueError(f"{what}: the array is not contiguous; pass numpy.ascontiguousarray(it)")
        nbytes *= length
    if interface["typestr"][0] == ">" and size > 1 and type_ is None:
        raise TypeError(f"{what}: the array's bytes are in the other order ({interface['typestr']})")
    flags = type_ is None and kind == "b"
    if type_ is None:
        type_ = KINDS.get((kind, size)) or _named(what, str(getattr(array, "dtype", kind)))
    return View(address or 0, _counted(what, nbytes, type_), type_, array, flags)


def _of_buffer(what, owner, writable, type_):
    try:
        held = _Exported(owner, writable)
    except BufferError as error:
        raise ValueError(f"{what}: {error}") from None
    except TypeError:
        raise TypeError(f"{what}: a {type(owner).__name__} is no memory; pass an array, a tensor, or "
                        "what has the buffer protocol") from None
    raw, flags = held.buffer, False
    if type_ is None:
        code = (raw.format or b"B").decode()
        kind = FORMATS.get(code.lstrip("@=<"))
        type_, flags = KINDS.get((kind, raw.itemsize)), kind == "b"
        if type_ is None:
            raise TypeError(f"{what}: no operation has elements of format \"{code}\"; it can be moved "
                            "as bytes (memoryview(it).cast('B')), not reduced")
    return View(raw.buf or 0, _counted(what, raw.len, type_), type_, held, flags)


def view(what, owner, writable=False, type_=None):
    """Elements of `owner`, named `what` in errors. type_: take its bytes as elements of this type."""
    if type_ is not None:
        type_ = Type(type_)
    if isinstance(owner, View):
        return owner
    if hasattr(owner, "data_ptr") and hasattr(owner, "element_size"):
        return _of_tensor(what, owner, type_)
    interface = getattr(owner, "__cuda_array_interface__", None) or \
        getattr(owner, "__array_interface__", None)
    if interface is not None:
        return _of_array(what, owner, interface, writable, type_)
    return _of_buffer(what, owner, writable, type_)


class _Allocation:
    """Memory of tutti_alloc, freed when the last that looks at it is gone."""

    def __init__(self, nbytes):
        self.address = ctypes.c_void_p()
        check(library.tutti_alloc(nbytes, self.address))

    def __del__(self):
        if self.address:
            library.tutti_free(self.address)


def alloc(nbytes):
    """Memory that peers on this host read and write directly, the fastest for collectives: zeroed, a
    memoryview of bytes. memoryview.cast gives it a type ("f"), and so does numpy.frombuffer(it,
    dtype) or torch.frombuffer(it, dtype=dtype). Freed when nothing refers to it any more."""
    if nbytes < 0:
        raise ValueError(f"alloc: {nbytes} bytes")
    if nbytes == 0:
        return memoryview(bytearray())
    held = _Allocation(nbytes)
    array = (ctypes.c_char * nbytes).from_address(held.address.value)
    array.held = held
    return memoryview(array).cast("B")


class Registered:
    """Memory of the program's own made as fast as alloc's, until close() or the end of a `with`. Whole
    pages are; no other thread may touch them while this begins and ends."""

    def __init__(self, owner):
        self._view = view("memory", owner, True, Type.UINT8)
        check(library.tutti_register(self._view.address, self._view.count))

    def close(self):
        """Give it back; before it is freed."""
        if self._view is not None:
            held, self._view = self._view, None
            check(library.tutti_deregister(held.address))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_view", None) is not None:
            library.tutti_deregister(self._view.address)
