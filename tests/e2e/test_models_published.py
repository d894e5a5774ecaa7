"""The published shape of the first model, beside its real file."""

from __future__ import annotations

from pathlib import Path

import pytest

from zluda_stack.catalog.load import load
from zluda_stack.models.architecture import read_architecture
from zluda_stack.models.published import architecture_of


@pytest.mark.embedded
def test_the_published_shape_gives_what_the_file_says(gguf: Path) -> None:
    catalog = load()
    computed = architecture_of(catalog.models[catalog.defaults.model])
    read = read_architecture(gguf)
    assert computed is not None
    for field in set(read.__struct_fields__) - {"title", "tensors"}:
        assert getattr(computed, field) == getattr(read, field), field
    assert sorted(computed.tensors, key=str) == sorted(read.tensors, key=str)
