"""A client that leaves ends the work for it, however stubborn that is."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from zluda_stack.gateway.exchange import ClientGone, Exchange


async def _left() -> MutableMapping[str, Any]:
    await asyncio.sleep(0.01)
    return {"type": "http.disconnect"}


async def _into_the_void(_: MutableMapping[str, Any]) -> None:
    pass


def exchange() -> Exchange:
    scope = {
        "type": "http",
        "method": "POST",
        "raw_path": b"/v1/messages",
        "query_string": b"",
        "headers": [],
    }
    return Exchange(scope, _left, _into_the_void)


def test_work_that_overhears_one_cancellation_is_cancelled_again() -> None:
    """As asyncio.wait_for of Python 3.10 and 3.11 does at times (python/cpython 86296)."""
    cancelled = []

    async def work() -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(True)
                if len(cancelled) == 2:
                    raise

    with pytest.raises(ClientGone):
        asyncio.run(asyncio.wait_for(exchange().unless_client_leaves(work()), 20))
    assert len(cancelled) == 2
