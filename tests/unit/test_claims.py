"""Ports that stacks are about to listen on."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.unit.command_line import settle
from zluda_stack import paths
from zluda_stack.engines import claims
from zluda_stack.host.facts import RunningStack
from zluda_stack.host.probe import probe


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(tmp_path, monkeypatch)


def test_a_claimed_port_is_in_use_for_others_and_the_own_one_of_its_stack() -> None:
    with claims.claim("a", 4242):
        facts = probe(None, {})
        assert 4242 in facts.listening_ports
        assert RunningStack(name="a", port=4242) in facts.running
    facts = probe(None, {})
    assert 4242 not in facts.listening_ports
    assert facts.running == ()


def test_the_first_claim_of_a_stack_stands_while_it_is_held() -> None:
    with claims.claim("a", 4242):
        with claims.claim("a", 4243):
            assert claims.claimed() == (RunningStack(name="a", port=4242),)
        assert claims.claimed() == (RunningStack(name="a", port=4242),)
    assert claims.claimed() == ()


def test_a_claim_leaves_no_stack_behind() -> None:
    with claims.claim("a", 4242):
        assert not paths.stack("a").exists()


def test_two_do_not_choose_at_the_same_time() -> None:
    chosen: list[str] = []

    def other() -> None:
        with claims.choosing():
            chosen.append("other")

    thread = threading.Thread(target=other)
    with claims.choosing():
        thread.start()
        thread.join(0.5)
        chosen.append("first")
    thread.join()
    assert chosen == ["first", "other"]
