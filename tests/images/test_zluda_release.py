"""ZLUDA by the method `release`, on a real engine: a tarball of the test's own, served here."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from msgspec import structs

from tests.docker_engine import build, docker, standin_contexts
from tests.unit.planning import host, plan_for
from zluda_stack.catalog.schema import Artifact
from zluda_stack.plan.types import ImagePlan
from zluda_stack.render.dockerfiles import render_dockerfile

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

TAG = "zluda-stack-test/zluda-release"
COMPONENT = "zluda-release"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def tarball() -> bytes:
    """What ZLUDA publishes, as far as its layout goes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, mode in (("libnvcuda.so", 0o755), ("zluda_ld", 0o755)):
            member = tarfile.TarInfo(f"zluda/{name}")
            member.size, member.mode, member.uid = len(name), mode, 1001
            archive.addfile(member, io.BytesIO(name.encode()))
        for name, target in (("libcuda.so", "libnvcuda.so"), ("trace/zluda_ld", "../zluda_ld")):
            link = tarfile.TarInfo(f"zluda/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
    return out.getvalue()


@pytest.fixture
def image(tmp_path: Path) -> Iterator[ImagePlan]:
    """The inference image as it is planned, with what it downloads served by this machine."""
    planned = plan_for(host("radeon-rx-7900-xtx"), zluda="release").images[0]
    component = planned.components[COMPONENT]
    files = dict.fromkeys((artifact.file for artifact in component.artifacts[1:]), b"terms\n")
    files[component.artifacts[0].file] = tarball()
    handler = partial(_Quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name, data in files.items():
            (tmp_path / name).write_bytes(data)
        served = tuple(
            structs.replace(
                artifact,
                url=f"http://127.0.0.1:{server.server_port}/{artifact.file}",
                sha256=hashlib.sha256(files[artifact.file]).hexdigest(),
            )
            for artifact in component.artifacts
        )
        yield with_artifacts(planned, served)
        server.shutdown()


def with_artifacts(image: ImagePlan, artifacts: tuple[Artifact, ...]) -> ImagePlan:
    component = structs.replace(image.components[COMPONENT], artifacts=artifacts)
    return structs.replace(image, components=image.components | {COMPONENT: component})


def build_stage(image: ImagePlan, standin: str, folder: Path) -> str:
    dockerfile = folder / "Dockerfile"
    dockerfile.write_text(render_dockerfile(image))
    return build(dockerfile, target="zluda", tag=TAG, contexts=standin_contexts(standin))


def test_the_tarball_becomes_the_folder_that_a_build_from_source_gives(
    image: ImagePlan, standin: str, tmp_path: Path
) -> None:
    build_stage(image, standin, tmp_path)

    container = docker("create", TAG, "nothing")
    docker("cp", "--quiet", f"{container}:/opt/zluda", str(tmp_path))
    docker("rm", container)
    docker("rmi", TAG)
    made = tmp_path / "zluda"
    assert (made / "libcuda.so").resolve().read_text() == "libnvcuda.so"
    assert (made / "trace" / "zluda_ld").resolve() == made / "zluda_ld"
    assert (made / "zluda_ld").stat().st_mode & 0o777 == 0o755
    licences = sorted((made / "licences").iterdir())
    assert [path.name for path in licences] == ["LICENSE-APACHE", "LICENSE-MIT"]
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in licences)
    info = json.loads((made / "BUILD-INFO.json").read_text())
    component = image.components[COMPONENT]
    assert info["zluda"]["version"] == component.version
    assert info["tarball"]["sha256"] == component.artifacts[0].sha256


def test_another_tarball_than_the_pinned_one_stops_the_build(
    image: ImagePlan, standin: str, tmp_path: Path
) -> None:
    first, *others = image.components[COMPONENT].artifacts
    other = with_artifacts(image, (structs.replace(first, sha256="0" * 64), *others))

    with pytest.raises(AssertionError, match="digest mismatch"):
        build_stage(other, standin, tmp_path)
