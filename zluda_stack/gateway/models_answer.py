"""Answers GET /v1/models and /v1/models/NAME, and asks what the model can do."""

from __future__ import annotations

import asyncio
from urllib.parse import unquote

import msgspec

from zluda_stack.gateway import models
from zluda_stack.gateway.backend import Backend
from zluda_stack.gateway.errors import Dialect
from zluda_stack.gateway.exchange import Exchange
from zluda_stack.gateway.failures import StillLoading
from zluda_stack.gateway.models import JsonObject, ModelFacts
from zluda_stack.gateway.pool import Pool
from zluda_stack.gateway.server import Server

_JSON = [(b"content-type", b"application/json")]


async def answer_models(exchange: Exchange, _content: bytes, backend: Backend) -> None:
    """List every model, or tell of the one that the path names. Raises Fault."""
    listed = await listed_by(backend.upstream.pool)
    name = unquote(exchange.path.partition("/models")[2].removeprefix("/"))
    if exchange.dialect is not Dialect.ANTHROPIC:
        told = models.named(listed, name) if name else listed
    elif name:
        told = models.anthropic_entry(models.named(listed, name))
    else:
        told = models.anthropic_page(listed, exchange.query)
    await exchange.respond(200, _JSON, msgspec.json.encode(told))


async def model_facts(backend: Backend) -> ModelFacts:
    """What the model can do; asked each time, for another one may run by now. Raises Fault."""
    return models.facts_of(await listed_by(backend.upstream.pool))


async def served_name(backend: Backend, asked: str) -> str:
    """The name to ask the model server by: others than llama.cpp's refuse one that they do not
    serve. Raises Fault."""
    if not backend.openai_only:
        return asked
    names = [model["id"] for model in (await listed_by(backend.upstream.pool))["data"]]
    return asked if asked in names or not names else str(names[0])


async def listed_by(pool: Pool) -> JsonObject:
    """The list of all models. Raises Fault."""
    return models.merged(await asyncio.gather(*map(_of_server, pool.one_of_each_model())))


async def _of_server(server: Server) -> JsonObject:
    async with server.send("GET", models.LIST_PATH.encode(), [], b"") as response:
        if not response.is_success:
            raise StillLoading
        return models.every_name(await response.read())
