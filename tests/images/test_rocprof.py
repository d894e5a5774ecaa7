"""`bench --rocprof` on a real engine: a stack comes up with its server under rocprofv3, is asked
and ends in order, and what was counted is on this machine.

The card, rocprofv3 and the server are fakes, so nothing is shown of what a real card computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from tests.docker_engine import docker
from tests.e2e.conftest import own_xdg_folders
from tests.images.stand_in_stack import CONTEXTS, plan_on_cards
from tests.unit.command_line import run
from zluda_stack.cli import bench_targets, stack
from zluda_stack.engines.docker.compose import project_name
from zluda_stack.engines.docker.engine import DockerEngine
from zluda_stack.errors import ExitCode
from zluda_stack.plan.types import Plan
from zluda_stack.progress import Silent

pytestmark = [pytest.mark.docker, pytest.mark.timeout(7200)]

KERNEL = "void fake_kernel<64>(char const*, int)"


@pytest.fixture
def plan(
    profile: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Plan]:
    """A profile on a card with fake nodes, of a variant that has a rocprofv3."""
    own_xdg_folders(monkeypatch, tmp_path)
    contexts: dict[str, str] = request.getfixturevalue(CONTEXTS[profile])
    made = plan_on_cards(profile, contexts, tmp_path)
    # This machine need not have the space that the real images take.
    monkeypatch.setattr(stack, "agree_to_build", lambda *_, **__: None)
    yield made
    DockerEngine().down(made.name, Silent(), volumes=True)


@pytest.mark.parametrize("profile", ["native", "translated"])
def test_the_kernels_of_a_server_that_was_brought_up_for_it_are_shown(
    profile: str, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_targets, "_plan", lambda *_: plan)
    folder = tmp_path / "counted"
    line = ("bench", profile, "--rocprof", str(folder), "--prompt", "small", "--yes")
    told = run(*line, "--json")
    assert told.code == ExitCode.OK, told.err + told.out
    (target,) = told.json["run"]["targets"]
    assert (target["rocprof"], target["device"]) == (True, "a fake")
    # One request to warm up, and one round of two visits.
    (kernel,) = told.json["kernels"][profile]
    assert (kernel["name"], kernel["calls"]) == (KERNEL, 3)
    files = sorted(path.relative_to(folder) for path in folder.rglob("*.csv"))
    place = Path(profile, "1/inference")
    assert files == [place / "server_agent_info.csv", place / "server_kernel_stats.csv"]
    assert {path.owner() for path in folder.rglob("*")} == {tmp_path.owner()}

    again = run("bench", "--kernels", str(folder))
    assert again.code == ExitCode.OK, again.err
    assert KERNEL in again.out
    label = f"label=com.docker.compose.project={project_name(plan.name)}"
    assert docker("ps", "--all", "--quiet", "--filter", label) == ""
    volumes = docker("volume", "ls", "--quiet", "--filter", label)
    assert "rocprof" not in volumes


@pytest.mark.parametrize("profile", ["native"])
def test_a_profiler_that_wrote_nothing_is_said_after_what_was_measured(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mute = {"ROCPROF_SIGNAL_HANDLERS": "1"}
    services = (structs.replace(one, environment=one.environment | mute) for one in plan.services)
    monkeypatch.setattr(
        bench_targets, "_plan", lambda *_: structs.replace(plan, services=tuple(services))
    )
    line = ("bench", "native", "--rocprof", str(tmp_path / "counted"), "--prompt", "small")
    told = run(*line, "--yes")
    assert told.code == ExitCode.ENGINE
    assert "there is no *_kernel_stats.csv" in told.err
    assert "first token" in told.out
    assert "measured under rocprofv3, which takes time itself" in told.out
