"""`python -m ...tether FD MODULE ARGUMENT...`: run MODULE, and end when FD's other end closes.

FD is the read end of a pipe whose only write end the supervisor has. However the supervisor
ends, the kernel closes that, and no process of the stack outlives it.
"""

from __future__ import annotations

import fcntl
import os
import runpy
import signal
import sys
import threading


def tie(descriptor: int) -> None:
    """From now on this process is killed when the other end of the pipe `descriptor` closes.

    Where the kernel can signal that by itself (Linux: F_SETSIG in fcntl(2)), it does: a thread
    cannot run while a model is loaded, since llama.cpp's binding keeps the interpreter's lock.
    """
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)
    # Also finds an end that was closed before the lines above took effect.
    threading.Thread(target=_die_at_end, args=(descriptor,), daemon=True).start()


def _die_at_end(descriptor: int) -> None:
    os.read(descriptor, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Tie this process and become the module named on the command line."""
    descriptor, module = int(sys.argv[1]), sys.argv[2]
    tie(descriptor)
    sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
