"""${VARIABLES} of compose files: what only the host or its user knows.

Their values are in `Plan.host_environment`; compose/host-env.sh finds them without this program.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_WRITTEN_BY = "run compose/host-env.sh on this host, which writes it to compose/.env"
# Who ran it and has no card is not sent there again without a word of what runs all the same.
_CARD = "compose/.env names no card; compose/host-env.sh finds one or says what runs without"
_RENDERED = "run zluda-stack render on this host, which writes it to compose/.env"
_VARIABLE = re.compile(r"\$\{(?P<name>\w+):(?P<kind>[-?])(?P<otherwise>[^}]*)\}")


def required(name: str) -> str:
    """The variable `name`; without it Compose stops and names the command that sets it."""
    return f"${{{name}:?{_WRITTEN_BY}}}"


def of_card(name: str) -> str:
    """As `required`, for a variable that only a host with a card has."""
    return f"${{{name}:?{_CARD}}}"


def by_program(name: str) -> str:
    """As `required`, for a variable that only the program itself can tell."""
    return f"${{{name}:?{_RENDERED}}}"


def optional(name: str, default: str = "") -> str:
    """The variable `name`, or `default` where it is empty or not set."""
    return f"${{{name}:-{default}}}"


def fill(text: str, values: Mapping[str, str]) -> str:
    """`text` with its variables replaced as Compose would. Raises KeyError for a required one."""

    def value(match: re.Match[str]) -> str:
        if match["kind"] == "?":
            return values[match["name"]]
        return values.get(match["name"]) or match["otherwise"]

    return _VARIABLE.sub(value, text)
