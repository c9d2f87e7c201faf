"""The safetensors container: reading a header with its checks, and writing a file tensor by tensor. No torch.

Contract. `read_header` raises LoadError for a file that is cut off or damaged; afterwards every tensor's bytes are
known to be inside the file. `write_safetensors` holds one tensor in memory at a time, so a file larger than
memory can be written; the caller moves it into place when it is whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from engine.errors import LoadError

MAX_HEADER_BYTES: Final = 100_000_000
_ITEM_BYTES: Final = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    dtype: str
    shape: tuple[int, ...]


def read_header(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a safetensors file by name. Raises LoadError if the file does not hold them all."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or 8 + length > size:
            raise LoadError(f"{path} is cut off: its {size:,} bytes end inside the header. Fetch the file again.")
        if length > MAX_HEADER_BYTES:
            raise LoadError(f"{path} is damaged: a safetensors header of {length:,} bytes is not believable.")
        raw = file.read(length)
    try:
        entries: dict[str, Any] = json.loads(raw)
        entries.pop("__metadata__", None)
        tensors = {name: StoredTensor(e["dtype"], tuple(e["shape"])) for name, e in entries.items()}
        end = 8 + length + max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError, IndexError):
        raise LoadError(f"{path} is damaged: its safetensors header is not readable. Fetch the file again.") from None
    if end > size:
        raise LoadError(f"{path} is cut off: it has {size:,} of the {end:,} bytes that its header promises.")
    return tensors


def write_safetensors(
    path: Path,
    tensors: Mapping[str, StoredTensor],
    read: Callable[[str], np.ndarray[Any, Any]],
    wrote: Callable[[int], None],
) -> None:
    """Write `tensors` to `path`, asking `read` for the values of each in turn; `wrote(n)` after the n-th."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + int(np.prod(tensor.shape, dtype=np.int64)) * _ITEM_BYTES[tensor.dtype]
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)  # the data begins on a multiple of eight
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for number, name in enumerate(tensors, start=1):
            file.write(np.ascontiguousarray(read(name)).data)
            wrote(number)
