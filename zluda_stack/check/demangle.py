"""The names of kernels as people wrote them.

The C++ run-time library of the system knows how. It is asked in a process of its own, within
bounds of time and memory: names come from files that others made.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

_SECONDS = 20
_LONGEST = 4096
_MOST = 20_000
_CHILD = """
import ctypes, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20))
resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
library = ctypes.CDLL("libstdc++.so.6")
demangle, free = library.__cxa_demangle, ctypes.CDLL(None).free
demangle.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
status = ctypes.c_int()
for line in sys.stdin.buffer:
    name = line.rstrip(b"\\n")
    found = demangle(name, None, None, ctypes.byref(status))
    plain = ctypes.string_at(found) if found and status.value == 0 else name
    sys.stdout.buffer.write(plain.replace(b"\\n", b" ")[:4096] + b"\\n")
    sys.stdout.buffer.flush()
    free(found)
"""


def demangled(names: Iterable[str]) -> dict[str, str]:
    """For each of the mangled `names` what it stands for.

    A name that cannot be told, and every name where there is no C++ run-time library, stays out.
    """
    asked = [
        name for name in dict.fromkeys(names) if name.startswith("_Z") and len(name) <= _LONGEST
    ][:_MOST]
    asked = [name for name in asked if name.isascii() and name.isprintable()]
    if not asked:
        return {}
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _CHILD],
            input="".join(f"{name}\n" for name in asked).encode(),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
        told = done.stdout
    except subprocess.TimeoutExpired as error:
        told = error.stdout or b""
    except OSError:
        return {}
    return dict(zip(asked, told.decode(errors="replace").split("\n")[:-1], strict=False))
