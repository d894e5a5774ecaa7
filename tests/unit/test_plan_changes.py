"""What a second `up` with other settings is said to change, before it does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.planning import host, plan_for
from zluda_stack.plan.changes import changes, loses_tls
from zluda_stack.plan.types import Plan

TLS = {"tls_cert": "/keep/chain.pem", "tls_key": "/keep/key.pem"}


def laptop(**flags: Any) -> Plan:
    """The plan of a machine without a card."""
    return plan_for(host("laptop-without-gpu-or-docker"), **flags)


def told(before: Plan, after: Plan) -> list[str]:
    """The changes as they are printed."""
    return [str(change) for change in changes(before, after)]


def test_the_same_settings_change_nothing() -> None:
    assert told(laptop(**TLS), laptop(**TLS)) == []


def test_tls_that_is_not_given_again_is_lost_and_named() -> None:
    before, after = laptop(port=9000, **TLS), laptop(port=9000)

    assert loses_tls(before, after)
    assert told(before, after) == [
        "endpoint https://127.0.0.1:9000 -> http://127.0.0.1:9000 (tls_cert is not set any more)",
        "certificate /keep/chain.pem with /keep/key.pem -> none",
    ]


def test_tls_that_is_new_is_a_change_and_no_loss() -> None:
    before, after = laptop(port=9000), laptop(port=9000, **TLS)

    assert not loses_tls(before, after)
    assert told(before, after)[0] == "endpoint http://127.0.0.1:9000 -> https://127.0.0.1:9000"


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (
            {"capture_prompts": True},
            "prompts on disk yes -> no (capture_prompts is not set any more)",
        ),
        ({"queue": 7}, "queue 7 -> the endpoint's own (queue is not set any more)"),
        ({"slots": 2}, "slots 2 -> those of the server (slots is not set any more)"),
        (
            {"allow_origins": "https://chat.example.org"},
            "web pages https://chat.example.org -> none (allow_origins is not set any more)",
        ),
        ({"bind": "0.0.0.0"}, "listening at 0.0.0.0 -> 127.0.0.1"),  # noqa: S104 - what is tested
        ({"threads": 3}, "threads 3 -> "),
    ],
)
def test_every_flag_that_is_left_out_the_second_time_is_told(
    flags: dict[str, Any], line: str
) -> None:
    found = [change for change in told(laptop(**flags), laptop()) if change.startswith(line)]

    assert len(found) == 1
