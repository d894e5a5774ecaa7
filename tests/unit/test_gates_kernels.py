"""Gate `kernels`, and what the image keeps, on the file names and indices of real packages."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zluda_stack import paths
from zluda_stack.errors import StackError
from zluda_stack.gates import kernels

REAL = Path(__file__).parent / "kernels"


def unpack(listing: str, library: str, folder: Path, *targets: str) -> Path:
    """A folder with the files of a real package, empty but for the indices of `targets`."""
    inside = folder / "library"
    inside.mkdir(parents=True)
    for name in (REAL / listing).read_text().splitlines():
        (inside / name).touch()
    for target in targets:
        index = (REAL / f"{library}-{target}.dat").read_bytes()
        (inside / f"TensileLibrary_lazy_{target}.dat").write_bytes(index)
    return folder


@pytest.fixture
def rocblas(tmp_path: Path) -> Path:
    folder = tmp_path / "rocblas" / "4.4.1"
    return unpack("librocblas4-6.4.4-4.txt", "rocblas", folder, "gfx1030", "gfx1100")


@pytest.fixture
def hipblaslt(tmp_path: Path) -> Path:
    return unpack("libhipblaslt1-7.1.1-4.txt", "hipblaslt", tmp_path / "hipblaslt", "gfx1100")


def by_target(folder: Path) -> Counter[str]:
    names = (path.name for path in folder.rglob("*.*"))
    found = (
        next((t for t in ("gfx1030", "gfx1100", "gfx90a") if t in name), "any") for name in names
    )
    return Counter(found)


def test_a_target_with_kernels_of_its_own_passes(rocblas: Path, hipblaslt: Path) -> None:
    verdict = kernels.check(target="gfx1100", fallback=None, rocblas=rocblas, hipblaslt=hipblaslt)
    assert verdict.reason is None
    assert verdict.summary == (
        "rocBLAS has 70 libraries for gfx1100, hipBLASLt has 46 libraries for gfx1100"
    )


def test_a_target_without_kernels_is_refused_by_its_name(rocblas: Path) -> None:
    verdict = kernels.check(target="gfx1103", fallback=None, rocblas=rocblas)
    assert verdict.reason == "rocBLAS has no kernels for gfx1103"
    assert verdict.hint


def test_the_fallback_of_the_catalogue_is_taken_and_said(rocblas: Path) -> None:
    verdict = kernels.check(target="gfx1031", fallback="gfx1030", rocblas=rocblas)
    assert verdict.reason is None
    assert verdict.facts["rocBLAS"] == "gfx1030"
    (found,) = verdict.findings
    assert found.problem == "has no kernels for gfx1031; those of gfx1030 are taken"
    assert found.accepted


def test_a_fallback_without_kernels_is_refused_too(rocblas: Path) -> None:
    verdict = kernels.check(target="gfx1103", fallback="gfx1102", rocblas=rocblas)
    assert verdict.reason == "rocBLAS has no kernels for gfx1103 or gfx1102"


def test_hipblaslt_may_lack_a_target_unless_it_is_needed(rocblas: Path, hipblaslt: Path) -> None:
    def check(*, needed: bool) -> str | None:
        return kernels.check(
            target="gfx1030",
            fallback=None,
            rocblas=rocblas,
            hipblaslt=hipblaslt,
            hipblaslt_needed=needed,
        ).reason

    assert check(needed=False) is None
    assert check(needed=True) == "hipBLASLt has no kernels for gfx1030"


@pytest.mark.parametrize(
    "gone",
    [
        "TensileLibrary_Type_HH_Contraction_l_Ailk_Bjlk_Cijk_Dijk_gfx1100.co",
        "TensileLibrary_Type_HH_Contraction_l_Ailk_Bjlk_Cijk_Dijk_gfx1100.dat",
        "TensileLibrary_Type_SS_Contraction_l_Alik_Bljk_Cijk_Dijk_fallback.dat",
        "TensileLibrary_Type_SS_Contraction_l_Alik_Bljk_Cijk_Dijk_fallback_gfx1100.hsaco",
    ],
)
def test_a_kernel_file_that_the_index_wants_and_that_is_gone_is_named(
    rocblas: Path, gone: str
) -> None:
    (rocblas / "library" / gone).unlink()
    verdict = kernels.check(target="gfx1100", fallback=None, rocblas=rocblas)
    assert verdict.reason == "rocBLAS lacks 1 file of its kernels for gfx1100"
    assert [found.problem for found in verdict.findings] == [f"lacks {gone}"]


def test_kernels_in_a_folder_of_the_targets_name_are_found(tmp_path: Path) -> None:
    flat = unpack("librocblas4-6.4.4-4.txt", "rocblas", tmp_path / "flat", "gfx1100") / "library"
    own = tmp_path / "rocblas" / "library" / "gfx1100"
    own.parent.mkdir(parents=True)
    flat.rename(own)
    verdict = kernels.check(target="gfx1100", fallback=None, rocblas=tmp_path / "rocblas")
    assert verdict.reason is None


def test_an_index_of_the_eager_kind_needs_code_beside_it(tmp_path: Path) -> None:
    (tmp_path / "TensileLibrary_gfx1100.dat").touch()
    bare = kernels.check(target="gfx1100", fallback=None, rocblas=tmp_path)
    assert bare.reason == "rocBLAS lacks 1 file of its kernels for gfx1100"
    (tmp_path / "TensileLibrary_gfx1100.co").touch()
    assert kernels.check(target="gfx1100", fallback=None, rocblas=tmp_path).reason is None


def test_code_for_each_way_with_page_faults_is_a_file_of_its_own(tmp_path: Path) -> None:
    """So is gfx90a's in Debian's librocblas4 6.4.4-4."""
    name = "TensileLibrary_Type_SS_fallback"
    index = msgspec.msgpack.encode({"type": "Placeholder", "value": name})
    (tmp_path / "TensileLibrary_lazy_gfx90a.dat").write_bytes(index)
    for file in (f"{name}.dat", f"{name}_gfx90a-xnack+.hsaco"):
        (tmp_path / file).touch()
    half = kernels.check(target="gfx90a", fallback=None, rocblas=tmp_path)
    assert half.reason == "rocBLAS lacks 1 file of its kernels for gfx90a"
    (tmp_path / f"{name}_gfx90a-xnack-.hsaco").touch()
    assert kernels.check(target="gfx90a", fallback=None, rocblas=tmp_path).reason is None


@given(place=st.integers(0, 23049), junk=st.binary(min_size=1, max_size=8))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_index_is_refused_in_our_words(tmp_path: Path, place: int, junk: bytes) -> None:
    raw = bytearray((REAL / "rocblas-gfx1100.dat").read_bytes())
    raw[place : place + len(junk)] = junk
    (tmp_path / "TensileLibrary_lazy_gfx1100.dat").write_bytes(raw)
    try:
        # None of the files that it names is here, so it never passes.
        assert kernels.check(target="gfx1100", fallback=None, rocblas=tmp_path).reason
    except StackError as error:
        assert "TensileLibrary_lazy_gfx1100.dat is damaged" in error.message


def keep(folder: Path, target: str) -> subprocess.CompletedProcess[str]:
    """Run the script that the image is built with on the library folder."""
    script = paths.images() / "_scripts/keep-kernels"
    return subprocess.run(
        [str(script), str(folder), target], capture_output=True, text=True, check=False
    )


def test_what_the_image_keeps_of_one_target_passes_the_gate(
    tmp_path: Path, rocblas: Path, hipblaslt: Path
) -> None:
    before = by_target(rocblas) + by_target(hipblaslt)
    told = keep(tmp_path, "gfx1100")
    assert told.returncode == 0, told.stderr
    after = by_target(rocblas) + by_target(hipblaslt)
    assert after == Counter(any=before["any"], gfx1100=before["gfx1100"])
    assert f"removed {before['gfx1030'] + before['gfx90a']} for other targets" in told.stdout
    verdict = kernels.check(target="gfx1100", fallback=None, rocblas=rocblas, hipblaslt=hipblaslt)
    assert verdict.reason is None


def test_what_the_image_keeps_of_a_fallback_is_taken_by_the_gate(
    tmp_path: Path, rocblas: Path
) -> None:
    assert keep(tmp_path, "gfx1030").returncode == 0
    assert set(by_target(rocblas)) == {"gfx1030", "any"}
    assert kernels.check(target="gfx1031", fallback="gfx1030", rocblas=rocblas).reason is None
