"""`zluda-stack explain` says what is known, how well, and what nobody has seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.command_line import run, settle
from zluda_stack.catalog.explain import explain, names
from zluda_stack.catalog.load import load
from zluda_stack.catalog.schema import Evidence
from zluda_stack.errors import ExitCode

CATALOG = load()
EVERY_NAME = [name for group in names(CATALOG).values() for name in group]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(tmp_path, monkeypatch)


@pytest.mark.parametrize("name", EVERY_NAME)
def test_every_name_is_explained_with_its_source(name: str) -> None:
    found = explain(CATALOG, name.upper())
    assert found.name == name
    assert found.facts
    assert all(source.source for source in found.sources)


@pytest.mark.parametrize("name", EVERY_NAME)
def test_what_nobody_has_seen_counts_as_unproven_and_everything_else_has_a_value(name: str) -> None:
    for fact in explain(CATALOG, name).facts:
        assert fact.value != ""
        assert fact.value is not None or fact.evidence is Evidence.UNPROVEN


def test_every_base_without_a_digest_says_that_it_is_unverified() -> None:
    for name, base in CATALOG.bases.items():
        told = run("explain", name).out
        assert ("unverified" in told) == (base.digest is None), name


def test_every_source_without_a_commit_says_that_it_is_unverified() -> None:
    for name, component in CATALOG.components.items():
        if component.git is not None:
            assert ("unverified" in run("explain", name).out) == (component.git.commit is None)


def test_a_product_leads_to_its_target() -> None:
    outcome = run("explain", "rx", "7900", "xtx")
    assert outcome.code == ExitCode.OK
    assert outcome.out.startswith("gfx1100")
    assert "documented upstream" in outcome.out


def test_borrowed_kernels_are_only_reported() -> None:
    facts = {fact.what: fact for fact in explain(CATALOG, "gfx1031").facts}
    assert facts["rocBLAS kernels"].value == "no"
    assert "10.3.0" in (facts["kernels used instead"].value or "")
    assert facts["kernels used instead"].evidence is Evidence.REPORTED


def test_the_floor_of_a_client_is_not_passed_off_as_measured() -> None:
    facts = {fact.what: fact for fact in explain(CATALOG, "claude").facts}
    assert facts["own prompt (default)"].evidence is Evidence.BUILT_HERE
    assert facts["context needed (default)"].evidence is Evidence.UNPROVEN


def test_a_base_may_be_named_by_its_tag() -> None:
    assert run("explain", "7.2.1").out.startswith("rocm/dev-ubuntu-22.04:7.2.1")


def test_json_holds_facts_and_what_is_unverified() -> None:
    told = run("explain", "gfx1100", "--json").json
    assert told["name"] == "gfx1100"
    assert told["unverified"] == ["rocBLAS kernels"]
    assert {"what", "value", "evidence"} == set(told["facts"][0])


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    outcome = run("explain", "gfx110")
    assert outcome.code == ExitCode.USAGE
    assert outcome.out == ""
    assert "gfx1100 (RX 7900 XTX)" in outcome.err
    assert "Nearest: zluda" in run("explain", "zlud").err


def test_without_a_name_every_name_is_listed() -> None:
    assert run("explain", "--json").json == {
        kind: list(group) for kind, group in names(CATALOG).items()
    }
    assert "smollm2-135m" in run("explain").out


def test_names_complete_in_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_ZLUDA_STACK_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "zluda-stack explain gfx120")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert run().out.split() == ["plain,gfx1200", "plain,gfx1201"]


def test_nothing_claims_to_have_run_on_amd_hardware() -> None:
    proven = {Evidence.BUILT_HERE, Evidence.CUDA_HARDWARE}
    for gpu in CATALOG.gpus.values():
        assert gpu.provenance.evidence not in proven
    for combination in CATALOG.combinations.values():
        assert combination.provenance.evidence is Evidence.UNPROVEN
