"""What several unit tests share and takes long to make."""

from __future__ import annotations

import pytest

from tests.unit import cuda_toolkit


@pytest.fixture(scope="session")
def toolkit(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> cuda_toolkit.Toolkit:
    """NVIDIA's compiler and cuobjdump, kept in pytest's cache folder between runs (400 MB)."""
    assert pytestconfig.cache is not None
    try:
        root = cuda_toolkit.unpacked(pytestconfig.cache.mkdir("cuda-toolkit"))
    except cuda_toolkit.Unavailable as reason:
        pytest.skip(f"no CUDA toolkit to test with: {reason}")
    return cuda_toolkit.Toolkit(root, tmp_path_factory.mktemp("cuda"))
