"""Memory and power, read of the files of a fake kernel."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.unit.command_line import write
from tests.unit.planning import card
from tests.unit.planning import machine as a_machine
from zluda_stack.bench import watching
from zluda_stack.bench.machine import machine
from zluda_stack.bench.watching import Watch

CARD, OTHER = "0000:03:00.0", "0000:04:00.0"


def device(sys: Path, pci: str) -> Path:
    return sys / "bus/pci/devices" / pci


def test_power_is_in_microwatts_and_cards_are_added_up(tmp_path: Path) -> None:
    write(device(tmp_path, CARD) / "hwmon/hwmon3/power1_average", "211000000\n")
    write(device(tmp_path, OTHER) / "hwmon/hwmon4/power1_input", "30500000\n")
    assert watching.card_power((CARD,), tmp_path) == 211.0
    assert watching.card_power((CARD, OTHER), tmp_path) == 241.5


def test_a_card_that_tells_nothing_makes_the_sum_unknown(tmp_path: Path) -> None:
    write(device(tmp_path, CARD) / "hwmon/hwmon3/power1_average", "211000000\n")
    write(device(tmp_path, OTHER) / "hwmon/hwmon4/power1_average", "no number\n")
    assert watching.card_power((CARD, OTHER), tmp_path) is None
    assert watching.card_power((), tmp_path) is None
    assert watching.card_memory((CARD,), tmp_path) is None


def test_the_memory_of_a_card_is_what_the_driver_says_is_used(tmp_path: Path) -> None:
    write(device(tmp_path, CARD) / "mem_info_vram_used", "17179869184\n")
    assert watching.card_memory((CARD,), tmp_path) == 16 * 2**30


def test_the_memory_of_a_server_is_what_is_resident_of_its_processes(tmp_path: Path) -> None:
    for pid, kilobytes in ((7, 1000), (8, 24)):
        write(tmp_path / str(pid) / "status", f"Name:\tserver\nVmRSS:\t  {kilobytes} kB\n")
    assert watching.resident((7, 8), tmp_path) == 1024 * 1024
    assert watching.resident((9,), tmp_path) is None
    assert watching.resident((os.getpid(),)) > 2**20  # type: ignore[operator]


def test_a_pid_of_another_machine_is_not_taken_for_a_server(tmp_path: Path) -> None:
    write(tmp_path / "7" / "cmdline", "/opt/llama/llama-server\0--port\0")
    write(tmp_path / "8" / "cmdline", "/usr/bin/editor\0")
    assert watching.is_server(7, tmp_path)
    assert not watching.is_server(8, tmp_path)
    assert not watching.is_server(9, tmp_path)


def test_a_watch_keeps_the_most_memory_and_all_watts() -> None:
    memory = iter((5.0, 9.0))
    with Watch({"memory": lambda: next(memory, 2.0), "watts": lambda: 200.0}) as watch:
        time.sleep(0.6)
    told = watch.told("native", 3)
    assert (told.target, told.visit, told.memory) == ("native", 3, 9)
    assert told.card_memory is None
    assert set(told.watts) == {200.0}


def test_a_machine_is_told_by_what_it_is_and_not_by_its_name(tmp_path: Path) -> None:
    cpuinfo = write(tmp_path / "cpuinfo", "processor\t: 0\nmodel name\t: A CPU\n")
    told = machine(a_machine(card("gfx1100", name="Radeon RX 7900 XTX")), cpuinfo)
    assert told.cpu == "A CPU"
    assert told.cards == ("Radeon RX 7900 XTX",)
