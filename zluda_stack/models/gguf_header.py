"""What the header of a GGUF file says about the model in it, as facts of this host."""

from __future__ import annotations

from pathlib import Path

from zluda_stack.host.facts import LocalModelFacts
from zluda_stack.models.gguf_reader import ARCHITECTURE, NAME, TEMPLATE, BadGguf, read


def read_header(path: Path) -> LocalModelFacts:
    """The facts of the GGUF file at `path`, with an absolute path and its size in bytes.

    Never raises and never reads tensor data. A file that is missing, not GGUF, truncated or
    damaged gives a `problem` and nothing else but its path and size.
    """
    path = path.expanduser().absolute()
    try:
        header = read(path)
    except OSError as error:
        return _problem(path, error.strerror or str(error))
    except (ValueError, BadGguf) as error:
        return _problem(path, str(error))
    architecture = header.text(ARCHITECTURE)
    if architecture is None:
        return _problem(path, "its header names no model architecture")
    return LocalModelFacts(
        path=str(path),
        size=header.size,
        name=header.text(NAME),
        architecture=architecture,
        context_length=header.count(f"{architecture}.context_length") or None,
        chat_template=header.text(TEMPLATE) is not None,
    )


def _problem(path: Path, reason: str) -> LocalModelFacts:
    return LocalModelFacts(path=str(path), size=_size(path), problem=reason)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size if path.is_file() else None
    except (OSError, ValueError):
        return None
