"""Whether what is pinned is still there upstream (case C23). Asks; downloads next to nothing.

No answer is not a no: what cannot be asked, because the network or a program is missing, is
`unreachable` and never `gone`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path

import requests
from msgspec import Struct

from zluda_stack.lock import Pin, PinKind

_AT_ONCE = 4
_TIMEOUT_SECONDS = 60
_GONE_STATUS = frozenset({404, 410, 451})
_GIT_GONE = re.compile(
    r"not our ref|repository .*not found|does not appear to be a git repository"
    r"|terminal prompts disabled|could not read Username|Repository not found"
    r"|couldn't find remote ref|unadvertised object",
    re.IGNORECASE,
)
_IMAGE_GONE = re.compile(r"not found|manifest unknown|repository does not exist|denied", re.I)
_PACKAGE_GONE = re.compile(r"No matching distribution found")
_NO_INDEX = re.compile(r"connection error|Max retries exceeded|SSLError|5\d\d Server Error", re.I)


class Answer(str, Enum):
    """What upstream said of one pin, worst last."""

    PRESENT = "present"
    UNREACHABLE = "unreachable"
    CHANGED = "changed"
    GONE = "gone"


class Found(Struct, frozen=True, kw_only=True):
    """One pin and the answer; `detail` is upstream's word where there is more to say."""

    pin: Pin
    answer: Answer
    detail: str = ""


class _Said(Struct, frozen=True, kw_only=True):
    """What a command printed and how it ended; `status` None when it gave no answer in time."""

    status: int | None
    out: bytes
    err: str

    @property
    def last_line(self) -> str:
        return (self.err.strip().splitlines() or ["no answer"])[-1]


def check(pins: Iterable[Pin]) -> tuple[Found, ...]:
    """Ask upstream for every pin, a few at once; the answers are in the order of `pins`."""
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        return tuple(pool.map(_ask, pins))


def worst(found: Iterable[Found]) -> Answer:
    """The worst answer; `present` when there is none."""
    order = list(Answer)
    return max((each.answer for each in found), key=order.index, default=Answer.PRESENT)


def _ask(pin: Pin) -> Found:
    answer, detail = _QUESTIONS[pin.kind](pin)
    return Found(pin=pin, answer=answer, detail=detail)


def _ask_image(pin: Pin) -> tuple[Answer, str]:
    """By digest first, since that is what is built from; then what the tag names today."""
    name, _, _ = pin.where.rpartition(":")
    by_digest = _manifest(f"{name}@{pin.identity[0]}")
    if by_digest.status != 0:
        return _no_image(by_digest)
    by_tag = _manifest(pin.where)
    if by_tag.status != 0:
        answer, detail = _no_image(by_tag)
        return answer, f"the digest is served, its tag is not: {detail}"
    digest = f"sha256:{hashlib.sha256(by_tag.out).hexdigest()}"
    return Answer.PRESENT, "" if digest == pin.identity[0] else f"the tag has moved on to {digest}"


def _manifest(reference: str) -> _Said:
    """The manifest's bytes, whose SHA-256 is the image's digest (OCI image specification)."""
    return _run("docker", "buildx", "imagetools", "inspect", "--raw", reference)


def _no_image(said: _Said) -> tuple[Answer, str]:
    gone = said.status is not None and _IMAGE_GONE.search(said.err)
    return (Answer.GONE if gone else Answer.UNREACHABLE), said.last_line


def _ask_git(pin: Pin) -> tuple[Answer, str]:
    """Fetches the one commit object, without its trees where the server can leave them out."""
    with tempfile.TemporaryDirectory() as folder:
        made = _run("git", "init", "--quiet", "--bare", folder)
        if made.status != 0:
            return Answer.UNREACHABLE, made.last_line
        fetch = ("fetch", "--quiet", "--depth=1", "--filter=tree:0", pin.where, pin.identity[0])
        said = _run("git", "-C", folder, *fetch)
    if said.status == 0:
        return Answer.PRESENT, ""
    gone = said.status is not None and _GIT_GONE.search(said.err)
    return (Answer.GONE if gone else Answer.UNREACHABLE), said.last_line


def _ask_file(pin: Pin) -> tuple[Answer, str]:
    return _ask_url(pin.where, pin.size)


def _ask_deb(pin: Pin) -> tuple[Answer, str]:
    """A flat archive, such as NVIDIA's, has the package's file beside its index."""
    return _ask_url(f"{pin.where}/{pin.name}_{pin.identity[0]}_amd64.deb", pin.size)


def _ask_url(url: str, expected: int | None) -> tuple[Answer, str]:
    try:
        reply = requests.head(url, allow_redirects=True, timeout=_TIMEOUT_SECONDS)
        if reply.status_code == requests.codes.method_not_allowed:
            reply = requests.get(url, stream=True, timeout=_TIMEOUT_SECONDS)
            reply.close()
    except requests.RequestException as error:
        return Answer.UNREACHABLE, f"no answer: {type(error).__name__}"
    if reply.status_code in _GONE_STATUS:
        return Answer.GONE, f"HTTP {reply.status_code}"
    if not reply.ok:
        return Answer.UNREACHABLE, f"HTTP {reply.status_code}"
    size = reply.headers.get("Content-Length", "")
    if expected is not None and size.isdigit() and int(size) != expected:
        return Answer.CHANGED, f"{size} bytes, and {expected} were pinned"
    return Answer.PRESENT, ""


def _ask_package(pin: Pin) -> tuple[Answer, str]:
    """Asks the user's own index, through pip, for the version; a build checks the hash."""
    name, _, version = pin.where.partition("==")
    kinds = {".whl": ("--only-binary", ":all:"), ".gz": ("--no-binary", ":all:")}
    kind = kinds.get(Path(pin.name).suffix, ())
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "pip.log"  # has every cause, stderr only the last
        pip = (sys.executable, "-m", "pip", "--no-input", "--log", str(log))
        options = ("--json", *kind, "--pre", "--ignore-requires-python")
        said = _run(*pip, "index", "versions", name, *options)
        causes = log.read_text(errors="replace") if log.exists() else ""
    if said.status != 0:
        gone = _PACKAGE_GONE.search(causes) and not _NO_INDEX.search(causes)
        return (Answer.GONE if gone else Answer.UNREACHABLE), said.last_line
    versions = json.loads(said.out)["versions"]
    if version in versions:
        return Answer.PRESENT, ""
    return Answer.GONE, f"the index has {', '.join(versions[:3])} ... and no {version}"


def _run(*command: str) -> _Said:
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return _Said(status=None, out=b"", err=f"no answer within {_TIMEOUT_SECONDS} s")
    except OSError as error:
        return _Said(status=None, out=b"", err=f"cannot run {command[0]}: {error.strerror}")
    return _Said(status=done.returncode, out=done.stdout, err=done.stderr.decode(errors="replace"))


_QUESTIONS: dict[PinKind, Callable[[Pin], tuple[Answer, str]]] = {
    "image": _ask_image,
    "git": _ask_git,
    "file": _ask_file,
    "package": _ask_package,
    "deb": _ask_deb,
}
