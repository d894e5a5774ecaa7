"""`check`: will this CUDA program run on ZLUDA, and if not, why."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zluda_stack.cli import context, output
from zluda_stack.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from zluda_stack.check.facts import FileFacts
    from zluda_stack.check.gather import Look
    from zluda_stack.check.inspect import World
    from zluda_stack.check.report import FileReport, Report
    from zluda_stack.check.sources import Source

_COLUMNS = ("file", "verdict", "PTX", "machine code", "CUDA functions")
_HUES = {
    "cannot run": "red",
    "cannot be judged": "red",
    "may run, with gaps": "yellow",
    "will likely run": "green",
}
_IMAGE = "image:"
_SECONDS_BETWEEN_LINES = 2.0


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--python", metavar="FILE", help="The interpreter whose packages are meant.")
@click.option("--zluda-cc", metavar="N.N", help="The ZLUDA_CC that the program will be given.")
@click.option("--deep", is_flag=True, help="Compile all PTX with ZLUDA's compiler, for --gpu.")
@click.option("--gpu", metavar="TEXT", help="With --deep: the card to compile for.")
@click.option(
    "--zoc",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --deep: the compiler; without, that of the image of `zluda-stack build zluda`.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--sarif", "as_sarif", is_flag=True, help="Print the gaps as SARIF 2.1.0.")
@click.pass_context
def check(
    ctx: click.Context,
    paths: tuple[str, ...],
    *,
    python: str | None,
    zluda_cc: str | None,
    gpu: str | None,
    zoc: Path | None,
    deep: bool,
    as_json: bool,
    as_sarif: bool,
) -> None:
    """Say whether CUDA programs will run on ZLUDA, without a GPU and without CUDA.

    PATH is a program, a library, a folder, a wheel, the name of an installed Python package, or
    a local image (image:NAME). Nothing of it is run. The exit code is 0 when it will likely run,
    6 when it may run with gaps, 3 when it cannot.
    """
    from zluda_stack.catalog import coverage, cuda
    from zluda_stack.check.inspect import World, inspect

    if as_json and as_sarif:
        raise UsageError("--json and --sarif are two forms of one output", "Choose one of them.")
    if deep != (gpu is not None) or (zoc is not None and not deep):
        raise UsageError(
            "--deep compiles for a card, and the other two are for it alone",
            "Give --deep and --gpu together, such as `--deep --gpu gfx1100`.",
        )
    code = cuda.zluda_code()
    capability = _capability(zluda_cc or code.compute_capability)
    world = World.of(coverage.load(), cuda.cuda_libraries(), code)
    sources = [source(path, python) for path in paths]
    with ExitStack() as stack:

        def look(path: Path, name: str) -> FileFacts:
            return inspect(world, path, name)

        chosen = look if gpu is None else _deep(stack, look, gpu, zoc)
        found = _report(world, sources, capability, chosen)
    _tell(found, as_json=as_json, as_sarif=as_sarif)
    ctx.exit(found.exit_code)


def _deep(stack: ExitStack, look: Look, gpu: str, zoc: Path | None) -> Look:
    """`look`, and then the compiler, which is kept until `stack` is left."""
    from zluda_stack.check import deep
    from zluda_stack.check.zoc import compiler, target

    catalog = context.catalog()
    made = deep.Compiler(
        target=target(catalog, gpu),
        command=deep.options([str(stack.enter_context(compiler(zoc, catalog)))]),
        jobs=len(os.sched_getaffinity(0)),
    )
    return lambda path, name: deep.compiled(made, path, look(path, name), output.note)


def _tell(found: Report, *, as_json: bool, as_sarif: bool) -> None:
    if as_json:
        output.print_json(found)
    elif as_sarif:
        from zluda_stack.check.sarif import sarif

        output.print_json(sarif(found))
    else:
        _print(found)


def _capability(text: str) -> int:
    major, dot, minor = text.partition(".")
    if not (major.isdecimal() and (not dot or (minor.isdecimal() and len(minor) == 1))):
        raise UsageError(
            f"{text!r} is no compute capability", "Write it as ZLUDA_CC has it, such as 8.6."
        )
    return int(major) * 10 + int(minor or 0)


def examined(found: Source) -> Report:
    """What there is to say of `found` on ZLUDA as it is, for other commands."""
    from zluda_stack.catalog import coverage, cuda
    from zluda_stack.check.inspect import World, inspect

    code = cuda.zluda_code()
    world = World.of(coverage.load(), cuda.cuda_libraries(), code)
    capability = _capability(code.compute_capability)
    return _report(world, [found], capability, lambda path, name: inspect(world, path, name))


def source(path: str, python: str | None) -> Source:
    """What `path` means: something on the disk, an installed package, a local image.

    A name with a tag or a digest, which no package has, is an image.
    """
    from zluda_stack.check import sources

    if path == "":
        raise UsageError("a path is empty", "The current folder is `.`.")
    if "\0" in path:
        raise UsageError("a path holds a zero byte", "Check the path.")
    if not path.startswith(_IMAGE) and (
        Path(path).exists() or Path(path).is_symlink() or path.startswith((".", "/", "~"))
    ):
        return sources.local(path)
    if ":" in path or "@" in path:
        from zluda_stack.check.image import Image

        reference = path.removeprefix(_IMAGE)
        if not reference.strip():
            raise UsageError(f"{path!r} names no image", f"A local image is {_IMAGE}NAME:TAG.")
        return Image(reference)
    from zluda_stack.check import package

    found = None if "/" in path else package.installed(path, python)
    if found is None:
        raise UsageError(
            f"there is no file and no installed package {path}",
            "Name a file, a folder or a wheel, or the interpreter of the package with --python; "
            f"a local image is {_IMAGE}{path}.",
        )
    return found


def _report(world: World, sources: Sequence[Source], capability: int, look: Look) -> Report:
    from zluda_stack.check import judge
    from zluda_stack.check.closure import Given, needs
    from zluda_stack.check.demangle import demangled
    from zluda_stack.check.gather import gather
    from zluda_stack.check.report import report

    gathered = gather(sources, look, teller())
    given = Given.of(gathered.files, gathered.links)
    basis = judge.Basis(world.coverage, world.libraries, capability, demangled)
    judged = [
        judge.judge(
            basis,
            file,
            needs(world.coverage, world.libraries, file, given),
            asked=file.name in gathered.required,
        )
        for file in gathered.files
    ]
    if not judged:
        raise UsageError("there is no program and no library in it", "Name what holds some.")
    return report(
        judged,
        judge.overall(judged, gathered.required),
        required=gathered.required,
        zluda_commit=world.coverage.zluda_commit,
        compute_capability=f"{capability // 10}.{capability % 10}",
    )


def teller() -> Callable[[str], None]:
    """Says on stderr now and then which file is being read."""
    last = time.monotonic()

    def tell(name: str) -> None:
        nonlocal last
        if time.monotonic() - last > _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            output.note(f"reading {output.printable(name)}")

    return tell


def _print(found: Report) -> None:
    from zluda_stack.check.report import archive_of, code_cells

    archives = list(dict.fromkeys(archive_of(file.file) for file in found.files))
    for archive in archives:
        files = [file for file in found.files if archive_of(file.file) == archive]
        if archive:
            output.heading(f"{output.printable(archive)}:")
        names = [output.printable(file.file.removeprefix(archive)) for file in files]
        rows = zip(names, files, strict=True)
        output.table(
            _COLUMNS, [(name, file.verdict.value, *code_cells(file)) for name, file in rows]
        )
        for name, file in zip(names, files, strict=True):
            _print_gaps(name, file)
    if found.without_cuda:
        output.say(f"\n{found.without_cuda} more without CUDA.")
    verdict = output.styled(found.verdict.value, _HUES.get(found.verdict.value, "white"))
    output.say(f"\nOn ZLUDA {found.zluda_commit[:8]}: {verdict}.")


def _print_gaps(name: str, file: FileReport) -> None:
    from zluda_stack.check.report import folded, gap_lines

    if file.verdict.value == "replaced by ZLUDA":
        return  # the table says so
    if file.gaps:
        output.say()
        output.heading(name)
    for one in folded(file.gaps):
        for line in gap_lines(one):
            output.say(f"  {output.printable(line)}")
