"""`zluda-stack adapt` on real images that are built here; ZLUDA in them is a fake."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docker_engine import ROOT, debian_image, docker

pytestmark = [pytest.mark.docker, pytest.mark.timeout(7200)]

# A CUDA program, as far as the loader is concerned: it says which driver it got, and who it is.
_PROGRAM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int main(int count, char **words) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) { fprintf(stderr, "%s\\n", dlerror()); return 9; }
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    Dl_info info;
    dladdr((void *)init, &info);
    printf("%s %d %s\\n", info.dli_fname, (int)getuid(), count > 1 ? words[1] : "-");
    return init(0);
}
"""
_APP = """
FROM {base}
COPY program /app/program
COPY libcuda.so.1 /usr/local/cuda/compat/
ENV LD_LIBRARY_PATH=/usr/local/cuda/compat
USER 4321:4321
ENTRYPOINT ["/app/program"]
CMD ["as-usual"]
"""

Adapt = Callable[..., subprocess.CompletedProcess[str]]


def image(folder: Path, name: str, dockerfile: str, *options: str) -> str:
    """Build the small image `name` from what is in `folder`."""
    (folder / "Dockerfile").write_text(dockerfile)
    tag = f"zluda-stack-test/{name}"
    docker("buildx", "build", "--load", "--tag", tag, *options, str(folder), timeout=600)
    return tag


@pytest.fixture
def adapt(inference_image: str, tmp_path: Path) -> Adapt:
    """Run `zluda-stack adapt` for gfx1100, with the inference image of the tests."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        line = ("adapt", "--gpu", "gfx1100", "--from", inference_image, *arguments)
        return subprocess.run(
            [sys.executable, "-m", "zluda_stack", *line],
            cwd=tmp_path,
            env=os.environ | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def app(engine: None, tmp_path: Path) -> Iterator[str]:  # noqa: ARG001
    """An image with a program, a user and a driver of NVIDIA's, as far as names go."""
    for source, options in {"program": ["-ldl"], "libcuda.so.1": ["-shared", "-fPIC"]}.items():
        text = _PROGRAM if source == "program" else "int cuInit(unsigned f) { return 77; }"
        command = ["cc", "-x", "c", "-", "-o", str(tmp_path / source), *options]
        subprocess.run(command, input=text, text=True, check=True)
    base = debian_image("sid", tmp_path)
    yield image(tmp_path, "app:1", _APP.format(base=base))
    docker("image", "rm", "--force", "zluda-stack-test/app:1", "zluda-stack-test/adapted:1")


def test_the_program_finds_zluda_first_as_its_own_user(adapt: Adapt, app: str) -> None:
    unadapted = subprocess.run(
        ["docker", "run", "--rm", app], capture_output=True, text=True, check=False
    )
    assert unadapted.stdout.split() == ["/usr/local/cuda/compat/libcuda.so.1", "4321", "as-usual"]
    made = adapt(app, "--tag", "zluda-stack-test/adapted:1")
    assert made.returncode == 0, made.stderr
    assert "LD_LIBRARY_PATH: /usr/local/cuda/compat -> /opt/zluda:" in made.stdout
    assert "NVIDIA's own stay behind ZLUDA's: /usr/local/cuda/compat/libcuda.so.1" in made.stderr
    told = subprocess.run(
        ["docker", "run", "--rm", "zluda-stack-test/adapted:1"],
        capture_output=True,
        text=True,
        check=False,
    )
    # 100 is CUDA_ERROR_NO_DEVICE, from the fake driver.
    assert told.stdout.split() == ["/opt/zluda/libcuda.so.1", "4321", "as-usual"]
    assert told.returncode == 100
    again = adapt("zluda-stack-test/adapted:1")
    assert again.returncode == 3
    assert "has a ZLUDA already" in again.stderr


def test_an_older_glibc_is_refused_with_both_numbers(adapt: Adapt, standin: str) -> None:
    told = adapt(standin)
    assert told.returncode == 3
    assert "has glibc 2.36, and ZLUDA's and ROCm's libraries need 2." in told.stderr


@pytest.mark.parametrize(
    ("file", "options", "told"),
    [
        ("lib/ld-musl-x86_64.so.1", (), "has musl"),
        ("app", (), "has no C library"),
        ("app", ("--platform", "linux/arm64"), "is for linux/arm64"),
    ],
)
def test_an_image_in_which_it_cannot_work(
    adapt: Adapt, tmp_path: Path, file: str, options: tuple[str, ...], told: str
) -> None:
    (tmp_path / "made" / file).parent.mkdir(parents=True)
    (tmp_path / "made" / file).write_text("a stand-in")
    tag = image(tmp_path, "refused:1", "FROM scratch\nCOPY made /\n", *options)
    try:
        refused = adapt(tag)
    finally:
        docker("image", "rm", "--force", tag)
    assert refused.returncode == 3
    assert told in refused.stderr


def test_an_image_that_is_not_there(adapt: Adapt) -> None:
    told = adapt("nobody/nothing:1")
    assert told.returncode == 4
    assert "the engine has no image nobody/nothing:1" in told.stderr
