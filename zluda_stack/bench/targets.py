"""What can be measured: a profile brought up for it, a stack that runs, a server elsewhere."""

from __future__ import annotations

import hashlib
import http.client
import ssl
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import structs

from zluda_stack import keys
from zluda_stack.bench import load, watching
from zluda_stack.bench.load import TIMEOUT_SECONDS, JsonObject, Server
from zluda_stack.bench.measure import Opened
from zluda_stack.bench.saved import TargetFacts
from zluda_stack.bench.watching import Gauge
from zluda_stack.engines import engine_for, engine_of, saved_plan
from zluda_stack.engines.base import Engine, State
from zluda_stack.engines.common import never_started, undisturbed
from zluda_stack.errors import EngineFailure, HostProblem, StackError, UsageError
from zluda_stack.plan.profiles import traits
from zluda_stack.plan.types import EndpointPlan, Plan
from zluda_stack.program import command
from zluda_stack.progress import Progress
from zluda_stack.tls import LocalConnection
from zluda_stack.verify.first_completion import read_log

_LOG_LINES = 200_000
_SERVER = "inference"
# What servers know beside OpenAI's fields, by what they say of themselves in /v1/models.
_KNOWN_BY: dict[str, Callable[[bool], JsonObject]] = {
    "llamacpp": lambda cached: {"ignore_eos": True, "cache_prompt": cached},
    "vllm": lambda _: {"ignore_eos": True},
}


class ProfileTarget:
    """A stack of its own for a plan that this machine can carry out."""

    def __init__(self, name: str, plan: Plan, sha256: str | None, *, cached: bool) -> None:
        self.name = name
        self.plan = plan
        self.cards = frozenset(gpu.pci or gpu.target for gpu in plan.gpus)
        self._sha256 = sha256
        self._cached = cached
        self._engine = engine_for(plan.engine)

    def open(self, progress: Progress) -> Opened:
        """Bring the stack up. Raises HostProblem when one of its name runs already."""
        stack = self.plan.name
        if engine_of(stack).status(stack).state is not State.STOPPED:
            raise HostProblem(
                f"a stack {stack} runs already, perhaps of another bench",
                f"`{command('down', stack)}` stops it.",
            )
        try:
            self._engine.up(self.plan, progress)
            return _opened(
                self.name, "profile", self.plan, self._engine, self._sha256, cached=self._cached
            )
        except BaseException:
            self.close(progress)
            raise

    def close(self, progress: Progress) -> None:
        """Take the stack down. Its key, the model and volumes stay, as with `down`."""
        with undisturbed():
            self._engine.down(self.plan.name, progress)


class RocprofTarget(ProfileTarget):
    """A stack whose servers run under rocprofv3; what it counts comes into a folder.

    `plan` is one by `plan.rocprof.with_rocprof`. Each time that the stack was up has a folder of
    its own there.
    """

    def __init__(
        self, name: str, plan: Plan, sha256: str | None, folder: Path, *, cached: bool
    ) -> None:
        super().__init__(name, plan, sha256, cached=cached)
        self.folder = folder
        self._times = 0
        self._is_open = False

    def open(self, progress: Progress) -> Opened:
        """Bring the stack up. Raises as that of every profile does."""
        opened = super().open(progress)
        self._is_open = True
        return replace(opened, facts=structs.replace(opened.facts, rocprof=True))

    def close(self, progress: Progress) -> None:
        """End the servers, copy what was counted, and take the stack down.

        What cannot be copied or removed is said, and does no harm to what was measured.
        """
        from zluda_stack.engines.docker import rocprof

        with undisturbed():
            try:
                if self._is_open:
                    self._is_open = False
                    self._times += 1
                    rocprof.take(self.plan, self.folder / str(self._times), progress)
            except StackError as failure:
                progress.step(f"{self.name}: what was counted is lost: {failure.message}")
            finally:
                super().close(progress)
            try:
                rocprof.forget(self.plan)
            except StackError as failure:
                progress.step(f"{self.name}: a volume of rocprofv3 stays: {failure.message}")


class StackTarget:
    """A stack that runs, and is left running."""

    def __init__(self, name: str, stack: str, *, cached: bool) -> None:
        plan = saved_plan(stack)
        if plan is None:
            raise never_started(stack)
        self.name = name
        self.plan = plan
        self.cards: frozenset[str] = frozenset()
        self._cached = cached

    def open(self, progress: Progress) -> Opened:  # noqa: ARG002 -- as every target
        """The stack as it is. Raises EngineFailure unless it answers."""
        stack = self.plan.name
        engine = engine_of(stack)
        if not engine.status(stack).healthy:
            raise EngineFailure(
                f"the stack {stack} does not answer", f"`{command('up', stack)}` starts it."
            )
        catalogued = self.plan.model.catalogued
        sha256 = None if catalogued is None else catalogued.sha256
        return _opened(self.name, "stack", self.plan, engine, sha256, cached=self._cached)

    def close(self, progress: Progress) -> None:
        """Nothing was started."""


class RemoteTarget:
    """Any server that speaks OpenAI's API. Its address is saved nowhere.

    Raises UsageError for a URL that is none, or holds a password.
    """

    def __init__(
        self, name: str, url: str, key: str | None, model: str | None, *, cached: bool
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{url} is no URL of a server", "Give one as http://HOST:PORT.")
        if parts.username or parts.password:
            raise UsageError(
                "a URL with a password in it is seen by all users of this machine",
                "Give the key by --key-env or --key-file.",
            )
        self.name = name
        self.cards: frozenset[str] = frozenset()
        self._connect = _connector(parts.scheme, parts.hostname, parts.port)
        self._path = parts.path.rstrip("/").removesuffix("/v1")
        self._key = key
        self._model = model
        self._cached = cached

    def open(self, progress: Progress) -> Opened:  # noqa: ARG002 -- as every target
        """Look what it serves. Raises EngineFailure."""
        server = Server(self._connect, self._model or "", self._path, self._key)
        try:
            listed = load.look(server, "/v1/models")["data"]
            entries = [(str(one["id"]), str(one.get("owned_by", ""))) for one in listed]
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            raise EngineFailure(
                f"{self.name} does not say which models it serves: {error}",
                "Check the URL and the key; it must answer GET /v1/models.",
            ) from error
        model, owner = self._choice(entries)
        knows = _KNOWN_BY.get(owner)
        extra = {} if knows is None else knows(self._cached)
        facts = TargetFacts(name=self.name, kind="remote", model=model)
        return Opened(Server(self._connect, model, self._path, self._key, extra), facts)

    def close(self, progress: Progress) -> None:
        """Nothing was started."""

    def _choice(self, entries: list[tuple[str, str]]) -> tuple[str, str]:
        """The model to ask, and who serves it by its own word."""
        names = [name for name, _ in entries]
        if self._model is None and len(entries) != 1:
            raise EngineFailure(
                f"{self.name} serves {len(entries)} models", "Name one with --remote-model."
            )
        if self._model is None:
            return entries[0]
        if self._model in names:
            return entries[names.index(self._model)]
        return self._model, entries[0][1] if entries else ""


def _connector(
    scheme: str, host: str, port: int | None
) -> Callable[[], http.client.HTTPConnection]:
    if scheme == "http":
        return partial(http.client.HTTPConnection, host, port, timeout=TIMEOUT_SECONDS)
    trust = ssl.create_default_context()
    return partial(http.client.HTTPSConnection, host, port, timeout=TIMEOUT_SECONDS, context=trust)


def _opened(
    name: str,
    kind: str,
    plan: Plan,
    engine: Engine,
    sha256: str | None,
    *,
    cached: bool,
) -> Opened:
    """The running stack of `plan`. Raises EngineFailure for a GPU's that computes on the CPU."""
    status = engine.status(plan.name)
    device = _device(plan, engine) or status.device
    extra = {} if traits(plan.profile).has_page else _KNOWN_BY["llamacpp"](cached)
    server = Server(
        connect=_local(plan.endpoint),
        model=plan.model.name,
        key=keys.ensure_key(plan.name),
        extra=extra,
    )
    facts = TargetFacts(
        name=name,
        kind="profile" if kind == "profile" else "stack",
        profile=plan.profile if plan.gpus else "cpu",
        engine=plan.engine,
        device=device,
        model=plan.model.name,
        model_sha256=sha256,
        context=plan.model.context,
        slots=_slots(server),
        plan_hash=plan_hash(plan),
        versions=_versions(plan),
    )
    return Opened(server, facts, _gauges(plan, engine))


def _local(endpoint: EndpointPlan) -> Callable[[], http.client.HTTPConnection]:
    return partial(LocalConnection, endpoint, TIMEOUT_SECONDS)


def plan_hash(plan: Plan) -> str:
    """The SHA-256 of what in `plan` has an effect on speed: not its name, port or words."""
    endpoint = structs.replace(plan.endpoint, bind="", port=0, host="", name=None)
    model = structs.replace(plan.model, path=None)
    bare = structs.replace(
        plan,
        name="",
        headline="",
        endpoint=endpoint,
        model=model,
        skipped=(),
        decisions=(),
        warnings=(),
        unmet=(),
        host_environment={},
    )
    return hashlib.sha256(msgspec.json.encode(bare, order="sorted")).hexdigest()


def _device(plan: Plan, engine: Engine) -> str | None:
    """The card that the servers' logs name, of a stack that was planned for one."""
    if not plan.gpus or traits(plan.profile).has_page:
        return None
    for service in plan.services:
        if service.devices or service.runtime:
            computing = read_log(engine.logs(plan.name, service.name, _LOG_LINES, follow=False))
            if not computing.on_gpu:
                raise EngineFailure(
                    f"{service.name} of {plan.name} does not compute on the card, as its log says",
                    "`zluda-stack doctor` checks the card.",
                )
            return computing.device
    return None


def _slots(server: Server) -> int | None:
    """How many requests the model server computes at once; None when it does not say."""
    try:
        slots = load.look(server, "/props").get("total_slots")
    except (OSError, http.client.HTTPException, ValueError):
        return None
    return slots if isinstance(slots, int) else None


def _versions(plan: Plan) -> dict[str, str]:
    """The versions of what serves the model."""
    if plan.engine == "embedded":
        return {"xllamacpp": metadata.version("xllamacpp")}
    parts = (image.components for image in plan.images if image.name != "endpoint")
    return {name: one.version for components in parts for name, one in components.items()}


def _gauges(plan: Plan, engine: Engine) -> dict[str, Gauge]:
    """What can be read of a stack: memory of its model servers, and of its cards."""
    cards = tuple(gpu.pci for gpu in plan.gpus if gpu.pci is not None)
    services = engine.status(plan.name).services
    servers = (one.pid for one in services if one.name.startswith(_SERVER))
    pids = tuple(pid for pid in servers if pid is not None and watching.is_server(pid))
    found: dict[str, Gauge] = {"memory": partial(watching.resident, pids)} if pids else {}
    if cards:
        found["card_memory"] = partial(watching.card_memory, cards)
        found["watts"] = partial(watching.card_power, cards)
    return found
