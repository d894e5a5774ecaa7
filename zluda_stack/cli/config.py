"""`zluda-stack config`: show and change settings."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import click

from zluda_stack import paths
from zluda_stack.cli import context, output
from zluda_stack.cli.options import dry_run_option, json_option
from zluda_stack.errors import ExitCode, UsageError

_which_file = click.option(
    "--user/--project",
    "user",
    default=True,
    help="Your own file (the default), or the zluda-stack.yml of this folder's project.",
)


@click.group()
def config() -> None:
    """Show and change settings.

    A flag wins over an environment variable (ZLUDA_STACK_PORT), that over zluda-stack.yml of
    the project, that over your own file, that over the default.
    """


@config.command()
@json_option
@click.pass_context
def show(ctx: click.Context, *, as_json: bool) -> None:
    """Show every setting, its value and origin.

    What a broken file says is left out, and its error shown; the exit code is 2 then.
    """
    from zluda_stack.config.schema import known_settings

    configured, faults = context.sound({})
    values = {key: getattr(configured.settings, key) for key in known_settings()}
    if as_json:
        shown: dict[str, object] = {
            key: {"value": value, "origin": configured.origin(key)} for key, value in values.items()
        }
        output.print_json(shown | ({"error": output.error_facts(faults[0])} if faults else {}))
        ctx.exit(ExitCode.USAGE if faults else ExitCode.OK)
    output.table(
        ("setting", "value", "origin", "what it is"),
        [
            (key, _as_text(value), str(configured.origin(key)), known_settings()[key].help)
            for key, value in values.items()
        ],
    )
    for fault in faults:
        output.complain(fault.message, fault.hint)
    ctx.exit(ExitCode.USAGE if faults else ExitCode.OK)


@config.command()
@click.argument("key")
@json_option
@click.pass_context
def get(ctx: click.Context, key: str, *, as_json: bool) -> None:
    """Print the value of KEY; an empty line when it is left open."""
    from zluda_stack.config.edit import setting_named

    setting = setting_named(key)
    configured = context.configured(ctx, {})
    value = getattr(configured.settings, setting.key)
    if as_json:
        output.print_json({"value": value, "origin": configured.origin(setting.key)})
    else:
        output.say(_as_text(value))


@config.command(name="set")
@click.argument("key")
@click.argument("value")
@_which_file
@dry_run_option
@click.pass_context
def set_(ctx: click.Context, key: str, value: str, *, user: bool, dry_run: bool) -> None:
    """Set KEY to VALUE in a settings file.

    Comments, order and all other values stay as they are.
    """
    from zluda_stack.config.edit import set_value, setting_named

    file = _file(user=user)
    written = set_value(file, key, value, dry_run=dry_run)
    name = setting_named(key).key
    output.say(f"{name}: {_as_text(written)} ({file}{', not written' if dry_run else ''})")
    if dry_run:
        return
    origin = context.configured(ctx, {}).origin(name)
    if not origin.where.startswith(f"{file}:"):
        output.warn(f"it has no effect here: {origin} wins over it", "Unset it there as well.")


@config.command()
@_which_file
def edit(*, user: bool) -> None:
    """Open a settings file in your editor.

    That is $VISUAL or $EDITOR. A file that is broken afterwards is not taken over.
    """
    from zluda_stack.config import edit as editing

    file = _file(user=user)
    changed = editing.edit(file, _open_editor)
    output.say(f"{file} is {'changed' if changed else 'as it was'}.")


@config.command()
@json_option
def path(*, as_json: bool) -> None:
    """Print the settings files, the winning one first."""
    files = [file for file in (context.project_file(), paths.config_file()) if file is not None]
    if as_json:
        output.print_json([{"path": str(file), "exists": file.exists()} for file in files])
        return
    for file in files:
        output.say(f"{file}{'' if file.exists() else ' (not there yet)'}")


def _file(*, user: bool) -> Path:
    from zluda_stack.config.layers import FILE_NAME

    if user:
        return paths.config_file()
    return context.project_file() or Path.cwd() / FILE_NAME


def _open_editor(file: Path) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    hint = "Set EDITOR to the editor you use."
    try:
        status = subprocess.run([*shlex.split(editor), str(file)], check=False).returncode
    except (OSError, ValueError) as error:
        raise UsageError(f"the editor {editor!r} cannot be started", hint) from error
    if status != 0:
        raise UsageError(f"the editor {editor!r} ended with status {status}", hint)


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
