"""Answers GET /."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from zluda_stack.gateway import models, page
from zluda_stack.gateway.errors import Fault
from zluda_stack.gateway.exchange import Exchange
from zluda_stack.gateway.models_answer import listed_by
from zluda_stack.gateway.pool import Pool

_SECONDS = 3.0
_HOST = re.compile(rb"[\w.:\[\]-]{1,255}")


async def answer_page(exchange: Exchange, pool: Pool, findings: Sequence[str]) -> None:
    """Say what runs here, and what was found of it; whoever can reach the port may know."""
    names: list[str] = []
    context, missing = None, ""
    try:
        listed = await asyncio.wait_for(listed_by(pool), _SECONDS)
        names = [model["id"] for model in listed["data"]]
        context = models.facts_of(listed).context
    except Fault as fault:
        missing = fault.message
    except asyncio.TimeoutError:
        missing = "the model server does not answer"
    told = page.page(_url(exchange), page.state(names, context, missing), findings)
    await exchange.respond(200, page.HEADERS, told)


def _url(exchange: Exchange) -> str:
    host = dict(exchange.headers).get(b"host", b"")
    told = host.decode() if _HOST.fullmatch(host) else "HOST:PORT"
    return f"{exchange.scheme}://{told}"
