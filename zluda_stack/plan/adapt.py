"""How an image with CUDA programs becomes one in which they find ZLUDA, or why it cannot."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Literal

from msgspec import Struct

from zluda_stack.errors import PlanRefused
from zluda_stack.plan.run import ZLUDA, Front
from zluda_stack.plan.types import Notice

LIBRARIES = "/opt/zluda-stack/lib"
DEVICES = "/opt/zluda-stack/bin/cuda-devices"
ADDED = "/opt/zluda-stack/added.txt"
LABEL = "zluda-stack.adapted-from"
_PATH = "LD_LIBRARY_PATH"
# What the inference image leaves out, so that NVIDIA's own would be loaded.
_LEFT_OUT = ("libcudnn", "libcusparse")

Libc = Literal["glibc", "musl", "none"]


class SourceImage(Struct, frozen=True, kw_only=True):
    """What an image is, as its configuration and its files say; nothing of it was run.

    `glibc` is its version, None for another C library. `nvidia` are libraries of NVIDIA's that
    the loader would find, `sets_path` the entrypoint when that is a script that sets
    LD_LIBRARY_PATH.
    """

    name: str
    system: str
    architecture: str
    libc: Libc
    glibc: str | None = None
    user: str = ""
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    labels: dict[str, str] = {}
    triggers: tuple[str, ...] = ()
    nvidia: tuple[str, ...] = ()
    has_zluda: bool = False
    sets_path: str | None = None


class Parts(Struct, frozen=True, kw_only=True):
    """The inference image that ZLUDA and ROCm are taken from.

    `glibc` is the oldest that its libraries can do with; `override` is the card's
    HSA_OVERRIDE_GFX_VERSION, if it needs one.
    """

    image: str
    target: str
    glibc: str
    override: str | None = None


class Adaptation(Struct, frozen=True, kw_only=True):
    """The derived image: `environment` is what is set in it, `changes` are lines for people."""

    source: str
    parts: str
    target: str
    tag: str
    environment: dict[str, str]
    changes: tuple[str, ...]
    warnings: tuple[Notice, ...] = ()


def adapt(
    source: SourceImage, parts: Parts, *, tag: str | None = None, front: Front = "library-path"
) -> Adaptation:
    """How `source` is adapted with `parts`; it is called `tag`, or after its source.

    Raises PlanRefused for an image in which it cannot work.
    """
    problem = _problem(source, parts.glibc)
    if problem is not None:
        raise problem
    environment = _environment(source, parts.override, front)
    return Adaptation(
        source=source.name,
        parts=parts.image,
        target=parts.target,
        tag=tag or default_tag(source.name, parts.target),
        environment=environment,
        changes=_changes(source, environment, parts.target),
        warnings=tuple(_warnings(source)),
    )


def default_tag(source: str, target: str) -> str:
    """What the adapted image is called: NAME-zluda:TAG-gfx1100, without a registry's host."""
    name, _, digest = source.partition("@")
    path, _, tag = name.rpartition(":")
    if not path or "/" in tag:
        path, tag = name, "latest"
    tag = digest.rpartition(":")[2][:12] if digest else tag
    return f"{PurePosixPath(path).name}-zluda:{tag}-{target}"


def _problem(source: SourceImage, needed: str) -> PlanRefused | None:
    """Why `source` cannot be adapted; None when it can."""
    name = source.name
    if LABEL in source.labels or source.has_zluda:
        return PlanRefused(
            f"{name} has a ZLUDA already ({ZLUDA})",
            "Adapt the image it was made from; `zluda-stack run --image` runs it as it is.",
        )
    if (source.system, source.architecture) != ("linux", "amd64"):
        return PlanRefused(
            f"{name} is for {source.system}/{source.architecture}, and ZLUDA and ROCm are for "
            "linux/amd64",
            "Pull its other architecture, if it has one: docker pull --platform linux/amd64",
        )
    if source.glibc is None:
        other = "musl" if source.libc == "musl" else "no C library that programs could load"
        return PlanRefused(
            f"{name} has {other}, and ZLUDA and ROCm are built for glibc",
            "Use a variant of the image on Debian, Ubuntu or Red Hat.",
        )
    if _version(source.glibc) < _version(needed):
        return PlanRefused(
            f"{name} has glibc {source.glibc}, and ZLUDA's and ROCm's libraries need {needed}",
            "Use a newer variant of the image, or build the inference image on an older base "
            "(--variant).",
        )
    if source.triggers:
        return PlanRefused(
            f"{name} has ONBUILD steps, which would run in the adapted image",
            "Build it into an image of your own first, and adapt that.",
        )
    return None


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def _environment(source: SourceImage, override: str | None, front: Front) -> dict[str, str]:
    """What is set: the first entry of an LD_LIBRARY_PATH is searched first, before ld.so.conf."""
    own = source.environment.get(_PATH, "")
    told = {_PATH: ":".join(part for part in (ZLUDA, LIBRARIES, own) if part)}
    if front == "audit":
        told["LD_AUDIT"] = f"{ZLUDA}/zluda_ld"
    if override:
        told["HSA_OVERRIDE_GFX_VERSION"] = override
    if "NVIDIA_VISIBLE_DEVICES" in source.environment:
        # With "void" NVIDIA's container run-time adds nothing (its documentation, "Environment
        # variables (OCI spec)").
        told["NVIDIA_VISIBLE_DEVICES"] = "void"
    return told


def _changes(source: SourceImage, environment: dict[str, str], target: str) -> tuple[str, ...]:
    before = source.environment
    changed = (
        f"{name}: {before[name]} -> {value}" if name in before else f"{name}: set to {value}"
        for name, value in environment.items()
    )
    words = {
        "user": source.user or "root",
        "entrypoint": " ".join(source.entrypoint) or "none",
        "command": " ".join(source.command) or "none",
    }
    return (
        f"added {ZLUDA}: ZLUDA's CUDA libraries",
        f"added {LIBRARIES}: ROCm's run-time libraries, and the kernels of {target} alone",
        *changed,
        "kept: " + ", ".join(f"{what} {value}" for what, value in words.items()),
    )


def _warnings(source: SourceImage) -> list[Notice]:
    found = []
    if source.nvidia:
        found.append(
            Notice(
                code="nvidia-libraries",
                message=f"NVIDIA's own stay behind ZLUDA's: {', '.join(source.nvidia)}",
                hint="A program with an RPATH to them loads them all the same; --audit is for such "
                "programs.",
            )
        )
    left_out = [path for path in source.nvidia if PurePosixPath(path).name.startswith(_LEFT_OUT)]
    if left_out:
        found.append(
            Notice(
                code="nvidia-only",
                message="the inference image has nothing of ZLUDA's in the place of "
                f"{', '.join(left_out)}, so programs load NVIDIA's, which need an NVIDIA GPU",
                hint="`zluda-stack check` says whether your program calls them.",
            )
        )
    if source.sets_path:
        found.append(
            Notice(
                code="entrypoint-sets-path",
                message=f"its entrypoint {source.sets_path} sets {_PATH}, which may put other "
                "libraries in front",
                hint=f"Look into it; {ZLUDA} must come first.",
            )
        )
    return found
