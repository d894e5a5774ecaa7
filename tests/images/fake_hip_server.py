"""A fake of llama.cpp's HIP server: the files that the native image holds of it.

Compiling the real backend takes half an hour of one core; docs/evidence has an image with it.
"""

from __future__ import annotations

from pathlib import Path

from tests.images.fake_zluda import make_library

# It lists what the test puts there, and says how it was started.
_SERVER = """\
#!/bin/sh
if [ "$1" = --list-devices ]; then
    echo "Available devices:"
    echo "  ${FAKE_DEVICE:-(none)}"
else
    echo "fake server: $*"
fi
"""


def make_fake_hip_server(
    folder: Path, *, function: str = "hipGetDeviceCount", library: str = "libamdhip64.so.6"
) -> Path:
    """`folder`/opt/llama: a server in shell, a backend that needs `function` of `library`."""
    place = folder / "opt/llama"
    place.mkdir(parents=True)
    (place / "llama-server").write_text(_SERVER)
    (place / "llama-server").chmod(0o755)
    stub = folder / "stub"
    stub.mkdir()
    make_library(
        stub / library, f"int {function}(int *p) {{ return 100; }}", f"-Wl,-soname,{library}"
    )
    call = f"int {function}(int *); int devices(int *p) {{ return {function}(p); }}\n"
    make_library(place / "libggml-hip.so", call, f"-L{stub}", f"-l:{library}")
    return folder
