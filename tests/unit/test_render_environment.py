"""Whatever a host's value holds, Compose reads it back from .env as it was."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.plans import plan
from zluda_stack.render.environment import merge_env, quote, render_env


def compose_reads(written: str) -> str:
    """`written` as Compose's own reader takes it (compose-go 2.16, dotenv/parser.go).

    Only what `quote` may write: bare words, '...' without escapes, "..." with \\\\, \\" and \\$.
    Anything that Compose would interpolate or end early fails.
    """
    if written.startswith("'"):
        inner = written[1:-1]
        assert written == f"'{inner}'"
        assert "'" not in inner
        assert "\\" not in inner
        return inner
    if written.startswith('"'):
        inner = written[1:-1]
        assert written == f'"{inner}"'
        assert re.fullmatch(r'(?:[^"$\\]|\\["$\\])*', inner)
        return re.sub(r'\\(["$\\])', r"\1", inner)
    assert not re.search(r"""[\s#"'$\\]""", written)
    return written


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
@example("it's $HOME")
@example("ends with \\")
@example('a "quoted" #word')
@example("two\nlines")
@example("\\'")
def test_any_value_survives(value: str) -> None:
    assert compose_reads(quote(value)) == value


@pytest.mark.parametrize("value", ["gfx1100", "/dev/dri/renderD128", "127.0.0.1", "::1", "148"])
def test_ordinary_values_are_written_as_they_are(value: str) -> None:
    assert quote(value) == value


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
@example("two\nlines")
@example("it's\ntwo lines")
def test_of_a_former_value_nothing_is_left(value: str) -> None:
    former = render_env(plan(host={"ZLUDA_STACK_MODEL": value}))
    now = render_env(plan(host={"ZLUDA_STACK_MODEL": "small"}))
    assert merge_env(now, former + "# mine\nMINE=1") == now + "# mine\nMINE=1"


def test_of_a_former_card_no_layers_are_left() -> None:
    former = render_env(plan(host={"ZLUDA_STACK_GPU_LAYERS": "14", "ZLUDA_STACK_BATCH": "128"}))
    now = render_env(plan(host={"ZLUDA_STACK_BATCH": "512"}))
    assert merge_env(now, former) == now


def test_an_empty_value_is_left_out() -> None:
    text = render_env(plan(host={"ZLUDA_STACK_HSA_OVERRIDE": "", "HOST_KFD_GID": "148"}))
    assert "HSA" not in text
    assert "HOST_KFD_GID=148\n" in text
