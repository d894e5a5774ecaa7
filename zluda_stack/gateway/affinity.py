"""Which conversation a request belongs to, and where that conversation is kept.

A model server computes only what is new in a prompt when it still has the rest in its cache: 0.3 s
instead of 146 s for Claude Code's own prompt, measured on 2 cores. So a conversation goes on at
the server where it began.

A map and no hashing over the servers: a new conversation can begin where least is running, and
stays there when servers come and go. What the map forgets, at a restart or after many other
conversations, costs that conversation one cold prompt.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

# Claude Code names its session; the value is the same for all requests of one run.
_SESSION = b"x-claude-code-session-id"
_KEPT = 10_000

_Place = TypeVar("_Place")
_Struct = TypeVar("_Struct", bound=Struct)


class _Part(Struct):
    text: str = ""


_Content = str | list[_Part | str] | None


class _Turn(Struct):
    role: str = ""
    content: _Content = None


class _Named(Struct):
    model: str | None = None


class _Opening(_Named):
    """What the dialects have at the beginning of a prompt, all else passed over unread."""

    system: _Content = None
    instructions: str | None = None
    messages: list[_Turn] = []
    input: str | list[_Turn | str] | None = None
    prompt: str | None = None


class Opening(Struct, frozen=True):
    """What a request tells of where it belongs: the model's name and the conversation's mark."""

    model: str | None = None
    conversation: bytes | None = None


def opening(headers: Iterable[tuple[bytes, bytes]], content: bytes) -> Opening:
    """The model and the conversation of a request; nothing of one that is no such request.

    The conversation is the session that the client names, else the beginning of the prompt: the
    system text and the first words of the user, which every later turn repeats.
    """
    session = next((value for name, value in headers if name == _SESSION and value), None)
    found = _decoded(content, _Opening) or _decoded(content, _Named) or _Named()
    begins = session or (_beginning(found) if isinstance(found, _Opening) else b"")
    return Opening(model=found.model, conversation=_mark(begins) if begins else None)


class Homes(Generic[_Place]):
    """Where the conversations of late are kept; the one that rested longest is forgotten first."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._homes: OrderedDict[bytes, _Place] = OrderedDict()

    def of(self, conversation: bytes | None) -> _Place | None:
        """The home of `conversation`, None when it has none."""
        home = None if conversation is None else self._homes.get(conversation)
        if conversation is not None and home is not None:
            self._homes.move_to_end(conversation)
        return home

    def settle(self, conversation: bytes | None, place: _Place) -> None:
        """Note that `conversation` goes on at `place` from now on."""
        if conversation is None:
            return
        self._homes[conversation] = place
        if len(self._homes) > self._kept:
            self._homes.popitem(last=False)


def _decoded(content: bytes, kind: type[_Struct]) -> _Struct | None:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _mark(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).digest()


def _beginning(found: _Opening) -> bytes:
    """All text up to and with the first words of the user; empty when there is none.

    Only the text: clients move marks like cache_control from one turn to the next.
    """
    turns = [turn for turn in found.messages if isinstance(turn, _Turn)]
    if isinstance(found.input, list):
        turns += [one if isinstance(one, _Turn) else _Turn("user", one) for one in found.input]
    elif found.input is not None:
        turns.append(_Turn("user", found.input))
    texts = [_text(found.system), found.instructions or "", found.prompt or ""]
    for turn in turns:
        texts.append(_text(turn.content))
        if turn.role == "user":
            break
    return "\0".join(texts).encode() if any(texts) else b""


def _text(content: _Content) -> str:
    if isinstance(content, list):
        return "\n".join(part.text if isinstance(part, _Part) else part for part in content)
    return content or ""
