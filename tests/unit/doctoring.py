"""Put snapshots to the doctor: the real catalogue, settings by keyword."""

from __future__ import annotations

from functools import cache
from typing import Any

from tests.unit.planning import configured, host
from zluda_stack.catalog.load import load
from zluda_stack.catalog.schema import Catalog
from zluda_stack.doctor.examine import Examination, examine
from zluda_stack.doctor.needs import build_needs
from zluda_stack.doctor.types import Finding, Status
from zluda_stack.host.facts import HostFacts


@cache
def catalog() -> Catalog:
    """The catalogue, read once: examining changes nothing of it."""
    return load()


def examined(machine: HostFacts | str, **flags: Any) -> Examination:
    """What the doctor finds on a machine, or on the one of a snapshot, with these flags."""
    if isinstance(machine, str) and not flags:
        return _as_it_is(machine)
    facts = host(machine) if isinstance(machine, str) else machine
    return examine(facts, configured(**flags), catalog(), build_needs)


@cache
def _as_it_is(snapshot: str) -> Examination:
    return examine(host(snapshot), configured(), catalog(), build_needs)


def ids(found: Examination, status: Status) -> list[str]:
    """The ids of the findings of one status, in order."""
    return [each.id for each in found.findings if each.status is status]


def finding(found: Examination, name: str) -> Finding:
    """The finding of the check `name`."""
    return next(each for each in found.findings if each.id == name)
