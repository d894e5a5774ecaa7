"""`zluda-stack build`: what is refused, said and agreed to before anything is built."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound

from tests.unit.command_line import CASES, NO_GPU, run, settle
from tests.unit.planning import host, plan_for
from zluda_stack.cli.build import agree
from zluda_stack.engines.docker import build
from zluda_stack.engines.docker.estimate import BuildCost, estimate
from zluda_stack.engines.docker.supply import here
from zluda_stack.errors import EngineFailure, ExitCode, HostProblem, UsageError
from zluda_stack.plan.types import ImagePlan
from zluda_stack.progress import Silent

_RADEON = CASES / "radeon-rx-7900-xtx.json"


class FakeEngine:
    """A Docker Engine that has the images `present`, and stores them in the folder `storage`."""

    def __init__(self, storage: str = "", present: tuple[str, ...] = ()) -> None:
        self.api = SimpleNamespace(
            base_url="http+docker://localhost", info=lambda: {"DockerRootDir": storage}
        )
        self.images = self
        self._present = present

    def get(self, tag: str) -> SimpleNamespace:
        if tag not in self._present:
            raise ImageNotFound(f"no image {tag}")
        return SimpleNamespace(labels={})


def _gpu_images() -> tuple[ImagePlan, ...]:
    return plan_for(host("radeon-rx-7900-xtx"), accept_cuda_eula=True).images


def _engine(**more: Any) -> Any:
    return FakeEngine(**more)


def _agree(engine: Any, *, yes: bool) -> BuildCost:
    return agree(engine, here(engine, _gpu_images()), yes=yes, show=False)


def _estimate(engine: Any) -> BuildCost:
    return estimate(engine, here(engine, _gpu_images()))


def _build(folder: Path) -> ImagePlan:
    """Build the first image of a GPU stack, with the docker command that is on the PATH."""
    image = _gpu_images()[0]
    build.build(image, build.command(image, folder), folder / "logs", Silent())
    return image


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(tmp_path, monkeypatch)


def test_nvidias_terms_are_named_with_their_place_before_anything_is_built() -> None:
    refused = run("build", "--host-facts", str(_RADEON))

    assert refused.code == ExitCode.REFUSED
    assert "--accept-cuda-eula" in refused.err
    assert "https://docs.nvidia.com/" in refused.err


def test_a_dry_run_for_another_machine_shows_all_and_asks_no_engine_of_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    shown = run("build", "--host-facts", str(_RADEON), "--dry-run")

    assert shown.code == ExitCode.OK, shown.err
    assert "A first build takes about" in shown.out
    assert "docker buildx build" in shown.out
    assert "warning: building for a GPU takes NVIDIA's CUDA toolkit" in shown.err


def test_a_stack_without_images_names_what_can_be_built() -> None:
    refused = run("build", "--host-facts", str(NO_GPU))

    assert refused.code == ExitCode.REFUSED
    assert "--gpu gfx1100" in refused.err
    assert "--engine docker --gpu none" in refused.err


def test_a_machine_without_docker_is_told_so() -> None:
    refused = run("build", "--host-facts", str(NO_GPU), "--engine", "docker", "--gpu", "none")

    assert refused.code == ExitCode.HOST
    assert "docker" in refused.err


def test_an_unknown_image_is_answered_with_the_nearest() -> None:
    refused = run("build", "endpiont", "--host-facts", str(_RADEON), "--accept-cuda-eula")

    assert refused.code == ExitCode.USAGE
    assert "Did you mean endpoint?" in refused.err


def test_hours_need_a_yes_where_nobody_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    with pytest.raises(UsageError) as refused:
        _agree(_engine(), yes=False)

    assert " h on two cores" in refused.value.message
    assert "--yes" in refused.value.hint
    assert _agree(_engine(), yes=True).is_large


def test_a_disk_that_is_too_small_is_refused_even_with_a_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=3_000_000_000))

    with pytest.raises(HostProblem, match="3 GB free"):
        _agree(_engine(storage=str(tmp_path)), yes=True)


def test_a_disk_in_a_virtual_machine_is_unknown_and_not_this_machines() -> None:
    assert _estimate(_engine(storage="/nonexistent/docker")).free_gb is None


def test_an_image_that_is_there_costs_nothing_more() -> None:
    whole = _estimate(_engine())
    rest = _estimate(_engine(present=tuple(image.tag for image in _gpu_images())))

    assert whole.minutes > 0
    assert rest.minutes == 0
    assert not rest.is_large


def test_a_stage_that_two_images_share_is_counted_once() -> None:
    cost = _estimate(_engine())
    every = [stage.minutes for image in cost.images for stage in image.stages]

    assert len(every) > len(set(cost.images[0].stages))
    assert cost.minutes < sum(every)


def test_every_estimate_says_whether_it_was_measured() -> None:
    for image in _estimate(_engine()).images:
        for stage in image.stages:
            assert stage.source == "unproven" or stage.source.startswith("measured on ")


def _fake_docker(folder: Path, output: str, status: int) -> Path:
    """A fake docker command that prints `output`, as buildx would, and exits with `status`."""
    program = folder / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat <<'EOF'\n{output}\nEOF\nexit {status}\n")
    program.chmod(0o755)
    return program.parent


@pytest.mark.parametrize(
    ("output", "problem", "hint"),
    [
        (
            '#5 [build 1/1] RUN make\n#5 0.1 no space left on device\n#5 ERROR: process "make"',
            "the disk filled up",
            "docker buildx prune",
        ),
        (
            "ERROR: docker: 'buildx' is not a docker command.",
            "`docker buildx` does not work",
            "buildx",
        ),
    ],
)
def test_what_the_host_lacks_is_told_as_such(
    output: str, problem: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _fake_docker(tmp_path, output, 1)
    monkeypatch.setenv("PATH", str(folder), prepend=":")

    with pytest.raises(HostProblem) as failed:
        _build(tmp_path)

    assert problem in failed.value.message
    assert hint in failed.value.hint


def test_a_failed_step_is_shown_with_its_last_lines_and_the_logs_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = "#5 [build 1/1] RUN make\n#5 0.1 one.c:1: error\n#5 ERROR: exit code: 2"
    monkeypatch.setenv("PATH", str(_fake_docker(tmp_path, output, 1)), prepend=":")
    image = _gpu_images()[0]

    with pytest.raises(EngineFailure) as failed:
        _build(tmp_path)

    assert f"the image {image.name} was not built at [build 1/1] RUN make" in failed.value.message
    assert "one.c:1: error" in failed.value.message
    log = tmp_path / "logs" / f"build-{image.name}.log"
    assert str(log) in failed.value.hint
    assert log.read_text().strip() == output


def test_the_log_of_the_build_before_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = _gpu_images()[0]
    log = tmp_path / "logs" / f"build-{image.name}.log"
    log.parent.mkdir()
    log.write_text("the build before\n")
    monkeypatch.setenv("PATH", str(_fake_docker(tmp_path, "fine", 0)), prepend=":")

    _build(tmp_path)

    assert log.read_text() == "fine\n"
    assert log.with_name(f"{log.name}.1").read_text() == "the build before\n"


def test_ctrl_c_ends_the_build_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid_file = tmp_path / "pid"
    folder = _fake_docker(tmp_path, "", 0)
    (folder / "docker").write_text(f"#!/bin/sh\necho $$ > {pid_file}\nexec sleep 600\n")
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    press = threading.Thread(target=_interrupt_once_there, args=(pid_file,), daemon=True)

    press.start()
    with pytest.raises(KeyboardInterrupt):
        _build(tmp_path)

    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def _interrupt_once_there(pid_file: Path) -> None:
    while not (pid_file.exists() and pid_file.read_text().strip()):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)


def test_importing_the_build_command_imports_no_docker() -> None:
    script = "import sys, zluda_stack.cli.build; sys.exit('docker' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_gpu_stack_says_that_nobody_has_proven_it_and_a_cpu_stack_does_not() -> None:
    facts = host("radeon-rx-7900-xtx")

    def codes(**flags: Any) -> set[str]:
        return {notice.code for notice in plan_for(facts, **flags).warnings}

    assert "unproven" in codes(accept_cuda_eula=True)
    assert "unproven" not in codes(engine="docker", gpu="none")
