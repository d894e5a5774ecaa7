"""Put every check to one host: the findings, and the plan or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from zluda_stack.catalog.schema import Catalog
from zluda_stack.doctor.registry import CHECKS, chain_of, needs_all_below
from zluda_stack.doctor.subject import Refusal, StageNeed, Subject
from zluda_stack.doctor.types import Check, Finding, Layer, Status, Verdict
from zluda_stack.errors import PlanRefused
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.resolve import resolve
from zluda_stack.plan.types import ImagePlan, Plan
from zluda_stack.settings import Configured

_OF_THE_CARD = frozenset(
    {Layer.HARDWARE, Layer.KERNEL, Layer.DRIVER, Layer.NODES, Layer.PERMISSIONS}
)
BuildNeeds = Callable[[ImagePlan], frozenset[StageNeed]]


class Examination(Struct, frozen=True, kw_only=True):
    """All findings, in the order of the layers, and exactly one of `plan` and `refusal`."""

    findings: tuple[Finding, ...]
    plan: Plan | None = None
    refusal: Refusal | None = None

    @property
    def cause(self) -> Finding | None:
        """The first finding that fails: what is to be mended first. None when nothing fails."""
        return next((each for each in self.findings if each.status is Status.FAIL), None)

    @property
    def goes_on_with_the_cpu(self) -> bool:
        """True when what fails keeps a card from being used, and `up` runs without it."""
        if self.plan is None or self.cause is None or self.cause.layer not in _OF_THE_CARD:
            return False
        return self.plan.gpu is None and not self.plan.unmet


def examine(
    facts: HostFacts,
    configured: Configured,
    catalog: Catalog,
    build_needs: BuildNeeds,
    plan_here: Plan | None = None,
) -> Examination:
    """What is right and wrong with this host for this wish; the same inputs give the same answer.

    `build_needs` tells what building an image takes. `plan_here` counts where these facts alone
    give no plan: without personal details they do not have the unique id that --gpu may name.
    """
    plan, refusal = plan_here, None
    try:
        plan = resolve(facts, configured, catalog)
    except PlanRefused as refused:
        refusal = None if plan_here else Refusal(refused.message, refused.hint)
    subject = Subject(
        facts=facts,
        configured=configured,
        catalog=catalog,
        plan=plan,
        refusal=refusal,
        build_needs={image.name: build_needs(image) for image in plan.images} if plan else {},
    )
    return Examination(findings=findings(subject), plan=plan, refusal=refusal)


def findings(subject: Subject, checks: Iterable[Check] = CHECKS) -> tuple[Finding, ...]:
    """What each of `checks` finds; one whose answer follows from an earlier one is skipped."""
    found: list[Finding] = []
    ended: list[tuple[Finding, str]] = []
    for check in checks:
        end = next((end for end in ended if _explains(end[0], check)), None)
        if end is not None:
            found.append(_skipped(check, *end))
            continue
        verdict = check.look(subject)
        finding = _finding(check, verdict)
        found.append(finding)
        if verdict.rest or finding.status is Status.FAIL:
            ended.append((finding, verdict.rest))
    return tuple(found)


def _explains(earlier: Finding, check: Check) -> bool:
    """True when what `check` would find follows from `earlier`."""
    if earlier.status is Status.FAIL and needs_all_below(check):
        return True
    return earlier.layer in chain_of(check.layer)


def _skipped(check: Check, cause: Finding, rest: str) -> Finding:
    reason = rest or cause.evidence
    return Finding(
        id=check.id, layer=check.layer, status=Status.SKIPPED, reason=reason, because=cause.id
    )


def _finding(check: Check, verdict: Verdict) -> Finding:
    failed = verdict.status is Status.FAIL
    return Finding(
        id=check.id,
        layer=check.layer,
        status=verdict.status,
        evidence=verdict.evidence,
        reason=verdict.reason,
        fix=verdict.fix,
        exit_code=int(check.exit_code) if failed else 0,
    )
