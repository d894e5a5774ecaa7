"""What clients do with every error of the endpoint: tries, seconds and what they tell.

`python -m benchmarks.endpoint_errors CLAUDE [NAME...]` plays every situation (or those named) to
the Claude Code program at the path CLAUDE and to the two official packages, all situations at
once: the clients mostly wait. Some take ten minutes.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests import client_errors
from tests.client_errors import SITUATIONS, Seen, Situation, asked_by
from tests.running_gateway import RunningGateway

Ask = Callable[[RunningGateway, str], str]

_LONGEST = 400.0


def seen(name: str, program: Path) -> list[str]:
    """The lines for one situation."""
    with tempfile.TemporaryDirectory() as folder:
        rows = list(_clients(SITUATIONS[name], program, Path(folder)))
    lines = [f"{name}: {SITUATIONS[name].title}"]
    for client, what in rows:
        told = " ".join(what.told.split())[:160]
        lines.append(f"  {client:<18} {what.tries:>3} tries {what.seconds:>6.1f} s  {told}")
    return lines


def _clients(situation: Situation, program: Path, folder: Path) -> Iterator[tuple[str, Seen]]:
    asks: dict[str, Ask] = {
        "anthropic, stream": partial(client_errors.of_anthropic, streaming=True),
        "openai, stream": partial(client_errors.of_openai, streaming=True),
        "Claude Code": partial(
            client_errors.of_claude_code, program=program, home=folder / "home", timeout=_LONGEST
        ),
    }
    if not situation.ends_well:
        asks["anthropic, whole"] = partial(client_errors.of_anthropic, streaming=False)
        asks["openai, whole"] = partial(client_errors.of_openai, streaming=False)
    for number, (client, ask) in enumerate(asks.items()):
        apart = folder / str(number)
        apart.mkdir()
        with client_errors.played(situation, apart) as gateway:
            yield client, asked_by(gateway, partial(ask, gateway, situation.key), _LONGEST)


def main(arguments: list[str]) -> None:
    """Print the table."""
    program, names = Path(arguments[0]), arguments[1:] or list(SITUATIONS)
    with ThreadPoolExecutor(len(names)) as pool:
        for lines in pool.map(lambda name: seen(name, program), names):
            print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
