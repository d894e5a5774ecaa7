"""What a key may use, counted and refused."""

from __future__ import annotations

import pytest

from zluda_stack.gateway.errors import Fault
from zluda_stack.gateway.quota import Quotas
from zluda_stack.keyring import Key

DAY = 86_400


class Clock:
    """A fake clock that the test sets."""

    def __init__(self) -> None:
        self.now = 20_000.0 * DAY

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def key(name: str = "guest", per_minute: int | None = None, tokens: int | None = None) -> Key:
    return Key(digest=b"", name=name, per_minute=per_minute, tokens_per_day=tokens)


def refused(quotas: Quotas, who: Key) -> int | None:
    """After how many seconds the refused request may come again; None when it may run."""
    try:
        quotas.count_request(who)
    except Fault as fault:
        assert fault.status == 429
        assert "guest" in fault.message
        return fault.retry_after
    return None


def test_a_key_without_limits_is_never_refused(clock: Clock) -> None:
    quotas = Quotas(clock)
    quotas.count_tokens(key(), 10**9)
    assert all(refused(quotas, key()) is None for _ in range(1000))


def test_requests_above_the_limit_may_come_when_the_oldest_is_a_minute_old(clock: Clock) -> None:
    quotas, guest = Quotas(clock), key(per_minute=2)
    assert refused(quotas, guest) is None
    clock.now += 20
    assert refused(quotas, guest) is None
    clock.now += 10.5
    assert refused(quotas, guest) == 30
    clock.now += 30
    assert refused(quotas, guest) is None
    assert refused(quotas, guest) == 20


def test_what_one_key_uses_is_not_taken_from_another(clock: Clock) -> None:
    quotas = Quotas(clock)
    assert refused(quotas, key(per_minute=1)) is None
    assert refused(quotas, key(per_minute=1)) == 60
    quotas.count_request(key("other", per_minute=1))


def test_a_limit_that_is_changed_counts_at_once(clock: Clock) -> None:
    quotas = Quotas(clock)
    for _ in range(5):
        quotas.count_request(key(per_minute=5))
        clock.now += 1
    assert refused(quotas, key(per_minute=2)) == 58
    assert refused(quotas, key(per_minute=6)) is None


def test_tokens_above_the_limit_may_come_on_the_next_day_of_utc(clock: Clock) -> None:
    quotas, guest = Quotas(clock), key(tokens=1000)
    clock.now += DAY - 100
    quotas.count_tokens(guest, 999)
    assert refused(quotas, guest) is None
    quotas.count_tokens(guest, 500)  # an answer that was begun is not cut off
    assert refused(quotas, guest) == 100
    clock.now += 100
    assert refused(quotas, guest) is None
