"""`zluda-stack run` on a real engine: the user's program, identity, terminal, signals, exit code.

The card is fake, and so is ZLUDA: one whose driver finds no device, and one that says it has one,
so that a program is started at all. What is shown counts as tested with a fake.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import sqlite3
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct

from tests.docker_engine import ROOT, docker
from tests.images.ended import read_until, terminated
from tests.images.fake_zluda import make_library
from tests.images.on_fake_card import GID, KFD_GID, RENDER_GID, UID
from tests.unit import cuda_toolkit
from zluda_stack.plan.adapt import DEVICES, LABEL

pytestmark = [pytest.mark.docker, pytest.mark.timeout(7200)]

_DEVICE = """
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
"""
# The shims' way to write, as far as a bundle is concerned.
_SHIM = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
int cuInit(unsigned flags) {
    char path[4096];
    snprintf(path, sizeof path, "%s/program", getenv("ZLUDA_LOG_DIR"));
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/program/log.txt", getenv("ZLUDA_LOG_DIR"));
    FILE *log = fopen(path, "w");
    fprintf(log, "cuInit(flags: 0) -> CUDA_SUCCESS\\ncuModuleLoad(%s)\\n", getenv("PWD"));
    fclose(log);
    snprintf(path, sizeof path, "%s/program/module_0001_01.ptx", getenv("ZLUDA_LOG_DIR"));
    log = fopen(path, "w");
    fprintf(log, ".version 8.0\\n");
    fclose(log);
    return 0;
}
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
"""


# The tool's effect, as far as the user sees it.
_PRECOMPILE = """#!/bin/sh
test -r "$1" && mkdir -p /cache/zluda/ComputeCache &&
    cp "${0%/*}/compiled.db" /cache/zluda/ComputeCache/zluda2.db
"""


class User(Struct, frozen=True):
    """The user of a machine with a fake card, in a project folder of theirs."""

    home: Path
    folder: Path
    nodes: Path
    image: str
    zluda: Path

    def line(self, *options: str, program: tuple[str, ...], verb: str = "run") -> list[str]:
        """The command line; without --zluda among `options` that of the image is used."""
        start = [sys.executable, "-m", "tests.images.on_fake_card", str(self.nodes)]
        return [*start, verb, "--image", self.image, *options, "--", *program]

    def environment(self) -> dict[str, str]:
        """Away from the files of whoever runs the tests."""
        own = {"HOME": str(self.home), "PYTHONPATH": str(ROOT)}
        return {key: os.environ[key] for key in os.environ if not key.startswith("XDG_")} | own

    def run(
        self,
        *options: str,
        program: tuple[str, ...],
        device: bool = True,
        given: str = "",
        verb: str = "run",
    ) -> subprocess.CompletedProcess[str]:
        """Run `program` with `given` on its stdin, no terminal anywhere."""
        ours = ("--zluda", str(self.zluda)) if device else ()
        return subprocess.run(
            self.line(*ours, *options, program=program, verb=verb),
            cwd=self.folder,
            env=self.environment(),
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )

    def shell(self, script: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Run a shell script as the program."""
        return self.run(*options, program=("sh", "-c", script))


@pytest.fixture(scope="module")
def zluda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fake ZLUDA that says it has a device, with shims and an audit library."""
    folder = tmp_path_factory.mktemp("zluda-with-device")
    (folder / "trace").mkdir()
    make_library(folder / "libcuda.so", _DEVICE)
    make_library(folder / "trace/libcuda.so", _SHIM)
    make_library(folder / "zluda_ld", "unsigned la_version(unsigned version) { return version; }")
    for name in ("libcuda.so.1", "trace/libcuda.so.1"):
        (folder / name).symlink_to("libcuda.so")
    with sqlite3.connect(folder / "compiled.db") as kept:
        kept.execute("CREATE TABLE modules (binary BLOB)")
        kept.execute("INSERT INTO modules VALUES ('one'), ('two')")
    (folder / "zluda_precompile").write_text(_PRECOMPILE)
    for path in (folder, folder / "zluda_precompile", folder / "compiled.db"):
        path.chmod(0o755)
    return folder


@pytest.fixture
def user(inference_image: str, zluda: Path, tmp_path: Path) -> User:
    """Their project and cache folders, and device nodes that only odd groups may open."""
    number = Path("/dev/fuse").stat().st_rdev
    home, nodes = tmp_path / "home/somebody", tmp_path / "host"
    for name, gid in {"dev/kfd": KFD_GID, "dev/dri/renderD129": RENDER_GID}.items():
        node = nodes / name
        node.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(node, stat.S_IFCHR, number)
        os.chown(node, 0, gid)
        node.chmod(0o660)
    folder, cache = home / "project", home / ".cache/zluda-stack/run"
    for own in (folder, cache):
        own.mkdir(parents=True)
        os.chown(own, UID, GID)
    return User(home, folder, nodes, inference_image, zluda)


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """The two ends of a terminal: what a person types and sees, and what a program has."""
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)


def test_it_runs_as_the_user_in_the_current_folder(user: User) -> None:
    told = user.shell('id -u; id -g; id -G; pwd; echo made >here; echo >"$HOME/own" && echo wrote')
    assert told.returncode == 0, told.stderr
    uid, gid, groups, folder, wrote = told.stdout.splitlines()[-5:]
    assert (uid, gid, folder, wrote) == (str(UID), str(GID), str(user.folder), "wrote")
    assert set(groups.split()) == {str(GID), str(KFD_GID), str(RENDER_GID)}
    made = (user.folder / "here").stat()
    assert (made.st_uid, made.st_gid) == (UID, GID)


def test_what_zluda_compiles_is_kept_for_the_next_run(user: User) -> None:
    assert user.shell("mkdir /cache/zluda && echo kernel >/cache/zluda/db").returncode == 0
    assert user.shell("cat $XDG_CACHE_HOME/zluda/db").stdout.splitlines()[-1] == "kernel"


def test_the_three_streams_stay_apart(user: User) -> None:
    told = user.run(program=("sh", "-c", "cat; echo second >&2; test -t 0"), given="first\n")
    assert told.stdout.splitlines()[-1] == "first"
    assert told.stderr.splitlines()[-1] == "second"
    assert told.returncode == 1  # no terminal


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("exit 42", 42),
        ("kill -SEGV $$", 128 + signal.SIGSEGV),
        ("kill -ABRT $$", 128 + signal.SIGABRT),
    ],
)
def test_the_exit_code_is_the_programs(user: User, script: str, code: int) -> None:
    assert user.shell(script).returncode == code


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ('trap "exit 7" TERM; echo ready; while :; do sleep 0.1; done', 7),
        ("echo ready; exec sleep 60", 128 + signal.SIGTERM),
    ],
)
def test_a_signal_reaches_the_program(user: User, script: str, code: int) -> None:
    line = user.line("--zluda", str(user.zluda), program=("sh", "-c", script))
    assert terminated(line, user.folder, user.environment()) == code


def test_on_a_terminal_the_program_has_it_and_ctrl_c_ends_it(
    user: User, terminal: tuple[int, int]
) -> None:
    ours, theirs = terminal
    line = user.line(
        *("--zluda", str(user.zluda)),
        program=("sh", "-c", "test -t 0 && test -t 1 && echo terminal; exec sleep 60"),
    )
    with subprocess.Popen(
        ["setsid", "--ctty", "--wait", *line],
        cwd=user.folder,
        env=user.environment(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        read_until(ours, b"terminal")
        os.write(ours, b"\x03")
        assert process.wait() == 128 + signal.SIGINT


def test_zluda_is_in_front_of_what_the_user_adds(user: User) -> None:
    told = user.shell("echo $LD_LIBRARY_PATH $LD_AUDIT", "--env", "LD_LIBRARY_PATH=/own")
    assert told.stdout.splitlines()[-1] == "/opt/zluda:/own"


def test_by_audit_it_is_not_on_the_library_path(user: User) -> None:
    told = user.shell("echo $LD_LIBRARY_PATH $LD_AUDIT", "--audit")
    assert told.stdout.splitlines()[-1] == "/opt/zluda/zluda_ld", told.stderr


def test_the_path_of_the_library_is_taken_for_its_folder(user: User) -> None:
    library = str(user.zluda / "libcuda.so.1")
    told = user.run("--zluda", library, program=("true",), device=False)
    assert told.returncode == 0, told.stderr
    assert f"its folder {user.zluda} is taken" in told.stderr


def test_without_a_device_nothing_is_started(user: User) -> None:
    told = user.run(program=("touch", "started"), device=False)
    assert told.returncode == 4
    assert "CUDA_ERROR_NO_DEVICE" in told.stderr
    assert "error: no CUDA device shows up through ZLUDA" in told.stderr
    assert not (user.folder / "started").exists()


def test_a_real_cuda_program_comes_as_far_as_the_driver(
    user: User, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    assert pytestconfig.cache is not None
    try:
        root = cuda_toolkit.unpacked(pytestconfig.cache.mkdir("cuda-toolkit"))
    except cuda_toolkit.Unavailable as reason:
        pytest.skip(f"NO CUDA TOOLKIT: {reason}")
    source = ROOT / "images/selftest/src/vector_add.cu"
    options = ("-gencode=arch=compute_80,code=compute_80", "-std=c++17", str(source))
    toolkit = cuda_toolkit.Toolkit(root, tmp_path)
    toolkit.run("nvcc", *options, "-o", str(user.folder / "vector_add"))
    refused = user.run(program=("./vector_add",), device=False)
    assert refused.returncode == 4
    assert "no CUDA device shows up through ZLUDA" in refused.stderr
    # With a driver that has a device and nothing else, the program itself runs, and says so.
    ran = user.run(program=("./vector_add",))
    assert ran.returncode in {1, 2}
    assert json.loads(ran.stdout.splitlines()[-1])["test"] == "vector_add"


@pytest.mark.parametrize(
    ("program", "code", "told"),
    [
        ("nowhere", 127, "there is no command nowhere"),
        ("/nowhere/at-all", 127, "is not in this container"),
        ("./data", 126, "may not execute ./data"),
    ],
)
def test_a_program_that_cannot_be_started(user: User, program: str, code: int, told: str) -> None:
    (user.folder / "data").write_text("no program")
    done = user.run(program=(program,))
    assert done.returncode == code
    assert told in done.stderr


def test_an_image_that_is_not_there_is_said_before_anything_starts(user: User) -> None:
    told = user.run("--image", "nobody/nothing:1", program=("true",))
    assert told.returncode == 4
    assert "the engine has no image nobody/nothing:1" in told.stderr


def test_what_was_compiled_ahead_is_counted_and_kept(user: User) -> None:
    (user.folder / "program").write_text("kernels")
    first = user.run(verb="precompile", program=("program",))
    assert first.returncode == 0, first.stderr
    assert "2 modules were compiled; 2 are kept in" in first.stdout
    again = user.run(verb="precompile", program=("program",))
    assert "nothing new was compiled" in again.stderr


def test_without_a_device_nothing_is_verified(user: User) -> None:
    start = [sys.executable, "-m", "tests.images.on_fake_card", str(user.nodes)]
    told = subprocess.run(
        [*start, "verify", "--image", user.image],
        cwd=user.folder,
        env=user.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 4
    assert "no CUDA device shows up through ZLUDA" in told.stderr
    assert "nothing was computed: there is no device" in told.stderr


@pytest.fixture
def adapted(user: User, tmp_path: Path) -> Iterator[str]:
    """An image with an entrypoint of its own, as `adapt` leaves one."""
    tag = "zluda-stack-test/own-entrypoint:1"
    lines = (
        f"FROM {user.image}",
        "USER 0",
        f"RUN install -D /usr/local/bin/cuda-devices {DEVICES}",
        f"LABEL {LABEL}=some:1",
        "ENV LD_LIBRARY_PATH=/opt/zluda",
        'ENTRYPOINT ["env"]',
    )
    (tmp_path / "Dockerfile").write_text("\n".join(lines))
    docker("buildx", "build", "--load", "--tag", tag, str(tmp_path))
    yield tag
    docker("image", "rm", "--force", tag)


def test_an_adapted_image_runs_by_its_own_entrypoint_only_on_a_device(
    user: User, adapted: str
) -> None:
    program = ("ADDED=yes", "sh", "-c", 'test "$ADDED" = yes && exit 5')
    assert user.run("--image", adapted, program=program).returncode == 5
    refused = user.run("--image", adapted, program=program, device=False)
    assert refused.returncode == 4
    assert f"no CUDA device shows up through ZLUDA in {adapted}" in refused.stderr
    audited = user.run("--image", adapted, "--audit", program=program)
    assert audited.returncode == 3
    assert "need the entrypoint on-gpu" in audited.stderr


def test_an_image_that_does_not_look_for_zluda_is_refused(user: User, standin: str) -> None:
    told = user.run("--image", standin, program=("true",))
    assert told.returncode == 3
    assert "does not look for ZLUDA" in told.stderr
    assert "adapt" in told.stderr


def test_a_signal_in_a_traced_run_reaches_the_program_and_the_bundle_is_written(
    user: User,
) -> None:
    script = 'trap "exit 7" TERM; echo ready; while :; do sleep 0.1; done'
    options = ("--zluda", str(user.zluda), "--trace", "-o", "report.tar.gz")
    line = user.line(*options, program=("sh", "-c", script))
    assert terminated(line, user.folder, user.environment()) == 7
    assert (user.folder / "report.tar.gz").exists()


def test_a_trace_becomes_a_bundle_without_personal_details(user: User) -> None:
    (user.folder / "program").write_text("#!/bin/sh\ncuda-devices; exit 3\n")
    (user.folder / "program").chmod(0o755)
    told = user.run("--trace", "-o", "report.tar.gz", program=("./program", "--key=secret"))
    assert told.returncode == 3, told.stderr
    assert "Nothing was sent" in told.stderr
    with tarfile.open(user.folder / "report.tar.gz") as archive:
        texts = {name: archive.extractfile(name) for name in archive.getnames()}
        read = {name: file.read().decode() for name, file in texts.items() if file is not None}
    assert "cuModuleLoad(FOLDER)" in read["zluda-trace/log/program/log.txt"]
    assert "zluda-trace/log/program/module_0001_01.ptx" in read
    run = json.loads(read["zluda-trace/run.json"])
    assert (run["program"], run["arguments"], run["exit_code"]) == ("program", 1, 3)
    assert "secret" not in "".join(read.values())
    assert str(user.home) not in "".join(read.values())
