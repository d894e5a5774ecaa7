"""What the clients make of each error of the endpoint: the right one, and an end of their tries.

docs/endpoint.md has the whole table; `python -m benchmarks.endpoint_errors` measures it again.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import client_errors
from tests.client_errors import SITUATIONS, Seen, asked_by

SLOW = pytest.mark.skipif(
    not os.environ.get("TEST_SLOW"), reason="takes minutes: set TEST_SLOW=1 to run it"
)
TRIES = 3  # the packages' own: one and two again
# By situation: what both packages raise, and how often they ask. The names differ where theirs do.
RAISED = {
    "wrong-key": ("AuthenticationError", "AuthenticationError", 1),
    "too-long": ("BadRequestError", "BadRequestError", 1),
    "refused": ("BadRequestError", "BadRequestError", 1),
    "nothing-there": ("NotFoundError", "NotFoundError", 1),
    "wrong-method": ("APIStatusError", "APIStatusError", 1),
    "compressed": ("APIStatusError", "APIStatusError", 1),
    "too-large": ("ContentTooLargeError", "APIStatusError", 1),
    "queue-full": ("RateLimitError", "RateLimitError", TRIES),
    "dies-at-once": ("InternalServerError", "InternalServerError", TRIES),
    "fails": ("InternalServerError", "InternalServerError", TRIES),
}
IN_MID_STREAM = ("breaks-off", "ends-early")
# What Claude Code tells, and how often it asks at most.
TOLD = {
    "too-long": ("Prompt is too long", 1),
    "too-large": ("Request too large", 1),
    "refused": ("roles must alternate", 3),
    "nothing-there": ("issue with the selected model", 2),
    "wrong-method": ("API Error: 405", 1),
    "compressed": ("API Error: 415", 1),
}


def with_packages(name: str, folder: Path, *, streaming: bool) -> tuple[Seen, Seen]:
    situation = SITUATIONS[name]
    with client_errors.played(situation, folder) as gateway:
        return (
            asked_by(
                gateway,
                lambda: client_errors.of_anthropic(gateway, situation.key, streaming=streaming),
            ),
            asked_by(
                gateway,
                lambda: client_errors.of_openai(gateway, situation.key, streaming=streaming),
            ),
        )


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("name", RAISED)
def test_the_packages_raise_what_it_is_and_come_to_an_end(
    name: str, streaming: bool, tmp_path: Path
) -> None:
    anthropics, openais, tries = RAISED[name]
    of_anthropic, of_openai = with_packages(name, tmp_path, streaming=streaming)
    assert (of_anthropic.told.split(":")[0], of_anthropic.tries) == (anthropics, tries)
    assert (of_openai.told.split(":")[0], of_openai.tries) == (openais, tries)


@pytest.mark.parametrize("name", IN_MID_STREAM)
def test_an_answer_that_breaks_off_is_no_answer_for_the_packages(name: str, tmp_path: Path) -> None:
    seen = with_packages(name, tmp_path, streaming=True)
    assert [one.tries for one in seen] == [1, 1]
    assert all("the model server stopped" in one.told for one in seen)


@pytest.mark.parametrize("name", TOLD)
def test_claude_code_tells_what_it_is_and_comes_to_an_end(
    name: str, claude_program: Path, tmp_path: Path
) -> None:
    words, tries = TOLD[name]
    situation = SITUATIONS[name]
    with client_errors.played(situation, tmp_path) as gateway:
        seen = asked_by(
            gateway,
            lambda: client_errors.of_claude_code(
                gateway, situation.key, claude_program, tmp_path / "home", timeout=120
            ),
        )
    assert seen.told.startswith("error: ")
    assert words in seen.told
    assert 1 <= seen.tries <= tries


@SLOW
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(SITUATIONS.keys() - TOLD.keys()))
def test_claude_code_ends_after_minutes_where_it_hopes(
    name: str, claude_program: Path, tmp_path: Path
) -> None:
    situation = SITUATIONS[name]
    with client_errors.played(situation, tmp_path) as gateway:
        seen = asked_by(
            gateway,
            lambda: client_errors.of_claude_code(
                gateway, situation.key, claude_program, tmp_path / "home", timeout=800
            ),
        )
    assert seen.told.startswith("answer: " if situation.ends_well else "error: ")
