"""The values of one host as a .env file for Compose."""

from __future__ import annotations

import re

from zluda_stack.plan.types import Plan

_HEADER = "# Rendered by zluda-stack: what only this host knows. It holds no secret.\n"
_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,-]+")


def render_env(plan: Plan) -> str:
    """The .env file with `plan.host_environment`; empty values are left out (case C06)."""
    lines = [f"{key}={quote(value)}\n" for key, value in plan.host_environment.items() if value]
    return _HEADER + "".join(lines)


def quote(value: str) -> str:
    """`value` so that Compose reads it back as it is, without interpolation.

    Source of the rules: dotenv/parser.go of compose-spec/compose-go 2.16. Single quotes are
    literal, but cannot hold every use of a quote or a backslash; double quotes can, escaped.
    """
    if _PLAIN.fullmatch(value):
        return value
    if "'" not in value and "\\" not in value:
        return f"'{value}'"
    escaped = re.sub(r'([\\"$])', r"\\\1", value)
    return f'"{escaped}"'
