"""The targets of `bench` as this run's settings and this machine have them."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from zluda_stack.cli import context, download, output
from zluda_stack.errors import HostProblem, PlanRefused, StackError, UsageError

if TYPE_CHECKING:
    import click

    from zluda_stack.bench.measure import Target
    from zluda_stack.bench.saved import NotMeasured
    from zluda_stack.bench.wishes import Wish
    from zluda_stack.plan.types import Plan

_CPU = "`zluda-stack bench cpu` measures the CPU."


@dataclass(frozen=True)
class Remote:
    """What a URL is asked with: the model, and where its key is."""

    model: str | None
    key_env: str | None
    key_file: str | None

    def key(self) -> str | None:
        """The key; None without one. Raises UsageError, HostProblem."""
        if self.key_env is not None and self.key_file is not None:
            raise UsageError("--key-env and --key-file both name a key", "Leave one of them out.")
        if self.key_env is not None:
            found = os.environ.get(self.key_env, "").strip()
            if not found:
                raise UsageError(f"the variable {self.key_env} is not set", "Set it to the key.")
            return found
        if self.key_file is None:
            return None
        try:
            return Path(self.key_file).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise HostProblem(
                f"cannot read the key in {self.key_file}", "It is one line of text."
            ) from error


@dataclass(frozen=True)
class How:
    """How targets are measured: `counting` is where rocprofv3 counts kernels, None without it."""

    remote: Remote
    cached: bool
    counting: Path | None


def find(
    ctx: click.Context, flags: dict[str, object], words: tuple[str, ...], how: How
) -> tuple[list[Target], list[NotMeasured]]:
    """The targets that can be measured here, and those that cannot, with the reason.

    All profiles serve the model of the first, unless the settings name one. Raises UsageError.
    """
    from zluda_stack.bench.saved import NotMeasured
    from zluda_stack.bench.wishes import CPU, DEFAULT, parse

    on_cards = tuple(word for word in DEFAULT if word != CPU)
    wishes = parse(words or (DEFAULT if how.counting is None else on_cards))
    _require_one_owner_of_key(wishes, how.remote)
    if how.counting is not None:
        _require_to_be_started(wishes)
    found: list[Target] = []
    refused = []
    first: Plan | None = None
    for wish in wishes:
        try:
            target = _target(ctx, flags, wish, first, how)
        except UsageError:
            raise
        except StackError as error:
            lack = NotMeasured(target=wish.name, reason=error.message, hint=error.hint or "")
            refused.append(lack)
            continue
        found.append(target)
        first = first or plan_of(target)
    return found, refused


def plan_of(target: Target) -> Plan | None:
    """The plan of a target that is a stack of this machine."""
    plan: Plan | None = getattr(target, "plan", None)
    return plan


def plan_to_start(target: Target) -> Plan | None:
    """The plan of a target that is brought up for the bench; None for one that is up."""
    from zluda_stack.bench.targets import ProfileTarget

    return target.plan if isinstance(target, ProfileTarget) else None


def about(target: Target) -> str:
    """What it is, in words."""
    from zluda_stack.bench.targets import ProfileTarget

    plan = plan_of(target)
    if plan is None:
        return "a server at a URL"
    if not isinstance(target, ProfileTarget):
        return f"the running stack {plan.name}, which is left running"
    return f"the stack {plan.name}, with {plan.model.name}. {plan.headline}"


def commands(target: Target) -> tuple[tuple[str, ...], ...]:
    """The commands that bring it up; none for one that is up."""
    from zluda_stack.engines import engine_for

    plan = plan_to_start(target)
    return () if plan is None else engine_for(plan.engine).commands(plan)


def agree(ctx: click.Context, targets: list[Target], *, yes: bool, show: bool) -> None:
    """Say what is brought up and what that takes, and have the user agree to much."""
    from zluda_stack.bench.targets import ProfileTarget
    from zluda_stack.cli.stack import agree_to_build
    from zluda_stack.engines import claims

    for target in targets:
        if isinstance(target, ProfileTarget):
            (output.say if show else output.note)(f"{target.name}: {target.plan.headline}")
            ctx.with_resource(claims.claim(target.plan.name, target.plan.endpoint.port))
            download.agree(target.plan, yes=yes, show=show)
            agree_to_build(target.plan, yes=yes, show=show)


def _require_one_owner_of_key(wishes: tuple[Wish, ...], remote: Remote) -> None:
    """Raises UsageError where a key would go to several hosts, of which one only may have it."""
    hosts = {urlsplit(wish.value).netloc for wish in wishes if wish.kind == "remote"}
    given = remote.key_env is not None or remote.key_file is not None
    if given and len(hosts) != 1:
        raise UsageError(
            f"a key is given, and {len(hosts)} servers of URLs could get it",
            "Measure servers that need a key one by one, with --out, and --compare the files.",
        )


def _require_to_be_started(wishes: tuple[Wish, ...]) -> None:
    """Raises UsageError for a server that runs already, which rocprofv3 counts nothing of."""
    for wish in wishes:
        if wish.kind != "profile":
            raise UsageError(
                f"--rocprof starts the servers that it counts, and {wish.name} runs already",
                "Give it profiles: translated, native.",
            )


def _target(
    ctx: click.Context, flags: dict[str, object], wish: Wish, first: Plan | None, how: How
) -> Target:
    from zluda_stack.bench.targets import ProfileTarget, RemoteTarget, RocprofTarget, StackTarget

    remote, cached = how.remote, how.cached
    if wish.kind == "remote":
        return RemoteTarget(wish.name, wish.value, remote.key(), remote.model, cached=cached)
    if wish.kind == "stack":
        return StackTarget(wish.name, wish.value, cached=cached)
    if how.counting is not None:
        _require_countable(ctx, flags, wish)
    plan = _plan(ctx, flags, wish, first)
    if how.counting is None:
        return ProfileTarget(wish.name, plan, _sha256(plan), cached=cached)
    from zluda_stack.plan.rocprof import with_rocprof

    folder = how.counting / wish.name
    return RocprofTarget(wish.name, with_rocprof(plan), _sha256(plan), folder, cached=cached)


def _require_countable(ctx: click.Context, flags: dict[str, object], wish: Wish) -> None:
    """Raises PlanRefused for what --rocprof counts on no machine, before what this one lacks."""
    from zluda_stack.bench.wishes import CPU
    from zluda_stack.plan.rocprof import require_countable
    from zluda_stack.plan.variant import choose_bases

    if wish.value == CPU:
        return  # its plan says it
    settings = context.configured(ctx, flags | {"profile": wish.value}).settings
    bases = choose_bases(context.catalog(), settings.variant, settings.base)
    require_countable(settings.profile, bases.variant)


def _plan(ctx: click.Context, flags: dict[str, object], wish: Wish, first: Plan | None) -> Plan:
    """The plan of a profile, under a name and on a port of its own.

    Raises PlanRefused, HostProblem for what this machine lacks.
    """
    from zluda_stack.bench.wishes import CPU
    from zluda_stack.cli.plan import resolve
    from zluda_stack.plan.gpu_reach import without_cpu_way
    from zluda_stack.plan.resolve import require_runnable

    on_cpu = wish.value == CPU
    own = {"gpu": "none"} if on_cpu else {"profile": wish.value}
    own |= {"name": f"bench-{wish.name}", "port": str(_free_port())}
    try:
        plan = resolve(ctx, _same_model(ctx, flags, first) | own)
        if not on_cpu and not plan.gpus:
            raise HostProblem(f"there is no card to compute on. {plan.headline}", _CPU)
        require_runnable(plan)
    except (PlanRefused, HostProblem) as lack:
        raise type(lack)(lack.message, without_cpu_way(lack.hint, "" if on_cpu else _CPU)) from lack
    return plan


def _same_model(
    ctx: click.Context, flags: dict[str, object], first: Plan | None
) -> dict[str, object]:
    """`flags`, with the model and the context of `first` unless the settings name a model."""
    if first is None or context.configured(ctx, flags).given("model"):
        return flags
    model = first.model
    return flags | {"model": model.path or model.name, "context": str(model.context)}


def _sha256(plan: Plan) -> str | None:
    """The hash of the model, as the catalogue pins it, or of the user's file."""
    if plan.model.catalogued is not None:
        return plan.model.catalogued.sha256
    if plan.model.path is None:
        return None
    from zluda_stack.models.digest import sha256_of
    from zluda_stack.progress import Silent

    return sha256_of(Path(plan.model.path), Silent())


def _free_port() -> int:
    """A TCP port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
