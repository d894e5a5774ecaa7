"""A folder of CUDA sources as a whole: what hipify converts of it, and what it leaves behind."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct

from zluda_stack.catalog.porting import Porting, Rule, Severity
from zluda_stack.port.lexer import Source, read
from zluda_stack.port.preprocessor import Known, Truth, left_out
from zluda_stack.port.source import Calls, Scan, Unportable, scan_source

SOURCES = (
    *(".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c"),
    *(".h", ".hpp", ".hh", ".hxx", ".inl", ".inc", ".ipp", ".tpp"),
)
BUILDS = ("CMakeLists.txt", "Makefile", "makefile", "GNUmakefile", "meson.build", "setup.py")
# What a file must say to have anything of CUDA in it.
_OF_CUDA = re.compile(
    r"cu[A-Z]|cuda|cub|cute|cutlass|thrust|nccl|curand|nvrtc|nvml|nvtx|nvshmem|nvjpeg|__global__"
    r"|__device__|__launch_bounds__|<<<|\bnpp|NvInfer|optix|gdrapi|nv-p2p|threadIdx|\bhip[A-Z/]|HIP|ROCM|CUDA"
)
_DEFINE = re.compile(r"^[^\S\n]*#[^\S\n]*define[^\S\n]+(\w+)", re.MULTILINE)
_FUNCTION = re.compile(r"\b([A-Za-z_]\w*)\s*\([^;{}()]*\)\s*\{")
_HIP_BUILD = re.compile(
    r"\benable_language\s*\(\s*HIP\b|\bproject\s*\([^)]*\bHIP\b|\bfind_package\s*\(\s*hip\b"
    r"|\bCMAKE_HIP_ARCHITECTURES\b|\bhipcc\b",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"#[^\n]*")
_ROUNDS = 4


class Finding(Struct, frozen=True):
    """One place of a file that stays behind."""

    file: str
    what: Unportable


class Kind(Struct, frozen=True):
    """All findings of one kind: how many, in how many files, and the first."""

    kind: str
    title: str
    severity: Severity
    count: int
    files: int
    first: str
    why: str
    instead: str


class Tree(Struct, frozen=True, kw_only=True):
    """What is known of a folder. `lines` and `files` are those that have anything of CUDA in them.

    `own_hip` are files that show that it has a HIP build of its own: then nothing is to be
    converted. `extends_torch` is whether it is built by PyTorch, which converts it. `unread`
    counts files that could not be read, are too large or no text.
    """

    files: int
    lines: int
    kernels: int
    device_files: int
    calls: Calls
    findings: tuple[Finding, ...]
    kinds: tuple[Kind, ...]
    own_hip: tuple[str, ...]
    extends_torch: bool = False
    unread: int = 0

    def count(self, severity: Severity) -> int:
        """How many places of this severity there are."""
        return sum(kind.count for kind in self.kinds if kind.severity is severity)


def survey(
    texts: Iterable[tuple[str, str]],
    facts: Porting,
    unread: int = 0,
    tell: Callable[[str], None] = lambda _: None,
) -> Tree:
    """The whole of `texts`, which are (file, text) of sources and build files.

    Macros that the sources define only where a HIP build leaves them out count as not defined.
    `tell` is given the name of each file, before it is read and again before it is scanned.
    """
    sources: dict[str, Source] = {}
    builds: dict[str, str] = {}
    others: set[str] = set()
    for name, text in texts:
        tell(name)
        if _is_build(name):
            builds[name] = text
        elif _OF_CUDA.search(text):
            sources[name] = read(text)
        else:
            others.update(_DEFINE.findall(text))
    known = _known(sources.values(), frozenset(others), facts)
    scans: dict[str, Scan] = {}
    for name, source in sources.items():
        tell(name)
        scans[name] = scan_source(source, facts, known)
    own = _own_names(sources)
    findings = [*_findings(scans, own), *_build_findings(builds, facts)]
    of_cuda = [name for name, scan in scans.items() if _has_cuda(name, scan)]
    return Tree(
        files=len(of_cuda),
        lines=sum(scans[name].lines for name in of_cuda),
        kernels=sum(scan.kernels for scan in scans.values()),
        device_files=sum(scan.device_code for scan in scans.values()),
        calls=_calls(scans.values()),
        findings=tuple(findings),
        kinds=_kinds(findings, facts),
        own_hip=tuple(sorted(_hip_files(sources, builds))),
        extends_torch=any(map(_includes_torch, sources.values())),
        unread=unread,
    )


def is_wanted(name: str) -> bool:
    """True for the name of a file that `survey` reads."""
    return name.lower().endswith(SOURCES) or _is_build(name)


def _is_build(name: str) -> bool:
    base = name.rpartition("/")[2]
    return base in BUILDS or base.endswith((".cmake", ".mk"))


def _has_cuda(name: str, scan: Scan) -> bool:
    of_cuda = name.lower().endswith((".cu", ".cuh"))
    return of_cuda or scan.device_code or bool(scan.unportable or scan.calls.total)


def _known(sources: Iterable[Source], others: frozenset[str], facts: Porting) -> Known:
    """Which macros a HIP build of these sources defines, as far as they tell.

    `others` are macros that further files define.
    """
    every = tuple(sources)
    absent: frozenset[str] = frozenset()
    known: Known = facts.defined
    for _ in range(_ROUNDS):
        alive, dead = _defines(every, known)
        alive |= others
        if dead - alive == absent:
            break
        absent = dead - alive
        known = _knowing(facts, alive, absent)
    return known


def _knowing(facts: Porting, alive: frozenset[str], absent: frozenset[str]) -> Known:
    def known(macro: str) -> Truth:
        if macro in absent:
            return False
        found = facts.defined(macro)
        return None if found is False and macro in alive else found

    return known


def _defines(sources: Iterable[Source], known: Known) -> tuple[frozenset[str], frozenset[str]]:
    """The macros that are defined where a HIP build looks, and those where it does not."""
    alive: set[str] = set()
    dead: set[str] = set()
    for source in sources:
        parts = left_out(source.code, known)
        for found in _DEFINE.finditer(source.code):
            is_dead = any(start <= found.start() < end for start, end in parts)
            (dead if is_dead else alive).add(found[1])
    return frozenset(alive), frozenset(dead)


def _own_names(sources: Mapping[str, Source]) -> frozenset[str]:
    """What headers for HIP define: the project has put something in the place of these names."""
    own: set[str] = set()
    for source in sources.values():
        if _includes_hip(source):
            own.update(_DEFINE.findall(source.code), _FUNCTION.findall(source.code))
    return frozenset(own)


def _includes_hip(source: Source) -> bool:
    return any(header.startswith("hip/hip_runtime") for _, header in source.includes)


def _includes_torch(source: Source) -> bool:
    return any(header.startswith(("torch/", "ATen/", "c10/")) for _, header in source.includes)


def _hip_files(sources: Mapping[str, Source], builds: Mapping[str, str]) -> Iterator[str]:
    for name, source in sources.items():
        if _includes_hip(source):
            yield name
    for name, text in builds.items():
        if _HIP_BUILD.search(_COMMENT.sub("", text)):
            yield name


def _findings(scans: Mapping[str, Scan], own: frozenset[str]) -> Iterator[Finding]:
    for name, scan in scans.items():
        for what in scan.unportable:
            if what.name not in own:
                yield Finding(name, what)


def _build_findings(builds: Mapping[str, str], facts: Porting) -> Iterator[Finding]:
    for name, text in builds.items():
        code = _COMMENT.sub(lambda comment: " " * len(comment[0]), text)
        for pattern, rule in facts.build_patterns:
            for found in pattern.finditer(code):
                yield Finding(name, _of_build(rule, code.count("\n", 0, found.start()) + 1, found))


def _of_build(rule: Rule, line: int, found: re.Match[str]) -> Unportable:
    name = " ".join(found[0].split())
    return Unportable(line, rule.kind, name, rule.severity, rule.why, rule.instead)


def _calls(scans: Iterable[Scan]) -> Calls:
    by_interface: Counter[str] = Counter()
    missing: Counter[str] = Counter()
    for scan in scans:
        by_interface.update(scan.calls.by_interface)
        missing.update(scan.calls.missing)
    return Calls(dict(sorted(by_interface.items())), dict(sorted(missing.items())))


def _kinds(findings: Iterable[Finding], facts: Porting) -> tuple[Kind, ...]:
    """The findings by kind, the hardest first, of those the most frequent."""
    groups: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[finding.what.kind].append(finding)
    found = (_kind(group, facts.title_of(kind)) for kind, group in groups.items())
    order = list(Severity)
    return tuple(sorted(found, key=lambda kind: (order.index(kind.severity), -kind.count)))


def _kind(group: list[Finding], title: str) -> Kind:
    first = group[0]
    substitutes = Counter(finding.what.instead for finding in group if finding.what.instead)
    return Kind(
        kind=first.what.kind,
        title=title,
        severity=first.what.severity,
        count=len(group),
        files=len({finding.file for finding in group}),
        first=f"{first.file}:{first.what.line}",
        why=first.what.why,
        instead=substitutes.most_common(1)[0][0] if substitutes else "",
    )
