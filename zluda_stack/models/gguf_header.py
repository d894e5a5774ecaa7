"""What the header of a GGUF file says about the model in it.

The format is that of docs/gguf.md in ggml-org/ggml (read 2026-11-30): magic, version, two counts,
key-value pairs, tensor infos, padding, tensor data; little-endian unless the version says
otherwise.

The `gguf` package is not used here: its GGUFReader makes NumPy objects of every vocabulary entry
(3 s of CPU for SmolLM2-135M, 11 s and 520 MB for a vocabulary of 152,000, against 0.09 s and
0.2 s; gguf 0.19.0) and trusts every count in the file. This reader skips what is not asked for
and allocates nothing that the file names the size of. The tests compare it with that package.
"""

from __future__ import annotations

import stat
from pathlib import Path
from struct import Struct as Layout
from typing import BinaryIO

from zluda_stack.host.facts import LocalModelFacts

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

_ARCHITECTURE = "general.architecture"
_NAME = "general.name"
_ALIGNMENT = "general.alignment"
_CHAT_TEMPLATE = "tokenizer.chat_template"
_CONTEXT_LENGTH = ".context_length"
_WANTED = {_ARCHITECTURE, _NAME, _ALIGNMENT, _CHAT_TEMPLATE}

_SMALLEST_PAIR = 8 + 4 + 1
_SMALLEST_TENSOR_INFO = 8 + 4 + 4 + 8
_LONGEST_KEY = 1024
_LONGEST_TEXT = 4096
_MOST_PAIRS = 1 << 16
_MOST_STRINGS = 1 << 22
_MOST_TENSORS = 1 << 20
_MOST_DIMENSIONS = 8
_LONGEST_CONTEXT = 1 << 31
_BUFFER = 1 << 20

_Value = int | float | bool | str | None


class _Unusable(Exception):
    """Why the file cannot be used, in the words that the user reads."""


def _wanted(key: str) -> bool:
    return key in _WANTED or key.endswith(_CONTEXT_LENGTH)


def read_header(path: Path) -> LocalModelFacts:
    """The facts of the GGUF file at `path`, with an absolute path and its size in bytes.

    Never raises and never reads tensor data. A file that is missing, not GGUF, truncated or
    damaged gives a `problem` and nothing else but its path and size.
    """
    path = path.expanduser().absolute()
    size: int | None = None
    try:
        information = path.stat()
        if not stat.S_ISREG(information.st_mode):
            return _problem(path, None, "it is not a regular file")
        size = information.st_size
        with path.open("rb", buffering=_BUFFER) as handle:
            pairs = _Reader(handle, size).pairs()
    except OSError as error:
        return _problem(path, size, error.strerror or str(error))
    except ValueError as error:
        return _problem(path, size, str(error))
    except _Unusable as reason:
        return _problem(path, size, str(reason))
    architecture = _text(pairs, _ARCHITECTURE)
    if architecture is None:
        return _problem(path, size, "its header names no model architecture")
    return LocalModelFacts(
        path=str(path),
        size=size,
        name=_text(pairs, _NAME),
        architecture=architecture,
        context_length=_context(pairs.get(architecture + _CONTEXT_LENGTH)),
        chat_template=_text(pairs, _CHAT_TEMPLATE) is not None,
    )


def _problem(path: Path, size: int | None, reason: str) -> LocalModelFacts:
    return LocalModelFacts(path=str(path), size=size, problem=reason)


def _text(pairs: dict[str, _Value], key: str) -> str | None:
    value = pairs.get(key)
    return value if isinstance(value, str) and value else None


def _context(value: _Value) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _LONGEST_CONTEXT:
        return value
    return None


class _Reader:
    """Walks a GGUF header once, front to back, and never past the end of the file."""

    def __init__(self, handle: BinaryIO, size: int) -> None:
        self._handle = handle
        self._size = size
        self._position = 0
        self._strings_left = _MOST_STRINGS

    def pairs(self) -> dict[str, _Value]:
        """The wanted key-value pairs, arrays as None, long strings cut; raises _Unusable."""
        tensors, count = self._counts()
        pairs: dict[str, _Value] = {}
        for _ in range(count):
            key = self._key()
            value = self._value(self._number(_U32))
            if _wanted(key):
                pairs[key] = value
        self._tensor_infos(tensors, pairs.get(_ALIGNMENT))
        return pairs

    def _counts(self) -> tuple[int, int]:
        start = self._handle.read(len(_LFS_POINTER))
        if start == _LFS_POINTER:
            raise _Unusable("it is a Git LFS pointer, not the model: run `git lfs pull` there")
        if start[: len(_MAGIC)] != _MAGIC:
            raise _Unusable("it is not a GGUF file")
        self._handle.seek(len(_MAGIC))
        self._position = len(_MAGIC)
        version = self._number(_U32)
        if version & 0xFFFF == 0:
            raise _Unusable("it is a big-endian GGUF file, and this machine is little-endian")
        if version not in _VERSIONS:
            raise _Unusable(f"its GGUF version {version} is not one that is known (2 or 3)")
        tensors, pairs = self._number(_U64), self._number(_U64)
        self._room(pairs, _SMALLEST_PAIR, "key-value pairs")
        self._room(tensors, _SMALLEST_TENSOR_INFO, "tensors")
        if pairs > _MOST_PAIRS or tensors > _MOST_TENSORS:
            raise _Unusable(f"its header claims {pairs} key-value pairs and {tensors} tensors")
        return tensors, pairs

    def _value(self, kind: int) -> _Value:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            self._skip_array(self._number(_U32), self._number(_U64))
            return None
        layout = _SCALARS.get(kind)
        if layout is None:
            raise _Unusable(f"its header holds a value of the unknown type {kind}")
        value: int | float | bool = layout.unpack(self._take(layout.size))[0]
        return value

    def _skip_array(self, kind: int, count: int) -> None:
        layout = _SCALARS.get(kind)
        if layout is not None:
            self._room(count, layout.size, "array elements")
            self._skip(count * layout.size)
        elif kind == _STRING:
            self._room(count, _U64.size, "strings")
            self._strings_left -= count
            if self._strings_left < 0:
                raise _Unusable(f"its header claims more than {_MOST_STRINGS} strings")
            for _ in range(count):
                self._skip(self._number(_U64))
        else:
            raise _Unusable(f"its header holds an array of the unknown type {kind}")

    def _tensor_infos(self, count: int, alignment: _Value) -> None:
        """Only whether every tensor begins inside the file: a download that was cut short."""
        furthest = -1
        for _ in range(count):
            self._skip(self._number(_U64))
            dimensions = self._number(_U32)
            if dimensions > _MOST_DIMENSIONS:
                raise _Unusable(f"its header claims a tensor of {dimensions} dimensions")
            self._skip(dimensions * _U64.size + _U32.size)
            furthest = max(furthest, self._number(_U64))
        step = alignment if isinstance(alignment, int) and alignment > 0 else 32
        data = -(-self._position // step) * step
        if count and data + furthest >= self._size:
            raise _Unusable(f"it is truncated: {self._size} bytes do not reach its last tensor")

    def _key(self) -> str:
        length = self._number(_U64)
        if length > _LONGEST_KEY:
            raise _Unusable(f"its header holds a key of {length} bytes")
        return self._take(length).decode("utf-8", "replace")

    def _string(self) -> str:
        """A string in printable characters, cut after _LONGEST_TEXT bytes."""
        length = self._number(_U64)
        self._room(length, 1, "bytes")
        kept = min(length, _LONGEST_TEXT)
        text = self._take(kept).decode("utf-8", "replace")
        self._skip(length - kept)
        return "".join(c if c.isprintable() else " " for c in text)

    def _number(self, layout: Layout) -> int:
        value: int = layout.unpack(self._take(layout.size))[0]
        return value

    def _take(self, count: int) -> bytes:
        data = self._handle.read(count)
        if len(data) != count:
            raise _Unusable(f"it is truncated: its header goes on after {self._size} bytes")
        self._position += count
        return data

    def _skip(self, count: int) -> None:
        self._room(count, 1, "bytes")
        self._handle.seek(count, 1)
        self._position += count

    def _room(self, count: int, each: int, what: str) -> None:
        """Refuse a claim of `count` things of at least `each` bytes that the file cannot hold."""
        if count * each > self._size - self._position:
            raise _Unusable(
                f"it is truncated or damaged: {count} {what} claimed in {self._size} bytes"
            )
