"""What is kept of the parsed catalogue saves time, and never says anything but the files do."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from zluda_stack.catalog import kept, load, plain_yaml
from zluda_stack.catalog.schema import Catalog

DATA = Path(load.__file__).parent / "data"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load.load()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the catalogue is kept, after it was loaded once."""
    file = tmp_path / "cache" / "catalog.msgpack"
    load.load(keep_at=file)
    return file


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The files that are parsed from now on."""
    found: list[bytes] = []
    parse = plain_yaml.parse

    def told(raw: bytes) -> object:
        found.append(raw)
        return parse(raw)

    monkeypatch.setattr(plain_yaml, "parse", told)
    return found


def test_what_is_kept_is_the_catalogue_without_parsing_it(
    file: Path, catalog: Catalog, parsed: list[bytes]
) -> None:
    assert load.load(keep_at=file) == catalog
    assert parsed == []


def test_an_edited_file_counts_at_once(tmp_path: Path, file: Path) -> None:
    edited = Path(shutil.copytree(DATA, tmp_path / "data"))
    assert load.load(edited, file).defaults.port == 8080
    defaults = edited / "defaults.yml"
    defaults.write_text(defaults.read_text().replace("port: 8080", "port: 9090", 1))
    assert load.load(edited, file).defaults.port == 9090
    assert load.load(edited, file).defaults.port == 9090


def test_another_parser_parses_again(
    tmp_path: Path, file: Path, parsed: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "parser.py").write_text("# another one")
    monkeypatch.setattr(kept, "_PARSER", tmp_path / "parser.py")
    load.load(keep_at=file)
    assert len(parsed) == len(load.KINDS)


@pytest.mark.parametrize("damage", [b"", b"\xc1", b"\x93\x01\x02\x03", b"\x91" * 100_000])
def test_a_damaged_file_is_passed_over_and_replaced(
    file: Path, catalog: Catalog, parsed: list[bytes], damage: bytes
) -> None:
    file.write_bytes(damage)
    assert load.load(keep_at=file) == catalog
    parsed.clear()
    assert load.load(keep_at=file) == catalog
    assert parsed == []


@pytest.mark.parametrize("place", [3, 0.25, 0.5, 0.75, -3], ids=str)
def test_a_file_in_which_a_bit_is_another_is_passed_over(
    file: Path, catalog: Catalog, parsed: list[bytes], place: float
) -> None:
    raw = bytearray(file.read_bytes())
    raw[place if isinstance(place, int) else int(place * len(raw))] ^= 1
    file.write_bytes(raw)
    assert load.load(keep_at=file) == catalog
    assert len(parsed) == len(load.KINDS)


def test_a_file_that_others_may_write_is_not_believed(
    file: Path, catalog: Catalog, parsed: list[bytes]
) -> None:
    file.chmod(0o666)
    assert load.load(keep_at=file) == catalog
    assert len(parsed) == len(load.KINDS)
    assert file.stat().st_mode & 0o777 == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file away")
def test_a_file_of_another_user_is_not_believed(
    file: Path, catalog: Catalog, parsed: list[bytes]
) -> None:
    os.chown(file, 12345, 12345)
    assert load.load(keep_at=file) == catalog
    assert len(parsed) == len(load.KINDS)


def test_what_a_link_in_its_place_points_to_is_left_alone(tmp_path: Path, catalog: Catalog) -> None:
    other, link = tmp_path / "other", tmp_path / "catalog.msgpack"
    other.write_text("a file of the user's")
    other.chmod(0o600)
    link.symlink_to(other)
    assert load.load(keep_at=link) == catalog
    assert other.read_text() == "a file of the user's"
    assert other.stat().st_mode & 0o777 == 0o600


@pytest.mark.timeout(20)
def test_a_pipe_in_its_place_is_not_waited_for(tmp_path: Path, catalog: Catalog) -> None:
    os.mkfifo(tmp_path / "catalog.msgpack")
    assert load.load(keep_at=tmp_path / "catalog.msgpack") == catalog


def test_what_a_killed_process_left_goes(file: Path) -> None:
    left = file.with_name(f".{file.name}.abandoned")
    left.touch()
    os.utime(left, (0, 0))
    file.unlink()
    load.load(keep_at=file)
    assert list(file.parent.iterdir()) == [file]


def test_where_nothing_can_be_kept_the_catalogue_is_parsed(
    tmp_path: Path, catalog: Catalog
) -> None:
    (tmp_path / "file").touch()
    assert load.load(keep_at=tmp_path / "file" / "catalog.msgpack") == catalog
