"""What ZLUDA has compiled and kept: its SQLite file, read and never written here."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from urllib.parse import quote

# zluda_cache/src/lib.rs at 8a7931be.
_FILE = "zluda/ComputeCache/zluda2.db"


def modules_in(cache: Path) -> int:
    """How many compiled modules are in the folder `cache`; 0 too where ZLUDA has written none."""
    path = cache / _FILE
    if not path.is_file():
        return 0
    try:
        with contextlib.closing(
            sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)
        ) as db:
            (count,) = db.execute("SELECT count(*) FROM modules").fetchone()
    except sqlite3.Error:
        return 0
    return int(count)
