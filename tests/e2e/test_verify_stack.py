"""`verify` on a real stack that computes on the CPU: it says so, and fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import EmbeddedStack
from tests.unit.command_line import run

pytestmark = pytest.mark.embedded

_LINE = '{"test": "vector_add", "ok": true, "detail": "sums", "device": "NVIDIA (a fake)"}'


def test_a_stack_on_the_cpu_is_a_fault_however_right_its_answers(
    running: EmbeddedStack, tmp_path: Path
) -> None:
    (tmp_path / "selftest").write_text(f"#!/bin/sh\necho '{_LINE}'\n")
    (tmp_path / "selftest").chmod(0o755)
    programs = ("--native-cuda", "--programs", str(tmp_path))
    told = run("verify", "--name", running.name, *programs, "--json")
    assert told.code == 5, told.err
    completion = told.json["proof"]["stack"]["completion"]
    assert completion["right"]
    assert completion["tokens_per_second"] > 0
    assert told.json["faults"] == [f"the stack {running.name} computes on the CPU"]
