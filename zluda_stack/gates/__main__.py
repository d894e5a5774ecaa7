"""`python3 -m zluda_stack.gates GATE ...`: run one gate, as an image build does."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from zluda_stack.catalog import coverage as covered
from zluda_stack.errors import ExitCode, StackError
from zluda_stack.gates import coverage, kernels, libraries, ptx, size, verdict
from zluda_stack.gates.files import expanded
from zluda_stack.gates.verdict import Verdict

Gate = Callable[[argparse.Namespace], Verdict]
_HOLDS_PTX = "ELF file, fat binary or PTX, or a folder of ELF files"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the gate that the command line names; its exit code is 0 only when it lets pass.

    3 is a gate that does not, 2 a wrong command line or input, 4 a problem of the machine.
    """
    options = _parser().parse_args(arguments)
    try:
        found: Verdict = options.run(options)
        if options.json is not None:
            verdict.write_json(found, options.json)
    except StackError as error:
        return _fail(f"{options.gate}: {error.message}", error.hint, error.exit_code)
    except KeyboardInterrupt:
        return _fail(f"{options.gate}: interrupted", "", ExitCode.INTERRUPTED)
    _say(sys.stdout, verdict.text(found))
    if found.reason is not None:
        return _fail(f"{found.gate}: {found.reason}", found.hint, ExitCode.REFUSED)
    return ExitCode.OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m zluda_stack.gates", description=__doc__)
    gates = parser.add_subparsers(dest="gate", required=True, metavar="GATE")

    def gate(name: str, run: Gate, what: str) -> argparse.ArgumentParser:
        added = gates.add_parser(name, help=what, description=what)
        added.set_defaults(run=run)
        added.add_argument("--json", type=Path, metavar="FILE", help="also write the result here")
        return added

    one = gate("libraries", _libraries, "All programs and libraries load, with all they need.")
    one.add_argument("paths", nargs="+", type=Path, metavar="FOLDER")
    _add_repeated(one, "--search", "FOLDER", "a folder of LD_LIBRARY_PATH", Path)

    one = gate("ptx", _ptx, "Every PTX module compiles for the gfx target.")
    one.add_argument("paths", nargs="+", type=Path, metavar="FILE", help=_HOLDS_PTX)
    one.add_argument("--compiler", required=True, help="ZLUDA's offline compiler, with arguments")
    one.add_argument("--target", required=True, type=_gfx_target)
    one.add_argument("--budget", type=_count, default=0, help="modules that may fail (default 0)")
    one.add_argument("--jobs", type=_positive, default=len(os.sched_getaffinity(0)))
    one.add_argument("--seconds", type=_positive, default=3600, help="at most for one module")

    one = gate("symbols", _symbols, "ZLUDA has every CUDA function that the programs import.")
    one.add_argument("paths", nargs="+", type=Path, metavar="FILE", help="ELF file, or a folder")
    _add_repeated(one, "--accept", "NAME", "a function that may be missing")
    one.add_argument("--coverage", type=Path, metavar="FILE", help="default: the catalogue's")

    one = gate("opcodes", _opcodes, "ZLUDA's parser knows every opcode in the programs' PTX.")
    one.add_argument("paths", nargs="+", type=Path, metavar="FILE", help=_HOLDS_PTX)
    _add_repeated(one, "--accept", "NAME", "an opcode that may be missing")
    one.add_argument("--coverage", type=Path, metavar="FILE", help="default: the catalogue's")

    one = gate("kernels", _kernels, "rocBLAS has kernels for the gfx target or its fallback.")
    one.add_argument("--target", required=True, type=_gfx_target)
    one.add_argument("--fallback", type=_gfx_target, metavar="TARGET",
                     help="the target whose kernels the catalogue names instead")  # fmt: skip
    one.add_argument("--rocblas", required=True, type=Path, metavar="FOLDER")
    one.add_argument("--hipblaslt", type=Path, metavar="FOLDER", help="is reported on")
    one.add_argument("--hipblaslt-needed", action="store_true", help="is needed too")

    one = gate("size", _size, "The files under the folders stay within the budget.")
    one.add_argument("paths", nargs="+", type=Path, metavar="FOLDER")
    one.add_argument("--budget", required=True, help="such as 800MB or 1.5GB")
    return parser


def _libraries(options: argparse.Namespace) -> Verdict:
    return libraries.check(options.paths, search=options.search)


def _ptx(options: argparse.Namespace) -> Verdict:
    return ptx.check(
        expanded(options.paths),
        compiler=shlex.split(options.compiler),
        target=options.target,
        jobs=options.jobs,
        seconds=options.seconds,
        budget=options.budget,
        progress=_progress,
    )


def _symbols(options: argparse.Namespace) -> Verdict:
    files, known = expanded(options.paths), covered.load(options.coverage)
    return coverage.check_symbols(files, coverage=known, accepted=options.accept)


def _opcodes(options: argparse.Namespace) -> Verdict:
    files, known = expanded(options.paths), covered.load(options.coverage)
    return coverage.check_opcodes(
        files, coverage=known, accepted=options.accept, progress=_progress
    )


def _kernels(options: argparse.Namespace) -> Verdict:
    return kernels.check(
        target=options.target,
        fallback=options.fallback,
        rocblas=options.rocblas,
        hipblaslt=options.hipblaslt,
        hipblaslt_needed=options.hipblaslt_needed,
    )


def _size(options: argparse.Namespace) -> Verdict:
    return size.check(options.paths, budget=size.parse(options.budget))


def _add_repeated(
    parser: argparse.ArgumentParser,
    option: str,
    metavar: str,
    what: str,
    kind: Callable[[str], object] = str,
) -> None:
    parser.add_argument(
        option, action="append", default=[], type=kind, metavar=metavar,
        help=f"{what}; may be repeated",
    )  # fmt: skip


def _gfx_target(text: str) -> str:
    if not kernels.is_target(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a gfx target, such as gfx1100")
    return text


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _positive(text: str) -> int:
    number = _count(text)
    if number == 0:
        raise argparse.ArgumentTypeError("must be above 0")
    return number


def _progress(line: str) -> None:
    _say(sys.stderr, line + "\n")


def _fail(problem: str, hint: str, code: ExitCode) -> int:
    _say(sys.stderr, f"error: {problem}\n" + (f"hint: {hint}\n" if hint else ""))
    return code


def _say(stream: TextIO, text: str) -> None:
    stream.write(text)
    stream.flush()


if __name__ == "__main__":
    sys.exit(main())
