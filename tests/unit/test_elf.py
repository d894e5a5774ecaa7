"""ELF files: what they need and offer, against nm and readelf, and what damage does."""

from __future__ import annotations

import os
import platform
import re
import shutil
import struct
import subprocess
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.unit.cuda_toolkit import Toolkit
from zluda_stack.cuda import elf
from zluda_stack.cuda.elf import Import
from zluda_stack.errors import HostProblem, StackError, UsageError

MEBIBYTE = 1 << 20
LIBRARY = """
#include <math.h>
#include <stdio.h>
static int hidden(void) { return 1; }
int offered_data = 3;
__attribute__((weak)) int offered_weakly(void) { return 2; }
double offered(double x) { printf("%d", hidden()); return cos(x); }
"""

needs_compiler = pytest.mark.skipif(
    shutil.which("gcc") is None or shutil.which("nm") is None,
    reason="needs gcc and binutils",
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared library with a soname, a run path, and symbols of every kind."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "offered.c").write_text(LIBRARY)
    arguments = ["-shared", "-fPIC", "-Wl,-soname,liboffered.so.2", "-Wl,-rpath,$ORIGIN/beside"]
    command = ["gcc", *arguments, "offered.c", "-lm", "-o", "liboffered.so"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "liboffered.so"


def nm(path: Path, option: str) -> list[str]:
    """The names that `nm -D` lists, without their versions."""
    done = subprocess.run(
        ["nm", "-D", option, str(path)], capture_output=True, text=True, check=True
    )
    return sorted({line.split()[-1].split("@")[0] for line in done.stdout.splitlines()})


@needs_compiler
def test_imports_and_exports_are_those_of_nm(library: Path) -> None:
    found = elf.read(library)
    assert [symbol.name for symbol in found.imports] == nm(library, "--undefined-only")
    assert list(found.exports) == nm(library, "--defined-only")
    assert {"offered", "offered_weakly", "offered_data"} <= set(found.exports)


@needs_compiler
def test_names_needed_libraries_and_the_run_path_are_told(library: Path) -> None:
    found = elf.read(library)
    assert found.soname == "liboffered.so.2"
    assert found.needed == ("libm.so.6", "libc.so.6")
    assert found.runpath == "$ORIGIN/beside"
    assert (found.kind, found.machine) == ("shared object", platform.machine())


@needs_compiler
def test_an_import_names_the_library_that_its_version_is_asked_of(library: Path) -> None:
    assert Import("cos", "libm.so.6") in elf.read(library).imports


@needs_compiler
def test_sections_lie_where_readelf_finds_them(library: Path) -> None:
    said = subprocess.run(
        ["readelf", "-SW", str(library)], capture_output=True, text=True, check=True
    ).stdout
    rows = re.findall(r"\] (\.\S+) +\S+ +[0-9a-f]+ ([0-9a-f]+) ([0-9a-f]+)", said)
    listed = {(name, int(offset, 16), int(size, 16)) for name, offset, size in rows}
    found = {(s.name, s.offset, s.size) for s in elf.read(library).sections if s.size}
    assert found
    assert found <= listed


def test_a_cuda_program_asks_its_runtime_library(toolkit: Toolkit) -> None:
    program = toolkit.build("all compressed, shared cudart")
    found = elf.read(program)
    assert Import("cudaMalloc", "libcudart.so.13") in found.imports
    assert [symbol.name for symbol in found.imports] == nm(program, "--undefined-only")
    assert "libcudart.so.13" in found.needed
    assert ".nv_fatbin" in {section.name for section in found.sections}


def test_machine_code_for_a_graphics_card_is_told_from_the_hosts(
    toolkit: Toolkit, tmp_path: Path
) -> None:
    toolkit.run(
        "cuobjdump", "-xelf", "all", str(toolkit.build("several architectures")), cwd=tmp_path
    )
    cubin = next(tmp_path.glob("*.cubin"))
    assert elf.read(cubin).machine == "CUDA"


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"", "is empty"), (b"#!/bin/sh\n", "is not an ELF file"), (b"\x7fELF", "is damaged")],
)
def test_what_is_no_elf_file_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=problem):
        elf.read(path)


def test_a_missing_file_is_a_host_problem(tmp_path: Path) -> None:
    with pytest.raises(HostProblem, match="No such file"):
        elf.read(tmp_path / "absent")
    assert not elf.is_elf(tmp_path / "absent")


def test_a_folder_and_a_pipe_are_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(UsageError, match="is not a regular file"):
            elf.read(path)


def _some_library() -> bytes:
    """A small shared library that is always there: the compiled half of msgspec."""
    return Path(str(msgspec._core.__file__)).read_bytes()


_LIBRARY = _some_library()
# Where the damage counts: file header, program headers, and the section headers at the end.
_SECTION_HEADERS = struct.unpack_from("<Q", _LIBRARY, 40)[0]
_PLACES = st.one_of(
    st.integers(0, 2000),
    st.integers(0, len(_LIBRARY) - 1),
    st.integers(_SECTION_HEADERS, len(_LIBRARY) - 1),
)
_VALUES = st.one_of(
    st.binary(min_size=1, max_size=8),
    st.sampled_from([b"\xff" * 4, b"\xff" * 8, b"\0" * 8, b"\xff" * 7 + b"\x7f"]),
)


# Counts and steps in the headers that would have a trusting reader go on for hours.
_NUMBER_OF_SECTIONS_IS_ELSEWHERE = (60, b"\0\0")
_CIRCLES = {
    "section headers of no size": [(58, b"\0\0"), (60, b"\xff\xff")],
    "program headers of no size": [
        (54, b"\0\0"),
        (56, b"\xff\xff"),
        (_SECTION_HEADERS + 44, b"\xff" * 4),
    ],
    "more sections than fit": [
        _NUMBER_OF_SECTIONS_IS_ELSEWHERE,
        (_SECTION_HEADERS + 32, b"\xff" * 7),
    ],
    "uncounted sections of no size": [
        _NUMBER_OF_SECTIONS_IS_ELSEWHERE,
        (_SECTION_HEADERS + 32, b"\xff" * 7),
        (58, b"\0\0"),
    ],
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("circle", _CIRCLES)
def test_headers_that_lead_in_circles_come_to_an_end(tmp_path: Path, circle: str) -> None:
    raw = bytearray(_LIBRARY)
    for place, new in _CIRCLES[circle]:
        raw[place : place + len(new)] = new
    (tmp_path / "library").write_bytes(raw)
    with pytest.raises(UsageError, match="is damaged"):
        elf.read(tmp_path / "library")


@pytest.mark.timeout(60)
def test_versions_that_lead_in_circles_come_to_an_end(tmp_path: Path) -> None:
    raw = bytearray(_LIBRARY)
    with (tmp_path / "whole").open("w+b") as handle:
        handle.write(raw)
        handle.seek(0)
        file = ELFFile(handle)
        number = next(
            n
            for n, section in enumerate(file.iter_sections())
            if section["sh_type"] == "SHT_GNU_verneed"
        )
        first = file.get_section(number)["sh_offset"]
    header = _SECTION_HEADERS + number * 64
    raw[header + 44 : header + 48] = b"\xff" * 4  # how many there are
    raw[first + 12 : first + 16] = bytes(4)  # how far it is to the next
    (tmp_path / "library").write_bytes(raw)
    with pytest.raises(UsageError, match="its headers lead in circles"):
        elf.read(tmp_path / "library")


# A table of versions that is half as long as the file.
@example(changes=[(_SECTION_HEADERS + 5 * 64 + 32, b"\0\0\3")], cut=False)
@given(changes=st.lists(st.tuples(_PLACES, _VALUES), min_size=1, max_size=5), cut=st.booleans())
@settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_damage_is_read_or_refused_in_our_words(
    tmp_path: Path, changes: list[tuple[int, bytes]], *, cut: bool
) -> None:
    raw = bytearray(_LIBRARY)
    for place, new in changes:
        raw[place : place + len(new)] = new
    path = tmp_path / "library"
    path.write_bytes(raw[: changes[0][0] + 1] if cut else raw)
    tracemalloc.start()
    try:
        found = elf.read(path)
        filled = [section for section in found.sections if section.size]
        assert all(section.offset + section.size <= len(raw) for section in filled)
    except StackError as error:
        assert error.hint
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    # Names may take eight times the file, since they may share their ends, and tables are copied.
    assert peak < 12 * len(_LIBRARY)
