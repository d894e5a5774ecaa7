"""A fake of llama.cpp's CUDA server and of the self-test: the files that an image holds of them.

Building the real ones takes NVIDIA's toolkit and half an hour. The fakes import functions of cuBLAS
as the real server does, and hold PTX, so that the gates have something to look at.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.images.fake_zluda import make_library
from tests.unit.fat_binaries import container, entry

PTX = """\
.version 9.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 scale_param_0)
{
    ret;
}
"""
# Two that ZLUDA has, and the two that it lacks and the image's budget accepts.
CUBLAS = ("cublasCreate_v2", "cublasGemmEx", "cublasSgemmBatched", "cublasStrsmBatched")


def make_fake_server(
    folder: Path, zluda: Path, *, functions: tuple[str, ...] = CUBLAS, ptx: str = PTX
) -> Path:
    """`folder`/opt/llama: a server that ends at once, a CUDA backend that imports `functions`."""
    place = folder / "opt/llama"
    place.mkdir(parents=True)
    shutil.copy("/bin/true", place / "llama-server")
    _backend(place / "libggml-cuda.so", zluda, functions, ptx)
    return folder


def make_fake_selftest(folder: Path, zluda: Path) -> Path:
    """`folder`/opt/selftest with a program that says that it ran."""
    place = folder / "opt/selftest"
    place.mkdir(parents=True)
    (place / "selftest").write_text('#!/bin/sh\necho \'{"test": "selftest", "ok": true}\'\n')
    (place / "selftest").chmod(0o755)
    _backend(place / "libkernels.so", zluda, CUBLAS[:2], PTX)
    return folder


def _backend(path: Path, zluda: Path, functions: tuple[str, ...], ptx: str) -> None:
    # The NUL at its end is a part of the module, as nvcc writes it.
    fat_binary = container(entry(ptx.encode() + b"\0"))
    numbers = ",".join(map(str, fat_binary))
    calls = "".join(
        f"int {name}(void); int call_{name}(void) {{ return {name}(); }}\n" for name in functions
    )
    section = '__attribute__((section(".nv_fatbin"), used)) static const unsigned char code[]'
    source = f"{section} = {{{numbers}}};\n{calls}"
    make_library(path, source, f"-L{zluda}", "-l:libcublas.so.13", "-Wl,--no-as-needed")
