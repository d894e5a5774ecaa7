"""`check image:...` on an image of two layers, the second of which deletes a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker_engine import docker
from tests.unit.command_line import run
from tests.unit.cuda_programs import cubin, library, module, needs_compiler
from tests.unit.fat_binaries import container
from zluda_stack.errors import ExitCode

TAG = "zluda-stack-test/check:layers"
DOCKERFILE = """
FROM {base}
COPY good/ /opt/program/
COPY lost/ /opt/program/
RUN rm /opt/program/libreal.so && ln -s libgood.so /opt/program/libalias.so
"""

pytestmark = [pytest.mark.docker, needs_compiler]


@pytest.fixture(scope="module")
def image(standin: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("image")
    library(folder / "good" / "libgood.so", container(module()))
    library(folder / "good" / "libuser.so", container(module()), needed=["libalias.so"])
    library(folder / "lost" / "libreal.so", container(cubin("k")))
    (folder / "Dockerfile").write_text(DOCKERFILE.format(base=standin))
    docker("buildx", "build", "--load", "--tag", TAG, str(folder), timeout=600)
    yield TAG
    docker("rmi", TAG)


def test_the_files_of_the_last_layer_are_read_and_deleted_ones_are_not(image: str) -> None:
    told = run("check", "--json", f"image:{image}")
    assert told.code == ExitCode.OK, told
    files = {file["file"].partition("!")[2]: file for file in told.json["files"]}
    assert set(files) == {"/opt/program/libgood.so", "/opt/program/libuser.so"}
    (need,) = files["/opt/program/libuser.so"]["needs"]
    assert need["origin"] == "given"
    assert told.json["without_cuda"] > 100
    assert docker("ps", "--all", "--quiet", "--filter", f"ancestor={image}") == ""


def test_a_name_with_a_tag_is_an_image(image: str) -> None:
    assert run("check", image).code == ExitCode.OK
    told = run("check", "zluda-stack-test/absent:tag")
    assert told.code == ExitCode.USAGE
    assert "has no image" in told.err


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("name", [":", "image:UPPER", "image:a b", "@"])
def test_what_is_no_name_of_an_image_is_refused_as_such(name: str) -> None:
    told = run("check", name)
    assert (told.code, "is no name of an image" in told.err) == (ExitCode.USAGE, True), told.err


@pytest.mark.usefixtures("engine")
def test_the_compiler_is_taken_out_of_zludas_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Path(__file__).parents[1] / "unit" / "fakes" / "fake-zoc"
    (tmp_path / "zoc").write_bytes(fake.read_bytes())
    (tmp_path / "zoc").chmod(0o755)
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY zoc /opt/zluda/zoc\n")
    tag = "zluda-stack-test/check:zoc"
    docker("buildx", "build", "--load", "--tag", tag, str(tmp_path), timeout=600)
    monkeypatch.setattr("zluda_stack.check.zoc.image_name", lambda _: tag)
    path = library(tmp_path / "lib.so", container(module()))
    told = run("check", "--json", str(path), "--deep", "--gpu", "gfx1100")
    docker("rmi", tag)
    assert told.json["files"][0]["compiled_for"] == "gfx1100"
    assert told.code == ExitCode.OK
