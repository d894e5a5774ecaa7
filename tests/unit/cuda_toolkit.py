"""A real CUDA toolkit from NVIDIA's wheels, and small programs that its nvcc builds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from zluda_stack.catalog.load import load
from zluda_stack.catalog.schema import Artifact

# No tool of the toolkit itself: NVIDIA's own reader of fat binaries, the second opinion here.
_CUOBJDUMP = Artifact(
    file=("nvidia_cuda_cuobjdump-13.5.37-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"),
    sha256="38780fee50863252a0b8926357faa91615ca1c8346490563f33a06100cd73f58",
)
_NOT_NEEDED = "nvidia_cublas"
_EXECUTABLE = 0o755

KERNELS = """
#include <cstdio>

template <typename T> __global__ void add(const T *a, const T *b, T *sum, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sum[i] = a[i] + b[i];
}

extern "C" __global__ void reduce(const float *in, float *out) {
    __shared__ float part[256];
    part[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    for (int half = 128; half; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(out, part[0]);
    if (*out < 0) printf("// negative; %s {\\n", "\\"sum\\"");
}

int main() {
    float *p;
    cudaMalloc(&p, 4);
    add<float><<<1, 1>>>(p, p, p, 1);
    add<int><<<1, 1>>>((int *)p, (int *)p, (int *)p, 1);
    reduce<<<1, 256>>>(p, p);
    return cudaDeviceSynchronize();
}
"""
SCALE = """
extern "C" __global__ void scale(float *a) { a[threadIdx.x] *= 2; }
void launch(float *p) { scale<<<1, 1>>>(p); }
"""

_PTX = "-gencode=arch=compute_80,code=compute_80"
_PTX_AND_CUBIN = "-gencode=arch=compute_80,code=[compute_80,sm_80]"
_TWO = (_PTX, "-gencode=arch=compute_86,code=[compute_86,sm_86]")
# Every way that nvcc puts code into a file: its arguments, by a name for the test's output.
FORMS: dict[str, tuple[str, ...]] = {
    "PTX only": (_PTX,),
    "several architectures": _TWO,
    "architecture-specific": ("-gencode=arch=compute_90a,code=[compute_90a,sm_90a]", "-c"),
    "relocatable, linked": ("-rdc=true", _PTX_AND_CUBIN),
    "relocatable object": ("-rdc=true", "-c", _PTX_AND_CUBIN),
    "line numbers": ("-lineinfo", "-c", _PTX),
    "all compressed, shared cudart": ("-Xfatbin=-compress-all", "-cudart=shared", _PTX_AND_CUBIN),
    "bare fat binary": ("-fatbin", _PTX_AND_CUBIN),
    **{
        f"compression {mode}": (f"--compress-mode={mode}", "-c", *_TWO)
        for mode in ("default", "size", "speed", "balance", "none")
    },
}


class Unavailable(Exception):
    """Why there is no CUDA toolkit to test with."""


class Toolkit:
    """An unpacked toolkit, and a folder for what it builds."""

    def __init__(self, root: Path, work: Path) -> None:
        self.root = root
        self.work = work
        self._built: dict[str, Path] = {}

    def run(self, tool: str, *arguments: str, cwd: Path | None = None) -> str:
        """What `tool` prints; fails with its complaint when it fails."""
        environment = {**os.environ, "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}"}
        done = subprocess.run(
            [str(self.root / "bin" / tool), *arguments],
            cwd=cwd or self.work,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{tool} {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def build(self, form: str) -> Path:
        """The file that nvcc makes in this form (a key of FORMS), built once per test run."""
        if form not in self._built:
            folder = self.work / form.replace(" ", "-").replace(",", "")
            folder.mkdir()
            (folder / "kernels.cu").write_text(KERNELS)
            (folder / "scale.cu").write_text(SCALE)
            one_file = bool({"-c", "-fatbin"} & set(FORMS[form]))
            sources = ["kernels.cu"] if one_file else ["kernels.cu", "scale.cu"]
            self.run("nvcc", *FORMS[form], *sources, "-o", "program", cwd=folder)
            self._built[form] = folder / "program"
        return self._built[form]


def unpacked(cache: Path) -> Path:
    """The toolkit's root folder in `cache`, downloaded by hash and unpacked at the first call.

    Raises Unavailable when this machine cannot build CUDA programs or the wheels cannot be had.
    """
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        raise Unavailable("NVIDIA's wheels of the catalogue are for Linux on x86_64")
    if shutil.which("g++") is None or shutil.which("nm") is None:
        raise Unavailable("nvcc needs g++, and the tests nm")
    ready = cache / "toolkit"
    if not ready.exists():
        with tempfile.TemporaryDirectory(dir=cache) as temporary:
            made = Path(temporary) / "toolkit"
            _unpack(_download(Path(temporary)), made)
            if not ready.exists():
                made.rename(ready)
    return ready / "nvidia" / "cu13"


def _wheels() -> list[Artifact]:
    toolkit = load().components["cuda-toolkit"].artifacts
    return [wheel for wheel in toolkit if not wheel.file.startswith(_NOT_NEEDED)] + [_CUOBJDUMP]


def _download(folder: Path) -> list[Path]:
    lines = []
    for wheel in _wheels():
        name, version = wheel.file.split("-")[:2]
        lines.append(f"{name.replace('_', '-')}=={version} --hash=sha256:{wheel.sha256}")
    (folder / "wheels.txt").write_text("\n".join(lines) + "\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"),
            *("--only-binary=:all:", "--require-hashes", "--disable-pip-version-check"),
            *("--dest", str(folder / "wheels"), "--requirement", str(folder / "wheels.txt")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Unavailable(f"NVIDIA's wheels cannot be downloaded: {done.stderr.strip()[-300:]}")
    return sorted((folder / "wheels").iterdir())


def _unpack(wheels: list[Path], destination: Path) -> None:
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(destination)
    root = destination / "nvidia" / "cu13"
    (root / "lib64").symlink_to("lib")
    (root / "lib" / "libcudart.so").symlink_to("libcudart.so.13")
    for tool in (*(root / "bin").iterdir(), *(root / "nvvm" / "bin").iterdir()):
        if tool.is_file():
            tool.chmod(_EXECUTABLE)
