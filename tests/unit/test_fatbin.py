"""Fat binaries: what nvcc writes in all its forms, against cuobjdump, and what damage does."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit import fat_binaries
from tests.unit.cuda_toolkit import FORMS, Toolkit
from zluda_stack.cuda import fatbin
from zluda_stack.cuda.fatbin import CodeKind, Compression
from zluda_stack.errors import HostProblem, StackError, UsageError

MEBIBYTE = 1 << 20
PTX = b".version 9.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n" * 20


def write(folder: Path, data: bytes) -> Path:
    path = folder / "program.fatbin"
    path.write_bytes(data)
    return path


def extracted(toolkit: Toolkit, program: Path, tmp_path: Path, option: str) -> list[bytes]:
    """What cuobjdump extracts, in the order in which it names the files."""
    said = toolkit.run("cuobjdump", "-all", option, "all", str(program), cwd=tmp_path)
    names = re.findall(r": (\S+\.(?:ptx|cubin))", said)
    return [(tmp_path / name).read_bytes() for name in names]


@pytest.mark.parametrize("form", FORMS)
def test_every_ptx_module_is_what_cuobjdump_extracts(
    toolkit: Toolkit, form: str, tmp_path: Path
) -> None:
    program = toolkit.build(form)
    entries = [entry for entry in fatbin.read(program) if entry.kind is CodeKind.PTX]
    assert entries
    assert [entry.content() for entry in entries] == extracted(toolkit, program, tmp_path, "-xptx")


@pytest.mark.parametrize("form", ["several architectures", "compression size"])
def test_every_cubin_is_what_cuobjdump_extracts(
    toolkit: Toolkit, form: str, tmp_path: Path
) -> None:
    program = toolkit.build(form)
    entries = [entry for entry in fatbin.read(program) if entry.kind is CodeKind.CUBIN]
    assert entries
    assert [entry.content() for entry in entries] == extracted(toolkit, program, tmp_path, "-xelf")


@pytest.mark.parametrize("form", FORMS)
def test_kinds_and_architectures_are_those_that_cuobjdump_lists(
    toolkit: Toolkit, form: str
) -> None:
    program = toolkit.build(form)
    listed = toolkit.run("cuobjdump", "-all", "-lptx", "-lelf", str(program))
    names = [line.rsplit(maxsplit=1)[1] for line in listed.splitlines() if " file " in line]
    expected = sorted(tuple(name.split(".")[-2:]) for name in names)
    suffix = {CodeKind.PTX: "ptx", CodeKind.CUBIN: "cubin"}
    found = sorted((entry.architecture, suffix[entry.kind]) for entry in fatbin.read(program))
    assert found == expected


def test_the_compression_of_each_mode_of_nvcc_is_told(toolkit: Toolkit) -> None:
    def of(form: str) -> set[Compression]:
        return {
            entry.compression
            for entry in fatbin.read(toolkit.build(form))
            if entry.kind is CodeKind.PTX
        }

    assert of("compression none") == {Compression.NONE}
    assert of("compression speed") == {Compression.LZ4}
    assert of("compression size") == {Compression.ZSTD}


def test_relocatable_code_is_found_beside_linked_code(toolkit: Toolkit) -> None:
    entries = fatbin.read(toolkit.build("relocatable, linked"))
    assert {entry.section for entry in entries} == {".nv_fatbin", "__nv_relfatbin"}


def test_code_with_line_numbers_names_its_source(toolkit: Toolkit) -> None:
    (entry,) = fatbin.read(toolkit.build("line numbers"))
    assert entry.identifier == "kernels.cu"


@given(
    contents=st.lists(
        st.tuples(
            st.binary(max_size=300).filter(lambda raw: not raw.endswith(b"\0")),
            st.sampled_from([0, fat_binaries.LZ4, fat_binaries.ZSTD]),
        ),
        max_size=5,
    ),
    gap=st.integers(0, 24),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_read_back(
    tmp_path: Path, contents: list[tuple[bytes, int]], gap: int
) -> None:
    entries = [fat_binaries.entry(raw, flags=flags) for raw, flags in contents]
    first, second = fat_binaries.container(*entries), fat_binaries.container(*entries[::-1])
    path = write(tmp_path, first + bytes(gap) + second)
    read = [entry.content() for entry in fatbin.read(path)]
    plain = [raw for raw, _ in contents]
    assert read == plain + plain[::-1]


@pytest.mark.parametrize("flags", [fat_binaries.LZ4, fat_binaries.ZSTD])
@pytest.mark.parametrize("unpacked", [1, 10**12, 200 * MEBIBYTE])
def test_a_lie_about_the_unpacked_size_is_refused_without_taking_the_memory(
    tmp_path: Path, flags: int, unpacked: int
) -> None:
    lying = fat_binaries.entry(PTX, flags=flags, unpacked=unpacked)
    (entry,) = fatbin.read(write(tmp_path, fat_binaries.container(lying)))
    tracemalloc.start()
    with pytest.raises(UsageError, match="cannot be unpacked"):
        entry.content()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MEBIBYTE


def test_link_time_code_is_listed_and_not_unpacked(tmp_path: Path) -> None:
    raw = fat_binaries.entry(b"secret", kind=fat_binaries.LINK_TIME_IR)
    (entry,) = fatbin.read(write(tmp_path, fat_binaries.container(raw)))
    assert entry.kind is CodeKind.OTHER
    with pytest.raises(UsageError, match="neither PTX nor a cubin"):
        entry.content()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (fat_binaries.container(fat_binaries.entry(PTX), size=10**6), "longer than what holds it"),
        (fat_binaries.container(fat_binaries.entry(PTX))[:-8], "longer than what holds it"),
        (fat_binaries.container(version=7), "version 7"),
        (fat_binaries.container(fat_binaries.entry(PTX)[:-8]), "longer than its fat binary"),
        (fat_binaries.container(b"\1\0\7\7" + bytes(60)), "version 0x707"),
        (fat_binaries.container()[:9], "ends in its header"),
    ],
)
def test_damage_is_named_with_its_place(tmp_path: Path, data: bytes, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as refused:
        fatbin.read(write(tmp_path, data))
    assert "fat binary 1" in refused.value.message


def test_a_text_file_is_no_fat_binary(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not an ELF file"):
        fatbin.read(write(tmp_path, b"#!/bin/sh\n"))


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(HostProblem, match="No such file"):
        fatbin.read(tmp_path / "absent")


_GOOD = fat_binaries.container(
    fat_binaries.entry(PTX, flags=fat_binaries.ZSTD),
    fat_binaries.entry(PTX, flags=fat_binaries.LZ4),
    fat_binaries.entry(b"\x7fELF" + bytes(100), kind=fat_binaries.CUBIN),
)


@given(
    changes=st.lists(
        st.tuples(
            st.integers(0, len(_GOOD) - 1),
            st.one_of(st.binary(min_size=1, max_size=4), st.just(b"\xff" * 8)),
        ),
        min_size=1,
        max_size=4,
    ),
    length=st.integers(0, len(_GOOD)),
)
@settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_damage_is_read_or_refused_in_our_words(
    tmp_path: Path, changes: list[tuple[int, bytes]], length: int
) -> None:
    raw = bytearray(_GOOD)
    for place, new in changes:
        raw[place : place + len(new)] = new
    path = write(tmp_path, bytes(raw[: max(length, 1)] if length % 2 else raw))
    tracemalloc.start()
    try:
        for entry in fatbin.read(path):
            try:
                assert len(entry.content()) <= entry.size
            except StackError as error:
                assert error.hint
    except StackError as error:
        assert error.hint
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 4 * MEBIBYTE
