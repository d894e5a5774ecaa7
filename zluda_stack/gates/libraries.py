"""Gate `libraries`: every program and library finds what it needs, and every library loads."""

from __future__ import annotations

import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from zluda_stack.cuda import elf
from zluda_stack.cuda.elf import Elf
from zluda_stack.errors import HostProblem, StackError
from zluda_stack.gates.files import expanded
from zluda_stack.gates.verdict import Finding, Verdict, counted

_NOT_FOUND = re.compile(r"^\s*(\S+) => not found", re.MULTILINE)
_UNRESOLVED = re.compile(r"undefined symbol: *[^\s,]+|version [`'][^']+' not found")
_ON_A_GRAPHICS_CARD = {"CUDA", "AMDGPU"}
# RTLD_NOW resolves every function at once: what lazy binding would hide until it is called.
_LOAD = "import ctypes, os, sys; ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW)"
_SECONDS = 120


def check(folders: Sequence[Path], *, search: Iterable[Path] = ()) -> Verdict:
    """Look at every ELF file under `folders`; libraries are also looked for in `search`.

    A file is fine when `ldd` finds all that it needs and, if it is a library, when it loads with
    RTLD_NOW in a process of its own. Code for graphics cards is left out. Raises UsageError for a
    folder that holds no ELF file.
    """
    environment = _environment(search)
    files = expanded(folders)
    findings = list(_dangling(folders))
    checked = libraries = 0
    for path in files:
        try:
            read = elf.read(path)
        except StackError as error:
            findings.append(Finding(str(path), error.message))
            continue
        if read.machine in _ON_A_GRAPHICS_CARD or read.kind == "relocatable":
            continue
        checked += 1
        libraries += _is_library(read)
        findings.extend(Finding(str(path), problem) for problem in _problems(read, environment))
    reason = None
    if findings:
        broken = len({found.subject for found in findings})
        reason = f"{counted(broken, 'file')} cannot be loaded"
    return Verdict(
        gate="libraries",
        checked=checked,
        summary=reason
        or f"{counted(checked, 'file')} checked, "
        f"{counted(libraries, 'library', 'libraries')} of them loaded",
        reason=reason,
        hint="Add what is missing to the image, or its folder to the search path.",
        findings=tuple(sorted(findings)),
        facts={"libraries": libraries},
    )


def _dangling(folders: Iterable[Path]) -> Iterator[Finding]:
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_symlink() and not path.exists():
                yield Finding(str(path), f"links to {path.readlink()}, which is not there")


def _is_library(file: Elf) -> bool:
    """Position-independent programs are shared objects too, but name a program loader."""
    return file.kind == "shared object" and (file.interpreter is None or file.soname is not None)


def _problems(file: Elf, environment: dict[str, str]) -> list[str]:
    if file.machine != platform.machine():
        return [f"is for {file.machine}, and this is {platform.machine()}"]
    problems = _ldd(file, environment)
    if not problems and _is_library(file):
        problems = _load(file, environment)
    return problems


def _ldd(file: Elf, environment: dict[str, str]) -> list[str]:
    # Programs are not started here; --function-relocs has ldd resolve all that they call.
    option = () if _is_library(file) else ("--function-relocs",)
    done = _run(["ldd", *option, file.path], environment)
    output = done.stdout + done.stderr
    problems = [f"needs {name}, which is not found" for name in _NOT_FOUND.findall(output)]
    return list(dict.fromkeys(problems or _UNRESOLVED.findall(output)))


def _load(file: Elf, environment: dict[str, str]) -> list[str]:
    try:
        done = _run([sys.executable, "-I", "-c", _LOAD, file.path], environment)
    except subprocess.TimeoutExpired:
        return [f"does not load within {_SECONDS} s"]
    if done.returncode == 0:
        return []
    if done.returncode < 0:
        return [f"crashes while it loads ({signal.Signals(-done.returncode).name})"]
    lines = done.stderr.strip().splitlines()
    said = lines[-1].removeprefix("OSError: ") if lines else f"exit status {done.returncode}"
    return [f"does not load: {said}"]


def _environment(search: Iterable[Path]) -> dict[str, str]:
    folders = [str(folder) for folder in search]
    before = os.environ.get("LD_LIBRARY_PATH")
    joined = ":".join(folders + ([before] if before else []))
    return {**os.environ, "LC_ALL": "C", **({"LD_LIBRARY_PATH": joined} if joined else {})}


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise HostProblem(f"{command[0]} is not there", "Install libc-bin.") from error
