"""Reading a GGUF file's header: metadata and the list of tensors, checked against the file's length. No torch.

Contract. `read_gguf` returns every metadata value as plain Python and, per tensor, where its bytes lie. A file
that is cut off, not GGUF at all, or of a version or byte order we do not read raises LoadError with one
sentence; afterwards every tensor's bytes are known to be inside the file.

The `gguf` package has a reader too; it takes three seconds over a 49,000-word vocabulary because it makes numpy
arrays of every string. This one takes a twentieth of that; `gguf` is left to what it is best at, block formats.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine.errors import LoadError, shown

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
DEFAULT_ALIGNMENT: Final = 32
MAX_DIMS: Final = 4

_STRING: Final = 8
_ARRAY: Final = 9
_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """One tensor: `shape` in row-major order (GGUF writes it innermost first), bytes at `offset` of the file."""

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class GGUFFile:
    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GGUFTensor]

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", ""))

    def value(self, key: str, default: Any = None) -> Any:
        """A metadata value of this architecture: `value("block_count")` reads `llama.block_count`."""
        return self.metadata.get(f"{self.architecture}.{key}", default)


class _CutOffError(Exception):
    """The header goes on past the end of the file."""


class _Cursor:
    """A position in the mapped file; every read is checked against its end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.data):
            raise _CutOffError
        chunk = self.data[self.at : self.at + count]
        self.at += count
        return chunk

    def unpack(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def string(self) -> str:
        return self.take(self.unpack("Q")).decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            item, count = self.unpack("I"), self.unpack("Q")
            if item in _SCALARS:
                code = "<" + _SCALARS[item]
                return [v[0] for v in struct.iter_unpack(code, self.take(count * struct.calcsize(code)))]
            return [self.value(item) for _ in range(count)]
        if kind not in _SCALARS:
            raise ValueError(f"value type {kind}")
        return self.unpack(_SCALARS[kind])


def read_gguf(path: Path) -> GGUFFile:
    """Read the header of `path`. Raises LoadError, naming the file and what is wrong with it."""
    size = path.stat().st_size
    if size < 24:
        raise LoadError(f"{path} is cut off: {size} bytes are too few for a GGUF header. Fetch the file again.")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        cursor = _Cursor(data)
        if cursor.take(4) != MAGIC:
            raise LoadError(f"{path} is not a GGUF file: it does not begin with the bytes GGUF.")
        version = cursor.unpack("I")
        if version not in VERSIONS:
            raise LoadError(f"{path} is GGUF version {version}; little-endian versions 2 and 3 can be read.")
        try:
            return _read_body(path, cursor, size)
        except _CutOffError:
            raise LoadError(
                f"{path} is cut off: its header goes on past its {size:,} bytes. Fetch the file again."
            ) from None
        except ValueError as error:
            raise LoadError(f"{path} is damaged: its header holds an unknown {error}.") from None
        except RecursionError:
            raise LoadError(f"{path} is damaged: its header holds lists in lists without end.") from None


def _read_body(path: Path, cursor: _Cursor, size: int) -> GGUFFile:
    num_tensors, num_values = cursor.unpack("Q"), cursor.unpack("Q")
    metadata = {}
    for _ in range(num_values):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.unpack("I"))
    raw = [_read_tensor_info(cursor) for _ in range(num_tensors)]
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"alignment {shown(alignment)}")
    start = -(-cursor.at // alignment) * alignment
    tensors = {tensor.name: tensor for tensor in _place(raw, start)}
    end = max((tensor.offset + tensor.num_bytes for tensor in tensors.values()), default=start)
    if end > size:
        raise LoadError(f"{path} is cut off: it has {size:,} of the {end:,} bytes that its header promises.")
    return GGUFFile(path, metadata, tensors)


def _read_tensor_info(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name, num_dims = cursor.string(), cursor.unpack("I")
    if num_dims > MAX_DIMS:
        raise ValueError(f"tensor of {num_dims} dimensions")
    shape = tuple(cursor.unpack("Q") for _ in range(num_dims))
    return name, shape[::-1], cursor.unpack("I"), cursor.unpack("Q")


def _place(raw: list[tuple[str, tuple[int, ...], int, int]], start: int) -> Iterator[GGUFTensor]:
    """Give each tensor its place in the file; the block format decides how many bytes an element takes."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    for name, shape, ggml_type, offset in raw:
        try:
            block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(ggml_type)]
        except (ValueError, KeyError):
            raise ValueError(f"tensor format {ggml_type}") from None
        num_elements = 1
        for dim in shape:
            num_elements *= dim
        yield GGUFTensor(name, shape, ggml_type, start + offset, num_elements // block * block_bytes)
