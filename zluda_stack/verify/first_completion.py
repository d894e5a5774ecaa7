"""What a running stack computes on, as its model server's log says, and a first completion.

The lines of the log are those of llama.cpp b11434 (docs/evidence/2026-11-30-cuda-native.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import requests
from msgspec import Struct

from zluda_stack.plan.types import EndpointPlan
from zluda_stack.verify.asking import Asker, JsonObject, Wrong, session_with

# A HIP build names the gfx target where a CUDA build has the compute capability.
_DEVICE = re.compile(r"\bDevice \d+: (?P<name>.+?), (?:compute capability|gfx)")
_OFFLOADED = re.compile(r"\boffloaded (?P<on>\d+)/(?P<of>\d+) layers to GPU")
# Every model of the catalogue knows it, the smallest too.
_QUESTION = "What is the capital of France? Answer with its name."
_ANSWER = "paris"
# Models that think first need some room.
_MOST_TOKENS = 512


class Computing(Struct, frozen=True, kw_only=True):
    """Where a model server computes, after its log; None is what the log does not tell."""

    device: str | None = None
    layers: int | None = None
    of_layers: int | None = None

    @property
    def on_gpu(self) -> bool:
        """True when the log names a device and layers that are on it."""
        return self.device is not None and bool(self.layers)


class Completion(Struct, frozen=True, kw_only=True):
    """One answer. `tokens_per_second` are of its generation, as the server measured them."""

    text: str
    right: bool
    tokens: int | None = None
    tokens_per_second: float | None = None
    detail: str = ""


def read_log(lines: Iterable[str]) -> Computing:
    """What the last start in a model server's log says."""
    found = Computing()
    for line in lines:
        device, offloaded = _DEVICE.search(line), _OFFLOADED.search(line)
        if device is not None:
            found = Computing(device=device["name"])
        if offloaded is not None:
            on, of = int(offloaded["on"]), int(offloaded["of"])
            found = Computing(device=found.device, layers=on, of_layers=of)
    return found


def ask(endpoint: EndpointPlan, key: str, model: str) -> Completion:
    """Ask `endpoint` a question with a known answer; never raises for what it answers."""
    question: JsonObject = {
        "max_tokens": _MOST_TOKENS,
        "temperature": 0,
        "messages": [{"role": "user", "content": _QUESTION}],
    }
    with session_with(endpoint) as session:
        asker = Asker(session, endpoint.local_url, key, model)
        try:
            return _completion(asker.ask("/v1/chat/completions", question))
        except Wrong as wrong:
            return Completion(text="", right=False, detail=str(wrong))
        except requests.RequestException as error:
            return Completion(text="", right=False, detail=f"no answer: {type(error).__name__}")
        except (KeyError, IndexError, TypeError, ValueError) as error:
            return Completion(text="", right=False, detail=f"it has another shape: {error!r}")


def _completion(answer: JsonObject) -> Completion:
    message = answer["choices"][0]["message"]
    said = (message.get("content") or message.get("reasoning_content") or "").strip()
    timings = answer.get("timings") or {}
    right = _ANSWER in said.casefold()
    return Completion(
        text=said,
        right=right,
        tokens=timings.get("predicted_n"),
        tokens_per_second=timings.get("predicted_per_second"),
        detail="" if right else f"Paris is not in it: {said[:200]!r}",
    )
