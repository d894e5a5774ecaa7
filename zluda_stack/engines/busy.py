"""What the endpoint of a stack is answering at this moment, as its own figures say."""

from __future__ import annotations

import http.client

from zluda_stack.engines.base import Requests
from zluda_stack.errors import StackError
from zluda_stack.keys import read_key
from zluda_stack.plan.types import EndpointPlan
from zluda_stack.tls import LocalConnection

_SECONDS = 5.0
_RUNNING, _PLACES = "zluda_stack_running", "zluda_stack_slots"
_WAITING = "zluda_stack_queue_length"


def requests_at(endpoint: EndpointPlan, stack: str) -> Requests | None:
    """What the `endpoint` of `stack` is answering; None where it does not say."""
    try:
        key = read_key(stack)
        figures = None if key is None else _figures(endpoint, key)
    except (OSError, StackError, http.client.HTTPException, ValueError):
        return None  # `status` is to say what is known
    if figures is None or _WAITING not in figures:
        return None
    return Requests(
        running=figures.get(_RUNNING, 0),
        places=figures.get(_PLACES),
        waiting=figures[_WAITING],
    )


def _figures(endpoint: EndpointPlan, key: str) -> dict[str, int] | None:
    """The sums over all servers. Raises OSError, HTTPException, ValueError."""
    connection = LocalConnection(endpoint, _SECONDS)
    try:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {key}"})
        response = connection.getresponse()
        text = response.read().decode()
    finally:
        connection.close()
    if response.status != http.client.OK:
        return None
    sums: dict[str, int] = {}
    for line in text.splitlines():
        series, _, value = line.rpartition(" ")
        name = series.partition("{")[0]
        if name in (_RUNNING, _PLACES, _WAITING):
            sums[name] = sums.get(name, 0) + int(float(value))
    return sums
