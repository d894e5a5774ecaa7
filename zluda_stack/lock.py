"""Everything that a plan's images are pinned to, as one file: zluda-stack.lock."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import yaml
from msgspec import Struct, structs

from zluda_stack.catalog.schema import Artifact, BaseImage, Catalog, Component
from zluda_stack.errors import StackError
from zluda_stack.plan.combination import each_combination
from zluda_stack.plan.reference import cpu_plan, gpu_plans
from zluda_stack.plan.toolbox import toolbox_images
from zluda_stack.plan.types import ImagePlan, Plan
from zluda_stack.render.images import read_parts
from zluda_stack.render.project import render_project
from zluda_stack.settings import Settings

PinKind = Literal["image", "git", "file", "package", "deb"]

_HEADER = """\
# Written by zluda-stack: what its images are built from, pinned. Do not edit; change the catalogue.
# `zluda-stack lock --check` says what of it is still there upstream.
"""
# A package's files are NAME-VERSION-....whl and NAME-VERSION.tar.gz (PEP 427, PEP 625).
_PACKAGE_FILE = re.compile(
    r"(?P<name>[A-Za-z0-9_.]+?)-(?P<version>[0-9][^-]*?)(?:-.+\.whl|\.tar\.gz)"
)
_REQUIREMENT = re.compile(r"[A-Za-z0-9_.-]+==[^\s;]+")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


_SECTIONS = {
    "deb": "debs",
    "file": "files",
    "git": "git",
    "image": "images",
    "package": "packages",
}


class Pin(Struct, frozen=True, kw_only=True, order=True):
    """One thing that is pinned.

    `where` is what upstream is asked for: NAME:TAG of an image, URL of a repository or a file,
    NAME==VERSION of a package, URL of the archive of a Debian package. `identity` is what it must
    be: the image's digest, the commit, the Debian package's version, the SHA-256 of the file, or
    of each file that a package may come as. `name` is the file where there is one; `size` is in
    bytes, None when nobody wrote it down.
    """

    kind: PinKind
    where: str
    name: str
    identity: tuple[str, ...]
    size: int | None = None


def pins(plan: Plan, files: Mapping[str, str]) -> tuple[Pin, ...]:
    """Everything that the images of `plan` are pinned to, sorted, each once.

    `files` is the rendered project of the plan, whose requirements/*.txt images install from.
    """
    found = {pin for image in plan.images for pin in _of_image(image)}
    for name, text in files.items():
        if name.startswith("requirements/") and name.endswith(".txt"):
            found.update(_of_requirements(name, text))
    return tuple(sorted(found))


def pins_of_all(catalog: Catalog, settings: Settings) -> tuple[Pin, ...]:
    """Everything that any image is pinned to, with or without a GPU. Raises PlanRefused.

    No image is pinned to anything that depends on its gfx target, so one target stands for all.
    Where no combination of versions is named, all that are for the profile count.
    """
    of_each = (
        plan
        for each in each_combination(catalog, settings)
        for plan in (gpu_plans(catalog, each)[0], cpu_plan(catalog, each))
    )
    with_page = structs.replace(settings, profile="webui", combination="auto")
    plans = (
        *of_each,
        gpu_plans(catalog, with_page)[0],
        cpu_plan(catalog, with_page),
    )
    found = {pin for plan in plans for pin in pins(plan, render_project(plan))}
    found.update(pin for image in toolbox_images(catalog, settings) for pin in _of_image(image))
    return tuple(sorted(found))


def render_lock(found: Iterable[Pin]) -> str:
    """zluda-stack.lock: YAML, the same bytes for the same pins."""
    document: dict[str, object] = {"schema": 1}
    by_kind = itertools.groupby(found, key=lambda pin: pin.kind)
    document |= {_SECTIONS[kind]: [_entry(pin) for pin in group] for kind, group in by_kind}
    return _HEADER + yaml.safe_dump(document, sort_keys=False, width=1000)


def _entry(pin: Pin) -> dict[str, object]:
    what = {"image": "digest", "git": "commit", "deb": "version"}.get(pin.kind, "sha256")
    identity = pin.identity[0] if len(pin.identity) == 1 else list(pin.identity)
    entry: dict[str, object] = {"where": pin.where, "name": pin.name, what: identity}
    return entry if pin.size is None else {**entry, "size": pin.size}


def _of_image(image: ImagePlan) -> Iterator[Pin]:
    yield from _of_base(image.development)
    yield from _of_base(image.runtime)
    needed = {name for part in read_parts(image) for name in part.needs.components}
    for name in needed & image.components.keys():
        yield from _of_component(image.components[name])


def _of_base(base: BaseImage) -> Iterator[Pin]:
    if base.digest is not None:
        where = f"{base.name}:{base.tag}"
        yield Pin(kind="image", name=base.name, where=where, identity=(base.digest,))


def _of_component(component: Component) -> Iterator[Pin]:
    git = component.git
    # Of what comes as a file the hash is checked; the commit only says what is in it.
    if git is not None and git.commit is not None and not component.artifacts:
        yield Pin(kind="git", name=component.name, where=git.url, identity=(git.commit,))
    for artifact in component.artifacts:
        if artifact.sha256 is not None:
            yield _of_artifact(artifact, artifact.sha256)
    for deb in component.debs:
        name, _, version = deb.partition("=")
        if component.archive is not None and version:
            yield Pin(kind="deb", name=name, where=component.archive, identity=(version,))


def _of_artifact(artifact: Artifact, sha256: str) -> Pin:
    return Pin(
        kind="package" if artifact.url is None else "file",
        name=artifact.file,
        where=artifact.url or requirement(artifact.file),
        identity=(sha256,),
        size=artifact.size,
    )


def _of_requirements(name: str, text: str) -> Iterator[Pin]:
    """The pins of a pip requirements file with hashes."""
    for entry in text.replace("\\\n", " ").splitlines():
        required = _REQUIREMENT.match(entry)
        if required is not None:
            hashes = tuple(sorted(_HASH.findall(entry)))
            yield Pin(kind="package", name=name, where=required[0], identity=hashes)


def requirement(file: str) -> str:
    """NAME==VERSION of a wheel or a source distribution, from its file name."""
    found = _PACKAGE_FILE.fullmatch(file)
    if found is None:
        raise StackError(f"{file} is no name of a wheel or a source distribution", "Correct it.")
    return f"{found['name'].replace('_', '-')}=={found['version']}"
