"""A gateway that was given hashes of the keys only serves whoever shows a key."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from zluda_stack.gateway.auth import Keys

KEYS = ("zs-one", "zs-two")


def hashes(folder: Path, *lines: str) -> Path:
    path = folder / "hashes"
    path.write_text("\n".join(lines) + "\n")
    return path


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def bearer(key: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", b"Bearer " + key.encode())]


def test_every_key_whose_hash_is_there_is_accepted_and_no_other(tmp_path: Path) -> None:
    keys = Keys.from_hashes(hashes(tmp_path, *map(digest, KEYS)))
    assert all(keys.accept(bearer(key)) for key in KEYS)
    assert keys.accept([(b"x-api-key", b"zs-two")])
    assert not keys.accept(bearer("zs-three"))
    assert not keys.accept([])


def test_the_hash_itself_is_no_key(tmp_path: Path) -> None:
    keys = Keys.from_hashes(hashes(tmp_path, digest("zs-one")))
    assert not keys.accept(bearer(digest("zs-one")))


@pytest.mark.parametrize("line", ["zs-one", "A" * 64, "ab" * 31, "ab" * 32 + "  key"])
def test_a_line_that_is_no_hash_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(ValueError, match="no SHA-256 digest"):
        Keys.from_hashes(hashes(tmp_path, digest("zs-one"), line))


def test_a_file_without_a_hash_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no key"):
        Keys.from_hashes(hashes(tmp_path))
