"""`models export` and `import`: models between machines, and a user's own files into the store."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from zluda_stack.cli import context, output
from zluda_stack.cli.options import dry_run_option
from zluda_stack.errors import HostProblem, UsageError
from zluda_stack.units import megabytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zluda_stack.models.store import Store

_STANDARD = "-"


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "-o", "--output", "target", required=True, metavar="FILE|DIR", help="Where to; - is stdout."
)
@dry_run_option
def export(names: tuple[str, ...], *, target: str, dry_run: bool) -> None:
    """Write the models NAME to a tar file, or into a folder that exists.

    Such a folder is a source for `models pull --from`, also through a web server.
    """
    from zluda_stack.models.listing import find_entry

    store, wanted = _store(), list(dict.fromkeys(names))
    for name in wanted:
        find_entry(store, name)
    if dry_run:
        _say_size(store, wanted, target)
        return
    with output.progress() as progress:
        if Path(target).is_dir():
            from zluda_stack.models.copies import copy_models

            copy_models(store, wanted, Path(target), progress)
        else:
            from zluda_stack.models.archive import write_archive

            with _new_file(target) as sink:
                write_archive(store, wanted, sink, progress)
    output.note(f"Wrote {', '.join(wanted)} to {target}.")


@click.command("import")
@click.argument("path", metavar="FILE|DIR")
@click.option("--name", metavar="NAME", help="What to call the model in a GGUF file.")
@click.option("--link", is_flag=True, help="Give a GGUF file a second name in place of a copy.")
@dry_run_option
def import_(path: str, *, name: str | None, link: bool, dry_run: bool) -> None:
    """Take a GGUF file, or what `models export` wrote, into the store; - is stdin.

    Of a split model any part stands for all. A GGUF file needs no import to be served:
    `up --model FILE` does that too.
    """
    if path != _STANDARD and _is_gguf(Path(path)):
        _import_file(Path(path).resolve(), name, link=link, dry_run=dry_run)
        return
    if path.lower().endswith(".gguf") and not Path(path).is_dir():
        raise UsageError(
            f"{path} is no GGUF file: it does not begin with GGUF",
            "It may be half a download, or the page of a website. Fetch it again.",
        )
    if name is not None or link:
        raise UsageError("--name and --link are for a GGUF file", f"{path} is none.")
    if path != _STANDARD and Path(path).is_dir():
        _import_folder(Path(path), dry_run=dry_run)
        return
    if dry_run:
        raise UsageError("what an archive holds is known when it is read", "Leave --dry-run out.")
    from zluda_stack.models.archive import read_archive

    with output.progress() as progress, _opened(path) as source:
        taken = read_archive(_store(), source, progress)
    for model, file in taken:
        output.say(f"{model} is ready: {file}")


def _import_file(path: Path, name: str | None, *, link: bool, dry_run: bool) -> None:
    from zluda_stack.models.layout import checked_name
    from zluda_stack.models.local import LocalSource, as_known, files_at
    from zluda_stack.models.reference import name_of
    from zluda_stack.models.wanted import Described

    files = files_at(path)
    model = Described(name=checked_name(name or name_of(path.name)), files=files)
    store, known = _store(), context.catalog().models.get(model.name)
    if store.record(model.name) is not None:
        raise UsageError(
            f"the store has a model {model.name}",
            f"`zluda-stack models rm {model.name}` removes it; --name gives this one another.",
        )
    if known is not None:
        model = Described(name=model.name, files=as_known(files, known.files))
    source = LocalSource(path.parent, model.files, link=link)
    if dry_run:
        output.say(f"would take {path} as {model.name}")
        return
    with output.progress() as progress:
        ready = store.ensure(model, progress, source)
    output.say(f"{model.name} is ready: {ready}")


def _import_folder(folder: Path, *, dry_run: bool) -> None:
    from zluda_stack.models.fetching import Fetching
    from zluda_stack.models.layout import Layout
    from zluda_stack.models.store import Store, recorded

    there = Layout(folder).records()
    if not there:
        raise UsageError(f"{folder} holds no models", "`models export` writes such a folder.")
    if dry_run:
        for name, record in there.items():
            output.say(f"would take {name} ({megabytes(record.size)})")
        return
    store = Store(_store_root(), fetching=Fetching(peer=str(folder)))
    for name, record in there.items():
        store.require_same(name, record)
        with output.progress() as progress:
            ready = store.ensure(recorded(name, record), progress)
        output.say(f"{name} is ready: {ready}")


def _say_size(store: Store, names: list[str], target: str) -> None:
    files = {file.sha256: file.size for name in names for file, _ in store.files(name)}
    output.say(
        f"would write {', '.join(names)} ({len(files)} files, {megabytes(sum(files.values()))}) "
        f"to {target}"
    )


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except IsADirectoryError:
        return False
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "Check the path.") from error


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    if path == _STANDARD:
        yield sys.stdin.buffer
        return
    with Path(path).open("rb") as file:
        yield file


@contextmanager
def _new_file(target: str) -> Iterator[IO[bytes]]:
    """The file `target`, which is there when it is whole; or stdout."""
    if target == _STANDARD:
        if sys.stdout.isatty():
            raise UsageError("an archive is not for a terminal", "Name a file with --output.")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(target)
    if path.exists():
        raise UsageError(f"{path} exists", "Name another file, or remove it.")
    half = path.with_name(f".{path.name}.part")
    try:
        with half.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
    except OSError as error:
        raise HostProblem(
            f"cannot write {path}: {error.strerror}", "Check the folder and its free space."
        ) from error
    finally:
        half.unlink(missing_ok=True)


def _store_root() -> Path:
    from zluda_stack import paths

    return paths.model_store()


def _store() -> Store:
    from zluda_stack.models.store import Store

    return Store(_store_root())
