"""Everything that a Plan renders to, as files of one folder."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterable
from pathlib import Path

import msgspec

from zluda_stack.errors import HostProblem, PlanRefused, UsageError
from zluda_stack.files import write_atomic
from zluda_stack.plan.selftest import selftest_path, selftest_plan
from zluda_stack.plan.types import ImagePlan, Plan
from zluda_stack.render.compose import compose_path, render_compose
from zluda_stack.render.dockerfiles import render_dockerfile
from zluda_stack.render.environment import merge_env, render_env
from zluda_stack.render.images import copied_names
from zluda_stack.render.sources import read_source

_RECORD = ".zluda-stack-rendered.json"
_ENV = "compose/.env"


def render_project(plan: Plan) -> dict[str, str]:
    """The files of a stack in containers: path relative to the output folder -> text.

    `.env` lies beside the compose file, where Compose looks for it whatever the current folder
    is. Raises PlanRefused for a plan without containers, StackError for a broken template.
    """
    if not plan.services:
        raise PlanRefused(
            f"the {plan.engine} engine has no containers to render",
            "Name the card to render for, such as --gpu gfx1100, or --engine docker --gpu none.",
        )
    files = {compose_path(plan): render_compose(plan), _ENV: render_env(plan)}
    selftest = selftest_path(plan)
    if selftest is not None:
        files[selftest] = render_compose(selftest_plan(plan))
    files |= {dockerfile(image): render_dockerfile(image) for image in plan.images}
    return files | copied_files(plan.images)


def dockerfile(image: ImagePlan) -> str:
    """Where the Dockerfile of `image` lies in a rendered folder."""
    return f"images/{image.name}/Dockerfile"


def copied_files(images: Iterable[ImagePlan]) -> dict[str, str]:
    """What the Dockerfiles of `images` copy or must not see, and what finds the host's values."""
    names = {".dockerignore", "compose/host-env.sh"}
    for image in images:
        names |= copied_names(image)
    copied: dict[str, str] = {}
    for name in sorted(names):
        copied |= read_source(name)
    return copied


def conflicts(files: dict[str, str], out: Path) -> tuple[str, ...]:
    """The paths of `files` that exist in `out` and hold something that was not rendered there.

    Never the .env: compose/host-env.sh and users are meant to write into it.
    """
    record = _read_record(out)
    return tuple(
        path
        for path, text in files.items()
        if (path != _ENV or (out / path).is_dir())
        and _digest_of_file(out / path) not in (None, _digest(text), record.get(path))
    )


def write_project(files: dict[str, str], out: Path, *, force: bool = False) -> tuple[Path, ...]:
    """Write `files` under `out` and return the paths, in the order of `files`.

    What an earlier render wrote is replaced; a .env keeps what others wrote into it, unless
    `force`. Raises UsageError, before anything is written, when
    a file there was changed or came from elsewhere, unless `force`; HostProblem when the folder
    cannot be written.
    """
    foreign = conflicts(files, out)
    if foreign and not force:
        raise UsageError(
            f"not written by zluda-stack, or changed since: {', '.join(foreign)} in {out}",
            "Choose another folder with --out, or overwrite them with --force.",
        )
    for path, text in files.items():
        if path == _ENV and not force and (out / path).exists():
            _update_env(out / path, text)
        elif _digest_of_file(out / path) != _digest(text):
            write_atomic(out / path, text, mode=0o755 if text.startswith("#!") else 0o644)
    record = _read_record(out) | {path: _digest(text) for path, text in files.items()}
    write_atomic(out / _RECORD, json.dumps(record, indent=2, sort_keys=True) + "\n")
    return tuple(out / path for path in files)


def _update_env(path: Path, rendered: str) -> None:
    """Bring the .env at `path` up to date; its mode stays, for others may keep secrets in it."""
    try:
        present, mode = path.read_bytes(), stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise _unreadable(path, error) from error
    text = merge_env(rendered, present.decode(errors="surrogateescape"))
    merged = text.encode(errors="surrogateescape")
    if merged != present:
        write_atomic(path, merged, mode=mode)


def _read_record(out: Path) -> dict[str, str]:
    """The sha256 of every file that was rendered into `out`; empty when nothing was."""
    try:
        return msgspec.json.decode((out / _RECORD).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _digest_of_file(path: Path) -> str | None:
    """The sha256 of the file, None when there is none; a folder is never what was rendered."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError:
        return ""
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> HostProblem:
    return HostProblem(
        f"cannot read {path}: {error.strerror}", "Check the owner of the file and its folder."
    )
