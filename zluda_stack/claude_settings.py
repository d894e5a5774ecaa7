"""Claude Code's settings files: written with a stack's variables, and put back as they were.

What a file held before is kept among this program's own state and not beside the file: a project
may be under version control, and the copy can hold a key.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from zluda_stack import paths
from zluda_stack.errors import UsageError
from zluda_stack.files import write_atomic
from zluda_stack.render.claude_code import env_block, merged, restored
from zluda_stack.render.clients import Json


class _Record(Struct, frozen=True, kw_only=True):
    """What was done to one file: the variables that were written, and those they replaced.

    `original` is the file's text before the first writing, None when there was no file.
    """

    file: str
    original: str | None
    mode: int
    written: dict[str, str]
    before: dict[str, Any]


def user_file(environment: Mapping[str, str]) -> Path:
    """The file that counts in all projects of this user."""
    folder = environment.get("CLAUDE_CONFIG_DIR")
    return (Path(folder) if folder else Path.home() / ".claude") / "settings.json"


def written(file: Path, variables: Mapping[str, str]) -> str:
    """The text of `file` with `variables`, as `write` would leave it. Raises UsageError."""
    try:
        return _text(merged(_parsed(file, _read(file)), variables))
    except ValueError as error:
        raise _foreign(file, error) from error


def write(file: Path, variables: Mapping[str, str]) -> None:
    """Put `variables` into the `env` of `file` (mode 0600), and keep what they replace.

    Raises UsageError, with the file as it was, when it is not Claude Code's.
    """
    text = _read(file)
    after = written(file, variables)
    block = env_block(_parsed(file, text))
    earlier = _record(file)
    before = {name: block[name] for name in variables if name in block}
    if earlier is not None:
        ours = {name for name in before if before[name] == earlier.written.get(name)}
        kept = {name: value for name, value in before.items() if name not in ours}
        before = earlier.before | kept
    record = _Record(
        file=str(file.absolute()),
        original=text if earlier is None else earlier.original,
        mode=_mode(file) if earlier is None else earlier.mode,
        written={**(earlier.written if earlier else {}), **variables},
        before=before,
    )
    write_atomic(_place(file), msgspec.json.encode(record), mode=0o600)
    write_atomic(file, after, mode=0o600)


def undone(file: Path) -> str | None:
    """The text of `file` without what `write` put there; None when the file was made by it.

    Raises UsageError when nothing was.
    """
    record = _record(file)
    if record is None:
        raise UsageError(
            f"nothing was written to {file} that could be undone",
            "Name the file that `connect claude --write` named.",
        )
    settings = _parsed(file, _read(file))
    try:
        left = restored(settings, record.written, record.before)
    except ValueError as error:
        raise _foreign(file, error) from error
    if record.original is None:
        return _text(left) if left else None
    original = _parsed(file, record.original)
    same = left == restored(original, {}, {})
    return record.original if same else _text(left)


def undo(file: Path) -> None:
    """Put `file` back as `undone` says. Raises UsageError."""
    text, record = undone(file), _record(file)
    if text is None:
        file.unlink(missing_ok=True)
    elif record is not None:
        write_atomic(file, text, mode=record.mode)
    _place(file).unlink(missing_ok=True)


def _place(file: Path) -> Path:
    name = hashlib.sha256(os.fsencode(file.absolute())).hexdigest()[:32]
    return paths.connected() / f"{name}.json"


def _record(file: Path) -> _Record | None:
    try:
        return msgspec.json.decode(_place(file).read_bytes(), type=_Record)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def _read(file: Path) -> str | None:
    """The text of `file`, None when there is no such file. Raises UsageError."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise _foreign(file, error) from error
    except OSError as error:
        raise _foreign(file, error.strerror) from error


def _parsed(file: Path, text: str | None) -> Json:
    """The settings in the text of `file`. Raises UsageError when they are none."""
    if text is None or not text.strip():
        return {}
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _foreign(file, error) from error
    if not isinstance(settings, dict):
        raise _foreign(file, "it holds no JSON object")
    return settings


def _text(settings: Json) -> str:
    """Raises ValueError for what UTF-8 cannot hold."""
    text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    text.encode()
    return text


def _mode(file: Path) -> int:
    try:
        return file.stat().st_mode & 0o777
    except FileNotFoundError:
        return 0o600


def _foreign(file: Path, why: object) -> UsageError:
    return UsageError(
        f"{file} is not a settings file of Claude Code: {why}",
        "Correct or remove it, or name another file; it was not touched.",
    )
