"""What a command needs besides its own options: settings, host facts, the catalogue."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zluda_stack.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zluda_stack.catalog.schema import Catalog
    from zluda_stack.host.facts import HostFacts
    from zluda_stack.settings import Configured, Settings


@dataclass
class Invocation:
    """The options that every command takes; one object for one run of the program."""

    verbose: bool = False
    no_color: bool = False
    host_facts: Path | None = None


def invocation(ctx: click.Context) -> Invocation:
    """The global options of this run."""
    found = ctx.find_object(Invocation)
    return found if found is not None else Invocation()


def configured(ctx: click.Context, flags: Mapping[str, object]) -> Configured:  # noqa: ARG001
    """The settings of this run and the origin of each: flags, environment, files, defaults.

    `flags` holds the settings that the command line gave, by their names. Raises UsageError,
    naming flag, variable or file and line, for anything that is not a setting.
    """
    from zluda_stack import paths
    from zluda_stack.config import layers

    return layers.load(flags, os.environ, project_file(), paths.config_file())


def sound(flags: Mapping[str, object]) -> tuple[Configured, list[UsageError]]:
    """The settings of this run as far as their layers are without fault, and the faults."""
    from zluda_stack import paths
    from zluda_stack.config import layers

    return layers.load_sound(flags, os.environ, project_file(), paths.config_file())


def stack_name(flags: Mapping[str, object]) -> str:
    """The name of the stack alone, for commands that must work with a broken settings file.

    Such a file is warned of and passed over. Raises UsageError for a flag or variable that is
    wrong.
    """
    from zluda_stack.cli import output
    from zluda_stack.config import layers

    given = layers.from_environment(os.environ) | layers.from_flags(flags)
    if "name" in given:
        return str(given["name"][0])
    found, faults = sound(flags)
    for fault in faults:
        output.warn(f"{fault.message}; this goes on without that file", fault.hint)
    return found.settings.name


def project_file() -> Path | None:
    """The zluda-stack.yml of the current folder or a parent that belongs to it, or None."""
    from zluda_stack.config import layers

    try:
        return layers.find_project_file(Path.cwd(), Path.home())
    except FileNotFoundError as error:
        raise UsageError("the current folder is gone", "Change to one that exists.") from error
    except RuntimeError as error:
        raise UsageError("this user has no home folder", "Set HOME to one.") from error


def facts(ctx: click.Context, settings: Settings) -> HostFacts:
    """The facts of this host, or those of the file that --host-facts names.

    Raises UsageError, naming the file and the place in it, for a file that is no host capture.
    """
    replayed = invocation(ctx).host_facts
    if replayed is not None:
        from zluda_stack.host.capture import load

        return load(replayed)
    from zluda_stack.host.probe import probe

    return probe(_model_path(settings), os.environ)


def _model_path(settings: Settings) -> Path | None:
    """The GGUF file that the settings name, by its path or as the model store calls it.

    None when they name nothing, or a model of the catalogue, whose shape that knows.
    """
    from zluda_stack.plan.model import names_a_file

    model = settings.model
    if model is None or names_a_file(model):
        return None if model is None else Path(model).expanduser()
    return _stored_file(model)


def _stored_file(name: str) -> Path | None:
    from zluda_stack import paths
    from zluda_stack.models.store import Store

    path = Store(paths.model_store()).find(name)
    return None if path is None or name in catalog().models else path


def is_replay(ctx: click.Context) -> bool:
    """True when this run was given the facts of another machine."""
    return invocation(ctx).host_facts is not None


def refuse_replay(ctx: click.Context, verb: str) -> None:
    """Raises UsageError when this run was given the facts of another machine."""
    if is_replay(ctx):
        raise UsageError(
            f"--host-facts describes another machine, and `{verb}` acts on this one",
            "Add --dry-run, or leave --host-facts out.",
        )


def catalog() -> Catalog:
    """The catalogue that this version brings."""
    from zluda_stack import paths
    from zluda_stack.catalog.load import load

    return load(keep_at=paths.kept_catalog())
