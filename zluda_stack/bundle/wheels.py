"""The Python packages of a bundle: those that zluda-stack is locked to, and its own wheel."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from zluda_stack import paths
from zluda_stack.errors import HostProblem
from zluda_stack.progress import Progress

_ERROR = re.compile(r"^(?:\S+ )?ERROR: (.+)$", re.MULTILINE)
_OWN = "zluda-stack"
_EXTRA = "embedded"
# What pip wrote of one installation, and what it writes anew at the next.
_NOT_OF_THE_WHEEL = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})


def locked_requirements() -> Path:
    """The packages that zluda-stack runs on, with the hashes of all their files."""
    return paths.project() / "requirements" / "run.txt"


def commands(folder: Path) -> tuple[tuple[str, ...], ...]:
    """The pip runs that fill `folder`."""
    return _download(folder), *(() if _is_installed() else (_build(folder),))


def collect(folder: Path, progress: Progress) -> tuple[Path, ...]:
    """The wheels for this interpreter and platform, fetched into `folder`, by name.

    Raises HostProblem when pip is missing, or cannot get one of them with its hash.
    """
    if importlib.util.find_spec("pip") is None:
        raise HostProblem(
            f"{sys.executable} has no pip, which fetches the Python packages",
            "Run `python -m ensurepip --upgrade`, or leave them out with --include.",
        )
    progress.step("fetching the Python packages")
    _run(_download(folder))
    own_wheel(folder)
    return tuple(sorted(folder.glob("*.whl")))


def own_wheel(folder: Path) -> None:
    """Write zluda-stack's own wheel into `folder`, from a checkout or from what is installed."""
    if _is_installed():
        _repack(folder)
    else:
        _run(_build(folder))


def requirements(wheels: tuple[Path, ...]) -> str:
    """A requirements file that names exactly `wheels`, each by its hash."""
    lines = []
    for wheel in wheels:
        name, version = wheel.name.split("-")[:2]
        extra = f"[{_EXTRA}]" if name.replace("_", "-") == _OWN else ""
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        lines.append(f"{name.replace('_', '-')}{extra}=={version} --hash=sha256:{digest}\n")
    return "".join(lines)


def _pip(*arguments: str) -> tuple[str, ...]:
    quiet = ("--disable-pip-version-check", "--no-input")
    return (sys.executable, "-m", "pip", *quiet, *arguments)


def _download(folder: Path) -> tuple[str, ...]:
    return _pip(
        *("download", "--progress-bar=off", "--only-binary=:all:", "--no-deps"),
        *("--require-hashes", "--dest", str(folder)),
        *("--requirement", str(locked_requirements())),
    )


def _build(folder: Path) -> tuple[str, ...]:
    checkout = str(paths.project())
    return _pip(
        "wheel",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--wheel-dir",
        str(folder),
        checkout,
    )


def _is_installed() -> bool:
    """True when this program runs from a wheel; False in a source checkout."""
    return paths.project().name == "_project"


def _run(command: tuple[str, ...]) -> None:
    # A folder named pip in the working directory must not be run.
    environ = {**os.environ, "PYTHONSAFEPATH": "1", "PIP_REQUIRE_VIRTUALENV": "0"}
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environ,
        check=False,
    )
    if done.returncode != 0:
        errors = _ERROR.findall(done.stdout + done.stderr)
        said = errors[-1] if errors else f"pip ended with status {done.returncode}"
        raise HostProblem(
            f"the Python packages are not complete: {said}",
            "`python -m pip config list` shows which index, proxy and certificates pip uses.",
        )


def _repack(folder: Path) -> None:
    """The wheel that this program was installed from, made again from what is installed."""
    own = importlib.metadata.distribution(_OWN)
    path = folder / f"{_OWN.replace('-', '_')}-{own.version}-py3-none-any.whl"
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(own.files or (), key=str):
            if ".." in file.parts or file.suffix == ".pyc" or file.name in _NOT_OF_THE_WHEEL:
                continue
            raw = Path(str(own.locate_file(file))).read_bytes()
            archive.writestr(str(file), raw)
            digest = base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).rstrip(b"=").decode()
            record.append(f"{file},sha256={digest},{len(raw)}\n")
        name = f"{_OWN.replace('-', '_')}-{own.version}.dist-info/RECORD"
        archive.writestr(name, "".join((*record, f"{name},,\n")))
