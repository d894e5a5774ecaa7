"""What a plan changes of the one that a stack was started with, as its user would say it."""

from __future__ import annotations

from msgspec import Struct

from zluda_stack.plan.types import Plan, Tls


class Change(Struct, frozen=True, kw_only=True):
    """One thing that is other than it was; `lost` is the setting that is not set any more."""

    what: str
    before: str
    after: str
    lost: str | None = None

    def __str__(self) -> str:
        lost = "" if self.lost is None else f" ({self.lost} is not set any more)"
        return f"{self.what} {self.before} -> {self.after}{lost}"


def changes(before: Plan, after: Plan) -> tuple[Change, ...]:
    """What a user notices when `after` takes the place of `before`; empty for the same stack."""
    was, becomes = _told(before), _told(after)
    lost = _no_longer_set(before, after)
    return tuple(
        Change(what=what, before=was[what], after=becomes[what], lost=lost.get(what))
        for what in was
        if was[what] != becomes.get(what, was[what])
    )


def loses_tls(before: Plan, after: Plan) -> bool:
    """True when keys and prompts were encrypted on their way, and would be no longer."""
    return before.endpoint.tls is not None and after.endpoint.tls is None


def _told(plan: Plan) -> dict[str, str]:
    endpoint = plan.endpoint
    # Stacks that were started before plans said it have none.
    combination = {} if plan.combination is None else {"combination": plan.combination}
    return combination | {
        "endpoint": endpoint.url,
        "certificate": _files(endpoint.tls),
        "listening at": endpoint.bind,
        "prompts on disk": "yes" if endpoint.capture else "no",
        "web pages": ", ".join(endpoint.origins) or "none",
        "queue": str(endpoint.queue or "the endpoint's own"),
        "slots": str(endpoint.slots or "those of the server"),
        "profile": plan.profile,
        "page": "none" if plan.page is None else plan.page.url,
        "login of the page": (None if plan.page is None else plan.page.login) or "none",
        "model": ", ".join(model.path or model.name for model in plan.models),
        "context": ", ".join(f"{model.context} tokens" for model in plan.models),
        "cards": ", ".join(gpu.render_node or gpu.target for gpu in plan.gpus) or "none",
        "threads": str(plan.threads or "the server's own"),
    }


def _has_login(plan: Plan) -> bool:
    return plan.page is not None and plan.page.login is not None


def _files(tls: Tls | None) -> str:
    return "none" if tls is None else f"{tls.certificate} with {tls.key}"


def _no_longer_set(before: Plan, after: Plan) -> dict[str, str]:
    """By what changes: the setting that made it so, where only leaving that out can undo it."""
    was, becomes = before.endpoint, after.endpoint
    gone = {
        "endpoint": ("tls_cert", loses_tls(before, after)),
        "prompts on disk": ("capture_prompts", was.capture and not becomes.capture),
        "web pages": ("allow_origins", bool(was.origins) and not becomes.origins),
        "queue": ("queue", was.queue is not None and becomes.queue is None),
        "slots": ("slots", was.slots is not None and becomes.slots is None),
        "login of the page": ("webui_login", _has_login(before) and not _has_login(after)),
    }
    return {what: setting for what, (setting, is_gone) in gone.items() if is_gone}
