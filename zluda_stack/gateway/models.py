"""The list of models: one entry for every name that a request may use."""

from __future__ import annotations

from typing import Any

import msgspec

from zluda_stack.gateway.errors import Fault

LIST_PATH = "/v1/models"

JsonObject = dict[str, Any]


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


def named(listed: JsonObject, name: str) -> JsonObject:
    """The entry of the model `name`. Raises Fault 404."""
    for model in listed["data"]:
        if model["id"] == name:
            found: JsonObject = model
            return found
    raise Fault(404, f"there is no model {name}; GET {LIST_PATH} lists them")
