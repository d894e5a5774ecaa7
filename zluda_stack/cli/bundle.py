"""`bundle`: everything that a machine without network needs, carried there as one file."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from zluda_stack import paths
from zluda_stack.cli import context, output
from zluda_stack.cli.model_names import complete_model
from zluda_stack.cli.options import dry_run_option, json_option, settings_options
from zluda_stack.errors import HostProblem, Interrupted, UsageError
from zluda_stack.program import as_typed
from zluda_stack.units import megabytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zluda_stack.bundle.contents import Contents
    from zluda_stack.bundle.loading import Loaded
    from zluda_stack.bundle.manifest import Manifest
    from zluda_stack.bundle.reader import Bundle
    from zluda_stack.plan.types import Plan
    from zluda_stack.progress import Progress
    from zluda_stack.settings import Configured

_R = TypeVar("_R", bound=Callable[..., object])
_PARTS = ("models", "images", "wheels", "project")
_LOADED = ("models", "images")
# The settings that decide what is in a bundle.
_SETTINGS = (
    *("engine", "gpu", "context", "variant", "base", "combination", "zluda", "cuda_toolkit"),
    *("zluda_path", "accept_cuda_eula", "hsa_override"),
)
# Of those, what `up` on the other machine must be told too.
_WISHES = (
    *("engine", "gpu", "model", "context", "variant", "base", "combination", "zluda"),
    "cuda_toolkit",
)


@click.group()
def bundle() -> None:
    """Carry everything to a machine without network, as one file."""


def _only(flag: str, names: tuple[str, ...], help_text: str) -> Callable[[_R], _R]:
    return click.option(
        flag, "only", multiple=True, type=click.Choice(names), help=f"{help_text} Repeatable."
    )


@bundle.command()
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), required=True, help="File that is written."
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_model,
    help="A model of the store; the one that `up` takes without. Repeatable.",
)
@settings_options(*_SETTINGS)
@_only("--include", _PARTS, "Put only this into it.")
@dry_run_option
@json_option
@click.pass_context
def save(
    ctx: click.Context,
    flags: dict[str, object],
    *,
    out: Path,
    models: tuple[str, ...],
    only: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write what `up` here would use: models, images, packages, the rendered project.

    The bundle says in its README.txt how it is used. Nothing in it is secret; keys are not in it.
    """
    wished = flags | ({"model": models[0]} if models else {})
    configured = context.configured(ctx, wished)
    plan = _plan(ctx, configured)
    if out.is_dir():
        raise UsageError(f"{out} is a folder", "Name the file: -o FILE.tar")
    parts = only or _PARTS
    if configured.settings.offline and "wheels" in parts:
        raise UsageError(
            "offline no packages are fetched for a bundle",
            "Leave them out: --include models --include images --include project.",
        )
    names = models or _own_model(plan, parts)
    if dry_run:
        _print_commands(plan, parts, names)
        return
    context.refuse_replay(ctx, "bundle save")
    try:
        with output.progress() as progress, tempfile.TemporaryDirectory() as scratch:
            contents = _gather(
                plan, configured, parts, names, scratch=Path(scratch), progress=progress
            )
            written = _write(out, contents, progress)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; no bundle was written", "Give the command again.") from None
    if as_json:
        output.print_json(written)
    else:
        _say_saved(out, written)


@bundle.command()
@click.argument("file", type=click.Path(path_type=Path))
@_only("--only", _LOADED, "Take only this from it.")
@click.option(
    "--project", type=click.Path(path_type=Path), metavar="DIR", help="Write the project there too."
)
@dry_run_option
@json_option
def load(
    file: Path, *, only: tuple[str, ...], project: Path | None, dry_run: bool, as_json: bool
) -> None:
    """Put the models and images of FILE where `up --offline` finds them.

    Each file is compared with its SHA-256 before it is taken. After an interruption the same
    command goes on, without what was taken already.
    """
    from zluda_stack.bundle.loading import require_machine
    from zluda_stack.bundle.reader import open_bundle

    found = open_bundle(file)
    parts = only or _LOADED
    if "images" in parts:
        require_machine(found)
    if dry_run:
        _print_contents(found.manifest)
        return
    try:
        with output.progress() as progress:
            loaded = _load(found, parts, progress)
            written = _write_project(found, project)
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; what was loaded so far is kept", "The same command goes on from there."
        ) from None
    if as_json:
        output.print_json({"loaded": loaded, "project": [str(path) for path in written]})
        return
    for one in loaded:
        output.say(f"{one.kind} {one.name}: {'loaded' if one.new else 'was here already'}")
    if written:
        output.say(f"{project}: {len(written)} files")
    if not loaded and not written:
        output.say(f"{file} holds nothing of that.")
        return
    up = shlex.join(("zluda-stack", "up", "--offline", *found.manifest.up))
    output.say(as_typed(f"`{up}` starts it."))


@bundle.command()
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def show(file: Path, *, as_json: bool) -> None:
    """List what is in FILE, and the commands that use it. Nothing is hashed."""
    from zluda_stack.bundle.instructions import commands
    from zluda_stack.bundle.reader import open_bundle

    manifest = open_bundle(file).manifest
    if as_json:
        output.print_json(manifest)
        return
    _print_contents(manifest)
    output.say()
    for line in commands(manifest, file.name):
        output.say(f"  {line}")


def _plan(ctx: click.Context, configured: Configured) -> Plan:
    from zluda_stack.plan.resolve import resolve

    return resolve(context.facts(ctx, configured.settings), configured, context.catalog())


def _own_model(plan: Plan, parts: Sequence[str]) -> tuple[str, ...]:
    """The models that `up` takes. Raises UsageError for a file, which no store has a name for."""
    if "models" not in parts:
        return ()
    path = plan.model.path
    if path is not None and not Path(path).is_relative_to(paths.model_store()):
        raise UsageError(
            f"{path} is a file of yours, and not a model of the store",
            "`zluda-stack models import FILE` takes it in; or copy the file beside the bundle.",
        )
    return plan.served


def _gather(
    plan: Plan,
    configured: Configured,
    parts: Sequence[str],
    names: Sequence[str],
    *,
    scratch: Path,
    progress: Progress,
) -> Contents:
    """What the bundle will hold; what is missing here is told before anything is fetched."""
    from zluda_stack.bundle import contents as made
    from zluda_stack.models.store import Store

    found = made.Contents(manifest=made.draft(plan, _wishes(configured)), ingredients=())
    models = made.with_models(found, Store(paths.model_store()), names)
    found = _with_images(models, plan) if "images" in parts else models
    if "project" in parts:
        found = made.with_project(found, plan)
    if "wheels" in parts:
        found = made.with_wheels(found, scratch, progress)
    if not found.ingredients:
        raise UsageError("there is nothing to put into the bundle", "Include more.")
    return found


def _with_images(contents: Contents, plan: Plan) -> Contents:
    if not plan.images:
        return contents
    from zluda_stack.bundle.contents import with_images
    from zluda_stack.engines.docker import containers, supply
    from zluda_stack.engines.docker.served import served_images

    wanted = served_images(plan)
    with containers.connect() as client:
        for image in supply.lacking(supply.here(client, wanted)):
            raise HostProblem(
                f"the image {image.tag} was not built as planned",
                f"`{shlex.join(('zluda-stack', 'build', *contents.manifest.up))}` builds it.",
            )
        return with_images(contents, client, wanted)


def _write(out: Path, contents: Contents, progress: Progress) -> Manifest:
    from zluda_stack.bundle.archive import write
    from zluda_stack.bundle.contents import with_readme

    whole = with_readme(contents, out.name)
    folder = out.absolute().parent
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise UsageError(f"there is no folder {folder}", "Name a file in one that is.") from error
    if free < whole.size:
        raise HostProblem(
            f"the bundle takes {megabytes(whole.size)}, and {folder} has {megabytes(free)} free",
            "Write it to another disk.",
        )
    progress.step(f"writing {out}")
    return write(out, whole.manifest, whole.ingredients, progress)


def _wishes(configured: Configured) -> list[str]:
    """The flags by which `up` on the other machine makes the same plan."""
    words = []
    for key in _WISHES:
        value = getattr(configured.settings, key)
        if configured.given(key) and value is not None:
            words += [f"--{key.replace('_', '-')}", str(value)]
    return words


def _load(found: Bundle, parts: Sequence[str], progress: Progress) -> tuple[Loaded, ...]:
    from zluda_stack.bundle import loading
    from zluda_stack.models.store import Store

    loaded: tuple[Loaded, ...] = ()
    if "models" in parts and found.manifest.models:
        loaded += loading.load_models(found, Store(paths.model_store()), progress)
    if "images" in parts and found.manifest.images:
        from zluda_stack.engines.docker import containers

        with containers.connect() as client:
            loaded += loading.load_images(found, client, progress)
    return loaded


def _write_project(found: Bundle, project: Path | None) -> tuple[Path, ...]:
    if project is None:
        return ()
    from zluda_stack.bundle.loading import write_project

    return write_project(found, project)


def _print_commands(plan: Plan, parts: Sequence[str], names: Sequence[str]) -> None:
    from zluda_stack.bundle import images, wheels
    from zluda_stack.engines.docker.served import served_images

    for name in names:
        output.say(f"# the model {name} from {paths.model_store()}")
    lines: list[tuple[str, ...]] = []
    if "images" in parts:
        lines += [images.save_command(image.tag) for image in served_images(plan)]
    if "wheels" in parts:
        lines += wheels.commands(Path("wheels"))
    for line in lines:
        output.say(shlex.join(line))


def _print_contents(manifest: Manifest) -> None:
    output.heading(manifest.headline)
    output.say(f"written by zluda-stack {manifest.version} on {manifest.created}")
    sizes = {member.path: member.size for member in manifest.members}
    rows = [("model", one.name, megabytes(one.record.size)) for one in manifest.models]
    rows += [("image", one.tag, megabytes(sizes.get(one.member, 0))) for one in manifest.images]
    wheels, project = manifest.of("wheel"), manifest.of("project")
    if wheels:
        size = sum(member.size for member in wheels)
        what = f"{len(wheels)} packages for {manifest.python}"
        rows.append(("Python", what, megabytes(size)))
    if project:
        size = sum(member.size for member in project)
        rows.append(("project", f"{len(project)} files", megabytes(size)))
    output.table(("what", "name", "size"), rows)


def _say_saved(out: Path, manifest: Manifest) -> None:
    from zluda_stack.bundle.instructions import commands

    _print_contents(manifest)
    output.say()
    output.say(f"{out} ({megabytes(manifest.size)}). On the other machine, beside the file:")
    for line in commands(manifest, out.name):
        output.say(f"  {line}")
