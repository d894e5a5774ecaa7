"""Both committed compose files before anyone ran host-env.sh, as Compose itself reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.images.clone import Clone

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("engine")]


@pytest.mark.parametrize("stack", ["cpu", "inference"])
def test_compose_stops_and_names_the_command_that_is_missing(tmp_path: Path, stack: str) -> None:
    up = Clone(tmp_path, stack).compose("up", "--detach")
    assert up.returncode != 0
    assert "compose/host-env.sh" in up.stderr


def test_without_a_card_only_the_cpu_stack_can_be_read(tmp_path: Path) -> None:
    cpu, gpu = (Clone(tmp_path / name, name) for name in ("cpu", "inference"))
    for clone in (cpu, gpu):
        bare = {"HOST_ROOT": str(tmp_path / "bare")}
        assert "card: none" in clone.host_env(**bare, ZLUDA_STACK_GPU="none")
    assert cpu.compose("config", "--quiet").returncode == 0
    refused = gpu.compose("config", "--quiet")
    assert refused.returncode != 0
    assert "finds one or says what runs without" in refused.stderr
