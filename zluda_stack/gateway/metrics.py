"""What Prometheus can read of the endpoint. No prompt, no key and no path of a stranger's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from zluda_stack.gateway import routes
from zluda_stack.gateway.exchange import Exchange
from zluda_stack.gateway.pool import Pool
from zluda_stack.gateway.server import State
from zluda_stack.keyring import NAMELESS, NO_KEY, Key

METRICS = "/metrics"
CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4.encode()

_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """Counts what is answered, and shows how the pool is when it is asked."""

    def __init__(self, pool: Pool) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "zluda_stack_requests",
            "Requests by what became of them.",
            ("route", "status", "key"),
            registry=registry,
        )
        self._aborts = Counter(
            "zluda_stack_aborts",
            "Requests that their client left before the end.",
            ("key",),
            registry=registry,
        )
        self._tokens = Counter(
            "zluda_stack_tokens",
            "Tokens of prompts, computed and cached, and of answers.",
            ("kind", "key"),
            registry=registry,
        )
        self._wait = Histogram(
            "zluda_stack_queue_wait_seconds",
            "Time in the queue.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._first = Histogram(
            "zluda_stack_time_to_first_token_seconds",
            "Time from the request to the first token of a stream, with that in the queue.",
            buckets=_SECONDS,
            registry=registry,
        )
        # prometheus_client finds a series anew at each call, under a lock.
        self._request = cache(self._requests.labels)
        self._token = cache(self._tokens.labels)
        registry.register(_PoolCollector(pool))
        ProcessCollector(registry=registry)

    def count(self, exchange: Exchange) -> None:
        """Count a request that is over."""
        work, key = exchange.work, _key(exchange)
        route = routes.label(exchange.path)
        self._request(route, exchange.status or "none", key).inc()
        if work.server is None:
            return
        self._wait.observe(work.waited)
        if work.first_token is not None:
            self._first.observe(work.first_token)
        self._token("computed", key).inc(work.usage.computed)
        self._token("cached", key).inc(work.usage.cached)
        self._token("generated", key).inc(work.usage.generated)

    def count_abort(self, exchange: Exchange) -> None:
        """Count a client that left."""
        self._aborts.labels(_key(exchange)).inc()

    def exposition(self, key: Key) -> bytes:
        """What the owner of `key` may know, in the text format of CONTENT_TYPE.

        That is everything for the stack's own key, and what was counted for itself for another.
        """
        if key.name == NAMELESS:
            return generate_latest(self._registry)
        return generate_latest(_OfOneKey(self._registry, key.name))


def _key(exchange: Exchange) -> str:
    return NO_KEY if exchange.key is None else exchange.key.name


class _OfOneKey(Collector):
    """The series of a registry that carry the name of one key."""

    def __init__(self, registry: CollectorRegistry, name: str) -> None:
        self._registry = registry
        self._name = name

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            own = [one for one in family.samples if one.labels.get("key") == self._name]
            if own:
                kept = Metric(family.name, family.documentation, family.type, family.unit)
                kept.samples = own
                yield kept


class _PoolCollector:
    """The servers and the queue as they are in this moment."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "zluda_stack_queue_length",
            "Requests that wait for a place.",
            value=self._pool.admission.waiting,
        )
        running = GaugeMetricFamily(
            "zluda_stack_running", "Requests that a server computes.", labels=("server",)
        )
        slots = GaugeMetricFamily(
            "zluda_stack_slots", "Requests that it computes at once.", labels=("server",)
        )
        up = GaugeMetricFamily(
            "zluda_stack_server_up", "1 when it was well at the last look.", labels=("server",)
        )
        for server in self._pool.servers:
            running.add_metric((server.name,), server.running)
            up.add_metric((server.name,), float(server.state is State.READY))
            if server.slots is not None:
                slots.add_metric((server.name,), server.slots)
        yield from (running, slots, up)
