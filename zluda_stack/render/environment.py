"""The values of one host as a .env file for Compose."""

from __future__ import annotations

import re

from zluda_stack.plan.types import Plan

_HEADER = "# Rendered by zluda-stack: what only this host knows. It holds no secret.\n"
# The first lines of this program and of compose/host-env.sh.
_HEADERS = ("# Rendered by zluda-stack", "# Written by compose/host-env.sh")
# What describes the card: it goes when a new plan does not name it.
_OF_THE_CARD = re.compile(
    r"HOST_\w+"
    r"|ZLUDA_STACK_(GPU|KERNEL_TARGET|HSA_OVERRIDE|BATCH|GPU_LAYERS|CPU_MOE|TENSOR_SPLIT)"
)
# One entry of a .env file with its line end: an assignment, whose quoted value may have several
# lines, or any other line.
_ENTRY = re.compile(
    r"""^(?:export[ ]+)?(?P<key>\w+)[ ]*=[ ]*(?:'[^']*'|"(?:\\.|[^"\\])*")?.*\n?|^.*\n?""",
    re.MULTILINE,
)
_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,-]+")


def render_env(plan: Plan) -> str:
    """The .env file with `plan.host_environment`; empty values are left out (case C06)."""
    lines = [f"{key}={quote(value)}\n" for key, value in plan.host_environment.items() if value]
    return _HEADER + "".join(lines)


def merge_env(rendered: str, present: str) -> str:
    """`rendered`, and after it what `present` holds besides: settings and comments of others.

    compose/host-env.sh and users write into the same file. Of `present` go the variables that
    `rendered` sets too, and all that describe a card.
    """
    ours = {entry["key"] for entry in _ENTRY.finditer(rendered) if entry["key"]}

    def is_theirs(entry: re.Match[str]) -> bool:
        key = entry["key"]
        if key is None:
            return not entry[0].startswith(_HEADERS)
        return key not in ours and _OF_THE_CARD.fullmatch(key) is None

    kept = "".join(entry[0] for entry in _ENTRY.finditer(present) if is_theirs(entry))
    return rendered + kept


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
