"""How far a download is, read from the files that it writes."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from zluda_stack.files import children


def largest_file(folder: Path, suffix: str = "") -> int:
    """The size in bytes of the largest file under `folder` whose name ends in `suffix`.

    0 when there is none. Files and folders that go away meanwhile are passed over, which
    Path.rglob does not do.
    """
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            if name.endswith(suffix):
                with suppress(OSError):
                    largest = max(largest, Path(parent, name).stat().st_size)
    return largest


def pulled_bytes(folder: Path) -> int:
    """How many bytes of a model the `folder` of a pull has.

    Its own files are parts of the model; in a folder of it another program works, which may
    have several copies of one file, so there the largest counts.
    """
    own, programs = 0, []
    for path in children(folder):
        with suppress(OSError):
            if path.is_dir():
                programs.append(path)
            elif path.suffix != ".json":
                own += path.stat().st_size
    return own + sum(largest_file(program) for program in programs)
