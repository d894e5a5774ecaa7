"""Several models: each named one has a card of its own, and requests go where their model is."""

from __future__ import annotations

import pytest

from zluda_stack.gateway.options import parse, servers
from zluda_stack.plan import Plan
from zluda_stack.plan.changes import changes
from zluda_stack.plan.types import Service
from zluda_stack.plan.variables import fill
from zluda_stack.render import claude_code
from zluda_stack.render.clients import connection

from .planning import card, codes, machine, plan_for, refusal

_LARGE, _SMALL = "qwen3-14b", "smollm2-135m"
_TWO_CARDS = machine(card("gfx1100", 0, gib=24), card("gfx1100", 1, gib=8))
_BOTH = f"{_LARGE},{_SMALL}"


def _plan(models: str = _BOTH, gpu: str = "0,1") -> Plan:
    return plan_for(_TWO_CARDS, gpu=gpu, model=models, accept_cuda_eula=True)


def _service(plan: Plan, name: str) -> Service:
    return next(one for one in plan.services if one.name == name)


def _environment(plan: Plan, name: str) -> dict[str, str]:
    """What the service gets to see on this host."""
    known = _service(plan, name).environment
    return {key: fill(value, plan.host_environment) for key, value in known.items()}


def _command(plan: Plan, name: str) -> list[str]:
    return [fill(word, plan.host_environment) for word in _service(plan, name).command]


def test_each_card_serves_the_model_that_was_named_for_it() -> None:
    plan = _plan()

    assert plan.served == (_LARGE, _SMALL)
    assert codes(plan) == []
    assert _environment(plan, "inference")["MODEL"] == _LARGE
    assert _environment(plan, "inference-2")["MODEL"] == _SMALL
    assert plan.host_environment["HOST_RENDER_NODE_2"] == "/dev/dri/renderD129"


def test_cards_named_the_other_way_round_serve_them_the_other_way_round() -> None:
    plan = _plan(gpu="1,0", models=f"{_SMALL},{_LARGE}")

    by_node = dict(zip((gpu.render_node for gpu in plan.gpus), plan.models, strict=True))
    assert by_node["/dev/dri/renderD129"].name == _SMALL


def test_each_model_has_the_context_that_fits_its_own_card() -> None:
    plan = _plan()

    contexts = [model.context for model in plan.models]
    told = [_environment(plan, name)["CONTEXT"] for name in ("inference", "inference-2")]
    assert told == [str(context) for context in contexts]
    assert contexts[1] == plan.models[1].trained_context != contexts[0]


def test_the_endpoint_sends_a_request_to_the_server_of_its_model() -> None:
    plan = _plan()

    options = parse(_command(plan, "endpoint")[3:])
    assert [(one.model, one.name) for one in servers(options)] == [
        (_LARGE, "http://inference:8081"),
        (_SMALL, "http://inference-2:8081"),
    ]


def test_every_model_is_fetched_once() -> None:
    facts = machine(*(card("gfx1100", number, gib=24) for number in range(3)))
    plan = plan_for(facts, gpu="all", model=f"{_SMALL},{_LARGE},{_SMALL}", accept_cuda_eula=True)

    assert plan.served == (_SMALL, _LARGE)
    assert set(_command(plan, "model")[5:]) == {_SMALL, _LARGE}
    download = next(one for one in plan.decisions if one.what == "download")
    assert f"{_LARGE}: licence" in download.because


def test_a_model_on_every_card_needs_no_names() -> None:
    plan = _plan(models=_SMALL)

    assert plan.others == ()
    assert "=http" not in " ".join(_command(plan, "endpoint")).replace("--upstream=http", "")


def test_the_decisions_tell_both_apart() -> None:
    decided = {one.what: one.value for one in _plan().decisions}

    assert (decided["model"], decided["model 2"]) == (_LARGE, _SMALL)
    assert {"memory", "memory 2"} <= set(decided)


def test_another_second_model_is_a_change() -> None:
    told = [str(change) for change in changes(_plan(), _plan(models=_LARGE + "," + _LARGE))]

    assert f"model {_LARGE}, {_SMALL} -> {_LARGE}, {_LARGE}" in told


def test_more_models_than_cards_are_refused() -> None:
    told = refusal(_TWO_CARDS, gpu="0", model=_BOTH)

    assert "2 models were named, for a card each, and 1 card would serve them" in told
    assert "--gpu 0,1" in told


def test_several_models_need_cards() -> None:
    assert "the CPU would serve them" in refusal("laptop-without-gpu-or-docker", model=_BOTH)


def test_only_models_of_the_catalogue_stand_together() -> None:
    assert "mine is no model of the catalogue" in refusal(_TWO_CARDS, gpu="0,1", model="mine,x")
    assert "names nothing where a model must be" in refusal(
        _TWO_CARDS, gpu="0,1", model=f"{_SMALL},"
    )


def test_a_model_too_large_for_its_card_is_told_by_its_name() -> None:
    plan = _plan(models=f"{_SMALL},qwen2.5-coder-32b")

    told = next(one.message for one in plan.warnings if one.code == "partly-on-card")
    assert told.startswith("qwen2.5-coder-32b does not fit as a whole: 8.0 GiB are free")


@pytest.mark.parametrize(
    ("small", "named"),
    [
        ("qwen3-4b", "qwen3-4b"),
        # It calls no tools, and the client's errands need them.
        (_SMALL, "default"),
    ],
)
def test_a_client_uses_the_smaller_model_for_its_errands(small: str, named: str) -> None:
    plan = plan_for(
        _TWO_CARDS, gpu="0,1", model=f"{_LARGE},{small}", context=8192, accept_cuda_eula=True
    )

    told = claude_code.environment(connection(plan, "key"))
    assert told["ANTHROPIC_DEFAULT_HAIKU_MODEL"] == named
    assert told["ANTHROPIC_MODEL"] == "default"
