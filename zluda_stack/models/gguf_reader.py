"""Reads the header of a GGUF file that nobody vouches for: bounded in time, memory and claims.

The format is that of docs/gguf.md in ggml-org/ggml (read 2026-11-30): magic, version, two counts,
key-value pairs, tensor infos, padding, tensor data; little-endian unless the version says
otherwise.

The `gguf` package is not used here: its GGUFReader makes NumPy objects of every vocabulary entry
(3 s of CPU for SmolLM2-135M, 11 s and 520 MB for a vocabulary of 152,000, against 0.09 s and
0.2 s; gguf 0.19.0) and trusts every count in the file. This reader skips what is not asked for
and allocates nothing that the file names the size of. The tests compare it with that package.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path
from struct import Struct as Layout
from typing import BinaryIO

from msgspec import Struct

from zluda_stack.models.gguf_types import TENSOR_TYPES, TensorType

Scalar = int | float | bool | str

_MAGIC = b"GGUF"
_LFS_POINTER = b"version https://git-lfs"
_VERSIONS = (2, 3)
_U32 = Layout("<I")
_U64 = Layout("<Q")

_STRING = 8
_ARRAY = 9
_SCALARS = {
    0: Layout("<B"),
    1: Layout("<b"),
    2: Layout("<H"),
    3: Layout("<h"),
    4: _U32,
    5: Layout("<i"),
    6: Layout("<f"),
    7: Layout("<?"),
    10: _U64,
    11: Layout("<q"),
    12: Layout("<d"),
}

ARCHITECTURE = "general.architecture"
NAME = "general.name"
TEMPLATE = "tokenizer.chat_template"
TOKENS = "tokenizer.ggml.tokens"
_ALIGNMENT = "general.alignment"
_TEXTS = {ARCHITECTURE, NAME, TEMPLATE}
# A template that renders tools loops over them or hands them on; one that does not never says so.
_TOOLS = re.compile(rb"\btools\b")

_SMALLEST_PAIR = 8 + 4 + 1
_SMALLEST_TENSOR_INFO = 8 + 4 + 4 + 8
_LONGEST_KEY = 1024
_LONGEST_TEXT = 4096
_LONGEST_TEMPLATE = 1 << 20
_MOST_PAIRS = 1 << 16
_MOST_STRINGS = 1 << 22
_MOST_TENSORS = 1 << 16
_MOST_DIMENSIONS = 4  # GGML_MAX_DIMS
_LONGEST_ARRAY = 512  # LLAMA_MAX_LAYERS: a longer one is not a value per layer
_MOST_ELEMENTS = 1 << 16
_MOST_BYTES = 1 << 60
_BUFFER = 1 << 20


class BadGguf(Exception):
    """Why the file cannot be used, in the words that the user reads."""


class Tensor(Struct, frozen=True):
    """A tensor as the header lists it; `bytes` is None for a type that is not known here."""

    name: str
    shape: tuple[int, ...]
    type: str
    bytes: int | None


class Header(Struct, frozen=True, kw_only=True):
    """What a header says.

    `values` has every number, and the texts that are asked for; `arrays` the short arrays of
    numbers (one value per layer); `lengths` how long each array is. `tools` is whether a chat
    template mentions tools.
    """

    size: int
    values: dict[str, Scalar]
    arrays: dict[str, tuple[int | float, ...]]
    lengths: dict[str, int]
    tensors: tuple[Tensor, ...]
    tools: bool

    def text(self, key: str) -> str | None:
        """The text at `key`, None when there is none."""
        value = self.values.get(key)
        return value if isinstance(value, str) and value else None

    def count(self, key: str) -> int | None:
        """The number at `key`, None when there is none or it cannot be a count."""
        value = self.values.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31:
            return value
        return None


def read(path: Path) -> Header:
    """The header of the GGUF file at `path`; tensor data is never read.

    Raises BadGguf for a file that is not GGUF, cut short or damaged, and OSError or ValueError
    for one that cannot be opened.
    """
    information = path.stat()
    if stat.S_ISDIR(information.st_mode):
        raise BadGguf("it is a folder, and a model is a .gguf file")
    if not stat.S_ISREG(information.st_mode):
        raise BadGguf("it is not a regular file")
    with path.open("rb", buffering=_BUFFER) as handle:
        return _Reader(handle, information.st_size).header()


class _Reader:
    """Walks a GGUF header once, front to back, and never past the end of the file."""

    def __init__(self, handle: BinaryIO, size: int) -> None:
        self._handle = handle
        self._size = size
        self._position = 0
        self._strings_left = _MOST_STRINGS
        self._elements_left = _MOST_ELEMENTS
        self._values: dict[str, Scalar] = {}
        self._arrays: dict[str, tuple[int | float, ...]] = {}
        self._lengths: dict[str, int] = {}
        self._tools = False

    def header(self) -> Header:
        """Everything that the header says; raises BadGguf."""
        tensors, pairs = self._counts()
        for _ in range(pairs):
            self._pair()
        return Header(
            tensors=self._tensors(tensors),
            size=self._size,
            values=self._values,
            arrays=self._arrays,
            lengths=self._lengths,
            tools=self._tools,
        )

    def _counts(self) -> tuple[int, int]:
        start = self._handle.read(len(_LFS_POINTER))
        if start == _LFS_POINTER:
            raise BadGguf("it is a Git LFS pointer, not the model: run `git lfs pull` there")
        if start[: len(_MAGIC)] != _MAGIC:
            raise BadGguf("it is not a GGUF file")
        self._handle.seek(len(_MAGIC))
        self._position = len(_MAGIC)
        version = self._number(_U32)
        if version & 0xFFFF == 0:
            raise BadGguf("it is a big-endian GGUF file, and this machine is little-endian")
        if version not in _VERSIONS:
            raise BadGguf(f"its GGUF version {version} is not one that is known (2 or 3)")
        tensors, pairs = self._number(_U64), self._number(_U64)
        self._room(pairs, _SMALLEST_PAIR, "key-value pairs")
        self._room(tensors, _SMALLEST_TENSOR_INFO, "tensors")
        if pairs > _MOST_PAIRS or tensors > _MOST_TENSORS:
            raise BadGguf(f"its header claims {pairs} key-value pairs and {tensors} tensors")
        return tensors, pairs

    def _pair(self) -> None:
        key = self._text(_LONGEST_KEY, "a key")
        kind = self._number(_U32)
        if kind == _STRING:
            self._string(key)
        elif kind == _ARRAY:
            self._array(key, self._number(_U32), self._number(_U64))
        elif kind in _SCALARS:
            layout = _SCALARS[kind]
            self._values[key] = layout.unpack(self._take(layout.size))[0]
        else:
            raise BadGguf(f"its header holds a value of the unknown type {kind}")

    def _string(self, key: str) -> None:
        """A wanted text in printable characters, cut after _LONGEST_TEXT bytes."""
        length = self._number(_U64)
        self._room(length, 1, "bytes")
        template = key.startswith(TEMPLATE)
        kept = min(length, _LONGEST_TEMPLATE if template else _LONGEST_TEXT)
        data = self._take(kept)
        self._skip(length - kept)
        if template:
            self._tools = self._tools or _TOOLS.search(data) is not None
        if key in _TEXTS:
            text = data[:_LONGEST_TEXT].decode("utf-8", "replace")
            self._values[key] = "".join(c if c.isprintable() else " " for c in text)

    def _array(self, key: str, kind: int, count: int) -> None:
        layout = _SCALARS.get(kind)
        if layout is not None:
            self._room(count, layout.size, "array elements")
            self._numbers(key, layout, count)
        elif kind == _STRING:
            self._skip_strings(count)
        else:
            raise BadGguf(f"its header holds an array of the unknown type {kind}")
        self._lengths[key] = count

    def _numbers(self, key: str, layout: Layout, count: int) -> None:
        if count > min(_LONGEST_ARRAY, self._elements_left):
            self._skip(count * layout.size)
            return
        self._elements_left -= count
        data = self._take(count * layout.size)
        self._arrays[key] = tuple(value for (value,) in layout.iter_unpack(data))

    def _skip_strings(self, count: int) -> None:
        self._room(count, _U64.size, "strings")
        self._strings_left -= count
        if self._strings_left < 0:
            raise BadGguf(f"its header claims more than {_MOST_STRINGS} strings")
        for _ in range(count):
            self._skip(self._number(_U64))

    def _tensors(self, count: int) -> tuple[Tensor, ...]:
        tensors: list[Tensor] = []
        furthest = -1
        for _ in range(count):
            tensor, offset = self._tensor()
            tensors.append(tensor)
            furthest = max(furthest, offset + (tensor.bytes or 1) - 1)
        alignment = self._values.get(_ALIGNMENT)
        step = alignment if isinstance(alignment, int) and alignment > 0 else 32
        data = -(-self._position // step) * step
        if count and data + furthest >= self._size:
            raise BadGguf(f"it is truncated: {self._size} bytes do not hold its last tensor")
        return tuple(tensors)

    def _tensor(self) -> tuple[Tensor, int]:
        name = self._text(_LONGEST_KEY, "a tensor's name")
        dimensions = self._number(_U32)
        if dimensions > _MOST_DIMENSIONS:
            raise BadGguf(f"its header claims a tensor of {dimensions} dimensions")
        shape = tuple(self._number(_U64) for _ in range(dimensions))
        number = self._number(_U32)
        known = TENSOR_TYPES.get(number)
        size = None if known is None else _bytes(shape, known)
        kind = known.name if known else f"type {number}"
        return Tensor(name, shape, kind, size), self._number(_U64)

    def _text(self, longest: int, what: str) -> str:
        length = self._number(_U64)
        if length > longest:
            raise BadGguf(f"its header holds {what} of {length} bytes")
        return self._take(length).decode("utf-8", "replace")

    def _number(self, layout: Layout) -> int:
        value: int = layout.unpack(self._take(layout.size))[0]
        return value

    def _take(self, count: int) -> bytes:
        data = self._handle.read(count)
        if len(data) != count:
            raise BadGguf(f"it is truncated: its header goes on after {self._size} bytes")
        self._position += count
        return data

    def _skip(self, count: int) -> None:
        self._room(count, 1, "bytes")
        self._handle.seek(count, 1)
        self._position += count

    def _room(self, count: int, each: int, what: str) -> None:
        """Refuse a claim of `count` things of at least `each` bytes that the file cannot hold."""
        if count * each > self._size - self._position:
            raise BadGguf(
                f"it is truncated or damaged: {count} {what} claimed in {self._size} bytes"
            )


def _bytes(shape: tuple[int, ...], kind: TensorType) -> int:
    """The bytes of a tensor, whose rows are whole blocks; raises BadGguf for one that is not."""
    count = 1
    for dimension in shape:
        count *= dimension
        if count > _MOST_BYTES:
            raise BadGguf("its header claims a tensor that no machine could hold")
    if shape and shape[0] % kind.block:
        raise BadGguf(f"its header claims rows of {shape[0]} elements in blocks of {kind.block}")
    return count // kind.block * kind.size
