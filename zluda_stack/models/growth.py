"""How far a download is that another process writes."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


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
