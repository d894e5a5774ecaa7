"""docs/doctor.md tells of every check and of every symptom, and of no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from zluda_stack.doctor.registry import CHECKS

TEXT = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text()
ANSWERS = dict(re.findall(r"^### (.+)\n\n((?:.|\n)+?)(?=\n### |\Z)", TEXT, re.MULTILINE))


def test_the_table_has_every_check_in_its_order_and_no_other() -> None:
    told = re.findall(r"^\| ([a-z]+\.[a-z0-9-]+) \| .+ \|$", TEXT, re.MULTILINE)
    assert told == [each.id for each in CHECKS]


@pytest.mark.parametrize(
    "symptom",
    [
        *("rocm-smi", "no CUDA-capable device", "libcudart", "undefined symbol", "NaN"),
        *("GPU is idle", "first start", "torch.cuda.is_available", "hipcc", "does not answer"),
        "freezes",
    ],
)
def test_each_symptom_has_a_short_answer_with_a_command(symptom: str) -> None:
    (answer,) = [text for title, text in ANSWERS.items() if symptom in title]
    assert re.search(r"^    \S", answer, re.MULTILINE)
    assert len(answer.splitlines()) < 30


def test_nothing_is_suggested_that_opens_more_than_it_must() -> None:
    assert not re.search(r"chmod|--privileged|\bcurl [^\n]*\| *(?:sudo )?(?:ba)?sh", TEXT)
