"""The scripts that run inside the images, on real files, programs and connections."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from zluda_stack import paths
from zluda_stack.models.layout import Layout, Record, StoredFile

pytestmark = pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="the scripts run in a Linux image"
)


def script(name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(paths.images() / name), *arguments],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def record_of(*sha256s: str) -> Record:
    files = (
        StoredFile(name=f"m-{number:05d}-of-00002.gguf", sha256=sha256, size=4)
        for number, sha256 in enumerate(sha256s, start=1)
    )
    return Record(files=tuple(files), source="a test")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with one model, as models/store.py keeps it."""
    sha256 = "ab" * 32
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / f"sha256-{sha256}").write_bytes(b"GGUF")
    Layout(tmp_path).write_record("coder", record_of(sha256))
    return tmp_path


def test_debians_cuda_packages_are_laid_out_as_nvidias_toolkit(tmp_path: Path) -> None:
    libraries = "usr/lib/x86_64-linux-gnu"
    for name in (
        "usr/lib/nvidia-cuda-toolkit/bin/nvcc",
        "usr/lib/nvidia-cuda-toolkit/libdevice/libdevice.10.bc",
        *(f"usr/bin/{tool}" for tool in ("cudafe++", "cuobjdump", "fatbinary", "nvlink", "ptxas")),
        "usr/include/cuda.h",
        *(f"{libraries}/{name}" for name in ("libcudart.so.12", "libcudadevrt.a", "libcublas.so")),
        f"{libraries}/libcublas_static.a",
        "usr/share/doc/libcudart12/copyright",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    elsewhere = tmp_path / "etc/nvcc.profile"
    (tmp_path / "usr/lib/nvidia-cuda-toolkit/bin/nvcc.profile").symlink_to(elsewhere)
    toolkit = tmp_path / "toolkit"

    told = script("cuda-toolkit-debian/lay-out", str(tmp_path), str(toolkit))

    assert told.returncode == 0, told.stderr
    made = {path.relative_to(toolkit).as_posix() for path in toolkit.rglob("*")}
    wanted = {"bin/nvcc", "bin/ptxas", "include/cuda.h", "nvvm/libdevice/libdevice.10.bc"}
    assert wanted | {"lib/libcudart.so.12", "lib64", "LICENSE-NVIDIA"} <= made
    assert "lib/libcublas_static.a" not in made
    assert not (toolkit / "bin/nvcc.profile").is_symlink()
    profile = (toolkit / "bin/nvcc.profile").read_text()
    assert "/usr" not in profile
    assert "$(TOP)/include" in profile


def find_model(**environment: str) -> subprocess.CompletedProcess[str]:
    return script("_scripts/find-model", **environment)


def test_a_model_of_the_store_is_found_by_its_name(store: Path) -> None:
    told = find_model(MODEL="coder", MODEL_STORE=str(store))
    assert told.stdout.strip() == str(store / "blobs" / f"sha256-{'ab' * 32}")


def test_a_split_model_is_its_first_part(store: Path) -> None:
    Layout(store).write_record("big", record_of("ab" * 32, "cd" * 32))
    folder = store / "parts/big"
    folder.mkdir(parents=True)
    for number in (2, 1):
        (folder / f"m-0000{number}-of-00002.gguf").write_bytes(b"GGUF")
    told = find_model(MODEL="big", MODEL_STORE=str(store))
    assert told.stdout.strip() == str(folder / "m-00001-of-00002.gguf")


def test_a_file_of_the_users_comes_first(store: Path) -> None:
    own = store / "own.gguf"
    own.write_bytes(b"GGUF")
    told = find_model(MODEL="coder", MODEL_FILE=str(own), MODEL_STORE=str(store))
    assert told.stdout.strip() == str(own)


@pytest.mark.parametrize(
    ("fitted", "expected"),
    [
        ({"BATCH": "256", "GPU_LAYERS": "14"}, "--n-gpu-layers 14 --metrics"),
        ({"BATCH": "256", "GPU_LAYERS": ""}, "--device CUDA0 --n-gpu-layers 999 --metrics"),
        (
            {"BATCH": "256", "DEVICES": "CUDA0,CUDA1", "TENSOR_SPLIT": "21,20"},
            "--device CUDA0,CUDA1 --n-gpu-layers 999 --metrics --ctx-size 8192 "
            "--split-mode layer --tensor-split 21,20",
        ),
        (
            {"BATCH": "256", "CPU_MOE": "3"},
            r"--override-tensor blk\.(0|1|2)\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU --ubatch",
        ),
        ({"BATCH": "256", "CPU_MOE": ""}, "--ctx-size 8192 --ubatch-size 256"),
        ({"BATCH": "256", "MODEL": "coder"}, "--alias coder --device CUDA0"),
        (
            {"BATCH": "256", "MODEL": "coder", "ALSO_CALLED": "default"},
            "--alias coder,default --device CUDA0",
        ),
    ],
)
def test_the_server_on_a_card_gets_the_batch_and_the_layers_of_the_plan(
    tmp_path: Path, fitted: dict[str, str], expected: str
) -> None:
    told = served(tmp_path, 'echo "$*"', **fitted)
    assert expected in told
    assert "--ctx-size 8192" in told
    assert told.strip().endswith("--ubatch-size 256")


@pytest.mark.parametrize(
    ("fitted", "disabled"), [({}, "no"), ({"CPU_MOE": "3"}, "1"), ({"GPU_LAYERS": "14"}, "1")]
)
def test_a_model_that_is_partly_on_the_card_is_computed_without_cuda_graphs(
    tmp_path: Path, fitted: dict[str, str], disabled: str
) -> None:
    told = served(tmp_path, 'echo "${GGML_CUDA_DISABLE_GRAPHS:-no}"', **fitted)
    assert told.strip() == disabled


def served(folder: Path, fake_server: str, **fitted: str) -> str:
    """What the fake server prints when it is started on a card."""
    for name, text in (("find-model", "echo /m.gguf"), ("fake-server", fake_server)):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    serve = (paths.images() / "_scripts/serve-on-card").read_text()
    (folder / "serve").write_text(serve.replace("/opt/llama/llama-server", "fake-server"))
    return subprocess.run(
        ["bash", str(folder / "serve")],
        env={
            "PATH": f"{folder}:{os.environ['PATH']}",
            "PORT": "1",
            "CONTEXT": "8192",
            "DEVICE": "CUDA0",
            **fitted,
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout


def test_a_server_whose_kernels_are_counted_is_started_by_rocprofv3(tmp_path: Path) -> None:
    folder = tmp_path / "rocprof"
    (folder / "of-an-earlier-server").mkdir(parents=True)
    for name, text in (("find-model", "echo /m.gguf"), ("rocprofv3", 'echo "rocprofv3 $*"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    serve = (paths.images() / "_scripts/serve-on-card").read_text()
    (tmp_path / "serve").write_text(serve.replace("/rocprof ", f"{folder} "))
    told = subprocess.run(
        ["bash", str(tmp_path / "serve")],
        env={
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "PORT": "1",
            "DEVICE": "ROCm0",
            "ROCPROF_PROGRAM": "rocprofv3",
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout
    assert told.startswith(
        f"rocprofv3 --kernel-trace --stats --output-format csv --output-directory {folder} "
        "--output-file server -- /opt/llama/llama-server --host"
    )
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(Path("/dev/kfd").exists(), reason="this machine has the device")
@pytest.mark.parametrize("image", ["inference", "native"])
def test_nothing_is_started_without_the_device(image: str) -> None:
    path = f"{paths.images() / '_scripts'}:{os.environ['PATH']}"
    told = script(f"{image}/on-gpu", "echo", "started", PATH=path)
    assert (told.returncode, told.stdout) == (4, "")
    assert told.stderr.startswith("error: /dev/kfd is not in this container\nhint: ")


def test_what_is_missing_of_a_model_is_named(store: Path) -> None:
    absent = find_model(MODEL="other", MODEL_STORE=str(store))
    assert "the model other is not in the store" in absent.stderr
    next((store / "blobs").iterdir()).unlink()
    half = find_model(MODEL="coder", MODEL_STORE=str(store))
    assert "the model coder is incomplete" in half.stderr
    file = find_model(MODEL_FILE=str(store / "gone.gguf"))
    assert "gone.gguf is missing" in file.stderr
    unnamed = find_model(MODEL_STORE=str(store))
    assert "no model was named" in unnamed.stderr
    assert {told.returncode for told in (absent, half, file, unnamed)} == {1}


class FakeServer(BaseHTTPRequestHandler):
    """Answers /health with the status in the server's attribute."""

    def do_GET(self) -> None:
        self.send_response(getattr(self.server, "answers") if self.path == "/health" else 404)  # noqa: B009
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    made = HTTPServer(("127.0.0.1", 0), FakeServer)
    thread = Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False), (401, False)])
def test_only_an_answer_of_200_is_healthy(
    server: HTTPServer, status: int, *, healthy: bool
) -> None:
    server.answers = status  # type: ignore[attr-defined]
    told = script("_scripts/is-healthy", str(server.server_port))
    assert (told.returncode == 0) is healthy


def test_a_port_without_a_server_is_not_healthy(server: HTTPServer) -> None:
    port = server.server_port
    server.shutdown()
    server.server_close()
    assert script("_scripts/is-healthy", str(port)).returncode != 0


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """A library folder with kernels as rocBLAS 6.4 and hipBLASLt name them."""
    names = (
        "rocblas/library/TensileLibrary_lazy_gfx1100.dat",
        "rocblas/library/TensileLibrary_Type_SS_Contraction_gfx1100.co",
        "rocblas/library/Kernels.so-000-gfx1100.hsaco",
        "rocblas/library/Kernels.so-000-gfx110.hsaco",
        "rocblas/library/Kernels.so-000-gfx90a-xnack+.hsaco",
        "rocblas/library/TensileManifest.txt",
        "hipblaslt/library/extop_gfx1100.co",
        "hipblaslt/library/extop_gfx942.co",
        "hipblaslt/library/gfx1100/TensileLibrary_HH.co",
        "hipblaslt/library/gfx942/TensileLibrary_HH.co",
        "rocblas/library/Kernels.so-000-gfx11-generic.hsaco",
        "rocblas/library/Kernels.so-000-gfx9-4-generic.hsaco",
        "unrelated/notes-gfx906.txt",
    )
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


def test_only_kernels_of_the_target_and_files_of_no_target_are_kept(libraries: Path) -> None:
    told = script("_scripts/keep-kernels", str(libraries), "gfx1100")
    assert told.returncode == 0, told.stderr
    left = {str(path.relative_to(libraries)) for path in libraries.rglob("*") if path.is_file()}
    assert left == {
        "rocblas/library/TensileLibrary_lazy_gfx1100.dat",
        "rocblas/library/TensileLibrary_Type_SS_Contraction_gfx1100.co",
        "rocblas/library/Kernels.so-000-gfx1100.hsaco",
        "rocblas/library/TensileManifest.txt",
        "rocblas/library/Kernels.so-000-gfx11-generic.hsaco",
        "rocblas/library/Kernels.so-000-gfx9-4-generic.hsaco",
        "hipblaslt/library/extop_gfx1100.co",
        "hipblaslt/library/gfx1100/TensileLibrary_HH.co",
        "unrelated/notes-gfx906.txt",
    }
    assert "kept 3 files of rocBLAS" in told.stdout


@pytest.mark.parametrize("target", ["gfx942", "gfx1103", "gfx11"])
def test_a_target_for_which_rocblas_has_no_kernel_stops_the_build(
    libraries: Path, target: str
) -> None:
    told = script("_scripts/keep-kernels", str(libraries), target)
    assert told.returncode == 1
    assert f"no kernels for {target}" in told.stderr


@pytest.mark.parametrize("target", ["", "RX 7900", "gfx1100*"])
def test_what_is_no_target_removes_nothing(libraries: Path, target: str) -> None:
    before = sorted(libraries.rglob("*"))
    told = script("_scripts/keep-kernels", str(libraries), target)
    assert told.returncode == 1
    assert "must be a gfx target" in told.stderr
    assert sorted(libraries.rglob("*")) == before


def test_a_library_gets_its_unversioned_name_from_the_newest(tmp_path: Path) -> None:
    for name in ("libamdhip64.so.6", "libamdhip64.so.10", "librocblas.so.4", "librocblas.so"):
        (tmp_path / name).write_text(name)
    told = script("_scripts/link-libraries", str(tmp_path), "libamdhip64", "librocblas")
    assert told.returncode == 0, told.stderr
    assert (tmp_path / "libamdhip64.so").read_text() == "libamdhip64.so.10"
    assert not (tmp_path / "librocblas.so").is_symlink()


def test_a_library_that_is_not_there_at_all_is_named(tmp_path: Path) -> None:
    told = script("_scripts/link-libraries", str(tmp_path), "librocblas")
    assert told.returncode == 1
    assert "has no librocblas.so.*" in told.stderr
