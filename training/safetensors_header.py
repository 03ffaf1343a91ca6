"""Checking that a file is a whole safetensors file, from its header alone: no tensor is loaded, no torch needed."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from sevenfold.storage.errors import SevenfoldError

_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64,
    "C64": 64,
}  # fmt: skip
_PICKLE = "a pickle (or a zip of one), which can run code when loaded"
_MOST = 100_000_000  # bytes of header, the format's own limit


@dataclass(frozen=True)
class SafetensorsSummary:
    """How many `tensors` and `values` (over all tensors) a file holds, and its size in `bytes`."""

    tensors: int
    values: int
    bytes: int


def check_safetensors(path: Path) -> SafetensorsSummary:
    """Verify the header against the file's size.

    The format (github.com/huggingface/safetensors): 8 bytes little-endian header length, a JSON object of
    name -> {dtype, shape, data_offsets}, then the data, which the offsets must cover without gap or overlap.

    Raises
    ------
    SevenfoldError : the file is missing, a pickle or zip, cut short, or otherwise not safetensors.
    """
    if not path.is_file():
        raise SevenfoldError("there is no such file", where=str(path), expected="a safetensors file")
    size = path.stat().st_size
    with open(path, "rb") as f:
        start = f.read(8)
        length = int.from_bytes(start, "little")
        # a true header may have any low byte, a pickle's 0x80 too: only what is no header is called a pickle
        pickled = start[:2] == b"PK" or start[:1] == b"\x80"
        if len(start) < 8 or not 2 <= length <= min(_MOST, size - 8):
            raise _refuse(path, _PICKLE if pickled else f"a header of {length} bytes in a file of {size}")
        try:
            header = json.loads(f.read(length))
        except (ValueError, RecursionError) as error:
            raise _refuse(path, _PICKLE if pickled else "a header that is not JSON") from error
    if not isinstance(header, dict):
        raise _refuse(path, "a header that is not a JSON object")
    header.pop("__metadata__", None)
    spans, values = [], 0
    for name, tensor in header.items():
        try:
            (begin, end), shape, bits = tensor["data_offsets"], tensor["shape"], _BITS[tensor["dtype"]]
            sound = all(type(v) is int and v >= 0 for v in (begin, end, *shape))
        except (KeyError, TypeError, ValueError) as error:
            raise _refuse(path, f"tensor {name!r} has a malformed entry") from error
        if not sound or (end - begin) * 8 != math.prod(shape) * bits:
            raise _refuse(path, f"tensor {name!r} has offsets that do not fit its shape and dtype")
        spans.append((begin, end))
        values += math.prod(shape)
    edges = [(0, 0), *sorted(spans), (size - 8 - length, size - 8 - length)]
    if any(before[1] != after[0] for before, after in pairwise(edges)):
        raise _refuse(path, "tensors that do not cover the data exactly (cut short, or with gaps)")
    return SafetensorsSummary(len(spans), values, size)


def _refuse(path: Path, found: str) -> SevenfoldError:
    return SevenfoldError(
        found,
        where=str(path),
        expected="a whole safetensors file",
        do="save the weights with safetensors.torch.save_file",
    )
