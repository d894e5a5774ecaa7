"""The command line's options for settings, made from `zluda_stack.settings.Settings`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from zluda_stack.cli.model_names import complete_model_or_file
from zluda_stack.config.layers import flag_name
from zluda_stack.config.schema import Setting, known_settings

_R = TypeVar("_R")

json_option = click.option("--json", "as_json", is_flag=True, help="Print facts as JSON.")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Print what would be done, and do nothing."
)
yes_option = click.option(
    "--yes", is_flag=True, help="Agree to all that would be asked: long builds, large downloads."
)


def out_option(default: str) -> Callable[[Callable[..., _R]], Callable[..., _R]]:
    """The option --out of a command that writes one file, to `default` when it is not given."""
    return click.option(
        "--out",
        type=click.Path(path_type=Path),
        default=Path(default),
        show_default=True,
        help="File that is written; - is stdout.",
    )


def folder_options(whose: str) -> Callable[[Callable[..., _R]], Callable[..., _R]]:
    """--mount, --no-cwd and --env: what of this machine is given to the container of `whose`."""

    def decorate(command: Callable[..., _R]) -> Callable[..., _R]:
        for option in (
            click.option(
                "--env", "environment", multiple=True, metavar="NAME[=VALUE]", help="Repeatable."
            ),
            click.option("--no-cwd", is_flag=True, help=f"Do not give {whose} the current folder."),
            click.option(
                "--mount",
                "mounts",
                multiple=True,
                metavar="SRC[:DST][:ro]",
                help=f"Give {whose} another folder or file, at its own path or at DST; repeatable.",
            ),
        ):
            command = option(command)
        return command

    return decorate


class Folder(click.Path):
    """A folder. An empty word, which an unset variable leaves, is not the current one."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """The folder as a path. Fails, as click does, for an empty word."""
        if value == "":
            self.fail("it is empty; the current folder is `.`", param, ctx)
        return super().convert(value, param, ctx)


class ImageName(click.types.StringParamType):
    """The name of an image. An empty word, which an unset variable leaves, is none."""

    name = "image"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name as it is. Fails, as click does, for an empty word."""
        if not value.strip():
            self.fail("it is empty; `docker images` lists those that are here", param, ctx)
        return value


def settings_options(*keys: str) -> Callable[[Callable[..., _R]], Callable[..., _R]]:
    """Give a command the options of the settings `keys` (without any, of all that have one).

    The command takes one argument `flags` for them all: what was typed, by key, as
    `context.configured` wants it.
    """
    known = known_settings()
    chosen = [known[key] for key in keys] or [one for one in known.values() if one.flag]

    def decorate(command: Callable[..., _R]) -> Callable[..., _R]:
        @functools.wraps(command)
        def with_flags(*args: object, **values: object) -> _R:
            given = {setting.key: values.pop(setting.key) for setting in chosen}
            flags = {key: value for key, value in given.items() if value is not None}
            return command(*args, flags=flags, **values)

        for setting in reversed(chosen):
            _option(setting)(with_flags)
        return with_flags

    return decorate


def _option(setting: Setting) -> Callable[[Callable[..., _R]], Callable[..., _R]]:
    flag = flag_name(setting.key)
    if setting.kind == "switch":
        both = f"{flag}/--no-{flag.removeprefix('--')}"
        return click.option(both, setting.key, default=None, help=setting.help)

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
        return [choice for choice in setting.choices if choice.startswith(incomplete)]

    metavar = "|".join(setting.choices) or ("N" if setting.kind == "number" else "TEXT")
    completed = complete_model_or_file if setting.key == "model" else complete
    return click.option(
        flag, setting.key, type=str, metavar=metavar, help=setting.help, shell_complete=completed
    )
