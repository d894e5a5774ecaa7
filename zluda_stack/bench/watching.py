"""What a target takes while it is asked: memory, and the power of its cards.

Power is `power1_average` (or `power1_input`, which newer cards have in its place) of the card's
hwmon folder in microwatts, and its memory `mem_info_vram_used` in bytes: both of the amdgpu driver
(drivers/gpu/drm/amd/pm/amdgpu_pm.c of Linux has the first two, amdgpu_vram_mgr.c the third).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType

from zluda_stack.bench.saved import Watched
from zluda_stack.host import reading

Gauge = Callable[[], float | None]
"""Reads one number now; None where nothing tells it."""

_SECONDS_BETWEEN = 0.5
_MICRO = 1e-6
_RESIDENT = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)
_SERVERS = ("llama-server", "zluda_stack.engines.embedded")
_POWER = ("power1_average", "power1_input")


def resident(pids: tuple[int, ...], proc: Path = Path("/proc")) -> float | None:
    """The bytes of these processes in memory, pages of files included, as a model's are."""
    found = [_RESIDENT.search(reading.text(proc / str(pid) / "status")) for pid in pids]
    known = [int(one[1]) * 1024 for one in found if one is not None]
    return float(sum(known)) if known else None


def is_server(pid: int, proc: Path = Path("/proc")) -> bool:
    """True for a model server: the engine of another machine tells pids that are not ours."""
    words = reading.text(proc / str(pid) / "cmdline")
    return any(name in words for name in _SERVERS)


def card_memory(cards: tuple[str, ...], sys: Path = Path("/sys")) -> float | None:
    """The bytes of memory in use on these cards, by PCI address; also what others use."""
    return _sum(_number(_device(sys, card) / "mem_info_vram_used") for card in cards)


def card_power(cards: tuple[str, ...], sys: Path = Path("/sys")) -> float | None:
    """The watts that these cards draw, by PCI address."""
    found = _sum(_power(_device(sys, card)) for card in cards)
    return None if found is None else found * _MICRO


class Watch:
    """Reads `gauges` (memory, card_memory, watts) twice a second as long as it is entered."""

    def __init__(self, gauges: Mapping[str, Gauge]) -> None:
        self._gauges = gauges
        self._seen: dict[str, list[float]] = {name: [] for name in gauges}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Read no more."""
        self._over.set()
        self._thread.join()

    def told(self, target: str, visit: int) -> Watched:
        """What was seen."""
        return Watched(
            target=target,
            visit=visit,
            memory=self._most("memory"),
            card_memory=self._most("card_memory"),
            watts=tuple(round(watts, 2) for watts in self._seen.get("watts", ())),
        )

    def _most(self, name: str) -> int | None:
        return int(max(self._seen[name])) if self._seen.get(name) else None

    def _run(self) -> None:
        while True:
            for name, gauge in self._gauges.items():
                number = gauge()
                if number is not None:
                    self._seen[name].append(number)
            if self._over.wait(_SECONDS_BETWEEN):
                return


def _device(sys: Path, card: str) -> Path:
    return sys / "bus" / "pci" / "devices" / card


def _power(device: Path) -> float | None:
    for sensor in reading.listing(device / "hwmon"):
        for name in _POWER:
            found = _number(device / "hwmon" / sensor / name)
            if found is not None:
                return found
    return None


def _number(path: Path) -> float | None:
    text = reading.text(path).strip()
    return float(text) if text.isdecimal() else None


def _sum(numbers: Iterable[float | None]) -> float | None:
    """The sum; None where one is not known, which would make it too small."""
    every = list(numbers)
    known = [number for number in every if number is not None]
    return sum(known) if every and len(known) == len(every) else None
