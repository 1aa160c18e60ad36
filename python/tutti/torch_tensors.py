"""Tensors as the backend for PyTorch (torch.py) sees them: their elements in memory, and what type these are."""
import torch

from .buffers import NAMED

# Flags are moved as bytes, and reduced by operators of their own.
TYPES = {getattr(torch, name): type for name, type in NAMED.items() if name != "bool"}
# What the library does not reduce in its own type, and the wider type in which the result is the same.
WIDER = {torch.int16: torch.int32, torch.uint16: torch.int32}


def only(tensors):
    """The one tensor of a list; more were for several devices a process."""
    if len(tensors) != 1:
        raise ValueError(f"tutti: {len(tensors)} tensors; one a call")
    return tensors[0]


def flat(tensor):
    """All elements of a dense tensor in the order in which they lie, not copied."""
    if tensor.is_contiguous():
        return tensor.detach().view(-1)
    dense = sorted((stride, length) for stride, length in zip(tensor.stride(), tensor.shape) if length != 1)
    step = 1
    for stride, length in dense:
        if stride != step:
            raise ValueError(f"tutti: the elements of a tensor of shape {tuple(tensor.shape)} and strides "
                             f"{tensor.stride()} do not lie together; pass tensor.contiguous()")
        step *= length
    return tensor.detach().as_strided((tensor.numel(),), (1,))


def plain(tensor):
    """Can it be handed over as it is?"""
    return tensor.dtype in TYPES and tensor.is_contiguous()


def moved(tensor):
    """Elements to be moved: of a type that the library knows, else as bytes."""
    if plain(tensor):
        return tensor
    elements = flat(tensor)
    return elements if elements.dtype in TYPES else elements.view(torch.uint8)


def joined(tensors):
    """Elements of all, one tensor after the other; the tensors' own memory where they lie so."""
    if len({tensor.dtype for tensor in tensors}) > 1:
        raise TypeError(f"tutti: tensors of several types: {', '.join(str(tensor.dtype) for tensor in tensors)}")
    parts = [moved(tensor).detach().view(-1) for tensor in tensors]
    at = parts[0].data_ptr()
    for part in parts:
        if part.data_ptr() != at and part.numel():
            return torch.cat(parts), False
        at += part.numel() * part.element_size()
    total = sum(part.numel() for part in parts)
    if parts[0].storage_offset() + total > parts[0].untyped_storage().nbytes() // parts[0].element_size():
        return torch.cat(parts), False  # neighbours in memory by chance
    return parts[0].as_strided((total,), (1,)), True


def dealt(whole, tensors):
    """Move the elements of `whole` to the tensors, one after the other."""
    parts = [moved(tensor).view(-1) for tensor in tensors]
    for part, piece in zip(parts, whole.split([part.numel() for part in parts])):
        part.detach().copy_(piece)
