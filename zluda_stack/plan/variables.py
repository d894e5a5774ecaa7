"""${VARIABLES} of compose files: what only the host or its user knows.

Their values are in `Plan.host_environment`; compose/host-env.sh finds them without this program.
"""

from __future__ import annotations

_WRITTEN_BY = "run compose/host-env.sh on this host, which writes it to compose/.env"


def required(name: str) -> str:
    """The variable `name`; without it Compose stops and names the command that sets it."""
    return f"${{{name}:?{_WRITTEN_BY}}}"


def optional(name: str, default: str = "") -> str:
    """The variable `name`, or `default` where it is empty or not set."""
    return f"${{{name}:-{default}}}"
