"""Offline: what is lacking is said before anything starts, and nothing is fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.e2e.conftest import free_port
from tests.unit.command_line import run, settle
from tests.unit.planning import GIB, card, codes, host, machine, plan_for
from zluda_stack.catalog.load import load
from zluda_stack.engines.docker import compose
from zluda_stack.engines.docker.supply import survey
from zluda_stack.engines.embedded.engine import EmbeddedEngine
from zluda_stack.errors import ExitCode, HostProblem
from zluda_stack.plan.download import DOWNLOAD
from zluda_stack.plan.types import ModelPlan
from zluda_stack.progress import Progress, Silent

LAPTOP = host("laptop-without-gpu-or-docker")
DEFAULT = load().defaults.model


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without models and settings, in an empty project."""
    project = settle(tmp_path, monkeypatch)
    monkeypatch.chdir(project)
    return project


def test_a_missing_model_is_lacking_and_the_bundle_is_named() -> None:
    (lack,) = plan_for(LAPTOP, offline=True).unmet
    assert (lack.code, DEFAULT in lack.message) == ("offline-model", True)
    assert "bundle load" in lack.hint
    assert codes(plan_for(LAPTOP)) == []


def test_the_models_that_are_here_are_named() -> None:
    (lack,) = plan_for(structs.replace(LAPTOP, models_ready=("other",)), offline=True).unmet
    assert "other (--model NAME)" in lack.hint


def test_with_the_model_here_nothing_is_lacking() -> None:
    assert plan_for(structs.replace(LAPTOP, models_ready=(DEFAULT,)), offline=True).unmet == ()


def test_missing_packages_are_in_the_bundle_and_not_in_an_index() -> None:
    embedded = structs.replace(LAPTOP.embedded, missing=("xllamacpp",))
    facts = structs.replace(LAPTOP, embedded=embedded, models_ready=(DEFAULT,))
    (lack,) = plan_for(facts, offline=True).unmet
    assert "pip install" not in lack.hint
    assert "bundle" in lack.hint


def radeon(**changes: Any) -> Any:
    return machine(card("gfx1100", gib=24), memory_bytes=64 * GIB, **changes)


def test_a_card_gets_a_model_that_is_here_and_not_the_largest_of_the_catalogue() -> None:
    online = plan_for(radeon()).model.name
    here = next(
        name
        for name, model in load().models.items()
        if model.tools and name != online and model.size and model.size < 8 * GIB
    )
    plan = plan_for(radeon(models_ready=(here,)), offline=True)
    assert plan.model.name == here
    assert "offline-model" not in codes(plan)


def test_containers_are_told_to_ask_no_one_and_no_download_is_announced() -> None:
    name = next(name for name, model in load().models.items() if (model.size or 0) > 2 * GIB)
    plan = plan_for(radeon(models_ready=(name,)), offline=True, model=name)
    (fetcher,) = (one for one in plan.services if one.name == "model")
    assert fetcher.environment["ZLUDA_STACK_OFFLINE"] == "true"
    assert all(decision.what != DOWNLOAD for decision in plan.decisions)


def test_compose_pulls_no_image() -> None:
    assert compose.up("one", Path("c.yml"), offline=True)[-2:] == ("--pull", "never")
    assert "--pull" not in compose.up("one", Path("c.yml"))


class FakeEngineWithoutImages:
    """The part of a Docker client that says which images there are: none."""

    images: Any

    def __init__(self) -> None:
        self.images = self

    def get(self, tag: str) -> None:
        from docker.errors import ImageNotFound

        raise ImageNotFound(tag)


def test_a_missing_image_is_named_and_no_registry_is_asked() -> None:
    plan = plan_for(
        LAPTOP, offline=True, engine="docker", gpu="none", registry="registry.invalid/x"
    )
    with pytest.raises(HostProblem) as told:
        survey(FakeEngineWithoutImages(), plan, plan.images)  # type: ignore[arg-type]
    assert plan.images[0].tag in told.value.message
    assert "bundle load" in told.value.hint


def test_a_stack_that_is_started_again_fetches_nothing_either(home: Path) -> None:  # noqa: ARG001
    def fetch(model: ModelPlan, progress: Progress) -> Path:  # noqa: ARG001
        raise AssertionError("fetched")

    facts = structs.replace(LAPTOP, models_ready=(DEFAULT,))
    with pytest.raises(HostProblem, match="offline nothing is fetched"):
        EmbeddedEngine(fetch).up(plan_for(facts, offline=True, port=free_port()), Silent())


def test_up_and_pull_stop_before_anything_starts(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run("up", "--offline", "--engine", "embedded")
    assert (done.code, "bundle load" in done.err) == (ExitCode.HOST, True)
    monkeypatch.setenv("ZLUDA_STACK_OFFLINE", "true")
    assert run("models", "pull", DEFAULT).code == ExitCode.HOST
    assert run("models", "pull", DEFAULT, "--from", "https://store.invalid").code == ExitCode.HOST
    assert run("lock", "--check").code == ExitCode.USAGE
    assert run("bundle", "save", "-o", "all.tar", "--engine", "embedded").code == ExitCode.USAGE
    (home / "names").mkdir()
    near = run("models", "pull", DEFAULT, "--from", str(home))
    assert "has no model" in near.err
