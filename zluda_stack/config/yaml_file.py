"""Read a zluda-stack.yml: one flat mapping, every value with its line, every fault named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml
from msgspec import Struct

from zluda_stack.catalog.nearest import nearest
from zluda_stack.config.contents import contents
from zluda_stack.config.schema import Setting, WrongValue, in_words, known_settings
from zluda_stack.errors import UsageError

_SCALARS = frozenset({"str", "int", "float", "bool", "null"})


class Entry(Struct, frozen=True):
    """The value of a setting and the line it stands on, counted from 1."""

    value: object
    line: int


def read(path: Path) -> dict[str, Entry]:
    """The settings that the file at `path` gives, by key; empty when there is no such file.

    A key whose value is null is not given. Raises UsageError naming file and line.
    """
    raw = contents(path)
    return {} if raw is None else parse(raw, path)


def parse(raw: bytes, path: Path) -> dict[str, Entry]:
    """The settings in `raw`, the contents of the file that errors name as `path`."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _fault(path, line, "is not UTF-8 text", "Save the file as UTF-8.") from error
    loader = yaml.SafeLoader("")
    entries: dict[str, Entry] = {}
    lines: dict[str, int] = {}
    for key_node, value_node in _pairs(text, path):
        line = key_node.start_mark.line + 1
        setting = _known(key_node, path, line)
        if setting.key in lines:
            problem = f"{setting.key} is given again; line {lines[setting.key]} gave it first"
            raise _fault(path, line, problem, "Remove one of the two.")
        lines[setting.key] = line
        value = _value(loader, setting, value_node, path)
        if value is not None:
            entries[setting.key] = Entry(_checked(setting, value, path, line), line)
    return entries


def _pairs(text: str, path: Path) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        raise _fault(path, line, f"is not YAML: {error.problem}", _correct(path)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"has the character #x{error.character:04x}, which YAML does not allow"
        raise _fault(path, line, problem, _correct(path)) from error
    except RecursionError as error:
        raise _fault(path, 1, "is nested too deeply", "Settings are not nested.") from error
    if root is None or (isinstance(root, yaml.ScalarNode) and root.tag.endswith(":null")):
        return iter(())
    if not isinstance(root, yaml.MappingNode):
        problem = f"expected `key: value` lines, found {_kind(root)}"
        raise _fault(path, root.start_mark.line + 1, problem, _correct(path))
    return iter(root.value)


def _known(node: yaml.Node, path: Path, line: int) -> Setting:
    if not isinstance(node, yaml.ScalarNode):
        raise _fault(
            path, line, f"expected the key of a setting, found {_kind(node)}", _correct(path)
        )
    known = known_settings()
    if node.value in known:
        return known[node.value]
    close = nearest(node.value, known)
    hint = f"Did you mean {close[0]}? " if close else ""
    raise _fault(
        path,
        line,
        f"there is no setting {node.value[:60]!r}",
        f"{hint}`zluda-stack config show` lists all.",
    )


def _value(loader: yaml.SafeLoader, setting: Setting, node: yaml.Node, path: Path) -> object:
    line = node.start_mark.line + 1
    kind = node.tag.rpartition(":")[2]
    if not isinstance(node, yaml.ScalarNode) or kind not in _SCALARS:
        problem = f"{setting.key}: expected {setting.expected}, found {_kind(node)}"
        hint = (
            f"Quote it if you mean text: '{node.value}'." if kind == "timestamp" else _correct(path)
        )
        raise _fault(path, line, problem, hint)
    try:
        return loader.construct_object(node)
    except (yaml.YAMLError, ValueError, LookupError) as error:
        problem = f"{setting.key}: expected {setting.expected}, found {in_words(node.value)}"
        raise _fault(path, line, problem, _correct(path)) from error


def _checked(setting: Setting, value: object, path: Path, line: int) -> object:
    try:
        return setting.convert(value, lenient=False)
    except WrongValue as wrong:
        close = nearest(value, setting.choices) if isinstance(value, str) else ()
        if close:
            hint = f"Did you mean {close[0]}?"
        elif setting.kind == "text" and not isinstance(value, str):
            hint = "Put the value in quotes if you mean text."
        else:
            hint = _correct(path)
        raise _fault(path, line, f"{setting.key}: {wrong}", hint) from wrong


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    kind = node.tag.rpartition(":")[2]
    names = {"str": "text", "timestamp": "a date", "int": "a number", "float": "a number"}
    return names.get(kind, f"a value of the kind {node.tag}")


def _correct(path: Path) -> str:
    """The way on; `config edit` may open another file than the one that is wrong."""
    return f"Correct {path} in an editor."


def _fault(path: Path, line: int, problem: str, hint: str) -> UsageError:
    return UsageError(f"{path}:{line}: {problem}", hint)
