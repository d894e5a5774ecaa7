"""`lock --check` asks upstream (case C23): a real git repository, a real HTTP server and a real
package index of this machine; only the image registry is a fake."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.e2e.conftest import free_port
from zluda_stack.lock import Pin, PinKind
from zluda_stack.lock_check import Answer, Found, check, worst

_NOWHERE = "0" * 40


def _pin(
    kind: PinKind, where: str, identity: str, *, name: str = "x", size: int | None = None
) -> Pin:
    return Pin(kind=kind, where=where, name=name, identity=(identity,), size=size)


def _answer(pin: Pin) -> Answer:
    return check([pin])[0].answer


class Served:
    """What a local HTTP server answers: path -> (status, body)."""

    def __init__(self) -> None:
        self.replies: dict[str, tuple[int, bytes]] = {}
        self.types: dict[str, str] = {}
        self.refuses_head = False


@pytest.fixture
def served() -> Served:
    return Served()


@pytest.fixture
def address(served: Served) -> Iterator[str]:
    """HOST:PORT of a running server that answers as `served` says."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._reply(with_body=False)

        def do_GET(self) -> None:
            self._reply(with_body=True)

        def _reply(self, *, with_body: bool) -> None:
            status, body = served.replies.get(self.path, (404, b"{}"))
            if served.refuses_head and not with_body:
                status, body = 405, b""
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Type", served.types.get(self.path, "text/plain"))
            self.send_header("Docker-Content-Digest", "sha256:" + hashlib.sha256(body).hexdigest())
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is written to the test's output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with two commits."""
    place = tmp_path / "upstream"
    subprocess.run(["git", "init", "--quiet", str(place)], check=True)
    for text in ("one", "two"):
        (place / "file").write_text(text)
        git = ("git", "-C", str(place), "-c", "user.name=T", "-c", "user.email=t@example.com")
        subprocess.run([*git, "add", "file"], check=True)
        subprocess.run([*git, "commit", "--quiet", "-m", text], check=True)
    return place


def _commit(repository: Path, revision: str) -> str:
    line = ["git", "-C", str(repository), "rev-parse", revision]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("revision", ["HEAD", "HEAD~1"])
def test_a_commit_that_the_repository_still_has_is_present(repository: Path, revision: str) -> None:
    commit = _commit(repository, revision)

    assert _answer(_pin("git", repository.as_uri(), commit)) is Answer.PRESENT


def test_a_commit_that_the_repository_lost_is_gone(repository: Path) -> None:
    assert _answer(_pin("git", repository.as_uri(), _NOWHERE)) is Answer.GONE


def test_a_repository_that_was_removed_is_gone(repository: Path) -> None:
    commit = _commit(repository, "HEAD")
    shutil.rmtree(repository)

    assert _answer(_pin("git", repository.as_uri(), commit)) is Answer.GONE


def test_a_server_that_does_not_answer_is_unreachable_and_not_gone() -> None:
    port = free_port()

    for pin in (
        _pin("git", f"http://127.0.0.1:{port}/x.git", _NOWHERE),
        _pin("file", f"http://127.0.0.1:{port}/x.tar.xz", "0" * 64),
    ):
        assert _answer(pin) is Answer.UNREACHABLE


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (200, Answer.PRESENT),
        (404, Answer.GONE),
        (410, Answer.GONE),
        (403, Answer.UNREACHABLE),
        (503, Answer.UNREACHABLE),
    ],
)
def test_a_file_is_judged_by_what_its_server_says(
    served: Served, address: str, status: int, expected: Answer
) -> None:
    served.replies["/rust.tar.xz"] = (status, b"content")

    assert _answer(_pin("file", f"http://{address}/rust.tar.xz", "0" * 64)) is expected


def test_a_file_of_another_size_has_changed(served: Served, address: str) -> None:
    served.replies["/a"] = (200, b"content")
    where = f"http://{address}/a"

    assert _answer(_pin("file", where, "0" * 64, size=7)) is Answer.PRESENT
    assert _answer(_pin("file", where, "0" * 64, size=8)) is Answer.CHANGED


def test_a_server_that_allows_no_head_is_asked_otherwise(served: Served, address: str) -> None:
    served.refuses_head = True
    served.replies["/a"] = (200, b"content")

    assert _answer(_pin("file", f"http://{address}/a", "0" * 64)) is Answer.PRESENT


def test_a_debian_package_is_asked_for_by_its_file(served: Served, address: str) -> None:
    served.replies["/cuda/nvcc_13.0-1_amd64.deb"] = (200, b"content")
    archive = f"http://{address}/cuda"

    assert _answer(_pin("deb", archive, "13.0-1", name="nvcc")) is Answer.PRESENT
    assert _answer(_pin("deb", archive, "13.0-2", name="nvcc")) is Answer.GONE


@pytest.fixture
def own_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is the user's only package index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    wheel = tmp_path / "some_package-1.2.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        metadata = "Metadata-Version: 2.1\nName: some-package\nVersion: 1.2.0\n"
        archive.writestr("some_package-1.2.0.dist-info/METADATA", metadata)
    return tmp_path


@pytest.mark.usefixtures("own_index")
def test_a_version_is_asked_of_the_users_own_index() -> None:
    wheel = "some_package-1.2.0-py3-none-any.whl"
    there = _pin("package", "some-package==1.2.0", "0" * 64, name=wheel)
    yanked = _pin("package", "some-package==1.1.0", "0" * 64, name=wheel)
    unknown = _pin("package", "no-such-package==1.0", "0" * 64, name=wheel)

    found = check([there, yanked, unknown])

    assert [each.answer for each in found] == [Answer.PRESENT, Answer.GONE, Answer.GONE]
    assert "1.2.0" in found[1].detail


def test_an_index_that_does_not_answer_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{free_port()}/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)

    assert _answer(_pin("package", "some-package==1.2.0", "0" * 64)) is Answer.UNREACHABLE


class FakeRegistry:
    """The part of the distribution API that `docker buildx imagetools inspect` asks."""

    def __init__(self, served: Served, address: str) -> None:
        self._served = served
        self.repository = f"{address}/some/image"

    def push(self, tag: str, config: str) -> str:
        """Serve a manifest under `tag` and its digest; returns the digest."""
        kind = "application/vnd.oci.image.manifest.v1+json"
        part = {"mediaType": "application/vnd.oci.image.config.v1+json", "size": 2}
        digest = "sha256:" + hashlib.sha256(config.encode()).hexdigest()
        manifest = {
            "schemaVersion": 2,
            "mediaType": kind,
            "config": {**part, "digest": digest},
            "layers": [],
        }
        body = json.dumps(manifest).encode()
        found = "sha256:" + hashlib.sha256(body).hexdigest()
        for reference in (tag, found):
            path = f"/v2/some/image/manifests/{reference}"
            self._served.replies[path] = (200, body)
            self._served.types[path] = kind
        return found

    def remove(self, reference: str) -> None:
        """Forget a tag or a digest."""
        del self._served.replies[f"/v2/some/image/manifests/{reference}"]


@pytest.fixture
def registry(served: Served, address: str, buildx: None) -> FakeRegistry:  # noqa: ARG001
    served.replies["/v2/"] = (200, b"{}")
    return FakeRegistry(served, address)


def _image(registry: FakeRegistry, digest: str) -> Found:
    return check([_pin("image", f"{registry.repository}:1", digest)])[0]


@pytest.mark.docker
def test_an_image_is_present_as_long_as_its_digest_is_served(registry: FakeRegistry) -> None:
    first = registry.push("1", "{}")
    assert _image(registry, first) == Found(
        pin=_pin("image", f"{registry.repository}:1", first), answer=Answer.PRESENT
    )

    second = registry.push("1", "{ }")
    moved = _image(registry, first)
    assert moved.answer is Answer.PRESENT
    assert second in moved.detail


@pytest.mark.docker
def test_a_tag_or_a_digest_that_is_no_longer_served_is_gone(registry: FakeRegistry) -> None:
    digest = registry.push("1", "{}")
    registry.remove("1")
    assert _image(registry, digest).answer is Answer.GONE

    registry.push("1", "{ }")
    registry.remove(digest)
    assert _image(registry, digest).answer is Answer.GONE


@pytest.mark.docker
@pytest.mark.usefixtures("registry")
def test_a_registry_that_does_not_answer_is_unreachable() -> None:
    where = f"127.0.0.1:{free_port()}/some/image:1"

    assert _answer(_pin("image", where, "sha256:" + "0" * 64)) is Answer.UNREACHABLE


def test_the_worst_answer_counts() -> None:
    def found(*answers: Answer) -> list[Found]:
        pin = _pin("file", "http://127.0.0.1/", "0" * 64)
        return [Found(pin=pin, answer=answer) for answer in answers]

    assert worst(found()) is Answer.PRESENT
    assert worst(found(Answer.PRESENT, Answer.UNREACHABLE)) is Answer.UNREACHABLE
    assert worst(found(Answer.GONE, Answer.UNREACHABLE, Answer.CHANGED)) is Answer.GONE
