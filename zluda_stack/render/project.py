"""Everything that a Plan renders to, as files of one folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import msgspec
from msgspec import Struct

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


class Leftovers(Struct, frozen=True, kw_only=True):
    """What an earlier render wrote into a folder and the next one has not, as paths in it.

    `removable` are as they were written; `changed` are others' work by now, and stay.
    """

    removable: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


class _Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was rendered into a folder: the sha256 of each file by its path.

    `written` are those whose text was not there before, so that nobody else can miss them.
    """

    files: dict[str, str] = {}
    written: tuple[str, ...] = ()


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
    record = _read_record(out).files
    return tuple(
        path
        for path, text in files.items()
        if (path != _ENV or (out / path).is_dir())
        and _digest_of_file(out / path) not in (None, _digest(text), record.get(path))
    )


def leftovers(files: dict[str, str], out: Path) -> Leftovers:
    """What `write_project` with `files` would remove from `out`, and what it would leave there.

    Never the .env, nor a file that had the same text before it was rendered. Raises HostProblem.
    """
    record = _read_record(out)
    old = [path for path in record.written if path not in files and _is_inside(path)]
    digests = {path: _digest_of_file(out / path) for path in old if path != _ENV}
    there = [path for path, digest in digests.items() if digest is not None]
    ours = [path for path in there if digests[path] == record.files.get(path)]
    removable = tuple(path for path in ours if not (out / path).is_symlink())
    return Leftovers(
        removable=removable, changed=tuple(path for path in there if path not in removable)
    )


def write_project(
    files: dict[str, str], out: Path, *, force: bool = False, lasting: bool = False
) -> tuple[Path, ...]:
    """Write `files` under `out` and return the paths, in the order of `files`.

    What an earlier render wrote is replaced, and removed where `files` has it not (`leftovers`);
    a .env keeps what others wrote into it, unless `force`. With `lasting` nothing is removed, nor
    by a later render what this one writes. Raises UsageError, before anything is written, when
    a file there was changed or came from elsewhere, unless `force`; HostProblem when the folder
    cannot be written.
    """
    foreign = conflicts(files, out)
    if foreign and not force:
        raise UsageError(
            f"not written by zluda-stack, or changed since: {', '.join(foreign)} in {out}",
            "Choose another folder with --out, or overwrite them with --force.",
        )
    over = Leftovers() if lasting else leftovers(files, out)
    written = set()
    for path, text in files.items():
        if path == _ENV and not force and (out / path).exists():
            _update_env(out / path, text)
        elif _digest_of_file(out / path) != _digest(text):
            write_atomic(out / path, text, mode=0o755 if text.startswith("#!") else 0o644)
            written.add(path)
    for path in over.removable:
        _remove(out, path)
    before = _read_record(out)
    removable = set(before.written) - set(files) if lasting else {*before.written, *written}
    digests = before.files | {path: _digest(text) for path, text in files.items()}
    _write_record(out, digests, removable, gone={*over.removable, *over.changed})
    return tuple(out / path for path in files)


def _write_record(out: Path, files: dict[str, str], written: set[str], *, gone: set[str]) -> None:
    record = {
        "files": {path: digest for path, digest in files.items() if path not in gone},
        "written": sorted(written - gone),
    }
    write_atomic(out / _RECORD, json.dumps(record, indent=2, sort_keys=True) + "\n")


def _remove(out: Path, path: str) -> None:
    """Remove the file, and the folders of it that nothing is in any more."""
    try:
        (out / path).unlink(missing_ok=True)
    except OSError as error:
        raise HostProblem(
            f"cannot remove {out / path}: {error.strerror}", "Check the folder's owner."
        ) from error
    with contextlib.suppress(OSError):  # something else is in it
        for folder in PurePosixPath(path).parents[:-1]:
            (out / folder).rmdir()


def _is_inside(path: str) -> bool:
    """False for a path that leads out of its folder, as no record of this program has one."""
    return not PurePosixPath(path).is_absolute() and ".." not in PurePosixPath(path).parts


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


def _read_record(out: Path) -> _Record:
    """What was rendered into `out`; empty when nothing was."""
    try:
        raw = (out / _RECORD).read_bytes()
        return msgspec.json.decode(raw, type=_Record)
    except OSError:
        return _Record()
    except msgspec.DecodeError:
        return _old_record(raw)


def _old_record(raw: bytes) -> _Record:
    """A record from before it told what was `written`; empty when it is none at all."""
    try:
        return _Record(files=msgspec.json.decode(raw, type=dict[str, str]))
    except msgspec.DecodeError:
        return _Record()


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
