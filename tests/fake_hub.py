"""A fake Hugging Face hub, and web server of files, that does wrong what a test says.

It speaks the part of the hub's API that `huggingface_hub` uses for a model's list of files and
for where they are; a file is a redirect to another host (`cdn`, the same server by another port),
as at the real hub.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "1234567890abcdef1234567890abcdef12345678"
_API = re.compile(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?")
_RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


class Fault(Enum):
    """One thing that a server can do wrong with one request for a file."""

    NO_ANSWER = "closes the connection before an answer"
    DROP = "closes the connection in the middle of the body"
    STALL = "sends nothing more from the middle of the body on"
    CLAIMS_LESS = "names and sends half the length"
    CLAIMS_MORE = "names twice the length"
    SENDS_MORE = "sends more than there is, in chunks"
    WRONG_BYTES = "sends other bytes"
    OTHER_VERSION = "has another file now, with another ETag"
    TOO_MANY = "answers 429 with Retry-After"
    ERROR = "answers 500"
    NO_RANGES = "ignores Range"
    WRONG_RANGE = "answers with another range than was asked for"


@dataclass
class Seen:
    """One request for a file: its headers, and how many bytes of the body were sent."""

    path: str
    method: str
    headers: dict[str, str]
    status: int = 0
    sent: int = 0


@dataclass(repr=False)
class FakeHub:
    """`files` by their paths (owner/repo/name at the hub, anything at `cdn`), faults in order.

    `faults` concern requests for bytes; each is done once. `answers` are statuses with headers
    for the hub's own requests by path. `etags` can be switched off.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    answers: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    etags: bool = True
    lengths: bool = True
    commit: str = COMMIT
    slowness: float = 0.0
    url: str = ""
    cdn: str = ""
    closing: threading.Event = field(default_factory=threading.Event)
    sending: threading.Event = field(default_factory=threading.Event)

    def served(self) -> int:
        """How many bytes of files were sent so far."""
        return sum(each.sent for each in self.seen)

    def bodies(self) -> list[Seen]:
        """The requests that asked for bytes of a file."""
        return [each for each in self.seen if each.path.startswith("/cdn/")]


@contextmanager
def fake_hub(files: dict[str, bytes]) -> Iterator[FakeHub]:
    """A FakeHub that runs on two free ports until the block ends."""
    hub = FakeHub(files=dict(files))

    class Handler(_Handler):
        served = hub

    servers = [_Server(("127.0.0.1", 0), Handler) for _ in range(2)]
    hub.url, hub.cdn = (f"http://127.0.0.1:{server.server_port}" for server in servers)
    threads = [threading.Thread(target=server.serve_forever, args=(0.05,)) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield hub
    finally:
        hub.closing.set()
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that went away."""


class _Handler(BaseHTTPRequestHandler):
    served: FakeHub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self._seen = Seen(
            path, self.command, {name.title(): value for name, value in self.headers.items()}
        )
        self.served.seen.append(self._seen)
        if path in self.served.answers:
            status, headers = self.served.answers[path]
            self._empty(status, headers)
        elif path in self.served.redirects:
            self._empty(302, {"Location": self.served.redirects[path]})
        elif match := _API.fullmatch(path):
            self._list(match[1], match[2])
        elif match := _RESOLVE.fullmatch(path):
            self._resolve(match[1], match[3])
        else:
            self._file(path.removeprefix("/cdn/"))

    def _list(self, repository: str, revision: str | None) -> None:
        prefix = f"{repository}/"
        names = [name for name in self.served.files if name.startswith(prefix)]
        if not names:
            self._empty(404, {"X-Error-Code": "RepoNotFound"})
            return
        if revision not in {None, "main", self.served.commit}:
            self._empty(404, {"X-Error-Code": "RevisionNotFound"})
            return
        siblings = [
            {
                "rfilename": name.removeprefix(prefix),
                "size": len(self.served.files[name]),
                "blobId": hashlib.sha1(self.served.files[name]).hexdigest(),  # noqa: S324
                "lfs": {
                    "sha256": _digest(self.served.files[name]),
                    "size": len(self.served.files[name]),
                    "pointerSize": 135,
                },
            }
            for name in names
        ]
        body = json.dumps({"id": repository, "sha": self.served.commit, "siblings": siblings})
        self._whole(200, {"Content-Type": "application/json"}, body.encode())

    def _resolve(self, repository: str, name: str) -> None:
        content = self.served.files.get(f"{repository}/{name}")
        if content is None:
            self._empty(404, {"X-Error-Code": "EntryNotFound"})
            return
        headers = {
            "Location": f"{self.served.cdn}/cdn/{repository}/{name}",
            "X-Repo-Commit": self.served.commit,
            "X-Linked-Size": str(len(content)),
            "X-Linked-Etag": f'"{_digest(content)}"',
        }
        self._empty(302, headers)

    def _file(self, name: str) -> None:
        content = self.served.files.get(name)
        if content is None:
            self._empty(404, {})
            return
        if self.command == "HEAD":
            self._head(200, content, {"Content-Length": str(len(content))})
            return
        fault = self.served.faults.pop(0) if self.served.faults else None
        if fault is Fault.NO_ANSWER:
            self.close_connection = True
        elif fault is Fault.TOO_MANY:
            self._empty(429, {"Retry-After": "7"})
        elif fault is Fault.ERROR:
            self._empty(500, {})
        else:
            self._body(_changed(content, fault), fault)

    def _body(self, content: bytes, fault: Fault | None) -> None:
        start = self._start(content, fault)
        if start == len(content):
            self._empty(416, {"Content-Range": f"bytes */{len(content)}"})
            return
        rest = content[start:]
        headers = {"Accept-Ranges": "bytes"}
        if start or self._asked() is not None:
            shown = start + 1 if fault is Fault.WRONG_RANGE else start
            headers["Content-Range"] = f"bytes {shown}-{len(content) - 1}/{len(content)}"
        status = (
            206 if "Content-Range" in headers and not self._whole_anyway(content, fault) else 200
        )
        if status == 200:
            headers.pop("Content-Range", None)
        if fault is Fault.SENDS_MORE:
            self._chunked(status, content, headers, rest + b"more than there is")
            return
        claimed = len(rest)
        if fault is Fault.CLAIMS_LESS:
            claimed //= 2
            rest = rest[:claimed]
        elif fault is Fault.CLAIMS_MORE:
            claimed *= 2
        if self.served.lengths:
            headers["Content-Length"] = str(claimed)
        else:
            headers["Connection"] = "close"
        self._head(status, content, headers)
        half = len(rest) // 2 if fault in {Fault.DROP, Fault.STALL} else len(rest)
        self._send(rest[:half])
        self.served.sending.set()
        if fault is Fault.STALL:
            self.served.closing.wait()
        if fault in {Fault.DROP, Fault.STALL, Fault.CLAIMS_MORE} or not self.served.lengths:
            self.close_connection = True

    def _asked(self) -> int | None:
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        return int(match[1]) if match else None

    def _whole_anyway(self, content: bytes, fault: Fault | None) -> bool:
        condition = self.headers.get("If-Range")
        stale = condition is not None and condition != _etag(content)
        return fault is Fault.NO_RANGES or stale

    def _start(self, content: bytes, fault: Fault | None) -> int:
        asked = self._asked()
        if asked is None or self._whole_anyway(content, fault):
            return 0
        return min(asked, len(content))

    def _chunked(self, status: int, content: bytes, headers: dict[str, str], body: bytes) -> None:
        self._head(status, content, headers | {"Transfer-Encoding": "chunked"})
        self.wfile.write(f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n")
        self._seen.sent += len(body)

    def _send(self, body: bytes) -> None:
        if not self.served.slowness:
            self.wfile.write(body)
            self._seen.sent += len(body)
            return
        for at in range(0, len(body), 1 << 16):
            if self.served.closing.wait(self.served.slowness):
                return
            self.wfile.write(body[at : at + (1 << 16)])
            self._seen.sent += len(body[at : at + (1 << 16)])
            self.served.sending.set()

    def _head(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        if self.served.etags:
            headers = headers | {"ETag": _etag(content)}
        self._seen.status = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _empty(self, status: int, headers: dict[str, str]) -> None:
        self._whole(status, headers, b"")

    def _whole(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self._seen.status = status
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _changed(content: bytes, fault: Fault | None) -> bytes:
    if fault is Fault.WRONG_BYTES:
        return _Disguised(bytes(byte ^ 0xFF for byte in content), content)
    if fault is Fault.OTHER_VERSION:
        return bytes(byte ^ 0x55 for byte in content) + b"longer"
    return content


class _Disguised(bytes):
    """Other bytes under the ETag of the right ones."""

    original: bytes

    def __new__(cls, shown: bytes, original: bytes) -> _Disguised:
        made = super().__new__(cls, shown)
        made.original = original
        return made


def _etag(content: bytes) -> str:
    real = content.original if isinstance(content, _Disguised) else content
    return f'"{hashlib.md5(real).hexdigest()}"'  # noqa: S324


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
