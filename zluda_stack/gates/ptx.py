"""Gate `ptx`: an offline compiler turns every PTX module into code for the gfx target."""

from __future__ import annotations

import hashlib
import re
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from msgspec import Struct

from zluda_stack.cuda import elf, ptx
from zluda_stack.cuda.modules import Module, modules
from zluda_stack.errors import HostProblem, StackError, UsageError
from zluda_stack.gates.verdict import Finding, Verdict, counted

_MACHINE = "AMDGPU"
# The symbol of a kernel's descriptor ends so (LLVM, AMDGPUUsage, "Kernel Descriptor").
_DESCRIPTOR = ".kd"
_LONGEST_LINE = 160
_MOST_FAMILIES = 3
_MANGLED = re.compile(r"_Z([1-9][0-9]{0,3})")
_SAID_EVERY = 20
_HINT = "Build for a virtual architecture (compute_80), or mend what the compiler names."


class _Job(Struct):
    """Modules with the same text, which is compiled once."""

    modules: list[Module]
    kernels: tuple[str, ...]
    problem: str | None = None


def check(
    files: Sequence[Path],
    *,
    compiler: Sequence[str],
    target: str,
    jobs: int,
    seconds: int,
    budget: int,
    progress: Callable[[str], None],
) -> Verdict:
    """Compile every PTX module in `files` for `target`; up to `budget` of them may fail.

    `compiler` is called as ZLUDA's `zoc`: COMPILER FILE --arch TARGET --output-dir FOLDER, in
    `jobs` processes at once, `seconds` each. A module counts as compiled when that ends with
    status 0 and leaves an ELF file for AMD's cards that holds every kernel of the module: with
    --ignore-errors, as ZLUDA compiles at run time, a kernel that it cannot parse is left out.
    """
    found = list(modules(files))
    progress(f"ptx: reading {counted(len(found), 'module')}")
    work = list(_jobs(found))
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        try:
            waiting = {pool.submit(_problem, job, compiler, target, seconds): job for job in work}
            for number, done in enumerate(as_completed(waiting), start=1):
                job = waiting[done]
                job.problem = done.result()
                if job.problem or number % _SAID_EVERY == 0 or number == len(work):
                    said = f"failed: {job.modules[0].name}" if job.problem else "compiled"
                    progress(f"ptx: {number}/{len(work)} {said}")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if not work:
        reason = f"there is no PTX in {', '.join(map(str, files))}"
        return Verdict(gate="ptx", checked=0, summary=reason, reason=reason, hint=_HINT)
    return _verdict(work, target=target, budget=budget)


def _verdict(work: Sequence[_Job], *, target: str, budget: int) -> Verdict:
    total = sum(len(job.modules) for job in work)
    failed = sum(len(job.modules) for job in work if job.problem)
    summary = f"{total - failed} of {total} modules compile for {target}"
    reason = None
    if failed > budget:
        reason = f"{failed} of {total} modules do not fully compile for {target}"
        reason += f", the budget is {budget}"
    elif failed < budget:
        summary += f"; lower the budget from {budget} to {failed}"
    return Verdict(
        gate="ptx",
        checked=total,
        summary=reason or summary,
        reason=reason,
        hint=_HINT,
        findings=tuple(
            Finding(module.name, job.problem, reason is None, _families(job.kernels))
            for job in work
            if job.problem
            for module in job.modules
        ),
        facts={
            "target": target,
            "distinct": len(work),
            "failed": failed,
            "budget": budget,
            "kernels": sum(len(job.kernels) for job in work),
        },
    )


def _families(kernels: Iterable[str]) -> str:
    """The kernels by their functions' names, with how many instances of a template each has.

    Of a mangled name only the plain one at its start is taken (Itanium C++ ABI, "source-name").
    """
    families: Counter[str] = Counter()
    for kernel in kernels:
        mangled = _MANGLED.match(kernel)
        start = mangled.end() if mangled else 0
        families[kernel[start : start + int(mangled[1])] if mangled else kernel] += 1
    shown = [
        f"{name} (x{number})" if number > 1 else name
        for name, number in families.most_common(_MOST_FAMILIES)
    ]
    more = len(families) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _jobs(found: Iterable[Module]) -> Iterable[_Job]:
    by_text: dict[str, _Job] = {}
    for module in found:
        try:
            text = module.text()
            kernels = ptx.parse(text, name=module.name).entries
        except UsageError as error:
            by_text[module.name] = _Job([module], (), error.message)
            continue
        digest = hashlib.sha256(text).hexdigest()
        by_text.setdefault(digest, _Job([], kernels)).modules.append(module)
    return by_text.values()


def _problem(job: _Job, compiler: Sequence[str], target: str, seconds: int) -> str | None:
    if job.problem is not None:
        return job.problem
    with tempfile.TemporaryDirectory(prefix="ptx-gate-") as name:
        source, output = Path(name, "module.ptx"), Path(name, "out")
        source.write_bytes(job.modules[0].text())
        try:
            done = subprocess.run(
                [*compiler, str(source), "--arch", target, "--output-dir", str(output)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"is not compiled within {seconds} s"
        except OSError as error:
            raise HostProblem(
                f"cannot run {compiler[0]}: {error.strerror}",
                "Give --compiler the offline compiler of ZLUDA's build (zoc).",
            ) from error
        if done.returncode != 0:
            return _first_error(done)
        return _left_out(output, job.kernels)


def _left_out(folder: Path, kernels: Sequence[str]) -> str | None:
    """What is missing in the compiler's output, if anything."""
    try:
        code = [elf.read(path) for path in folder.glob("*.elf")]
    except StackError as error:
        return f"the compiler left a broken file: {error.message}"
    compiled = {name for file in code if file.machine == _MACHINE for name in file.exports}
    missing = [kernel for kernel in kernels if f"{kernel}{_DESCRIPTOR}" not in compiled]
    if not any(file.machine == _MACHINE for file in code):
        return "the compiler left no code for the card"
    if missing:
        return f"{len(missing)} of {counted(len(kernels), 'kernel')} left out: {_families(missing)}"
    return None


def _first_error(done: subprocess.CompletedProcess[str]) -> str:
    """The line that says what is wrong: the first that names an error, else the first one.

    A panic of Rust names its place first and its cause in the next line.
    """
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if "panicked at" in line:
            return _shortened(" ".join(lines[number : number + 2]))
        if "error" in line.lower():
            return _shortened(line)
    if done.returncode < 0:
        return f"the compiler was ended by {signal.Signals(-done.returncode).name}"
    return _shortened(lines[0]) if lines else f"the compiler ended with status {done.returncode}"


def _shortened(line: str) -> str:
    return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 3] + "..."
