"""HSA_OVERRIDE_GFX_VERSION: what the user gave, and the gfx target that it stands for."""

from __future__ import annotations

import re

from msgspec import Struct

from zluda_stack.errors import PlanRefused
from zluda_stack.host.facts import HostFacts
from zluda_stack.settings import Configured

OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
WITHOUT = "Most cards need none: leave it out, or unset it."
_FORM = re.compile(r"[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{1,2}")
_TARGET = re.compile(r"gfx([0-9]{1,2})([0-9a-f])([0-9a-f])")


class Override(Struct, frozen=True, kw_only=True):
    """The user's version, in whatever form until `valid_override` saw it, and where it is from."""

    version: str
    where: str

    def __str__(self) -> str:
        return f"{OVERRIDE}={self.version} ({self.where})"

    @property
    def target(self) -> str:
        """The gfx target that a valid version stands for: gfx1100 for 11.0.0."""
        major, minor, stepping = map(int, self.version.split("."))
        return f"gfx{major}{minor:x}{stepping:x}"


def given_override(facts: HostFacts, configured: Configured) -> Override | None:
    """The setting, else the variable; None for none or empty, which must never be passed on (C06).

    Its form is not looked at.
    """
    setting = configured.settings.hsa_override
    version = (facts.environment.get(OVERRIDE, "") if setting is None else setting).strip()
    where = "environment" if setting is None else str(configured.origin("hsa_override"))
    return Override(version=version, where=where) if version else None


def valid_override(facts: HostFacts, configured: Configured) -> Override | None:
    """As `given_override`. Raises PlanRefused for one of the wrong form (C05)."""
    override = given_override(facts, configured)
    if override is None or _FORM.fullmatch(override.version):
        return override
    version = version_of(override.version.lower())
    would_be = f"; {override.version} would be {version}" if version else ""
    raise PlanRefused(
        f"{override} has the wrong form",
        f"The form is 11.0.0 (major.minor.stepping){would_be}. {WITHOUT}",
    )


def version_of(target: str) -> str | None:
    """The version that stands for a gfx target, 10.3.0 for gfx1030; None for what is none."""
    parts = _TARGET.fullmatch(target)
    if parts is None:
        return None
    return f"{int(parts[1])}.{int(parts[2], 16)}.{int(parts[3], 16)}"
