"""What the header of a GGUF file says about the model in it, as facts of this host."""

from __future__ import annotations

from pathlib import Path

from zluda_stack.host.facts import LocalModelFacts
from zluda_stack.models.architecture import Architecture, read_parts, shape_of
from zluda_stack.models.gguf_reader import ARCHITECTURE, NAME, TEMPLATE, BadGguf, Header


def read_header(path: Path) -> LocalModelFacts:
    """The facts of the GGUF file at `path`, with an absolute path and its size in bytes.

    Never raises and never reads tensor data. A file that is missing, not GGUF, truncated or
    damaged gives a `problem` and nothing else but its path and size; so does one of several
    parts without the others, whose size is that of all.
    """
    path = path.expanduser().absolute()
    try:
        parts = read_parts(path)
    except OSError as error:
        return _problem(path, _of_part(path, error) + (error.strerror or str(error)))
    except (ValueError, BadGguf) as error:
        return _problem(path, str(error))
    header = parts[0]
    architecture = header.text(ARCHITECTURE)
    if architecture is None:
        return _problem(path, "its header names no model architecture")
    return LocalModelFacts(
        path=str(path),
        size=sum(part.size for part in parts),
        name=header.text(NAME),
        architecture=architecture,
        context_length=header.count(f"{architecture}.context_length") or None,
        chat_template=header.text(TEMPLATE) is not None,
        shape=_shape(parts),
    )


def _shape(parts: tuple[Header, ...]) -> Architecture | None:
    """None for a model that is not understood here; llama.cpp may serve it all the same."""
    try:
        return shape_of(parts)
    except BadGguf:
        return None


def _of_part(path: Path, error: OSError) -> str:
    """Which other part of the model an error is about."""
    part = Path(error.filename or path).name
    return "" if part == path.name else f"its part {part}: "


def _problem(path: Path, reason: str) -> LocalModelFacts:
    return LocalModelFacts(path=str(path), size=_size(path), problem=reason)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size if path.is_file() else None
    except (OSError, ValueError):
        return None
