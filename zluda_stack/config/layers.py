"""Merge the layers: flags over environment over project file over user file over defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from zluda_stack.catalog.nearest import nearest
from zluda_stack.config.contents import contents
from zluda_stack.config.schema import Setting, WrongValue, known_settings
from zluda_stack.errors import UsageError
from zluda_stack.settings import Configured, Origin, Settings

FILE_NAME = "zluda-stack.yml"
PREFIX = "ZLUDA_STACK_"

# Files that are named by their path: made absolute here, for nothing after this knows a folder.
_PATHS = frozenset({"tls_cert", "tls_key", "webui_login"})

Layer = dict[str, tuple[object, Origin]]


def load(
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    project_file: Path | None,
    user_file: Path,
) -> Configured:
    """The settings, each with its origin.

    `flags` are the settings that the command line gave, by key; `environ` the environment;
    `project_file` what `find_project_file` found. Raises UsageError for an unknown key or a
    value that the setting does not take, naming flag, variable, or file and line.
    """
    configured, faults = load_sound(flags, environ, project_file, user_file)
    for fault in faults:
        raise fault
    return configured


def load_sound(
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    project_file: Path | None,
    user_file: Path,
) -> tuple[Configured, list[UsageError]]:
    """As `load`, but a layer with a fault is left out; the faults come with the settings."""
    layers: tuple[Callable[[], Layer], ...] = (
        lambda: from_file(user_file, "user file"),
        lambda: from_file(project_file, "project file") if project_file else {},
        lambda: from_environment(environ),
        lambda: from_flags(flags),
    )
    merged: Layer = {}
    faults: list[UsageError] = []
    for layer in layers:
        try:
            merged |= layer()
        except UsageError as fault:
            faults.append(fault)
    values = {key: value for key, (value, _) in merged.items()}
    configured = Configured(
        settings=msgspec.convert(values, Settings),
        origins={key: origin for key, (_, origin) in merged.items()},
    )
    return configured, faults


def find_project_file(folder: Path, home: Path) -> Path | None:
    """The zluda-stack.yml of `folder` or of its nearest parent, or None.

    The search ends at the top of the git work tree or at `home`; a folder under neither has
    no parents to ask, so that nobody else's file in /tmp or / is ever read.
    """
    above = (folder, *folder.parents)
    bounds = (place for place in above if place == home or (place / ".git").exists())
    top = next(bounds, folder)
    for place in above[: above.index(top) + 1]:
        file = place / FILE_NAME
        if file.exists() or file.is_symlink():  # a link that leads nowhere is told when read
            return file
    return None


def from_file(path: Path, kind: Literal["project file", "user file"]) -> Layer:
    """The layer of the file at `path`; a relative path in it counts from its folder."""
    raw = contents(path)
    if raw is None:
        return {}
    from zluda_stack.config import yaml_file

    return {
        key: (
            _beside(path, key, entry.value),
            Origin(kind=kind, where=f"{path}:{entry.line}"),
        )
        for key, entry in yaml_file.parse(raw, path).items()
    }


def from_environment(environ: Mapping[str, str]) -> Layer:
    """The layer of the ZLUDA_STACK_* variables; an empty variable is not set."""
    known = known_settings()
    variables = {variable_name(key): setting for key, setting in known.items()}
    layer: Layer = {}
    for name in sorted(name for name in environ if name.startswith(PREFIX)):
        if name not in variables:
            close = nearest(name.removeprefix(PREFIX), known)
            hint = f"Did you mean {variable_name(close[0])}?" if close else "Unset it."
            raise UsageError(f"there is no setting for the environment variable {name}", hint)
        if environ[name] != "":
            setting = variables[name]
            origin = Origin(kind="environment", where=name)
            layer[setting.key] = (lenient(setting, environ[name], name), origin)
    return layer


def from_flags(flags: Mapping[str, object]) -> Layer:
    """The layer of the command line: `flags` by key."""
    layer: Layer = {}
    for key, value in flags.items():
        origin = Origin(kind="flag", where=flag_name(key))
        layer[key] = (lenient(known_settings()[key], value, origin.where), origin)
    return layer


def lenient(setting: Setting, text: object, where: str) -> object:
    """`text` as the value of `setting`; raises UsageError that names `where` it was given."""
    try:
        value = setting.convert(text, lenient=True)
        return _in_folder(Path(), value) if setting.key in _PATHS else value
    except WrongValue as wrong:
        close = nearest(str(text), setting.choices)
        hint = (
            f"Did you mean {close[0]}?"
            if close
            else "`zluda-stack config show` lists all settings and their values."
        )
        raise UsageError(f"{where}: {wrong}", hint) from wrong


def flag_name(key: str) -> str:
    """The command line's name of the setting `key`."""
    return "--" + key.replace("_", "-")


def variable_name(key: str) -> str:
    """The environment variable of the setting `key`."""
    return PREFIX + key.upper()


def _beside(path: Path, key: str, value: object) -> object:
    """`value` of the setting `key` in the file at `path`."""
    from zluda_stack.plan.model import names_a_file

    if key in _PATHS:
        return _in_folder(path.parent, value)
    if key != "model" or not isinstance(value, str) or not names_a_file(value):
        return value
    return value if value.startswith("~") else str(path.parent / value)


def _in_folder(folder: Path, value: object) -> object:
    return str((folder / Path(value).expanduser()).absolute()) if isinstance(value, str) else value
