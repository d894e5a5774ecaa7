"""`python -m benchmarks.gateways [--tools FOLDER] [--model GGUF] [NAME...]`: the gateways compared.

FOLDER keeps what is fetched (a scratch one without). All run in one go and in turn, so that all
meet the same moments of the machine; its load is told with the result. With a model, tokens a
second are measured with llama.cpp's own server too, which takes all that the gateways leave it.
The names "bare" and "asgi" are no gateways, but the least that one in Python costs: see floor.py.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.gateways import candidates, load
from benchmarks.gateways.candidates import KEY, Running, free_port
from benchmarks.gateways.load import Target
from benchmarks.gateways.model_server import IDLE

_ROUNDS = 100
_WARM_UP = 50
_IDLE_LOOK_SECONDS = 3.0
_SIZES = {"small": 300, "48 kB": 48_000}
_STREAMS = 64
_TOKENS = 100
_REAL_TOKENS = 30  # few answers of the small model are shorter
_INTERVAL = 0.06  # 64 streams then get about 1,000 tokens a second, as from a good card
_IDLE_STREAMS = 500
_IDLE_SECONDS = 25.0  # two pings of the endpoint
_NEVER = 10.0

Row = dict[str, float | str]


@contextmanager
def server(module: str, *arguments: object) -> Iterator[int]:
    """The port of a model server that runs as a process of its own, and answers already."""
    port = free_port()
    command = [sys.executable, "-m", f"benchmarks.gateways.{module}", str(port)]
    process = subprocess.Popen([*command, *map(str, arguments)], stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None and not _is_well(port):
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait()


def _is_well(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


async def one_by_one(running: dict[str, Running], rows: dict[str, Row]) -> None:
    """Medians of single requests with an answer of one token, and CPU time for each.

    What a gateway does without a request, such as timers and looks at the server, is measured
    before and not counted: beside a slow one, more of it falls into each round.
    """
    idle = await _idle(running)
    for label, size in _SIZES.items():
        content = load.body(size, 1)
        await _in_turn(running, content, _WARM_UP)
        before, began = _spent(running), time.monotonic()
        took = await _in_turn(running, content, _ROUNDS)
        lasted = time.monotonic() - began
        for name, spent in _spent(running).items():
            pairs = zip(took[name], took["direct"], strict=True)
            added = statistics.median(mine - its for mine, its in pairs)
            cost = spent - before[name] - idle[name] * lasted
            rows[name][f"added, {label} (ms)"] = added * 1000
            rows[name][f"CPU, {label} (ms)"] = cost / _ROUNDS * 1000


async def _in_turn(
    running: dict[str, Running], content: bytes, rounds: int
) -> dict[str, list[float]]:
    """Seconds of each request by name; in each round all are asked, in another order."""
    took: dict[str, list[float]] = {name: [] for name in running}
    for _ in range(rounds):
        for name in random.sample(list(running), len(running)):
            took[name].append((await load.ask(running[name].target, content)).total)
    return took


def _spent(running: dict[str, Running]) -> dict[str, float]:
    return {name: one.cpu() for name, one in running.items()}


async def _idle(running: dict[str, Running]) -> dict[str, float]:
    """Seconds of CPU time that each takes in a second without requests."""
    before = _spent(running)
    await asyncio.sleep(_IDLE_LOOK_SECONDS)
    after = _spent(running)
    return {name: (after[name] - before[name]) / _IDLE_LOOK_SECONDS for name in running}


async def at_once(running: dict[str, Running], rows: dict[str, Row]) -> None:
    """Tokens a second of many streams at once, as a share of the server's own."""
    for label, size in _SIZES.items():
        content = load.body(size, _TOKENS)
        rates: dict[str, list[float]] = {name: [] for name in running}
        for _ in range(3):
            for name, one in running.items():
                rates[name].append(await load.together(one.target, _STREAMS, content))
        for name, share in _shares(rates).items():
            rows[name][f"tokens/s at {_STREAMS}, {label} (%)"] = share


def _shares(rates: dict[str, list[float]]) -> dict[str, float]:
    """The median of each in percent of that of the server itself."""
    direct = statistics.median(rates["direct"])
    return {name: statistics.median(found) / direct * 100 for name, found in rates.items()}


async def leaving(upstream: int, running: dict[str, Running], rows: dict[str, Row]) -> None:
    """Seconds until the server learns that a client left."""
    for label, stream in (("stream", True), ("whole", False)):
        content = load.body(300, IDLE, stream=stream)
        for name, one in running.items():
            known = len(_aborts(upstream))
            left = await load.abandon(one.target, content, 1.5)
            rows[name][f"abort, {label} (s)"] = await _seen(upstream, known, left)


async def _seen(upstream: int, known: int, left: float) -> float | str:
    while time.monotonic() < left + _NEVER:
        aborts = await asyncio.to_thread(_aborts, upstream)
        if len(aborts) > known:
            return aborts[known] - left
        await asyncio.sleep(0.05)
    return "never"


def _aborts(upstream: int) -> list[float]:
    connection = http.client.HTTPConnection("127.0.0.1", upstream)
    connection.request("GET", "/aborts")
    found: list[float] = json.loads(connection.getresponse().read())["aborts"]
    connection.close()
    return found


async def idling(running: dict[str, Running], rows: dict[str, Row]) -> None:
    """Streams that wait: how many are open at the end, and how many got a sign of life."""
    content = load.body(300, IDLE)
    for name, one in running.items():
        still, alive = await load.held(one.target, _IDLE_STREAMS, content, _IDLE_SECONDS)
        rows[name][f"held of {_IDLE_STREAMS}"] = still
        rows[name]["of these with pings"] = alive
        rows[name]["memory with them (MB)"] = one.memory()


@contextmanager
def before(upstream: int, tools: Path, names: list[str]) -> Iterator[dict[str, Running]]:
    """Every gateway, or those of `names`, before the server at `upstream`; "direct" is itself."""
    running = {"direct": Running(Target(upstream, KEY), None)}
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        for candidate in candidates.fetched(tools, names):
            own = Path(scratch) / candidate.name
            serving = candidates.serving(candidate, tools, own, upstream)
            running[candidate.name] = stack.enter_context(serving)
        yield running


def scripted(tools: Path, names: list[str]) -> dict[str, Row]:
    """A row for each gateway by its name, before the scripted server."""
    with server("model_server", _INTERVAL) as port, before(port, tools, names) as running:
        rows: dict[str, Row] = {name: {} for name in running}
        asyncio.run(one_by_one(running, rows))
        asyncio.run(at_once(running, rows))
        for name, one in running.items():
            rows[name]["memory (MB)"] = one.memory()
        asyncio.run(leaving(port, running, rows))
        asyncio.run(idling(running, rows))
    return rows


def real(model: Path, tools: Path, names: list[str]) -> dict[str, float]:
    """Tokens a second of many streams with llama.cpp's server, in percent, by gateway."""
    content = load.body(_SIZES["small"], _REAL_TOKENS)
    with server("llama_server", model, _STREAMS) as port, before(port, tools, names) as running:
        rates: dict[str, list[float]] = {name: [] for name in running}
        for _ in range(3):
            for name, one in running.items():
                rates[name].append(asyncio.run(load.together(one.target, _STREAMS, content)))
    return _shares(rates)


def table(rows: dict[str, Row]) -> str:
    """The rows as a table in Markdown, a gateway in each column."""
    lines = ["| | " + " | ".join(rows) + " |", "|---|" + "---|" * len(rows)]
    for what in rows["direct"]:
        cells = (_cell(row[what]) for row in rows.values())
        lines.append(f"| {what} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) else f"{value:.1f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.gateways")
    parser.add_argument("--tools", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        tools = (options.tools or Path(scratch)).absolute()
        busy = os.getloadavg()[0]
        rows = scripted(tools, options.names)
        if options.model is not None:
            for name, share in real(options.model, tools, options.names).items():
                rows[name][f"tokens/s at {_STREAMS}, llama.cpp (%)"] = share
    print(table(rows))
    print(f"\nload of the machine before: {busy:.1f}; {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
