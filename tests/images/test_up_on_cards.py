"""`up` on cards, by the real program on a real engine: what its user sees, from start to end.

The cards, ZLUDA and the servers are fakes (tests/images/stand_in_stack.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.docker_engine import docker
from tests.e2e.conftest import own_xdg_folders
from tests.images.stand_in_stack import CONTEXTS, plan_on_cards
from tests.unit.command_line import run
from zluda_stack import keys
from zluda_stack.cli import plan as cli_plan
from zluda_stack.cli import stack
from zluda_stack.engines.docker.compose import project_name
from zluda_stack.engines.docker.engine import DockerEngine
from zluda_stack.errors import ExitCode
from zluda_stack.plan.types import Plan
from zluda_stack.progress import Silent

pytestmark = [pytest.mark.docker, pytest.mark.timeout(7200)]


@pytest.fixture(params=["translated", "native"])
def plan(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Plan]:
    """A stack on two cards of one kind, not started."""
    own_xdg_folders(monkeypatch, tmp_path)
    contexts: dict[str, str] = request.getfixturevalue(CONTEXTS[request.param])
    made = plan_on_cards(request.param, contexts, tmp_path, cards=2)
    planned_here(made, monkeypatch)
    yield made
    DockerEngine().down(made.name, Silent(), volumes=True)


def planned_here(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `up` plan it on this machine, which need not have what the real images take."""
    monkeypatch.setattr(cli_plan, "resolve", lambda *_: plan)
    monkeypatch.setattr(stack, "agree_to_build", lambda *_, **__: None)


def test_a_stack_on_two_cards_comes_up_answers_is_told_and_goes_down(plan: Plan) -> None:
    told = run("up", "--yes", "--no-selftest")
    assert told.code == ExitCode.OK, told.err + told.out
    assert plan.endpoint.url in told.out

    name = ("--name", plan.name)
    status = run("status", *name, "--json")
    assert status.code == ExitCode.OK
    services = {one["name"]: one["state"] for one in status.json["services"]}
    assert services == {"inference": "running", "inference-2": "running", "endpoint": "running"}

    # Each server has its own card and no other.
    for number, service in enumerate(("inference", "inference-2")):
        container = f"{project_name(plan.name)}-{service}-1"
        listed = docker("exec", container, "ls", "/dev/dri").split()
        assert listed == [f"renderD{128 + number}"]
    assert "offloaded 31/31 layers" in run("logs", *name, "inference-2").out

    with ThreadPoolExecutor(8) as pool:
        answered = set(pool.map(partial(ask, plan), map(str, range(8))))
    assert len(answered) == 2

    # Again changes nothing.
    before = docker("ps", "--quiet", "--filter", f"name={project_name(plan.name)}").split()
    again = run("up", "--yes", "--no-selftest")
    assert again.code == ExitCode.OK, again.err
    assert docker("ps", "--quiet", "--filter", f"name={project_name(plan.name)}").split() == before

    assert run("down", *name).code == ExitCode.OK
    label = f"label=com.docker.compose.project={project_name(plan.name)}"
    assert docker("ps", "--all", "--quiet", "--filter", label) == ""


def test_a_stack_with_a_page_is_up_when_the_page_opens_to_who_may(
    webui_contexts: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_xdg_folders(monkeypatch, tmp_path)
    login = tmp_path / "login"
    login.write_text("me:sesame\n")
    made = plan_on_cards("webui", webui_contexts, tmp_path, webui_login=str(login))
    planned_here(made, monkeypatch)
    try:
        told = run("up", "--yes", "--no-selftest")
        assert told.code == ExitCode.OK, told.err + told.out
        assert made.page is not None
        assert made.page.url in told.out
        assert httpx.get(made.page.url).text == "a page for me:sesame\n"
        assert ask(made, "?")
        assert "sesame" not in docker("inspect", f"{project_name(made.name)}-inference-1")
    finally:
        DockerEngine().down(made.name, Silent(), volumes=True)


def ask(plan: Plan, question: str) -> str:
    """The name of the container that answered."""
    key = keys.read_key(plan.name)
    answer = httpx.post(
        f"{plan.endpoint.url}/v1/chat/completions",
        headers={"Authorization": f"Bearer {key}"},
        json={"model": plan.model.name, "messages": [{"role": "user", "content": question}]},
        timeout=30,
    )
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])
