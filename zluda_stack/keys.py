"""The API keys of a stack: its own, made once and kept, and further ones with names and limits.

Of the further ones only digests are kept: `add_key` is the one moment in which such a key exists
outside its owner's hands.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from zluda_stack import keyring, locks, paths
from zluda_stack.errors import HostProblem, UsageError
from zluda_stack.files import write_atomic
from zluda_stack.keyring import Key
from zluda_stack.program import command

_PREFIX = "zs-"


def key_file(name: str) -> Path:
    """The file (mode 0600) that holds the key of the stack `name`."""
    return paths.stack(name) / "api-key"


def keyring_file(name: str) -> Path:
    """The file with the digests of the further keys of the stack `name`."""
    return paths.stack(name) / "keys"


def read_key(name: str) -> str | None:
    """The key of the stack `name`, or None when it never had one.

    Raises HostProblem for a file that cannot be read or holds no text.
    """
    file = key_file(name)
    try:
        return file.read_text(encoding="ascii").strip() or None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise HostProblem(
            f"cannot read the key in {file}: {error}",
            "Remove the file: the next `up` makes a new key, which clients must then be given.",
        ) from error


def ensure_key(name: str) -> str:
    """The key of the stack `name`, made now when there is none. It outlives `down`."""
    existing = read_key(name)
    if existing is not None:
        return existing
    key = _new_key()
    write_atomic(key_file(name), key + "\n", mode=0o600)
    return key


def further_keys(name: str) -> tuple[Key, ...]:
    """The further keys of the stack `name`. Raises HostProblem for a file that is none of ours."""
    file = keyring_file(name)
    try:
        return keyring.parse(file.read_text())
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise HostProblem(
            f"cannot read the keys in {file}: {error}",
            "Correct or remove it; without it the stack's own key is the only one.",
        ) from error


def add_key(name: str, wanted: Key) -> str:
    """A new key for the stack `name` with the name and limits of `wanted`.

    Raises UsageError when there is a key of that name, and HostProblem.
    """
    key = _new_key()
    with _changing(name):
        present = further_keys(name)
        if wanted.name == keyring.NAMELESS:
            raise UsageError(
                f"{keyring.NAMELESS} is what the stack's own key is called", "Choose another name."
            )
        if wanted.name == keyring.NO_KEY:
            raise UsageError(
                f"{keyring.NO_KEY} is what the metrics call requests without a key",
                "Choose another name.",
            )
        if any(one.name == wanted.name for one in present):
            raise UsageError(
                f"there is a key {wanted.name} already",
                f"Choose another name, or `{command('keys rm ' + wanted.name, name)}` first.",
            )
        _write(name, (*present, msgspec.structs.replace(wanted, digest=_digest(key))))
    return key


def remove_key(name: str, key_name: str) -> None:
    """Take a further key back. Raises UsageError when there is none of that name."""
    with _changing(name):
        present = further_keys(name)
        left = tuple(key for key in present if key.name != key_name)
        if len(left) == len(present):
            raise UsageError(
                f"there is no key {key_name}", f"`{command('keys list', name)}` shows them."
            )
        _write(name, left)


def ensure_keyring(name: str) -> None:
    """Let the file of further keys be there, for an endpoint that is to follow its changes."""
    with _changing(name):
        if not keyring_file(name).exists():
            _write(name, ())


def accepted(name: str) -> str:
    """The digests of all keys of the stack `name`, its own first, as zluda_stack.keyring reads it.

    Makes the stack's own key when there is none.
    """
    keys = (Key(digest=_digest(ensure_key(name))), *further_keys(name))
    return "".join(f"{keyring.line(key)}\n" for key in keys)


def _new_key() -> str:
    import secrets  # with OpenSSL behind it, and most commands make no key

    return _PREFIX + secrets.token_urlsafe(32)


def _digest(key: str) -> bytes:
    import hashlib

    return hashlib.sha256(key.encode()).digest()


def _write(name: str, keys: tuple[Key, ...]) -> None:
    text = "".join(f"{keyring.line(key)}\n" for key in keys)
    write_atomic(keyring_file(name), text, mode=0o600)


@contextmanager
def _changing(name: str) -> Iterator[None]:
    """Alone between reading the keys and writing them."""
    with locks.locked(paths.stack(name) / "keys.lock", lambda: None):
        yield
