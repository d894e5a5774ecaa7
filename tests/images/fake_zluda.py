"""A fake ZLUDA for images: every function of the coverage list, and no device behind any.

What is shown with it counts as tested with a fake.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from zluda_stack.catalog import coverage

# CUresult of cuInit where no card is: CUDA_ERROR_NO_DEVICE.
_NO_DEVICE = 100
_NOT_SUPPORTED = 801
# The names under which programs of CUDA 11 to 13 look for ZLUDA's libraries.
_NAMES = {
    "libcuda.so.1": ("libcuda.so", "libcuda.so.1"),
    "libcublas.so": ("libcublas.so", "libcublas.so.12", "libcublas.so.13"),
    "libcublasLt.so": ("libcublasLt.so", "libcublasLt.so.12", "libcublasLt.so.13"),
    "libnvidia-ml.so.1": ("libnvidia-ml.so", "libnvidia-ml.so.1"),
}


def make_fake_zluda(folder: Path) -> Path:
    """Fill `folder` as /opt/zluda is, without the offline compiler; skips without a C compiler."""
    folder.mkdir(parents=True, exist_ok=True)
    known = coverage.load()
    for library, names in _NAMES.items():
        functions = known.libraries[library].implemented | known.libraries[library].not_implemented
        source = "".join(_function(name) for name in sorted(functions))
        make_library(folder / names[0], source)
        for name in names[1:]:
            (folder / name).symlink_to(names[0])
    return folder


def make_library(path: Path, source: str, *options: str) -> Path:
    """Compile the C `source` into the shared library `path`; skips without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) to make fake libraries with")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(path), "-w", *options],
        input=source,
        text=True,
        check=True,
    )
    return path


def _function(name: str) -> str:
    answer = _NO_DEVICE if name == "cuInit" else _NOT_SUPPORTED
    return f"int {name}(void) {{ return {answer}; }}\n"
