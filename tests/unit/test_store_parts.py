"""Models of several files in the store: their names, shared files, and one that is damaged."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from zluda_stack.catalog.schema import Evidence, HubModel, Model, ModelFile, Provenance
from zluda_stack.errors import HostProblem
from zluda_stack.models import store as store_module
from zluda_stack.models.layout import Record, StoredFile
from zluda_stack.models.source import Fetched, Offer
from zluda_stack.models.store import EntryState, Store
from zluda_stack.progress import Progress, Silent

REVISION = "a" * 40
PARTS = {"big-00001-of-00002.gguf": b"GGUF one", "big-00002-of-00002.gguf": b"GGUF two"}


def model_of(name: str = "big", parts: dict[str, bytes] = PARTS) -> Model:
    return Model(
        name=name,
        title="Big",
        parameters="1M",
        quantisation="none",
        context_length=128,
        tools=False,
        licence="Apache-2.0",
        files=tuple(
            ModelFile(
                name=f"Q4/{part}", sha256=hashlib.sha256(content).hexdigest(), size=len(content)
            )
            for part, content in parts.items()
        ),
        hub=HubModel(repository="a/b", revision=None),
        provenance=Provenance(source="a test", date="2026-11-30", evidence=Evidence.UNPROVEN),
    )


class FakeSource:
    """Has the files of PARTS; fails at the file named `broken`, and remembers what was asked."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.fetched: list[str] = []
        self.broken = ""

    def offer(self, progress: Progress) -> Offer:  # noqa: ARG002
        return Offer(
            files=self._model.files,
            source="fake",
            hub=HubModel(repository="a/b", revision=REVISION),
        )

    def space_needed(self, file: ModelFile, folder: Path) -> int:  # noqa: ARG002
        return file.size or 0

    def commands(self, folder: Path) -> tuple[tuple[str, ...], ...]:  # noqa: ARG002
        return ()

    def fetch(
        self,
        offer: Offer,  # noqa: ARG002
        file: ModelFile,
        folder: Path,
        progress: Progress,  # noqa: ARG002
        lock: int,  # noqa: ARG002
    ) -> Fetched:
        name = Path(file.name).name
        if name == self.broken:
            raise HostProblem("the line is cut")
        self.fetched.append(name)
        content = PARTS[name]
        digest = hashlib.sha256(content).hexdigest()
        path = folder / f"sha256-{digest}"
        path.write_bytes(content)
        return Fetched(path=path, sha256=digest, size=len(content))


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> FakeSource:
    made = FakeSource(model_of())
    monkeypatch.setattr(store_module, "source_of", lambda *_: made)
    return made


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.mark.usefixtures("source")
def test_a_split_model_is_its_first_part_beside_the_others(store: Store) -> None:
    path = store.ensure(model_of(), Silent())
    assert path.name == "big-00001-of-00002.gguf"
    beside = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    assert beside == PARTS
    assert store.find("big") == store.get(model_of()) == path
    (entry,) = store.entries()
    assert (entry.state, entry.bytes) == (EntryState.READY, sum(map(len, PARTS.values())))
    assert entry.record is not None
    assert entry.record.hub == HubModel(repository="a/b", revision=REVISION)


def test_parts_that_came_are_kept_when_a_later_one_fails(store: Store, source: FakeSource) -> None:
    source.broken = "big-00002-of-00002.gguf"
    with pytest.raises(HostProblem, match="the line is cut"):
        store.ensure(model_of(), Silent())
    assert store.find("big") is None
    (entry,) = store.entries()
    assert (entry.state, entry.bytes) == (EntryState.INCOMPLETE, len(b"GGUF one"))
    source.broken = ""
    store.ensure(model_of(), Silent())
    assert source.fetched == list(PARTS)
    assert [entry.state for entry in store.entries()] == [EntryState.READY]


def test_a_damaged_part_is_named_and_alone_fetched_again(store: Store, source: FakeSource) -> None:
    path = store.ensure(model_of(), Silent())
    second = path.parent / "big-00002-of-00002.gguf"
    second.chmod(0o644)
    second.write_bytes(b"GGUF tw0")
    checks = store.verify("big", Silent())
    assert [(check.file, check.whole) for check in checks] == [
        ("big-00001-of-00002.gguf", True),
        ("big-00002-of-00002.gguf", False),
    ]
    assert store.find("big") is None
    assert [entry.state for entry in store.entries()] == [EntryState.DAMAGED]
    source.fetched.clear()
    assert store.ensure(model_of(), Silent()) == path
    assert source.fetched == ["big-00002-of-00002.gguf"]
    assert second.read_bytes() == b"GGUF two"


@pytest.mark.usefixtures("source")
def test_a_part_that_another_model_has_stays_when_one_of_them_goes(
    store: Store, tmp_path: Path
) -> None:
    store.ensure(model_of(), Silent())
    twin = store.ensure(model_of("twin"), Silent())
    store.remove("big")
    assert store.find("twin") == twin
    store.remove("twin")
    left = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert all(path.parent.name == "locks" for path in left)
    assert not (tmp_path / "store" / "parts" / "twin").exists()


@pytest.mark.parametrize("name", ["../x.gguf", "a/b", "..", ".", "", "x\n", "x\0y"])
def test_a_record_with_a_name_that_leads_elsewhere_is_none(name: str) -> None:
    good = Record(files=(StoredFile(name="x", sha256="0" * 64, size=1),), source="s")
    assert msgspec.json.decode(msgspec.json.encode(good), type=Record) == good
    raw = msgspec.json.encode(good).replace(b'"name":"x"', b'"name":' + msgspec.json.encode(name))
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(raw, type=Record)
