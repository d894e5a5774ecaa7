"""The bytes of a settings file, where there is one."""

from __future__ import annotations

import stat
from pathlib import Path

from zluda_stack.errors import UsageError

# A settings file has a dozen short lines; this keeps hostile ones from costing time.
_LARGEST = 65536


def contents(path: Path) -> bytes | None:
    """What is in the file at `path`; None when there is none. Raises UsageError.

    Apart from what makes settings of it, which needs the YAML package: most users have no file,
    and the import takes longer than all else that settings take.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UsageError(f"{path} is not a file", "Put the settings into a plain file.")
        with path.open("rb") as handle:
            raw = handle.read(_LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        hint = "Make it readable for yourself, or move it away."
        raise UsageError(f"cannot read {path}: {error.strerror}", hint) from error
    if len(raw) > _LARGEST:
        hint = "Is it the right file? Settings are a few lines of `key: value`."
        raise UsageError(f"{path} is larger than {_LARGEST // 1024} KiB", hint)
    return raw
