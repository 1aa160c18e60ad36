"""An interface that takes no large frames, as where a switch on the way has a smaller MTU than the
ends: neither end hears of what is dropped. By a program of the kernel's own kind (BPF), before
anything else sees a frame; it goes with the object."""
import ctypes
import os
import socket
import struct

BPF, PROG_LOAD, LINK_CREATE = 321, 5, 28 # of x86-64
TYPE_XDP, ATTACH_XDP, GENERIC = 6, 37, 2
LIBC = ctypes.CDLL(None, use_errno=True)


def bpf(command, *fields):
    """The system call: 32-bit fields as int, 64-bit ones as (int,); a descriptor."""
    packed = b"".join(struct.pack("<Q", *each) if isinstance(each, tuple) else struct.pack("<I", each)
                      for each in fields)
    attributes = ctypes.create_string_buffer(packed, 120)
    descriptor = LIBC.syscall(BPF, command, ctypes.byref(attributes), 120)
    if descriptor < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"bpf({command}): {os.strerror(error)}")
    return descriptor


class DropLarge:
    """Until its end, `interface` takes no frame of `size` bytes or more."""

    def __init__(self, interface, size):
        instructions = [
            (0x61, 0x12, 0, 0),    # r2 = begin of the frame
            (0x61, 0x13, 4, 0),    # r3 = its end
            (0x07, 0x02, 0, size), # r2 += size
            (0xb7, 0x00, 0, 2),    # r0 = "pass"
            (0x2d, 0x32, 1, 0),    # if r2 > r3, skip one
            (0xb7, 0x00, 0, 1),    # r0 = "drop"
            (0x95, 0x00, 0, 0),
        ]
        code = ctypes.create_string_buffer(b"".join(struct.pack("<BBhi", *each)
                                                    for each in instructions))
        license_text = ctypes.create_string_buffer(b"GPL")
        program = bpf(PROG_LOAD, TYPE_XDP, len(instructions), (ctypes.addressof(code),),
                      (ctypes.addressof(license_text),))
        try:
            self.link = bpf(LINK_CREATE, program, socket.if_nametoindex(interface), ATTACH_XDP,
                            GENERIC)
        finally:
            os.close(program)

    def end(self):
        """It takes everything again."""
        os.close(self.link)
