"""One wheel by its hash, downloaded with `pip download` in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from zluda_stack.errors import HostProblem
from zluda_stack.models.growth import largest_file
from zluda_stack.progress import Progress

_REQUIREMENTS = "requirements.txt"
_DESTINATION = "wheel"
_LOG = "pip.log"
_POLL_SECONDS = 0.2
_TAIL_LINES = 20
_DIGESTS = re.compile(r"Expected sha256 ([0-9a-f]{64}).*?Got\s+([0-9a-f]{64})", re.DOTALL)
_CERTIFICATE = re.compile(r"CERTIFICATE_VERIFY_FAILED|SSLError|problem confirming the ssl")
_UNREACHABLE = re.compile(
    r"connection error|NewConnectionError|NameResolutionError|TimeoutError|ProxyError"
    r"|Connection aborted|Connection broken|IncompleteRead|Max retries exceeded"
)
_ABSENT = re.compile(r"No matching distribution found|Could not find a version")
_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_ERROR = re.compile(r"^(?:\S+ )?ERROR: (.+)$", re.MULTILINE)
_SEE_SETTINGS = "`python -m pip config list` shows which index, proxy and certificates pip uses."


class PinnedWheel(Struct, frozen=True, kw_only=True):
    """A wheel file, its requirement (name==version), its SHA-256 and its size in bytes."""

    requirement: str
    file: str
    sha256: str
    size: int


class PipOutput(Exception):
    """The last lines that a failed pip wrote: the cause of the HostProblem, for -v."""


def download(wheel: PinnedWheel, folder: Path, progress: Progress, lock: int) -> Path:
    """The path of `wheel` in `folder`, its hash checked by pip.

    pip and all it starts are gone when this returns or raises; they inherit the descriptor
    `lock`, so that a killed zluda-stack does not leave them unguarded. Raises HostProblem.
    """
    if importlib.util.find_spec("pip") is None:
        raise HostProblem(
            f"{sys.executable} has no pip, which fetches {wheel.requirement}",
            "Run `python -m ensurepip --upgrade`, or install zluda-stack with the extra "
            "`embedded`, which brings pip.",
        )
    (folder / _REQUIREMENTS).write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n")
    temporary, output = folder / "tmp", folder / "pip.out"
    temporary.mkdir()
    progress.step(f"downloading {wheel.requirement}")
    with output.open("wb") as sink:
        process = subprocess.Popen(
            download_command(folder),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=_environment(temporary),
            pass_fds=(lock,),
            start_new_session=True,
        )
    try:
        _watch(process, folder, wheel.size, progress)
    finally:
        _kill_group(process)
    path = folder / _DESTINATION / wheel.file
    if process.returncode != 0 or not path.is_file():
        raise _explain(wheel, _read(output), _read(folder / _LOG), process.returncode)
    return path


def download_command(folder: Path) -> tuple[str, ...]:
    """pip's command line. Its log has every cause, its output only what survived its retries."""
    return (
        *(sys.executable, "-m", "pip", "download"),
        *("--no-deps", "--only-binary=:all:", "--require-hashes"),
        *("--no-cache-dir", "--no-input", "--progress-bar=off", "--disable-pip-version-check"),
        *("--log", str(folder / _LOG), "--dest", str(folder / _DESTINATION)),
        *("--requirement", str(folder / _REQUIREMENTS)),
    )


def _environment(temporary: Path) -> dict[str, str]:
    """The user's environment, with all that pip writes in `temporary`.

    PIP_REQUIRE_VIRTUALENV guards against installing in the wrong place; nothing is installed.
    PYTHONSAFEPATH keeps a folder named pip in the working directory from being run.
    """
    return {
        **os.environ,
        "TMPDIR": str(temporary),
        "PIP_REQUIRE_VIRTUALENV": "0",
        "PYTHONSAFEPATH": "1",
    }


def _watch(process: subprocess.Popen[bytes], folder: Path, size: int, progress: Progress) -> None:
    """Wait for pip to end; meanwhile report the largest wheel it has written so far."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_SECONDS)
            return
        progress.bytes(min(largest_file(folder, ".whl"), size), size)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End pip's session, of which it is the leader; nothing is left to do when it ended itself."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _read(file: Path) -> str:
    return file.read_text(errors="replace") if file.is_file() else ""


def _explain(wheel: PinnedWheel, output: str, log: str, status: int) -> HostProblem:
    """What pip says went wrong, in one line, with the end of its output as the cause."""
    problem = HostProblem(*_reason(wheel, output + log, status))
    problem.__cause__ = PipOutput("\n".join(output.splitlines()[-_TAIL_LINES:]))
    return problem


def _reason(wheel: PinnedWheel, log: str, status: int) -> tuple[str, str]:
    what = wheel.requirement
    digests = _DIGESTS.search(log)
    if digests:
        return (
            f"the wheel of {what} has the wrong content: expected sha256 {digests[1]}, "
            f"got {digests[2]}",
            "It was thrown away. Your package index or mirror serves another file. "
            + _SEE_SETTINGS,
        )
    if _DISK_FULL.search(log):
        return f"the disk is full: {what} could not be downloaded", "Free some space and try again."
    if _CERTIFICATE.search(log):
        return (
            f"{what} could not be downloaded: the package index's certificate is not trusted",
            "Behind a proxy that opens TLS, give pip its certificate with PIP_CERT. "
            + _SEE_SETTINGS,
        )
    if _UNREACHABLE.search(log):
        return (
            f"{what} could not be downloaded: the package index cannot be reached",
            "Check the network and the proxy. " + _SEE_SETTINGS,
        )
    if _ABSENT.search(log):
        return (
            f"your package index does not have {what}",
            "A mirror may lag or be filtered. " + _SEE_SETTINGS,
        )
    errors = _ERROR.findall(log)
    said = errors[-1] if errors else f"pip ended with status {status}"
    return f"{what} could not be downloaded: {said}", _SEE_SETTINGS
