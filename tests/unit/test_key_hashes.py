"""A gateway that was given hashes of the keys only serves whoever shows a key."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from zluda_stack.gateway.auth import KeyFile, Keys
from zluda_stack.gateway.errors import Fault

KEYS = ("zs-one", "zs-two")
NOON = datetime(2026, 12, 1, 12, tzinfo=timezone.utc)


def hashes(folder: Path, *lines: str) -> Path:
    path = folder / "hashes"
    path.write_text("\n".join(lines) + "\n")
    return path


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def bearer(key: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", b"Bearer " + key.encode())]


def accepts(keys: Keys, headers: list[tuple[bytes, bytes]]) -> bool:
    try:
        keys.require(headers)
    except Fault as fault:
        assert fault.status == 401
        return False
    return True


def test_every_key_whose_hash_is_there_is_accepted_and_no_other(tmp_path: Path) -> None:
    keys = Keys(KeyFile.of_digests(hashes(tmp_path, *map(digest, KEYS))))
    assert all(accepts(keys, bearer(key)) for key in KEYS)
    assert accepts(keys, [(b"x-api-key", b"zs-two")])
    assert not accepts(keys, bearer("zs-three"))
    assert not accepts(keys, [])


def test_the_hash_itself_is_no_key(tmp_path: Path) -> None:
    keys = Keys(KeyFile.of_digests(hashes(tmp_path, digest("zs-one"))))
    assert not accepts(keys, bearer(digest("zs-one")))


@pytest.mark.parametrize("line", ["zs-one", "A" * 64, "ab" * 31, "ab" * 32 + "  key"])
def test_a_line_that_is_no_hash_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(ValueError, match="SHA-256 digest") as told:
        Keys(KeyFile.of_digests(hashes(tmp_path, digest("zs-one"), line)))
    assert line not in str(told.value)  # it may be a key that was put into the wrong file


def test_a_file_without_a_hash_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no key"):
        Keys(KeyFile.of_digests(hashes(tmp_path)))


def test_a_key_has_the_name_of_its_line(tmp_path: Path) -> None:
    keys = Keys(
        KeyFile.of_digests(hashes(tmp_path, f"{digest('zs-one')} name=laptop", digest("zs-two")))
    )
    assert [keys.require(bearer(key)).name for key in KEYS] == ["laptop", "default"]


def test_a_key_opens_until_it_expires_and_then_says_so_to_its_owner(tmp_path: Path) -> None:
    now = NOON
    file = hashes(tmp_path, f"{digest('zs-one')} name=guest expires=2026-12-01T13:00:00Z")
    keys = Keys(KeyFile.of_digests(file), clock=lambda: now)
    assert accepts(keys, bearer("zs-one"))
    now = NOON + timedelta(hours=1)
    with pytest.raises(Fault, match="guest expired on 2026-12-01") as told:
        keys.require(bearer("zs-one"))
    assert told.value.status == 401


def test_a_valid_key_opens_beside_one_that_expired(tmp_path: Path) -> None:
    lines = (f"{digest('zs-one')} name=old expires=2020-01-01T00:00:00Z", digest("zs-two"))
    keys = Keys(KeyFile.of_digests(hashes(tmp_path, *lines)))
    assert accepts(keys, [*bearer("zs-one"), (b"x-api-key", b"zs-two")])


def test_a_key_that_comes_or_goes_counts_from_the_next_request_on(tmp_path: Path) -> None:
    file = hashes(tmp_path, digest("zs-one"))
    keys = Keys(KeyFile.of_digests(file))
    hashes(tmp_path, *map(digest, KEYS))  # written over, as a mounted file is
    assert accepts(keys, bearer("zs-two"))
    other = tmp_path / "other"
    other.write_text(digest("zs-two") + "\n")
    other.replace(file)
    assert not accepts(keys, bearer("zs-one"))
    assert accepts(keys, bearer("zs-two"))


@pytest.mark.parametrize("damage", ["half a l", ""])
def test_a_file_that_is_damaged_or_gone_later_locks_nobody_out(tmp_path: Path, damage: str) -> None:
    file = hashes(tmp_path, digest("zs-one"))
    keys = Keys(KeyFile.of_digests(file))
    file.write_text(damage)
    assert accepts(keys, bearer("zs-one"))
    file.unlink()
    assert accepts(keys, bearer("zs-one"))
    hashes(tmp_path, digest("zs-two"))
    assert not accepts(keys, bearer("zs-one"))


def test_keys_and_digests_may_be_in_a_file_each(tmp_path: Path) -> None:
    plain = tmp_path / "api-key"
    plain.write_text("zs-own\n")
    further = tmp_path / "keys"
    further.write_text("")
    keys = Keys(KeyFile.of_keys(plain), KeyFile.of_digests(further))
    assert accepts(keys, bearer("zs-own"))
    further.write_text(f"{digest('zs-one')} name=laptop\n")
    assert keys.require(bearer("zs-one")).name == "laptop"
