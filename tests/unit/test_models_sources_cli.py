"""`zluda-stack models pull` and `gc` against a fake hub, as a user types them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fake_hub import COMMIT, FakeHub, Fault, fake_hub
from tests.unit.fetched import CONTENT, FILE, REPOSITORY, digest, tiny_gguf
from zluda_stack import paths
from zluda_stack.cli.main import main
from zluda_stack.errors import ExitCode
from zluda_stack.models.store import Store

OTHER = "tiny-q8_0.gguf"
PARTS = {
    f"{REPOSITORY}/split/big-q6_k-0000{part}-of-00002.gguf": tiny_gguf(bytes([part]) * 5000)
    for part in (1, 2)
}
NAME = "tiny-q4_k_m"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub, and a home without models."""
    for kind in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    monkeypatch.setenv("HOME", str(tmp_path))
    files = {
        f"{REPOSITORY}/{FILE}": CONTENT,
        f"{REPOSITORY}/{OTHER}": tiny_gguf(b"other"),
        **PARTS,
    }
    with fake_hub(files) as made:
        monkeypatch.setenv("HF_ENDPOINT", made.url)
        yield made


def run(*arguments: str) -> int:
    return main(["models", *arguments])


def here(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    """The models that are not only in the catalogue, by name."""
    capsys.readouterr()
    assert run("list", "--json") == ExitCode.OK
    lines = json.loads(capsys.readouterr().out)
    return {line["name"]: line for line in lines if line["state"] != "not here"}


def path_of(name: str) -> Path:
    found = Store(paths.model_store()).find(name)
    assert found is not None
    return found


def test_a_quantisation_of_a_repository_is_pulled_and_served_by_its_name(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("pull", f"hf.co/{REPOSITORY}:Q4_K_M") == ExitCode.OK
    assert f"{NAME} is ready" in capsys.readouterr().out
    (line,) = here(capsys).values()
    assert (line["name"], line["state"]) == (NAME, "ready")
    assert line["source"] == f"hub {REPOSITORY}@{COMMIT}"
    assert path_of(NAME).read_bytes() == CONTENT
    hub.seen.clear()
    assert run("pull", NAME) == ExitCode.OK
    assert hub.seen == []


def test_a_split_model_is_pulled_by_any_of_its_parts(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    part = "split/big-q6_k-00002-of-00002.gguf"
    assert run("pull", f"hf:{REPOSITORY}/{part}", "--name", "big") == ExitCode.OK
    folder = path_of("big").parent
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        name.rpartition("/")[2]: content for name, content in PARTS.items()
    }
    assert run("verify", "big") == ExitCode.OK
    assert "big, big-q6_k-00001-of-00002.gguf: whole" in capsys.readouterr().out
    path_of("big").parent.joinpath("big-q6_k-00002-of-00002.gguf").unlink()
    hub.seen.clear()
    assert run("pull", "big") == ExitCode.OK
    assert hub.bodies() == []
    assert path_of("big").is_file()


def test_a_url_with_its_hash(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"{hub.cdn}/cdn/{REPOSITORY}/{FILE}"
    assert run("pull", url, "--sha256", "0" * 64) == ExitCode.HOST
    told = capsys.readouterr().err
    assert digest(CONTENT) in told
    assert "0" * 64 in told
    assert here(capsys) == {}
    assert run("pull", f"{url}?key=1", "--sha256", digest(CONTENT).upper()) == ExitCode.OK
    assert path_of(NAME).read_bytes() == CONTENT


def test_several_are_pulled_at_once_and_one_that_fails_stops_no_other(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"hf:{REPOSITORY}/{name}" for name in (FILE, OTHER)]
    assert run("pull", *names, f"{hub.cdn}/cdn/gone.gguf") == ExitCode.HOST
    told = capsys.readouterr()
    assert "tiny-q4_k_m is ready" in told.out
    assert "tiny-q8_0 is ready" in told.out
    assert "gone.gguf was not fetched" in told.err
    assert set(here(capsys)) == {"tiny-q4_k_m", "tiny-q8_0"}


def test_no_room_for_all_is_said_before_anything_is_fetched(
    hub: FakeHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=len(CONTENT)))
    names = [f"hf:{REPOSITORY}/{name}" for name in (FILE, OTHER)]
    assert run("pull", *names) == ExitCode.HOST
    assert "fetching tiny-q4_k_m, tiny-q8_0 takes" in capsys.readouterr().err
    assert hub.bodies() == []
    assert run("pull", names[0]) == ExitCode.OK


def test_a_stopped_pull_goes_on_by_the_name_it_was_given(
    hub: FakeHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    hub.faults = [Fault.DROP] + [Fault.NO_ANSWER] * 20
    assert run("pull", f"hf:{REPOSITORY}/{FILE}") == ExitCode.HOST
    assert here(capsys)[NAME]["state"] == "incomplete"
    hub.faults = []
    assert run("pull", NAME) == ExitCode.OK
    assert hub.served() == len(CONTENT)
    assert here(capsys)[NAME]["state"] == "ready"


def test_an_update_says_what_changed(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("pull", f"hf:{REPOSITORY}/{FILE}") == ExitCode.OK
    hub.commit, new = "f" * 40, tiny_gguf(b"new")
    hub.files[f"{REPOSITORY}/{FILE}"] = new
    for unchanged in (NAME, f"hf:{REPOSITORY}/{FILE}", f"{REPOSITORY}:Q4_K_M"):
        assert run("pull", unchanged) == ExitCode.OK
        assert path_of(NAME).read_bytes() == CONTENT
    capsys.readouterr()
    assert run("pull", f"hf:{REPOSITORY}/{FILE}", "--update") == ExitCode.OK
    told = capsys.readouterr().err
    assert f"revision {COMMIT} -> {'f' * 40}" in told
    assert f"sha256 {digest(CONTENT)} -> {digest(new)}" in told
    assert path_of(NAME).read_bytes() == new


def test_a_name_that_another_model_has_is_refused(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("pull", f"hf:{REPOSITORY}/{FILE}") == ExitCode.OK
    assert run("pull", f"{hub.cdn}/cdn/{REPOSITORY}/{FILE}") == ExitCode.USAGE
    assert "--name" in capsys.readouterr().err
    taken = run("pull", f"hf:{REPOSITORY}/{OTHER}", "--name", "smollm2-135m")
    assert taken == ExitCode.USAGE
    assert "another model of the catalogue" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("smollm2-135m", "--sha256", "0" * 64), "is a name"),
        (("hf:a/b/c.gguf", "--sha256", "12"), "no SHA-256"),
        (("hf:a/b/c.gguf", "hf:a/b/d.gguf", "--name", "x"), "several are named"),
        (("hf:a/b/c.gguf", "--name", "Not A Name"), "cannot be the name"),
        (("hf:a/b/c-00001-of-00002.gguf", "--sha256", "0" * 64), "is 2 files"),
        (("hf:a/b/c.gguf", "--limit-rate", "fast"), "not a rate"),
        (("ollama://x",), "no place"),
        ((), "Missing argument"),
    ],
)
@pytest.mark.usefixtures("hub")
def test_what_cannot_be_is_a_usage_error(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("pull", *arguments) == ExitCode.USAGE
    assert words.lower() in capsys.readouterr().err.lower()


def test_a_dry_run_shows_a_command_for_each_file_and_fetches_nothing(
    hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("pull", f"hf:{REPOSITORY}/split/big-q6_k-00001-of-00002.gguf", "--dry-run") == 0
    lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == ["curl", "curl"]
    assert [line[-1].rpartition("/")[2] for line in lines] == [
        name.rpartition("/")[2] for name in PARTS
    ]
    assert hub.seen == []


def test_gc_removes_what_stopped_pulls_left_and_no_model(
    hub: FakeHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("pull", f"hf:{REPOSITORY}/{OTHER}") == ExitCode.OK
    monkeypatch.setattr("time.sleep", lambda _: None)
    hub.faults = [Fault.DROP] + [Fault.NO_ANSWER] * 20
    assert run("pull", f"hf:{REPOSITORY}/{FILE}") == ExitCode.HOST
    stray = paths.model_store() / "blobs" / f"sha256-{'0' * 64}"
    stray.write_bytes(b"nobody's")
    capsys.readouterr()
    assert run("gc", "--dry-run") == ExitCode.OK
    doomed = [Path(word) for word in shlex.split(capsys.readouterr().out)[2:]]
    assert sorted(path.name for path in doomed) == [stray.name, NAME]
    assert all(path.exists() for path in doomed)
    assert run("gc", "--json") == ExitCode.OK
    freed = json.loads(capsys.readouterr().out)
    assert sorted(one["bytes"] for one in freed) == [len(b"nobody's"), len(CONTENT) // 2]
    assert not any(path.exists() for path in doomed)
    assert path_of("tiny-q8_0").is_file()
    assert run("gc") == ExitCode.OK
    assert capsys.readouterr().out == "0.0 MB were freed.\n"


def test_another_store_is_a_source(
    hub: FakeHub,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run("pull", f"hf:{REPOSITORY}/split/big-q6_k-00001-of-00002.gguf") == ExitCode.OK
    first = paths.model_store()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "second"))
    hub.seen.clear()
    assert run("pull", "big-q6_k", "--from", str(first)) == ExitCode.OK
    assert hub.seen == []
    assert path_of("big-q6_k").read_bytes() == next(iter(PARTS.values()))
    assert str(here(capsys)["big-q6_k"]["source"]).startswith("hub ")

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "third"))
    hub.files = {
        path.relative_to(first).as_posix(): path.read_bytes()
        for path in first.rglob("*")
        if path.is_file()
    }
    assert run("pull", "big-q6_k", "--from", f"{hub.cdn}/cdn") == ExitCode.OK
    assert path_of("big-q6_k").read_bytes() == next(iter(PARTS.values()))
    assert run("pull", "other", "--from", f"{hub.cdn}/cdn") == ExitCode.HOST
    assert "does not have it" in capsys.readouterr().err
    assert run("pull", "other", "--from", str(first)) == ExitCode.USAGE
    assert run("pull", "other", "--from", str(tmp_path)) == ExitCode.USAGE


def test_a_damaged_file_of_another_store_is_not_taken(
    hub: FakeHub,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run("pull", f"hf:{REPOSITORY}/{FILE}") == ExitCode.OK
    first = paths.model_store()
    blob = path_of(NAME)
    blob.chmod(0o644)
    blob.write_bytes(CONTENT[:-1] + b"\1")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "second"))
    assert run("pull", NAME, "--from", str(first)) == ExitCode.HOST
    assert digest(CONTENT) in capsys.readouterr().err
    assert here(capsys) == {}
    assert hub.files


def test_a_file_that_is_only_called_gguf_is_not_taken_for_an_archive(
    hub: FakeHub,  # noqa: ARG001
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = tmp_path / "text.gguf"
    page.write_text("<html>not here</html>")
    assert run("import", str(page)) == ExitCode.USAGE
    assert f"{page} is no GGUF file" in capsys.readouterr().err
