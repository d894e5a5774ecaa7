"""The list of models: one entry for every name that a request may use.

A request may name any other model as well: it means the one that runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from zluda_stack.gateway.errors import Fault

LIST_PATH = "/v1/models"

JsonObject = dict[str, Any]

_MOST = 1000
_INSISTED_ON = re.compile(r"(?:claude|gpt|chatgpt|codex|o\d)(?:[-.][\w.:-]*)?")


class ModelFacts(Struct, frozen=True):
    """`context` is in tokens, None when the server does not tell it."""

    context: int | None
    sees_images: bool


class _Meta(Struct):
    n_ctx: int | None = None


class _Architecture(Struct):
    input_modalities: list[str] = []


class _Entry(Struct):
    """One model as llama.cpp's server (`meta`) or vLLM (`max_model_len`) lists it."""

    meta: _Meta | None = None
    architecture: _Architecture | None = None
    max_model_len: int | None = None

    def facts(self) -> ModelFacts:
        context = self.meta.n_ctx if self.meta else self.max_model_len
        told = self.architecture.input_modalities if self.architecture else []
        return ModelFacts(context=context, sees_images="image" in told)


def every_name(answer: bytes) -> JsonObject:
    """The model server's list with an entry for each alias.

    llama.cpp gives a model one id, the alias that comes first in the alphabet. Raises Fault.
    """
    try:
        listed = msgspec.json.decode(answer, type=JsonObject)
        models: list[JsonObject] = msgspec.convert(listed.get("data"), list[JsonObject])
        entries = [
            {**model, "id": name}
            for model in models
            for name in dict.fromkeys([model["id"], *model.get("aliases", ())])
        ]
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise Fault(502, "the model server's list of models has another shape") from error
    return {**listed, "data": entries}


def merged(lists: Iterable[JsonObject]) -> JsonObject:
    """One list of the lists of several servers; a name that more than one has comes once."""
    lists = list(lists)
    data = {model["id"]: model for listed in reversed(lists) for model in listed["data"]}
    return {**lists[0], "data": list(data.values())} if lists else {"object": "list", "data": []}


def named(listed: JsonObject, name: str) -> JsonObject:
    """The entry of the model `name`. Raises Fault 404.

    The names that clients insist on have one too: that of the model that runs.
    """
    for model in listed["data"]:
        if model["id"] == name or _INSISTED_ON.fullmatch(name):
            return {**model, "id": name}
    raise Fault(404, f"there is no model {name}; GET {LIST_PATH} lists them")


def facts_of(listed: JsonObject) -> ModelFacts:
    """What the model server's list tells about its first model."""
    try:
        return msgspec.convert(listed["data"][0], _Entry).facts()
    except (msgspec.MsgspecError, IndexError):
        return ModelFacts(context=None, sees_images=False)


def anthropic_page(listed: JsonObject, query: str) -> JsonObject:
    """`listed` in the shape of Anthropic's API, cut as `query` says. Raises Fault 400.

    Shape: Anthropic's "List Models" page, read 2026-11-30.
    """
    asked = dict(parse_qsl(query))
    limit = asked.get("limit", "20")
    if not (limit.isascii() and limit.isdecimal() and 1 <= int(limit) <= _MOST):
        raise Fault(400, f"limit: must be a number from 1 to {_MOST}")
    entries = [anthropic_entry(model) for model in listed["data"]]
    ids = [entry["id"] for entry in entries]
    if (after := asked.get("after_id")) in ids:
        entries = entries[ids.index(after) + 1 :]
    if (before := asked.get("before_id")) in ids:
        entries = entries[: ids.index(before)]
        page = entries[-int(limit) :]
    else:
        page = entries[: int(limit)]
    return {
        "data": page,
        "has_more": len(page) < len(entries),
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
    }


def anthropic_entry(model: JsonObject) -> JsonObject:
    """One entry in the shape of Anthropic's API."""
    created = model.get("created")
    moment = datetime.fromtimestamp(created if isinstance(created, int) else 0, timezone.utc)
    return {
        "type": "model",
        "id": model["id"],
        "display_name": model["id"],
        "created_at": moment.isoformat().replace("+00:00", "Z"),
    }
