"""`check` on real CUDA wheels of different making, against cuobjdump and nm."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.unit.command_line import run
from tests.unit.conftest import toolkit
from tests.unit.cuda_toolkit import Toolkit

__all__ = ["toolkit"]

pytestmark = pytest.mark.skipif(
    not os.environ.get("TEST_SLOW"), reason="downloads 800 MB: set TEST_SLOW=1 to run it"
)

_CUDA = re.compile(
    r"(?:cu[A-Z]|(?:__)?cuda[A-Z]|cublas|cudnn|cufft|curand|cusolver|cusparse|cutensor)"
    r"|(?:nccl|nvrtc|nvml|nvJitLink|nvjpeg|cuFile)[A-Z]|cupti[A-Z]"
)
_PLATFORMS = ("manylinux2014", *(f"manylinux_2_{minor}" for minor in (17, 24, 27, 28)))


class Wheel(NamedTuple):
    """A wheel by its pin, its verdict, and the gaps of its file `file`."""

    requirement: str
    sha256: str
    verdict: str
    file: str
    gaps: frozenset[str]


WHEELS = [
    Wheel(
        "bitsandbytes==0.50.2",
        "55348a9a4a21bfd99cf8c7b32fe67b4030ae5c2a05738e03c1747f65fa6ec283",
        "may run, with gaps",
        "libbitsandbytes_cuda124.so",
        frozenset({"ZSC202", "ZSC205"}),
    ),
    Wheel(
        "ctranslate2==4.8.5",
        "79a30a2c974530dbb5083f4922d28ffad87e08542f423aa91c53fbf4543cc35f",
        "may run, with gaps",
        "libctranslate2-a7a60d30.so.4.8.5",
        frozenset({"ZSC202", "ZSC206", "ZSC207", "ZSC304", "ZSC306"}),
    ),
    Wheel(
        "faiss-gpu-cu12==1.14.1.post1",
        "87e630faed349ba71e6c10e8340e93edf406bf22b42e08f097d7d3d64e16d0cb",
        "cannot run",
        "libfaiss-6b43fd57.so",
        frozenset({"ZSC201", "ZSC301"}),
    ),
    Wheel(
        "jax-cuda12-plugin==0.10.2",
        "76bbfece2f6effb4e8908eb8a5fbf1abbc1125de667683ec2ffba51c63dc57af",
        "may run, with gaps",
        "_linalg.so",
        frozenset({"ZSC202", "ZSC208"}),
    ),
    Wheel(
        "nvidia-curand-cu12==10.3.10.19",
        "49b274db4780d421bd2ccd362e1415c13887c53c214f0d4b761752b8f9f6aa1e",
        "may run, with gaps",
        "libcurand.so.10",
        frozenset({"ZSC202", "ZSC304"}),
    ),
    Wheel(
        "onnxruntime-gpu==1.31.1",
        "e26c475fe361b2015f45b4b824bd13f0bb20204e59b62814e6f0acd5f3d491a6",
        "cannot run",
        "libonnxruntime_providers_cuda.so",
        frozenset({"ZSC201", "ZSC301", "ZSC303", "ZSC306", "ZSC308"}),
    ),
    Wheel(
        "spconv-cu120==2.3.6",
        "f9e116962e9777558a96101a5d9252db5d46845ad5e5b32f473594984dfee983",
        "may run, with gaps",
        "core_cc.cpython-311-x86_64-linux-gnu.so",
        frozenset({"ZSC202", "ZSC207"}),
    ),
    Wheel(
        "warp-lang==1.19.0",
        "c797f5f4aa9925f676e20dd28e5416fee794499f3f3c0a5b66f2d4dfc2de9e32",
        "will likely run",
        "warp.so",
        frozenset({"ZSC304"}),
    ),
]


@pytest.fixture(params=WHEELS, ids=lambda wheel: wheel.requirement)
def wheel(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> tuple[Wheel, Path]:
    """A wheel and where it is, kept in pytest's cache folder."""
    assert pytestconfig.cache is not None
    pin: Wheel = request.param
    folder = pytestconfig.cache.mkdir("check-wheels") / pin.requirement
    if not list(folder.glob("*.whl")):
        folder.mkdir(exist_ok=True)
        (folder / "wheel.txt").write_text(f"{pin.requirement} --hash=sha256:{pin.sha256}\n")
        platforms = (word for name in _PLATFORMS for word in ("--platform", f"{name}_x86_64"))
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
                *("--require-hashes", "--only-binary=:all:", "--python-version", "3.11"),
                *(*platforms, "--dest", str(folder), "--requirement", str(folder / "wheel.txt")),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            pytest.skip(f"the wheel cannot be downloaded: {done.stderr.strip()[-200:]}")
    return pin, next(folder.glob("*.whl"))


def test_the_verdict_and_the_gaps_are_those_of_the_evidence(wheel: tuple[Wheel, Path]) -> None:
    pin, path = wheel
    told = run("check", "--json", str(path)).json
    assert told["verdict"] == pin.verdict
    (one,) = [file for file in told["files"] if file["file"].endswith(f"/{pin.file}")]
    assert {gap["id"] for gap in one["gaps"]} == pin.gaps


@pytest.mark.timeout(1200)
def test_modules_are_those_of_cuobjdump_and_imports_those_of_nm(
    wheel: tuple[Wheel, Path], toolkit: Toolkit, tmp_path: Path
) -> None:
    path, compared = wheel[1], 0
    for file in run("check", "--json", str(path)).json["files"]:
        name = file["file"].partition("!")[2]
        with zipfile.ZipFile(path) as archive:
            library = Path(archive.extract(name, tmp_path))
        listed = _listed(toolkit, library)
        if listed is not None:
            compared += 1
            assert _modules(file) == sorted(listed), name
        assert {one["name"] for one in file["imports"]} == _imported(library), name
        library.unlink()
    assert compared


def _modules(file: dict[str, Any]) -> list[tuple[str, str]]:
    """The names and architectures of what a file holds in the sections that nvcc fills."""
    return sorted(
        (module["name"], module["architecture"])
        for module in (*file["ptx"], *file["cubins"])
        if module["section"] in {".nv_fatbin", "__nv_relfatbin"}
    )


def _listed(toolkit: Toolkit, library: Path) -> list[tuple[str, str]] | None:
    """The names and architectures that cuobjdump lists; what has no device code has none.

    None where it gives up: cuobjdump 13.5 calls a cubin of CUDA 12.1 an invalid ELF file.
    """
    command = [str(toolkit.root / "bin" / "cuobjdump"), "-all", "-lptx", "-lelf", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Invalid ELF" in done.stderr:
        return None
    names = re.findall(r"^(?:PTX|ELF) file +\d+: (\S+)$", done.stdout, re.MULTILINE)
    return [(name, name.rsplit(".", 2)[1]) for name in names]


def _imported(library: Path) -> set[str]:
    done = subprocess.run(
        ["nm", "-D", "--undefined-only", str(library)], capture_output=True, text=True, check=True
    )
    names: Any = {line.split()[-1].split("@")[0] for line in done.stdout.splitlines()}
    return {name for name in names if _CUDA.match(name)}
