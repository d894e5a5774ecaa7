"""Where ZLUDA's offline compiler comes from: a file, or the image in which it was built."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from zluda_stack.catalog.nearest import find_gpu, suggest_gpu
from zluda_stack.catalog.schema import Catalog
from zluda_stack.engines.docker.containers import connect
from zluda_stack.errors import HostProblem, UsageError
from zluda_stack.plan.gpu_target import hindrance, supported
from zluda_stack.plan.reference import gpu_plans
from zluda_stack.settings import Settings

_PLACE = "/opt/zluda/zoc"
_HINT = "Build it: `zluda-stack build zluda`, or name a zoc that you have with --zoc."


def image_name(catalog: Catalog) -> str:
    """The image of this version's ZLUDA, as `zluda-stack build zluda` tags it."""
    images = gpu_plans(catalog, Settings())[0].images
    return next(image.tag for image in images if image.name == "zluda")


@contextmanager
def compiler(given: Path | None, catalog: Catalog) -> Iterator[Path]:
    """The compiler `given`, or the one in ZLUDA's image, copied out for as long as it is used.

    The image holds nothing but ZLUDA, and so cannot run it; its compiler needs glibc only.
    Raises HostProblem when there is none.
    """
    if given is not None:
        if not given.is_file():
            raise HostProblem(f"there is no compiler {given}", _HINT)
        yield given.resolve()
        return
    with TemporaryDirectory(prefix="zluda-stack-zoc-") as folder:
        yield _copied(image_name(catalog), Path(folder))


def _copied(image: str, folder: Path) -> Path:
    from docker.errors import DockerException

    with connect() as client:
        try:
            container = client.containers.create(image, command=["/never-run"])
        except DockerException as error:
            raise HostProblem(f"there is no image {image}: {error}", _HINT) from error
        try:
            chunks, _ = container.get_archive(_PLACE)
            with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
                member = archive.extractfile("zoc")
                if member is None:
                    raise HostProblem(f"{_PLACE} in {image} is no file", _HINT)
                found = folder / "zoc"
                found.write_bytes(member.read())
        except (DockerException, tarfile.TarError, KeyError) as error:
            raise HostProblem(f"{image} holds no {_PLACE}: {error}", _HINT) from error
        finally:
            container.remove(force=True)
    found.chmod(0o700)
    return found


def target(catalog: Catalog, gpu: str) -> str:
    """The gfx target that `gpu` names, one that ZLUDA serves. Raises UsageError."""
    found = find_gpu(catalog, gpu)
    if found is None:
        near = [one.target for one in suggest_gpu(catalog, gpu)]
        meant = f"Did you mean {near[0]}? " if near else ""
        raise UsageError(f"no GPU is called {gpu!r}", f"{meant}{supported(catalog)}")
    problem = hindrance(found, overridden=False)
    if problem is not None:
        raise UsageError(problem, supported(catalog))
    return found.target
