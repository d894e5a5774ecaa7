"""The console script: nothing but what must be true before the program is imported."""

from __future__ import annotations

import gc
import signal
import sys

# Imports make tens of thousands of objects and no garbage; by default the collector would look
# through them dozens of times before the program does anything.
_OBJECTS_BEFORE_COLLECTION = 50_000


def main() -> None:
    """Run `zluda-stack` and exit with its code.

    Until `cli.main` is imported and can tell an interruption in its own words, Ctrl-C simply
    ends the process: the interpreter would print a traceback.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    from zluda_stack.cli.main import main as run

    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(run())
