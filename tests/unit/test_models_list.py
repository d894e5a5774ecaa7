"""`zluda-stack models list`, `list --fits` and `models explain` with the real catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.command_line import CASES, NO_GPU, run, settle
from zluda_stack.catalog.load import load
from zluda_stack.errors import ExitCode

CATALOG = load()
GIB = 2**30
ONE_CARD = CASES / "radeon-rx-7900-xtx.json"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(tmp_path, monkeypatch)


def test_every_model_is_a_line_that_a_terminal_of_80_columns_holds() -> None:
    lines = run("models", "list").out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == sorted(CATALOG.models)
    assert max(map(len, lines)) <= 80


def test_a_licence_with_terms_of_its_own_is_not_passed_off_as_a_free_one() -> None:
    lines = {line.split()[0]: line for line in run("models", "list").out.splitlines()}
    assert lines["codestral-22b"].endswith("restricted")
    assert lines["qwen3-8b"].endswith("Apache-2.0")


def test_json_has_all_that_the_lines_leave_out() -> None:
    listed = {line["name"]: line for line in run("models", "list", "--json").json}
    model = listed["qwen3-coder-30b-a3b"]
    assert (model["active"], model["quantisation"], model["tools"]) == ("3.3B", "Q4_K_M", True)
    assert listed["codestral-22b"]["restriction"]


def test_what_fits_comes_first_and_what_calls_tools_before_the_rest() -> None:
    (card,) = run("models", "list", "--fits", "--vram", "24G", "--json").json
    assert (card["memory"], card["context"]) == (24 * GIB, 24576)
    kinds = [(not model["fits"], not model["tools"]) for model in card["models"] if model["fits"]]
    assert kinds == sorted(kinds)
    parameters = [
        CATALOG.models[model["name"]].parameter_count
        for model in card["models"]
        if model["fits"] and model["tools"]
    ]
    assert parameters == sorted(parameters, reverse=True)
    assert [model["fits"] for model in card["models"]].index(False) == sum(
        model["fits"] is True for model in card["models"]
    )


def test_a_profile_is_weighed_by_what_its_server_takes() -> None:
    asked = ("models", "list", "--fits", "--vram", "16G", "--json", "--profile")
    (translated,), (native,) = run(*asked, "translated").json, run(*asked, "native").json
    assert (translated["profile"], native["profile"]) == ("translated", "native")
    before, after = (
        {model["name"]: model["total"] for model in card["models"]} for card in (translated, native)
    )
    assert after["gpt-oss-20b"] < before["gpt-oss-20b"]
    assert after["glm-4.7-flash"] == before["glm-4.7-flash"]
    told = run("models", "explain", "gpt-oss-20b", "--vram", "16G", "--profile", "native", "--json")
    (line,) = (model for model in native["models"] if model["name"] == "gpt-oss-20b")
    assert told.json["use"]["cards"][0]["longest_context"] == line["largest_context"]


def test_who_does_not_fit_says_why() -> None:
    (card,) = run("models", "list", "--fits", "--vram", "8G", "--json").json
    found = {model["name"]: model for model in card["models"]}
    assert found["gpt-oss-120b"]["why"].endswith("GiB too large")
    assert found["phi-4"]["fits"] is False
    assert found["starcoderbase-1b"]["why"] == "trained for 8192"
    assert found["granite-4.1-30b"]["fits"] is None
    assert found["granite-4.1-30b"]["why"] == "unknown until pulled"
    assert found["qwen3-4b"]["ways"][0] == "claude/default"
    assert "claude/simple" not in found["qwen2.5-coder-3b"]["ways"]


@pytest.mark.parametrize("command", [("list", "--fits"), ("fit", "qwen3-8b")])
def test_memory_without_a_unit_is_not_taken_for_a_card_of_16_bytes(
    command: tuple[str, ...],
) -> None:
    done = run("models", *command, "--vram", "16")
    assert done.code == ExitCode.USAGE
    assert "that is 16 bytes; did you mean 16G?" in done.err


def test_the_cards_of_this_machine_are_asked_without_flags() -> None:
    done = run("--host-facts", str(ONE_CARD), "models", "list", "--fits", "--ctx", "8k")
    assert done.out.startswith("0: ")
    assert "A context of 8192 tokens; 4 slots share it." in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_a_machine_without_a_card_is_told_to_name_one() -> None:
    done = run("--host-facts", str(NO_GPU), "models", "list", "--fits")
    assert done.code == ExitCode.HOST
    assert "--vram 24G" in done.err


def test_a_card_without_the_question_is_a_usage_error() -> None:
    for flags in (("--vram", "24G"), ("--profile", "native")):
        done = run("models", "list", *flags)
        assert done.code == ExitCode.USAGE
        assert "Add --fits." in done.err


def test_explain_names_sources_room_and_clients() -> None:
    out = run("--host-facts", str(ONE_CARD), "models", "explain", "qwen3-8b").out
    model = CATALOG.models["qwen3-8b"]
    assert model.shape is not None
    for word in (model.tools_source, model.provenance.source, model.shape.provenance.source):
        assert word in out
    assert "longest context" in out
    assert "Claude Code" in out


def test_models_that_fit_without_some_of_their_experts_are_named() -> None:
    (card,) = run("models", "list", "--fits", "--vram", "12G", "--json").json
    found = {model["name"]: model["experts_outside"] for model in card["models"]}
    assert 0 < found["qwen3-coder-30b-a3b"]["layers"] < 48
    assert found["qwen3-4b"] is None
    _, named = run("models", "list", "--fits", "--vram", "12G").out.split(
        "With some of their experts"
    )
    assert "qwen3-coder-30b-a3b" in named
    assert "qwen3-4b" not in named


def test_a_model_without_tools_is_of_no_use_to_a_client_that_needs_them() -> None:
    told = run("models", "explain", "qwen2.5-coder-7b", "--vram", "24G", "--json").json
    uses = {f"{use['client']}/{use['mode']}": use for use in told["use"]["uses"]}
    assert uses["claude/default"]["why"] == "the model calls no tools"
    assert uses["openai/default"]["works"] is True


def test_a_card_that_is_too_small_is_of_no_use_to_any_client() -> None:
    told = run("models", "explain", "gpt-oss-120b", "--vram", "1G", "--json").json
    assert told["use"]["cards"][0]["longest_context"] is None
    assert told["use"]["cards"][0]["planned"] is None
    assert {use["why"] for use in told["use"]["uses"]} == {"it does not fit"}


def test_explaining_goes_on_without_a_card() -> None:
    done = run("--host-facts", str(NO_GPU), "models", "explain", "granite-4.1-30b")
    assert done.code == ExitCode.OK
    assert "layers and tensors" in done.out
    assert "--vram 24G describes one" in done.out
    assert "could use it, where it fits" in done.out


def test_an_unknown_model_gets_the_nearest_name() -> None:
    done = run("models", "explain", "qwen3-coder-30b")
    assert done.code == ExitCode.USAGE
    assert "Did you mean qwen3-coder-30b-a3b?" in done.err


def test_names_are_completed_and_files_where_none_begins_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("_ZLUDA_STACK_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_CWORD", "3")
    for words, completed in {
        "zluda-stack models explain qwen3-coder-n": "plain,qwen3-coder-next",
        "zluda-stack models fit qwen3-coder-n": "plain,qwen3-coder-next",
        "zluda-stack models fit ./mod": "file,./mod",
        "zluda-stack up --model qwen3-coder-n": "plain,qwen3-coder-next",
    }.items():
        monkeypatch.setenv("COMP_WORDS", words)
        assert run().out.strip() == completed
