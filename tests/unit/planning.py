"""Plans for tests: a host snapshot, settings by keyword, the real catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from zluda_stack.catalog.load import load
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan import Plan
from zluda_stack.plan.resolve import resolve
from zluda_stack.settings import Configured, Origin, Settings

CASES = Path(__file__).parent.parent / "cases"


def host(case: str) -> HostFacts:
    """The snapshot tests/cases/<case>.json."""
    return msgspec.json.decode((CASES / f"{case}.json").read_bytes(), type=HostFacts)


def configured(**flags: Any) -> Configured:
    """Settings as if each keyword had been given as a flag."""
    origins = {key: Origin(kind="flag", where=f"--{key}") for key in flags}
    return Configured(settings=msgspec.convert(flags, Settings), origins=origins)


def plan_for(facts: HostFacts, **flags: Any) -> Plan:
    """The plan for a host with these flags."""
    return resolve(facts, configured(**flags), load())
