"""Images out of a real Docker Engine into a bundle and back, with one of a few bytes."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from tests.docker_engine import docker
from tests.unit.planning import host, plan_for
from zluda_stack.bundle import contents as made
from zluda_stack.bundle.archive import write
from zluda_stack.bundle.loading import load_images
from zluda_stack.bundle.reader import open_bundle
from zluda_stack.engines.docker import containers, supply
from zluda_stack.errors import HostProblem
from zluda_stack.plan.types import ImagePlan
from zluda_stack.progress import Silent
from zluda_stack.render.content_key import content_key
from zluda_stack.render.labels import BUILT_FROM

pytestmark = pytest.mark.docker

PLAN = "laptop-without-gpu-or-docker"


@pytest.fixture
def image(engine: None) -> Iterator[ImagePlan]:  # noqa: ARG001
    """A planned image in whose place is one of a few bytes, with the label of the real one."""
    planned = plan_for(host(PLAN), engine="docker", gpu="none").images[-1]
    image = structs.replace(planned, tag="zluda-stack-test/bundle:one")
    files = io.BytesIO()
    with tarfile.open(fileobj=files, mode="w") as archive:
        member = tarfile.TarInfo("hello")
        member.size = 5
        archive.addfile(member, io.BytesIO(b"hello"))
    label = f"LABEL {BUILT_FROM}={content_key(image)}"
    command = ["docker", "import", "--change", label, "-", image.tag]
    subprocess.run(command, input=files.getvalue(), capture_output=True, check=True)
    yield image
    subprocess.run(["docker", "rmi", image.tag], capture_output=True, check=False)


@pytest.fixture
def bundle(image: ImagePlan, tmp_path: Path) -> Path:
    """A bundle with that image."""
    draft = made.draft(plan_for(host(PLAN)), ())
    with containers.connect() as client:
        contents = made.with_images(made.Contents(manifest=draft, ingredients=()), client, (image,))
    out = tmp_path / "all.tar"
    write(out, contents.manifest, contents.ingredients, Silent())
    return out


def test_an_image_comes_back_as_planned_and_is_not_loaded_twice(
    bundle: Path, image: ImagePlan
) -> None:
    docker("rmi", image.tag)
    with containers.connect() as client:
        assert supply.lacking(supply.here(client, (image,))) == (image,)
        first = load_images(open_bundle(bundle), client, Silent())
        assert supply.lacking(supply.here(client, (image,))) == ()
        second = load_images(open_bundle(bundle), client, Silent())
    assert [one.new for one in (*first, *second)] == [True, False]


def test_a_damaged_image_never_reaches_the_engine(bundle: Path, image: ImagePlan) -> None:
    docker("rmi", image.tag)
    bundle.write_bytes(bundle.read_bytes().replace(b"hello", b"jello"))
    with containers.connect() as client:
        with pytest.raises(HostProblem, match="damaged"):
            load_images(open_bundle(bundle), client, Silent())
        assert supply.lacking(supply.here(client, (image,))) == (image,)


def test_what_the_engine_says_of_a_missing_image_is_told(image: ImagePlan, tmp_path: Path) -> None:
    draft = made.draft(plan_for(host(PLAN)), ())
    with containers.connect() as client:
        contents = made.with_images(made.Contents(manifest=draft, ingredients=()), client, (image,))
    docker("rmi", image.tag)
    with pytest.raises(HostProblem, match=image.tag):
        write(tmp_path / "all.tar", contents.manifest, contents.ingredients, Silent())
    assert not (tmp_path / "all.tar").exists()
