"""`zluda-stack gpus`: every card, who supports it, and why it is chosen or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from tests.unit.command_line import CASES, Outcome, run, settle
from tests.unit.planning import AMD, GIB, card, host, machine
from zluda_stack.errors import ExitCode
from zluda_stack.host.facts import HostFacts, PciDisplay

CARDS = (
    card("gfx1100", 0, gib=24, name="Radeon RX 7900 XTX", unique_id="GPU-a20049f7cb1d1a3f"),
    card("gfx1035", 1, gib=1, gtt_bytes=30 * GIB),
    card("gfx906", 2, gib=32),
    card(None, 3, pci=None, render_node=None, vram_bytes=None),
)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return settle(tmp_path, monkeypatch)


def gpus(facts: HostFacts, *arguments: str) -> Outcome:
    saved = Path("facts.json")
    saved.write_bytes(msgspec.json.encode(facts))
    outcome = run("gpus", "--host-facts", str(saved), *arguments)
    assert outcome.code == ExitCode.OK
    return outcome


def rows(facts: HostFacts, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = gpus(facts, "--json", *arguments).json["gpus"]
    return found


def test_the_table_has_a_line_for_each_card_with_all_that_is_known() -> None:
    heading, *lines = gpus(machine(*CARDS)).out.splitlines()
    for column in ("#", "name", "target", "kind", "memory", "PCI address", "render node"):
        assert column in heading
    assert [line.split()[0] for line in lines] == ["0", "1", "2", "3"]
    for part in ("Radeon RX 7900 XTX", "gfx1100", "discrete", "24.0 GiB", "0000:03:00.0"):
        assert part in lines[0]
    assert lines[0].endswith("chosen")
    assert "such as Radeon 680M" in lines[1]
    assert "integrated" in lines[1]
    assert "30.0 GiB" in lines[1]
    assert "ZLUDA needs wave32" in lines[2]
    assert "missing" in lines[3]


def test_a_card_without_kernels_is_told_so_though_zluda_supports_it() -> None:
    lone = machine(card("gfx1036", 0, gib=1))
    (row,) = rows(lone)
    assert (row["chosen"], row["zluda"]) == (False, "yes")
    assert "rocBLAS has no kernels for gfx1036" in row["reason"]
    given = {"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}
    (tried,) = rows(structs.replace(lone, environment=given))
    assert tried["chosen"] is True


def test_json_says_the_same_and_how_to_name_the_card() -> None:
    first, second, vega, unknown = rows(machine(*CARDS))
    assert (first["chosen"], first["unique_id"]) == (True, "GPU-a20049f7cb1d1a3f")
    assert (second["chosen"], second["kind"]) == (False, "integrated")
    assert "preferred" in second["reason"]
    assert (vega["zluda"], vega["rocm"]) == ("no", "no longer")
    assert (unknown["target"], unknown["zluda"], unknown["memory_bytes"]) == (None, None, None)


def test_every_number_that_is_listed_chooses_that_card() -> None:
    facts = machine(*CARDS[:2])
    for row in rows(facts):
        chosen = [one["index"] for one in rows(facts, "--gpu", str(row["index"])) if one["chosen"]]
        assert chosen == [row["index"]]


def test_a_refused_choice_is_told_below_the_table() -> None:
    outcome = gpus(host("kfd-without-dri"))
    assert "gfx1100" in outcome.out
    assert "/dev/dri is not" in outcome.err
    problem = gpus(host("kfd-without-dri"), "--json").json["problem"]
    assert "/dev/dri is not" in problem["message"]
    assert problem["hint"]


def test_without_a_gpu_one_line_says_what_is_there_instead() -> None:
    displays = (
        PciDisplay(
            address="0000:01:00.0", vendor=0x10DE, device=0x2684, driver="nvidia", name="RTX 4090"
        ),
        PciDisplay(address="0000:03:00.0", vendor=AMD, device=0x744C),
        PciDisplay(address="0000:00:02.0", vendor=0x8086, device=0xA780, driver="i915"),
    )
    facts = structs.replace(host("laptop-without-gpu-or-docker"), pci_displays=displays)
    (line,) = gpus(facts).out.splitlines()
    assert "RTX 4090 of NVIDIA at 0000:01:00.0 (driver: nvidia)" in line
    assert "1002:744c of AMD at 0000:03:00.0 (driver: none)" in line
    assert "8086:a780 of Intel" in line


def test_a_card_that_the_driver_does_not_offer_is_named_below_the_table() -> None:
    vfio = PciDisplay(address="0000:41:00.0", vendor=AMD, device=0x744C, driver="vfio-pci")
    outcome = gpus(machine(CARDS[0], pci_displays=(vfio,)))
    assert "vfio-pci" in outcome.out.splitlines()[-1]


def test_wsl2_is_said() -> None:
    assert "WSL2" in gpus(host("wsl2")).out


def test_the_replayed_cases_are_all_listed() -> None:
    for path in sorted(CASES.glob("*.json")):
        outcome = run("gpus", "--host-facts", str(path))
        assert outcome.code == ExitCode.OK, path.name
        assert outcome.out
