"""An error nobody foresaw: kept in a file for the bug report, told in one line."""

from __future__ import annotations

import platform
import sys
import traceback

from zluda_stack import __version__, paths
from zluda_stack.errors import StackError
from zluda_stack.files import write_atomic


def record(error: BaseException, *, verbose: bool) -> StackError:
    """The error to tell the user; the traceback goes to a file that only the user can read.

    The file is <state>/last-error.txt, overwritten each time. With `verbose` the traceback
    goes to stderr as well.
    """
    trace = "".join(traceback.format_exception(error))
    if verbose:
        sys.stderr.write(trace)
    summary = f"internal error: {type(error).__name__}: {error}".replace("\n", " ")
    file = paths.stacks().parent / "last-error.txt"
    text = (
        f"zluda-stack {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
        f"arguments: {sys.argv[1:]!r}\n\n{trace}"
    )
    try:
        write_atomic(file, text.encode(errors="backslashreplace"), mode=0o600)
    except StackError:
        return StackError(summary, "This is a bug; -v shows where it happened.")
    return StackError(summary, f"This is a bug; please report it with {file}.")
