"""Change a zluda-stack.yml: one key with everything else kept, or the whole file by hand."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import yaml

from zluda_stack.catalog.nearest import nearest
from zluda_stack.config import yaml_file
from zluda_stack.config.layers import lenient
from zluda_stack.config.schema import Setting, known_settings
from zluda_stack.errors import UsageError
from zluda_stack.files import write_atomic

_NEW_FILE = (
    "# Settings of zluda-stack, one `key: value` a line; `zluda-stack config show` lists all.\n"
)


def setting_named(key: str) -> Setting:
    """The setting `key` (`-` and `_` are the same). Raises UsageError with the nearest key."""
    known = known_settings()
    name = key.replace("-", "_")
    if name in known:
        return known[name]
    close = nearest(key, known)
    hint = f"Did you mean {close[0]}? " if close else ""
    raise UsageError(f"there is no setting {key!r}", f"{hint}`zluda-stack config show` lists all.")


def set_value(path: Path, key: str, text: str, *, dry_run: bool = False) -> object:
    """Give the setting `key` the value that `text` says in the file at `path`; returns it.

    Comments, order and the other values stay as they are; the file is made when there is none.
    With `dry_run` nothing is written. Raises UsageError for an unknown key, a value that the
    setting does not take, or a file that is broken already; nothing is written then.
    """
    setting = setting_named(key)
    value = lenient(setting, text, setting.key)
    if value is None:
        raise UsageError(f"{setting.key} needs a value", f"To unset it, remove its line in {path}.")
    wanted = {name: entry.value for name, entry in yaml_file.read(path).items()}
    wanted[setting.key] = value
    text_before = path.read_text(encoding="utf-8-sig") if path.exists() else _NEW_FILE
    text_after = _with_value(text_before, setting.key, value)
    if _values(text_after, path) != wanted:
        raise UsageError(
            f"cannot change {setting.key} in {path} and leave everything else as it is",
            "Change that file by hand, in an editor.",
        )
    if not dry_run:
        write_atomic(path, text_after, mode=_mode(path))
    return value


def edit(path: Path, editor: Callable[[Path], None]) -> bool:
    """Let `editor` change the file at `path`; True when that changed its text.

    The editor gets a copy. A broken copy is not installed: the file stays as it was, the copy
    stays for the next try, and the UsageError names it. Raises UsageError.
    """
    copy = path.with_name(f"{path.name}.edited")
    before = path.read_bytes() if path.exists() else _NEW_FILE.encode()
    if not copy.exists():
        write_atomic(copy, before, mode=0o600)
    editor(copy)
    try:
        yaml_file.read(copy)
        after = copy.read_bytes()
    except UsageError as error:
        raise UsageError(
            error.message, f"{path} is as it was. Run `config edit` again to go on with {copy}."
        ) from error
    if after != before:
        write_atomic(path, after, mode=_mode(path))
    copy.unlink()
    return after != before


def _with_value(text: str, key: str, value: object) -> str:
    """`text` with `key: value` in it; the same text again where ruamel.yaml cannot read it."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError
    from ruamel.yaml.scalarstring import SingleQuotedScalarString

    round_trip = YAML(typ="rt")
    round_trip.preserve_quotes = True
    round_trip.width = 4096
    if isinstance(value, str) and not _reads_as_text(value):
        value = SingleQuotedScalarString(value)
    out = StringIO()
    try:
        document = round_trip.load(text)
        if document is None:
            # Comments hang on a mapping's keys; where there is none yet, keep the text itself.
            round_trip.dump({key: value}, out)
            return f"{text.rstrip()}\n{out.getvalue()}".lstrip()
        document[key] = value
        round_trip.dump(document, out)
    except (YAMLError, ValueError):
        return text
    return out.getvalue()


def _reads_as_text(word: str) -> bool:
    """False for a word such as no, 1.10 or null, which YAML 1.1 takes for something else."""
    resolver = yaml.SafeLoader("")
    tag: str = resolver.resolve(yaml.ScalarNode, word, (True, False))  # type: ignore[no-untyped-call]
    return tag.endswith(":str")


def _values(text: str, path: Path) -> dict[str, object] | None:
    try:
        return {key: entry.value for key, entry in yaml_file.parse(text.encode(), path).items()}
    except UsageError:
        return None


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777 if path.exists() else 0o644
