"""What ZLUDA's tracing shims recorded of one run, as an archive fit for a bug report.

The shims write a folder a process: log.txt, module_NNNN_NN.ptx and .elf, and a .log for each
module that ZLUDA's parser refuses (ZLUDA's docs/src/troubleshooting.md at 8a7931be).
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from zluda_stack.files import write_atomic
from zluda_stack.host.facts import HostFacts
from zluda_stack.host.redaction import Redaction

_TEXTS = frozenset({".txt", ".log", ".ptx"})
# Of a longer text the end is kept: that is where the program failed.
_MOST_BYTES = 64 << 20
_README = """\
What `zluda-stack run --trace` recorded of one run.

run.json       the program's name, its exit code, how it was run; not its arguments
versions.json  zluda-stack, what it pins, and the image that the program ran in
host.json      the machine, as `zluda-stack doctor --capture` writes it
log/           what ZLUDA's tracing shims wrote: every CUDA call, the PTX that was loaded

Removed: names of the user and of the machine, paths of the home, current and mounted folders,
other machines' addresses, unique ids of cards. Arguments and environment are not in it. Machine
code for NVIDIA's cards (.elf) is left out, since ZLUDA cannot use it. The names of kernels and the
PTX are the program's own: do not hand them on if you may not.
"""


class TracedRun(Struct, frozen=True, kw_only=True):
    """One run. `program` is a name without its folder; `seconds` include the container's start."""

    program: str
    arguments: int
    exit_code: int
    seconds: float
    target: str | None
    front: str
    image: str


class Contents(Struct, frozen=True, kw_only=True):
    """What was recorded: bytes of log, and how many modules of PTX, and of those ZLUDA refuses."""

    log_bytes: int
    modules: int
    refused: int


class _Text(Struct, frozen=True):
    text: str


class Cleaner:
    """Texts without personal details; `places` is what to write for each folder's path."""

    def __init__(self, redaction: Redaction, places: Mapping[str, str]) -> None:
        self._redaction = redaction
        self._places = sorted(places.items(), key=lambda item: len(item[0]), reverse=True)

    def clean(self, text: str) -> str:
        """`text` with what names a person, a machine or a folder replaced."""
        for path, stand_in in self._places:
            text = text.replace(path, stand_in)
        return self._redaction.over(_Text(text)).text


def contents(folder: Path) -> Contents:
    """What the shims left in `folder`."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return Contents(
        log_bytes=sum(path.stat().st_size for path in files if path.name == "log.txt"),
        modules=sum(path.suffix == ".ptx" for path in files),
        refused=sum(path.suffix == ".log" for path in files),
    )


def write_bundle(
    path: Path,
    folder: Path,
    cleaner: Cleaner,
    *,
    run: TracedRun,
    versions: object,
    facts: HostFacts,
) -> None:
    """Write the archive `path` (tar, gzip) of what the shims left in `folder`.

    `facts` must be without personal details already. Raises HostProblem.
    """
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        _add(archive, "README.txt", _README.encode())
        for name, value in {"run": run, "versions": versions, "host": facts}.items():
            _add(archive, f"{name}.json", _json(value))
        for file in sorted(folder.rglob("*")):
            if file.suffix in _TEXTS and file.is_file():
                name = cleaner.clean(str(file.relative_to(folder)))
                _add(archive, f"log/{name}", b"".join(_cleaned(file, cleaner)))
    write_atomic(path, raw.getvalue(), mode=0o600)


def _cleaned(path: Path, cleaner: Cleaner) -> Iterator[bytes]:
    """The lines of `path`, cleaned; of a file that is too long only its end."""
    with path.open("rb") as file:
        left_out = path.stat().st_size - _MOST_BYTES
        if left_out > 0:
            file.seek(left_out, os.SEEK_SET)
            file.readline()
            yield f"[the first {left_out >> 20} MiB are left out]\n".encode()
        for line in file:
            yield cleaner.clean(line.decode(errors="replace")).encode()


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2) + b"\n"


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(f"zluda-trace/{name}")
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))
