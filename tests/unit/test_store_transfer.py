"""`models export` and `import`: whole models move, and hostile archives are refused."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.fetched import CONTENT, digest, tiny_gguf
from zluda_stack import paths
from zluda_stack.cli.main import main
from zluda_stack.errors import ExitCode, HostProblem, UsageError
from zluda_stack.models.archive import read_archive, write_archive
from zluda_stack.models.store import EntryState, Store
from zluda_stack.progress import Silent

PARTS = {f"big-0000{part}-of-00002.gguf": tiny_gguf(bytes([part]) * 3000) for part in (1, 2)}


def split_gguf(part: int) -> bytes:
    """A GGUF file that says which of two parts it is."""
    import struct

    def number(key: str, value: int) -> bytes:
        return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<IH", 2, value)

    whole = tiny_gguf(bytes([part]) * 3000)
    head, rest = whole[: 4 + 4 + 8], whole[4 + 4 + 8 + 8 :]
    key = 8 + len("general.architecture") + 4 + 8 + len("llama")
    tensor = rest[key : key + 8 + 1 + 4 + 8 + 4 + 8]
    raw = head + struct.pack("<Q", 3) + rest[:key]
    raw += number("split.no", part - 1) + number("split.count", 2) + tensor
    return raw + bytes(-len(raw) % 32) + bytes([part]) * 3000


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without models."""
    for kind in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    return tmp_path


def run(*arguments: str) -> int:
    return main(["models", *arguments])


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A user's folder with a model in one file, and one in two."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "Tiny Model.gguf").write_bytes(CONTENT)
    for part in (1, 2):
        (folder / f"big-0000{part}-of-00002.gguf").write_bytes(split_gguf(part))
    return folder


@pytest.fixture
def full(files: Path) -> Store:
    """The store with both models."""
    assert run("import", str(files / "Tiny Model.gguf")) == ExitCode.OK
    assert run("import", str(files / "big-00001-of-00002.gguf")) == ExitCode.OK
    return Store(paths.model_store())


def archive_of(store: Store, *names: str) -> bytes:
    sink = io.BytesIO()
    write_archive(store, names, sink, Silent())
    return sink.getvalue()


def content(store: Store, name: str) -> dict[str, bytes]:
    return {file.name: path.read_bytes() for file, path in store.files(name)}


def test_a_file_of_the_users_is_copied_and_stays_theirs(files: Path) -> None:
    own = files / "Tiny Model.gguf"
    assert run("import", str(own)) == ExitCode.OK
    found = Store(paths.model_store()).find("tiny-model")
    assert found is not None
    assert found.read_bytes() == CONTENT
    assert not found.samefile(own)
    assert own.stat().st_mode & 0o200


def test_a_second_name_takes_no_room_and_leaves_the_files_mode(files: Path) -> None:
    own = files / "Tiny Model.gguf"
    before = own.stat().st_mode
    assert run("import", str(own), "--link", "--name", "linked") == ExitCode.OK
    found = Store(paths.model_store()).find("linked")
    assert found is not None
    assert found.samefile(own)
    assert own.stat().st_mode == before


def test_any_part_stands_for_a_split_model(files: Path) -> None:
    assert run("import", str(files / "big-00002-of-00002.gguf")) == ExitCode.OK
    found = Store(paths.model_store()).find("big")
    assert found is not None
    assert {path.name for path in found.parent.iterdir()} == set(PARTS)


def test_what_is_no_whole_model_is_not_taken(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = files / "cut.gguf"
    cut.write_bytes(CONTENT[:-1])
    assert run("import", str(cut)) == ExitCode.USAGE
    assert "truncated" in capsys.readouterr().err
    (files / "big-00002-of-00002.gguf").unlink()
    assert run("import", str(files / "big-00001-of-00002.gguf")) == ExitCode.USAGE
    assert run("import", str(files / "gone.gguf")) == ExitCode.USAGE
    assert Store(paths.model_store()).entries() == ()


def test_a_name_that_is_taken_and_a_file_that_is_not_the_catalogues(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = str(files / "Tiny Model.gguf")
    assert run("import", own) == ExitCode.OK
    assert run("import", own) == ExitCode.USAGE
    assert "--name" in capsys.readouterr().err
    assert run("import", own, "--name", "smollm2-135m") == ExitCode.HOST
    told = capsys.readouterr().err
    assert digest(CONTENT) in told
    assert "expected sha256" in told


def test_models_move_in_an_archive(
    full: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "models.tar"
    assert run("export", "tiny-model", "big", "-o", str(archive)) == ExitCode.OK
    assert run("export", "big", "-o", str(archive)) == ExitCode.USAGE
    with tarfile.open(archive) as opened:  # another program can read it
        assert opened.getnames()[0] == "manifest.json"
        assert len(opened.getnames()) == 4
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
    assert run("import", str(archive)) == ExitCode.OK
    assert "big is ready" in capsys.readouterr().out
    there = Store(paths.model_store())
    for name in ("tiny-model", "big"):
        assert content(there, name) == content(full, name)
    assert run("import", str(archive)) == ExitCode.OK
    assert run("verify") == ExitCode.OK


def test_models_move_in_a_folder(
    full: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    assert run("export", "tiny-model", "big", "-o", str(folder)) == ExitCode.OK
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
    assert run("pull", "big", "--from", str(folder)) == ExitCode.OK
    assert run("import", str(folder)) == ExitCode.OK
    there = Store(paths.model_store())
    for name in ("tiny-model", "big"):
        assert content(there, name) == content(full, name)


def test_a_damaged_file_is_not_exported(
    full: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blob = full.find("tiny-model")
    assert blob is not None
    blob.chmod(0o644)
    blob.write_bytes(CONTENT[:-1] + b"\1")
    assert run("export", "tiny-model", "-o", str(tmp_path / "x.tar")) == ExitCode.HOST
    assert digest(CONTENT) in capsys.readouterr().err
    assert not list(tmp_path.glob("*x.tar*"))
    assert not list(tmp_path.glob(".*x.tar*"))


def test_an_archive_that_breaks_off_gives_no_model_and_the_next_one_takes_the_rest(
    full: Store, tmp_path: Path
) -> None:
    raw = archive_of(full, "big", "tiny-model")
    there = Store(tmp_path / "there")
    for cut in (*range(0, len(raw) - 1024, 4093), len(raw) - 1025):
        with pytest.raises(HostProblem, match="no sound archive"):
            read_archive(there, io.BytesIO(raw[:cut]), Silent())
        assert EntryState.READY not in {entry.state for entry in there.entries()}
    taken = read_archive(there, io.BytesIO(raw), Silent())
    assert [name for name, _ in taken] == ["big", "tiny-model"]
    assert content(there, "big") == content(full, "big")


def member(name: str, body: bytes, kind: bytes = tarfile.REGTYPE, size: int | None = None) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(body) if size is None else size
    info.linkname = "/etc/passwd" if kind in {tarfile.SYMTYPE, tarfile.LNKTYPE} else ""
    return info.tobuf(tarfile.GNU_FORMAT) + body + bytes(-len(body) % 512)


def manifest(**changes: object) -> bytes:
    file = {"name": "x.gguf", "sha256": digest(b"x" * 9), "size": 9} | changes
    record = {"files": [file], "source": "a test"}
    return member("manifest.json", json.dumps({"schema": 1, "models": {"x": record}}).encode())


BLOB = f"blobs/sha256-{digest(b'x' * 9)}"
END = bytes(1024)
GOOD = manifest() + member(BLOB, b"x" * 9) + END


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "ends in the middle"),
        (END, "does not begin with a manifest"),
        (b"GIF89a" + bytes(1000), "no tar archive"),
        (member(BLOB, b"x" * 9) + GOOD, "does not begin with a manifest"),
        (manifest() + member(BLOB, b"y" * 9) + END, "is damaged"),
        (manifest() + member(BLOB, b"x" * 8) + END, "names 9"),
        (manifest() + member(BLOB, b"x" * 9, size=1 << 50), "names 9"),
        (manifest() + member(f"blobs/sha256-{'0' * 64}", b"x" * 9) + END, "belongs to no model"),
        (manifest() + member("../../x", b"x" * 9) + END, "belongs to no model"),
        (manifest() + member("/etc/passwd", b"x" * 9) + END, "belongs to no model"),
        (manifest() + member(BLOB, b"", tarfile.SYMTYPE) + END, "no plain file"),
        (manifest() + member(BLOB, b"", tarfile.LNKTYPE) + END, "no plain file"),
        (manifest() + member(BLOB, b"", tarfile.FIFOTYPE) + END, "no plain file"),
        (member("x", b"", tarfile.XHDTYPE, size=1 << 40), "no plain file"),
        (member("x", b"", tarfile.GNUTYPE_LONGNAME, size=1 << 40), "too long"),
        (member("manifest.json", b"", size=1 << 40), "does not begin with a manifest"),
        (member("manifest.json", b"[]") + END, "manifest.json is wrong"),
        (manifest(name="../x") + END, "manifest.json is wrong"),
        (manifest(sha256="../x") + END, "manifest.json is wrong"),
        (manifest(size=-1) + END, "manifest.json is wrong"),
        (manifest(size=1 << 60) + END, "of disk space"),
        (manifest() + END, "did not come"),
    ],
)
def test_a_hostile_archive_is_refused_and_leaves_nothing(
    tmp_path: Path, raw: bytes, words: str
) -> None:
    store = Store(tmp_path / "a" / "b" / "store")
    with pytest.raises(HostProblem, match=words):
        read_archive(store, io.BytesIO(raw), Silent())
    assert store.find("x") is None
    assert store.entries() == ()
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.parent.name == "locks" for path in left), left


def test_the_archive_that_the_hostile_ones_are_made_of_is_sound(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    ((name, path),) = read_archive(store, io.BytesIO(GOOD), Silent())
    assert (name, path.read_bytes()) == ("x", b"x" * 9)
    other = manifest(sha256=digest(b"y" * 9))
    with pytest.raises(UsageError, match="another x"):
        read_archive(store, io.BytesIO(other + END), Silent())


def in_pieces(raw: bytes) -> Callable[[int], bytes]:
    """How a pipe is read: never more than 700 bytes at once."""
    stream = io.BytesIO(raw)
    return lambda count: stream.read(min(count, 700))


def test_a_pipe_may_bring_it_in_pieces(full: Store, tmp_path: Path) -> None:
    class Pipe(io.BytesIO):
        read = staticmethod(in_pieces(archive_of(full, "big")))  # type: ignore[assignment]

    there = Store(tmp_path / "there")
    read_archive(there, Pipe(), Silent())
    assert content(there, "big") == content(full, "big")


def test_a_dry_run_moves_nothing(
    full: Store, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("export", "big", "-o", str(tmp_path / "x.tar"), "--dry-run") == ExitCode.OK
    assert "would write big (2 files" in capsys.readouterr().out
    assert run("import", str(paths.model_store()), "--dry-run") == ExitCode.OK
    assert "would take tiny-model" in capsys.readouterr().out
    own = str(files / "Tiny Model.gguf")
    assert run("import", own, "--name", "again", "--dry-run") == ExitCode.OK
    assert full.find("again") is None
    assert not (tmp_path / "x.tar").exists()
