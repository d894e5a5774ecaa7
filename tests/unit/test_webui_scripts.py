"""What runs in the images with text-generation-webui, beside that program."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.unit.planning import machine, plan_for
from tests.unit.served import served
from zluda_stack import paths
from zluda_stack.models.layout import Layout, Record, StoredFile

pytestmark = pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="the scripts run in a Linux image"
)

# PyTorch as check-torch uses it: on plain lists, with the devices and the fault of a test.
FAKE_TORCH = """
import types
__version__ = "2.0-fake"
version = types.SimpleNamespace(hip={hip!r})
cuda = types.SimpleNamespace(
    is_available=lambda: {devices} > 0,
    device_count=lambda: {devices},
    get_device_name=lambda number: "Fake Radeon",
)
class Tensor:
    def __init__(self, device="cpu"):
        self.device = device
    def __getattr__(self, name):
        return lambda *given: self
    def to(self, device):
        return Tensor(device)
    def _same(self, other):
        return self
    __mul__ = __rmul__ = __add__ = __sub__ = __mod__ = _same
    def __matmul__(self, other):
        if self.device != "cpu" and {fault!r} == "raises":
            raise RuntimeError("HIP error: invalid device function")
        return self
def arange(size):
    return Tensor()
def equal(one, other):
    return {fault!r} != "wrong"
"""


def run(
    name: str, *arguments: str, path: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The script of images/webui-app with those of images/_scripts and of `path` on PATH."""
    folders = [path, paths.images() / "_scripts", Path(sys.executable).parent, os.environ["PATH"]]
    environment["PATH"] = ":".join(str(folder) for folder in folders if folder is not None)
    return subprocess.run(
        [str(paths.images() / "webui-app" / name), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def kept(store: Path, name: str, *contents: bytes) -> None:
    """A model of the store with so many files, as models/store.py keeps it."""
    stored = []
    (store / "blobs").mkdir(exist_ok=True)
    for number, content in enumerate(contents, start=1):
        sha256 = f"{len(name):02x}{number:02x}" * 16
        (store / "blobs" / f"sha256-{sha256}").write_bytes(content)
        file = f"m-{number:05d}-of-{len(contents):05d}.gguf" if len(contents) > 1 else "m.gguf"
        stored.append(StoredFile(name=file, sha256=sha256, size=len(content)))
        if len(contents) > 1:
            part = store / "parts" / name / file
            part.parent.mkdir(parents=True, exist_ok=True)
            part.symlink_to(store / "blobs" / f"sha256-{sha256}")
    Layout(store).write_record(name, Record(files=tuple(stored), source="a test"))


def test_every_model_of_the_store_can_be_chosen_in_the_page(tmp_path: Path) -> None:
    store, models = tmp_path / "store", tmp_path / "models"
    store.mkdir()
    kept(store, "small", b"GGUF 1")
    kept(store, "in-parts", b"GGUF 2", b"GGUF 3")
    done = run("link-models", str(models), MODEL="small", MODEL_STORE=str(store))
    assert (done.returncode, done.stdout) == (0, "small\n"), done.stderr
    assert (models / "small/small.gguf").read_bytes() == b"GGUF 1"
    parts = sorted((models / "in-parts").iterdir())
    assert [part.read_bytes() for part in parts] == [b"GGUF 2", b"GGUF 3"]
    assert parts[0].name == "m-00001-of-00002.gguf"


def test_an_incomplete_model_is_not_offered_and_cannot_be_served(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    kept(store, "small", b"GGUF 1")
    kept(store, "half", b"GGUF 2")
    (store / "blobs" / f"sha256-{'0401' * 16}").unlink()
    done = run("link-models", str(tmp_path / "models"), MODEL="small", MODEL_STORE=str(store))
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["small"]
    served = run("link-models", str(tmp_path / "other"), MODEL="half", MODEL_STORE=str(store))
    assert served.returncode != 0
    assert "half is incomplete" in served.stderr


def test_a_file_of_the_users_is_served_with_its_other_parts(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"model-{number:05d}-of-00002.gguf").write_bytes(b"GGUF")
    first = str(tmp_path / "model-00001-of-00002.gguf")
    done = run("link-models", str(tmp_path / "models"), MODEL="coder", MODEL_FILE=first)
    assert (done.returncode, done.stdout) == (0, "coder\n"), done.stderr
    assert len(list((tmp_path / "models/coder").iterdir())) == 2


@pytest.mark.parametrize("bind", ["0.0.0.0", "192.168.1.7", "::"])  # noqa: S104
def test_no_page_without_password_is_started_for_the_network(bind: str) -> None:
    done = run("serve", PAGE_BIND=bind)
    assert done.returncode == 4
    assert f"published on {bind}, and asks for no password" in done.stderr


def test_the_server_on_a_card_computes_on_no_other_device(tmp_path: Path) -> None:
    text = (paths.images() / "webui-app/llama-server").read_text()
    fake = tmp_path / "llama-server"
    fake.write_text('#!/bin/bash\necho "$@"\n')
    fake.chmod(0o755)
    script = tmp_path / "script"
    script.write_text(text.replace("/opt/llama/llama-server", str(fake)))
    given = ["--model", "m.gguf", "--flash-attn", "on"]

    def options(**environment: str) -> str:
        command = ["bash", str(script), *given]
        own = {"PATH": os.environ["PATH"]} | environment
        return subprocess.run(
            command, env=own, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert options() == "--model m.gguf --flash-attn on --flash-attn auto"
    assert options(DEVICE="ROCm0").endswith("--device ROCm0")
    spread = options(DEVICE="ROCm0", DEVICES="ROCm0,ROCm1")
    assert spread.endswith("--device ROCm0,ROCm1")


class FakeWebui(BaseHTTPRequestHandler):
    """The API, and the page with the status `page`; None: it is not there yet."""

    page: int | None = None

    def do_GET(self) -> None:
        """200 for the API; for all else what the page answers."""
        self.send_response(200 if self.path == "/health" else self.page or 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.mark.parametrize(("page", "healthy"), [(200, True), (500, False), (None, False)])
def test_it_is_healthy_when_the_page_opens_too(page: int | None, *, healthy: bool) -> None:
    is_healthy = str(paths.images() / "_scripts/is-healthy")
    handler = type("FakeWebui", (FakeWebui,), {"page": page})
    with served(handler) as port:
        api = subprocess.run([is_healthy, str(port)], check=False, timeout=30)
        both = subprocess.run([is_healthy, str(port), f"{port}/"], check=False, timeout=30)
    assert api.returncode == 0
    assert (both.returncode == 0) is healthy


class SlowWebui(FakeWebui):
    """A busy machine: the API and the page take 3 s each."""

    page = 200

    def do_GET(self) -> None:
        """The answer, late."""
        time.sleep(3)
        super().do_GET()


def is_healthy_in_time(*servers: str) -> int:
    """The exit code of the health check, which must end before the container engine ends it."""
    plan = plan_for(machine(), engine="docker", gpu="none", profile="webui")
    (limit,) = {service.health.timeout for service in plan.services if service.health}
    script = [str(paths.images() / "_scripts/is-healthy"), *servers]
    return subprocess.run(script, capture_output=True, check=False, timeout=limit).returncode


def test_two_slow_servers_are_healthy_within_the_time_of_the_health_check() -> None:
    with served(SlowWebui) as port:
        assert is_healthy_in_time(str(port), f"{port}/") == 0


def test_two_servers_that_hang_are_unhealthy_within_the_time_of_the_health_check() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as hung:
        port = hung.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):  # its queue is full: none gets in
            assert is_healthy_in_time(str(port), f"{port}/") != 0


def check_torch(
    tmp_path: Path, *arguments: str, devices: int = 0, fault: str = "", hip: str | None = "7.1"
) -> subprocess.CompletedProcess[str]:
    fake = FAKE_TORCH.format(devices=devices, fault=fault, hip=hip)
    (tmp_path / "torch.py").write_text(fake)
    return run("check-torch", *arguments, PYTHONPATH=str(tmp_path))


def test_each_device_is_shown_with_whether_its_product_is_right(tmp_path: Path) -> None:
    done = check_torch(tmp_path, devices=2)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "PyTorch 2.0-fake, ROCm 7.1"
    assert lines[1] == "cuda:0  Fake Radeon: 512 x 512 is right"
    assert lines[2].startswith("cuda:1")


def test_a_wrong_or_failing_product_ends_with_1(tmp_path: Path) -> None:
    wrong = check_torch(tmp_path, devices=1, fault="wrong")
    assert (wrong.returncode, "WRONG" in wrong.stdout) == (1, True)
    fails = check_torch(tmp_path, devices=1, fault="raises")
    assert (fails.returncode, "invalid device function" in fails.stdout) == (1, True)


def test_no_gpu_is_no_success_unless_the_cpu_was_asked_for(tmp_path: Path) -> None:
    done = check_torch(tmp_path)
    assert done.returncode == 4
    assert "would compute on the CPU" in done.stderr
    asked = check_torch(tmp_path, "--cpu", hip=None)
    assert (asked.returncode, asked.stdout.splitlines()[0]) == (0, "PyTorch 2.0-fake, without ROCm")
    assert "cpu  CPU: 512 x 512 is right" in asked.stdout
    assert check_torch(tmp_path, "--gpu").returncode == 2


def test_without_pytorch_it_says_so() -> None:
    done = run("check-torch")
    assert done.returncode == 4
    assert "PyTorch does not load" in done.stderr
