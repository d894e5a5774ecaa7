"""Every snapshot of tests/cases gets the plan and the findings that are expected of it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
import yaml

from tests.unit.doctoring import examined, ids
from tests.unit.planning import CASES
from zluda_stack.doctor.types import Status
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.building import TERMS
from zluda_stack.plan.types import Plan

EXPECTED: dict[str, dict[str, Any]] = yaml.safe_load((CASES / "expected.yml").read_text())
SNAPSHOTS = sorted(path.stem for path in CASES.glob("*.json"))
README = (CASES / "README.md").read_text()
ROW = re.compile(r"^\| ([a-z0-9.-]+) \| .+ \| (synthetic|\[.+\]\(https://.+\)) \|$", re.MULTILINE)
PERSONAL = re.compile(r"/home/|/Users/|@|[0-9a-f]{2}(:[0-9a-f]{2}){5}|unique_id")


def test_each_snapshot_is_expected_and_says_where_it_is_from() -> None:
    assert sorted(EXPECTED) == SNAPSHOTS
    assert sorted(name for name, _ in ROW.findall(README)) == SNAPSHOTS


def test_most_snapshots_are_of_reports() -> None:
    reported = [name for name, source in ROW.findall(README) if source != "synthetic"]
    assert len(reported) >= 40


@pytest.mark.parametrize("case", SNAPSHOTS)
def test_a_snapshot_is_whole_and_nobodys(case: str) -> None:
    raw = (CASES / f"{case}.json").read_text()
    msgspec.json.decode(raw, type=HostFacts)
    assert PERSONAL.search(raw) is None


@pytest.mark.parametrize("case", SNAPSHOTS)
def test_the_plan_and_the_findings_are_the_expected_ones(case: str) -> None:
    found = examined(case)
    told = {
        **(_planned(found.plan) if found.plan else {}),
        **({"refused": found.refusal.message} if found.refusal else {}),
        "fail": ids(found, Status.FAIL),
        "warn": ids(found, Status.WARN),
        "because": list(dict.fromkeys(each.because for each in found.findings if each.because)),
    }
    assert told == EXPECTED[case]


@pytest.mark.parametrize("case", [case for case in SNAPSHOTS if "plan" in EXPECTED[case]])
def test_what_fails_for_the_doctor_stops_the_containers_of_the_plan_too(case: str) -> None:
    found = examined(case)
    assert found.plan is not None
    if found.plan.engine != "docker" or found.cause is None:
        return
    if found.cause.id == "images.disk-too-small":
        return  # `up` measures the disk itself, knowing which images are there already
    lacking = [notice.code for notice in found.plan.unmet if notice.code != TERMS]
    assert lacking, f"{found.cause.id} is no lack of the plan"


def _planned(plan: Plan) -> dict[str, Any]:
    gids = {gid for gpu in plan.gpus for gid in (gpu.kfd_gid, gpu.render_gid)}
    return {
        "plan": {
            "engine": plan.engine,
            "gpus": [gpu.target for gpu in plan.gpus],
            "nodes": [gpu.render_node for gpu in plan.gpus],
            "gids": sorted(gid for gid in gids if gid is not None),
        }
    }
