"""What ZLUDA covers of CUDA at the pinned commit: library functions and PTX opcodes."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from zluda_stack.catalog.schema import GitCommit, IsoDate
from zluda_stack.errors import StackError

_FILE = Path(__file__).parent / "data" / "zluda-coverage.json"


class LibraryCoverage(Struct, frozen=True, forbid_unknown_fields=True):
    """One library that ZLUDA replaces; what is not implemented returns "not supported".

    `declared` counts the functions it exports; `unmatched` are implementations of functions that
    it does not export under that name.
    """

    declared: int
    implemented: frozenset[str]
    unmatched: frozenset[str]
    not_implemented: frozenset[str]


class Coverage(Struct, frozen=True, forbid_unknown_fields=True):
    """ZLUDA at one commit; `libraries` by the names that ZLUDA gives them."""

    zluda_commit: GitCommit
    zluda_date: IsoDate
    libraries: dict[str, LibraryCoverage]
    ptx_opcodes_parsed: frozenset[str]
    note: str


def load(path: Path | None = None) -> Coverage:
    """The coverage in the JSON file at `path` (default: the one that ships with the package).

    Raises StackError when it cannot be read, does not fit the schema or contradicts itself.
    """
    file = path or _FILE
    try:
        coverage = msgspec.json.decode(file.read_bytes(), type=Coverage)
    except OSError as error:
        raise StackError(
            f"cannot read {file}: {error.strerror}", "Install zluda-stack again."
        ) from error
    except msgspec.DecodeError as error:
        raise _broken(file, str(error)) from error
    for name, library in coverage.libraries.items():
        if library.implemented & library.not_implemented:
            raise _broken(file, f"{name} both has and lacks the same function")
        if library.declared != len(library.implemented) + len(library.not_implemented):
            raise _broken(file, f"{name} declares {library.declared} functions, but lists others")
    return coverage


def _broken(file: Path, problem: str) -> StackError:
    hint = "Correct the file; its shape is described in zluda_stack/catalog/coverage.py."
    return StackError(f"{file}: {problem}", hint)
