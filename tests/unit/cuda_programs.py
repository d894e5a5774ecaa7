"""Programs with CUDA code in them, made by gcc and by hand: no nvcc is needed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit import fat_binaries

needs_compiler = pytest.mark.skipif(
    shutil.which("gcc") is None, reason="makes small programs with gcc"
)


def ptx(body: str = "ret;", *, target: str = "sm_80", name: str = "_Z3addPf") -> bytes:
    """A PTX module with one kernel; _Z3addPf is add(float*)."""
    head = f".version 8.0\n.target {target}\n.address_size 64\n"
    return f"{head}.visible .entry {name}(.param .u64 p)\n{{\n{body}\n}}\n".encode()


def module(body: str = "ret;", *, sm: int = 80, flags: int = 0, suffix: str = "") -> bytes:
    """An entry with the PTX of such a module."""
    text = ptx(body, target=f"sm_{sm}{suffix}")
    return fat_binaries.entry(text, sm=sm, flags=flags)


def cubin(*kernels: str, sm: int = 80) -> bytes:
    """An entry with machine code that has a section for each kernel, and nothing else."""
    names = b"\0" + b"".join(b".text." + kernel.encode() + b"\0" for kernel in kernels)
    return fat_binaries.entry(b"\x7fELF" + bytes(60) + names, kind=fat_binaries.CUBIN, sm=sm)


def library(
    path: Path,
    *containers: bytes,
    imports: Sequence[str] = (),
    needed: Sequence[str] = (),
    words: Sequence[str] = (),
    runpath: str = "",
    section: str = ".nv_fatbin",
) -> Path:
    """A shared library at `path` with `containers` in a section and `words` among its strings.

    The libraries that it needs are made beside it and taken away again; each has all `imports`.
    """
    work = path.parent / f".{path.name}.d"
    work.mkdir(parents=True)
    (work / "code").write_bytes(b"".join(containers))
    calls = "".join(f"extern int {name}(void);\n" for name in imports)
    used = "".join(f" + {name}()" for name in imports)
    strings = "".join(f'.asciz "{word}"\n' for word in words)
    (work / "main.c").write_text(f"{calls}int use(void) {{ return 0{used}; }}\n")
    (work / "data.s").write_text(
        f'.section .rodata\n{strings}.section {section},"a"\n.balign 8\n.incbin "{work}/code"\n'
    )
    for name in needed:
        _gcc("-x", "c", "/dev/null", "-shared", f"-Wl,-soname,{name}", "-o", str(work / name))
    _gcc(
        *("-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{path.name}", "-Wl,--no-as-needed"),
        *([f"-Wl,-rpath,{runpath}"] if runpath else []),
        *(str(work / "main.c"), str(work / "data.s")),
        *(str(work / name) for name in needed),
        *("-o", str(path)),
    )
    shutil.rmtree(work)
    return path


def _gcc(*arguments: str) -> None:
    subprocess.run(["gcc", *arguments], check=True, capture_output=True)
