"""The file that says who may use an endpoint: a line for each key, of which it holds the digest.

    <SHA-256 in hexadecimal> name=laptop expires=2027-01-31T00:00:00Z per-minute=30

All that follows the digest is optional, so that a line which `sha256sum` and a shell wrote is
one too. A plain digest is enough for keys that are 256 random bits: there is nothing to guess.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime, timezone

from msgspec import Struct

# What a key is called whose line has no name.
NAMELESS = "default"
# What stands in the metrics for requests without a key.
NO_KEY = "none"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")

_DIGEST = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"[1-9][0-9]{0,14}")
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_ATTRIBUTES = frozenset({"name", "expires", "per-minute", "tokens-per-day"})


class Key(Struct, frozen=True, kw_only=True):
    """A key and its limits: requests in any 60 seconds, tokens in a day of UTC."""

    digest: bytes
    name: str = NAMELESS
    expires: datetime | None = None
    per_minute: int | None = None
    tokens_per_day: int | None = None


def parse(text: str) -> tuple[Key, ...]:
    """The keys in `text`, in its order; blank lines and those that begin with # are none.

    Raises ValueError for anything else that is no key, and for a name that stands twice: a
    misspelt limit must not become none. No part of a line is in the message.
    """
    lines = (
        (number, line.split())
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    )
    keys = tuple(_key(number, words) for number, words in lines)
    names = Counter(key.name for key in keys if key.name != NAMELESS)
    twice = [name for name, times in names.items() if times > 1]
    if twice:
        raise ValueError(f"the name {twice[0]} stands twice")
    return keys


def line(key: Key) -> str:
    """`key` as `parse` reads it, without a line end."""
    told = {
        "name": None if key.name == NAMELESS else key.name,
        "expires": key.expires and key.expires.astimezone(timezone.utc).strftime(_TIME),
        "per-minute": key.per_minute,
        "tokens-per-day": key.tokens_per_day,
    }
    attributes = [f"{name}={value}" for name, value in told.items() if value is not None]
    return " ".join([key.digest.hex(), *attributes])


def _key(number: int, words: list[str]) -> Key:
    digest, attributes = words[0], dict(word.partition("=")[::2] for word in words[1:])
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"line {number} is no SHA-256 digest")
    unknown = attributes.keys() - _ATTRIBUTES
    if unknown or len(attributes) != len(words) - 1:
        allowed = ", ".join(sorted(_ATTRIBUTES))
        raise ValueError(f"line {number}: after a SHA-256 digest may stand, once each: {allowed}")
    try:
        return Key(
            digest=bytes.fromhex(digest),
            name=_name(attributes.get("name", NAMELESS)),
            expires=_time(attributes.get("expires")),
            per_minute=_count(attributes.get("per-minute")),
            tokens_per_day=_count(attributes.get("tokens-per-day")),
        )
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from error


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise ValueError("a name has small letters, digits, dots and dashes, 64 at most")
    return text


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.strptime(text, _TIME).replace(tzinfo=timezone.utc)
    except ValueError as error:
        raise ValueError("expires is no time like 2027-01-31T00:00:00Z") from error


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    if not _NUMBER.fullmatch(text):
        raise ValueError("a limit is a whole number above 0")
    return int(text)
