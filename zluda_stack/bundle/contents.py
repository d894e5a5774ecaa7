"""What goes into a bundle for a plan, and where its bytes are."""

from __future__ import annotations

import hashlib
import io
import platform
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from zluda_stack import __version__
from zluda_stack.bundle import images, instructions, wheels
from zluda_stack.bundle.archive import Ingredient
from zluda_stack.bundle.manifest import (
    FORMAT,
    BundledImage,
    BundledModel,
    Kind,
    Manifest,
    blob_path,
    interpreter,
)
from zluda_stack.errors import UsageError
from zluda_stack.models.store import Store
from zluda_stack.plan.types import ImagePlan, Plan
from zluda_stack.progress import Progress
from zluda_stack.render.content_key import content_key

if TYPE_CHECKING:
    from docker import DockerClient

_ORDER: tuple[Kind, ...] = ("text", "wheel", "project", "model", "image")


class Contents(Struct, frozen=True, kw_only=True):
    """The manifest without its members, and what the members are made of, in their order."""

    manifest: Manifest
    ingredients: tuple[Ingredient, ...]

    @property
    def size(self) -> int:
        """Bytes of all members together, as far as that is known before."""
        return sum(one.size or one.about for one in self.ingredients)


def draft(plan: Plan, up: Sequence[str]) -> Manifest:
    """The manifest of a bundle for `plan` that holds nothing yet; `up` as in Manifest."""
    return Manifest(
        format=FORMAT,
        version=__version__,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        headline=plan.headline,
        machine=platform.machine(),
        python=None,
        up=tuple(up),
        models=(),
        images=(),
    )


def with_models(contents: Contents, store: Store, names: Iterable[str]) -> Contents:
    """`contents` with the models `names` of `store`. Raises UsageError, HostProblem."""
    models, blobs = list[BundledModel](), dict[str, Path]()
    for name in dict.fromkeys(names):
        record = store.record(name)
        if record is None:
            raise UsageError(
                f"the model {name} is not here", f"`zluda-stack models pull {name}` fetches it."
            )
        models.append(BundledModel(name=name, record=record))
        blobs |= {file.sha256: path for file, path in store.files(name)}
    return _extended(
        contents,
        [_of_file(blob_path(digest), "model", path, digest) for digest, path in blobs.items()],
        models=tuple(models),
    )


def with_images(contents: Contents, client: DockerClient, wanted: Sequence[ImagePlan]) -> Contents:
    """`contents` with the images `wanted`, which the engine must have."""
    bundled = tuple(
        BundledImage(
            name=image.name,
            tag=image.tag,
            key=content_key(image),
            member=f"images/{image.name}.tar",
        )
        for image in wanted
    )
    made = [
        Ingredient(
            path=one.member,
            kind="image",
            open=partial(images.saved, one.tag),
            about=int(client.images.get(one.tag).attrs.get("Size", 0)),
        )
        for one in bundled
    ]
    return _extended(contents, made, images=bundled)


def with_wheels(contents: Contents, folder: Path, progress: Progress) -> Contents:
    """`contents` with the Python packages, fetched into `folder`. Raises HostProblem."""
    found = wheels.collect(folder, progress)
    python = interpreter()
    pip = next(path.name for path in found if path.name.startswith("pip-"))
    digest = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in found}
    return _extended(
        contents,
        [
            of_text(instructions.INSTALL, instructions.install_script(python, pip)),
            of_text(instructions.REQUIREMENTS, wheels.requirements(found)),
            *(_of_file(f"wheels/{path.name}", "wheel", path, digest[path]) for path in found),
        ],
        python=python,
    )


def with_project(contents: Contents, plan: Plan) -> Contents:
    """`contents` with the rendered project of `plan` and its lock; a plan without has none."""
    if not plan.services:
        return contents
    from zluda_stack.lock import pins, render_lock
    from zluda_stack.render.project import render_project

    files = render_project(plan)
    files["zluda-stack.lock"] = render_lock(pins(plan, files))
    made = [of_text(f"project/{path}", text, "project") for path, text in files.items()]
    return _extended(contents, made)


def with_readme(contents: Contents, file: str) -> Contents:
    """`contents` with its README.txt as the first member; `file` is what the bundle is called.

    What is installed from comes before what is large, so that tar finds it soon.
    """
    text = of_text(instructions.README, instructions.readme(contents.manifest, file))
    ordered = sorted(contents.ingredients, key=lambda one: _ORDER.index(one.kind))
    return structs.replace(contents, ingredients=(text, *ordered))


def of_text(path: str, text: str, kind: Kind = "text") -> Ingredient:
    """The member `path` with this text."""
    raw = text.encode()
    return Ingredient(
        path=path,
        kind=kind,
        open=lambda: io.BytesIO(raw),
        size=len(raw),
        sha256=hashlib.sha256(raw).hexdigest(),
    )


def _of_file(path: str, kind: Kind, file: Path, sha256: str) -> Ingredient:
    return Ingredient(
        path=path,
        kind=kind,
        open=lambda: file.open("rb"),
        size=file.stat().st_size,
        sha256=sha256,
    )


def _extended(contents: Contents, more: Iterable[Ingredient], **changes: object) -> Contents:
    return Contents(
        manifest=structs.replace(contents.manifest, **changes),
        ingredients=(*contents.ingredients, *more),
    )
