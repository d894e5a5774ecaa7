"""The API key of a stack: made once, kept in a file that only its owner can read."""

from __future__ import annotations

import secrets
from pathlib import Path

from zluda_stack import paths
from zluda_stack.files import write_atomic

_PREFIX = "zs-"


def key_file(name: str) -> Path:
    """The file (mode 0600) that holds the key of the stack `name`."""
    return paths.stack(name) / "api-key"


def read_key(name: str) -> str | None:
    """The key of the stack `name`, or None when it never had one."""
    try:
        return key_file(name).read_text().strip() or None
    except FileNotFoundError:
        return None


def ensure_key(name: str) -> str:
    """The key of the stack `name`, made now when there is none. It outlives `down`."""
    existing = read_key(name)
    if existing is not None:
        return existing
    key = _PREFIX + secrets.token_urlsafe(32)
    write_atomic(key_file(name), key + "\n", mode=0o600)
    return key
