"""A bundle: what is written is what arrives, and nothing of a damaged or hostile one is used."""

from __future__ import annotations

import hashlib
import io
import platform
import random
import resource
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing, nullcontext
from functools import cache
from pathlib import Path

import msgspec
import pytest
from docker.errors import ImageNotFound
from msgspec import structs

from tests.unit.command_line import run, settle
from tests.unit.fetched import CONTENT
from tests.unit.planning import host, plan_for
from zluda_stack import paths
from zluda_stack.bundle import contents as made
from zluda_stack.bundle import instructions
from zluda_stack.bundle.archive import Ingredient, write
from zluda_stack.bundle.loading import load_models, require_machine, write_project
from zluda_stack.bundle.manifest import BundledImage, Manifest, Member, encode, interpreter
from zluda_stack.bundle.reader import Bundle, open_bundle
from zluda_stack.engines.docker import containers
from zluda_stack.errors import ExitCode, HostProblem, PlanRefused, StackError, UsageError
from zluda_stack.models.layout import Record, StoredFile
from zluda_stack.models.store import Store
from zluda_stack.plan.types import Plan
from zluda_stack.progress import Silent

FILES = {"one.gguf": b"GGUF one " * 4000, "two.gguf": b"GGUF two " * 4000}


def digest_of(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def store_with(folder: Path, files: dict[str, bytes] = FILES) -> Store:
    """A store that has each of `files` as a model named without .gguf."""
    store = Store(folder)
    records = {
        name.removesuffix(".gguf"): Record(
            files=(StoredFile(name=name, sha256=digest_of(raw), size=len(raw)),), source="a test"
        )
        for name, raw in files.items()
    }
    with store.receiving(records) as receiving:
        for raw in files.values():
            receiving.take(digest_of(raw), io.BytesIO(raw), Silent())
        list(receiving.admit())
    return store


def contents_of(store: Store, *names: str) -> made.Contents:
    manifest = made.draft(_plan(), ("--model", "one"))
    return made.with_models(made.Contents(manifest=manifest, ingredients=()), store, names)


def written(out: Path, contents: made.Contents) -> Path:
    whole = made.with_readme(contents, out.name)
    write(out, whole.manifest, whole.ingredients, Silent())
    return out


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle with two models, written on another machine."""
    store = store_with(tmp_path / "elsewhere")
    return written(tmp_path / "all.tar", contents_of(store, "one", "two"))


def content(store: Store, name: str) -> bytes:
    path = store.find(name)
    assert path is not None
    return path.read_bytes()


def test_tar_lists_a_bundle_and_its_manifest_names_every_member_by_hash(bundle: Path) -> None:
    with tarfile.open(bundle) as archive:
        first, *others = archive.getmembers()
        found = {one.name: archive.extractfile(one).read() for one in others}  # type: ignore[union-attr]
    manifest = open_bundle(bundle).manifest
    assert first.name == "manifest.json"
    assert [one.name for one in others] == [one.path for one in manifest.members]
    assert {name: digest_of(raw) for name, raw in found.items()} == {
        one.path: one.sha256 for one in manifest.members
    }
    assert found["README.txt"].decode().count("bundle load all.tar") == 1


def test_a_member_whose_size_nobody_knew_is_written_with_its_size_and_hash(tmp_path: Path) -> None:
    piped = b"layer " * 100_000
    contents = contents_of(store_with(tmp_path / "store"), "one")
    image = Ingredient(
        path="images/endpoint.tar", kind="image", open=lambda: closing(io.BytesIO(piped))
    )
    contents = structs.replace(contents, ingredients=(*contents.ingredients, image))
    found = open_bundle(written(tmp_path / "all.tar", contents))
    (member,) = found.manifest.of("image")
    assert (member.size, member.sha256) == (len(piped), digest_of(piped))
    with found.open(member) as source:
        assert source.read() == piped


def test_the_models_arrive_and_a_second_load_takes_nothing(bundle: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "here")
    first = load_models(open_bundle(bundle), store, Silent())
    assert [(one.name, one.new) for one in first] == [("one", True), ("two", True)]
    assert content(store, "one") == FILES["one.gguf"]
    second = load_models(open_bundle(bundle), store, Silent())
    assert [(one.name, one.new) for one in second] == [("one", False), ("two", False)]


class Stopping(Silent):
    """Ctrl-C while `step` is shown."""

    def __init__(self, step: str) -> None:
        self._step = step

    def step(self, text: str) -> None:
        if text == self._step:
            raise KeyboardInterrupt


def test_a_stopped_load_goes_on_without_what_it_took(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "here")
    with pytest.raises(KeyboardInterrupt):
        load_models(open_bundle(bundle), store, Stopping("loading two.gguf"))
    assert store.find("two") is None
    read: list[str] = []
    real = Bundle.open

    def opened(self: Bundle, member: Member) -> object:
        read.append(member.path)
        return real(self, member)

    monkeypatch.setattr(Bundle, "open", opened)
    load_models(open_bundle(bundle), store, Silent())
    assert read == [f"models/blobs/sha256-{digest_of(FILES['two.gguf'])}"]
    assert content(store, "one") == FILES["one.gguf"]


def test_a_model_that_changed_on_the_disk_is_healed(bundle: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "here")
    load_models(open_bundle(bundle), store, Silent())
    path = store.find("one")
    assert path is not None
    path.chmod(0o644)
    path.write_bytes(FILES["one.gguf"][:-1] + b"?")
    loaded = load_models(open_bundle(bundle), store, Silent())
    assert [(one.name, one.new) for one in loaded] == [("one", True), ("two", False)]
    assert content(store, "one") == FILES["one.gguf"]


def test_a_damaged_member_is_named_with_both_hashes_and_is_no_model(
    bundle: Path, tmp_path: Path
) -> None:
    raw = bundle.read_bytes()
    bundle.write_bytes(raw.replace(b"GGUF two", b"GGUF twO", 1))
    store = Store(tmp_path / "here")
    with pytest.raises(HostProblem, match=digest_of(FILES["two.gguf"])):
        load_models(open_bundle(bundle), store, Silent())
    assert store.find("two") is None


def test_whatever_byte_is_wrong_no_wrong_model_arrives(bundle: Path, tmp_path: Path) -> None:
    raw, chance = bundle.read_bytes(), random.Random(0)  # noqa: S311
    refused = 0
    for number in range(150):
        place = chance.randrange(len(raw) if number % 2 else 6000)
        changed = bytearray(raw)
        changed[place] ^= chance.randrange(1, 256)
        bundle.write_bytes(changed)
        store = Store(tmp_path / str(number))
        try:
            load_models(open_bundle(bundle), store, Silent())
        except StackError:
            refused += 1
        for name, right in FILES.items():
            found = store.find(name.removesuffix(".gguf"))
            assert found is None or found.read_bytes() == right
    assert refused > 50


def _member(path: str, raw: bytes = b"x", kind: str = "text") -> dict[str, object]:
    return {"path": path, "kind": kind, "size": len(raw), "sha256": digest_of(raw)}


@cache
def _plan() -> Plan:
    return plan_for(host("laptop-without-gpu-or-docker"))


def _manifest(*members: dict[str, object], **changes: object) -> bytes:
    facts = msgspec.to_builtins(made.draft(_plan(), ())) | {"members": members} | changes
    return msgspec.json.encode(facts)


def _tar(out: Path, manifest: bytes, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as archive:
        for info, raw in ((tarfile.TarInfo("manifest.json"), manifest), *members):
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
    return out


def _special(name: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "/etc/passwd"
    return info


HOSTILE = {
    "a path upwards": (_manifest(_member("../x")), (tarfile.TarInfo("../x"), b"x")),
    "a path upwards inside": (_manifest(_member("a/../../x")), (tarfile.TarInfo("x"), b"x")),
    "an absolute path": (_manifest(_member("/etc/x")), (tarfile.TarInfo("/etc/x"), b"x")),
    "a line break": (_manifest(_member("a\nb")), (tarfile.TarInfo("a\nb"), b"x")),
    "a link": (_manifest(_member("x", b"")), (_special("x", tarfile.SYMTYPE), b"")),
    "a hard link": (_manifest(_member("x", b"")), (_special("x", tarfile.LNKTYPE), b"")),
    "a device": (_manifest(_member("x", b"")), (_special("x", tarfile.CHRTYPE), b"")),
    "a folder": (_manifest(_member("x", b"")), (_special("x", tarfile.DIRTYPE), b"")),
    "an unlisted member": (_manifest(), (tarfile.TarInfo("x"), b"x")),
    "a missing member": (_manifest(_member("x"), _member("y")), (tarfile.TarInfo("x"), b"x")),
    "a longer member": (_manifest(_member("x")), (tarfile.TarInfo("x"), b"x" * 10_000)),
    "another member": (_manifest(_member("x")), (tarfile.TarInfo("y"), b"x")),
    "one name twice": (_manifest(_member("x"), _member("x")), (tarfile.TarInfo("x"), b"x")),
    "another format": (_manifest(format=2), (tarfile.TarInfo("x"), b"x")),
    "deep nesting": (b"[" * 100_000, (tarfile.TarInfo("x"), b"x")),
    "no manifest": (b"{}", (tarfile.TarInfo("x"), b"x")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_bundle_is_refused_before_anything_of_it_is_used(
    name: str, tmp_path: Path
) -> None:
    manifest, member = HOSTILE[name]
    with pytest.raises(StackError) as refused:
        open_bundle(_tar(tmp_path / "all.tar", manifest, member))
    assert refused.value.hint


def test_a_bundle_that_is_cut_off_is_refused(bundle: Path) -> None:
    raw = bundle.read_bytes()
    bundle.write_bytes(raw[: len(raw) - 20_000])
    with pytest.raises(HostProblem, match="cut off"):
        open_bundle(bundle)


@pytest.mark.parametrize("raw", [b"", b"no tar", b"\0" * 4096, bytes(range(256)) * 8])
def test_another_file_is_no_bundle(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(raw)
    with pytest.raises(StackError):
        open_bundle(path)
    with pytest.raises(UsageError, match="cannot read"):
        open_bundle(tmp_path)


def test_a_damaged_model_is_not_saved_and_no_file_is_left(tmp_path: Path) -> None:
    store = store_with(tmp_path / "store")
    contents = contents_of(store, "one")
    path = store.find("one")
    assert path is not None
    path.chmod(0o644)
    path.write_bytes(FILES["one.gguf"][:-1] + b"?")
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(HostProblem, match="damaged"):
        written(out / "all.tar", contents)
    assert list(out.iterdir()) == []


@pytest.fixture
def small_files_only() -> Iterator[None]:
    """No file may grow above 16 kB, as FAT bounds them at 4 GB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 10, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_system_for_small_files_is_told_and_left_clean(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    contents = contents_of(store_with(tmp_path / "store"), "one")
    out = tmp_path / "out"
    out.mkdir()
    request.getfixturevalue("small_files_only")
    with pytest.raises(HostProblem) as told:
        written(out / "all.tar", contents)
    assert "FAT" in told.value.hint
    assert list(out.iterdir()) == []


def test_a_model_that_is_not_here_is_told_with_its_command(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as told:
        contents_of(Store(tmp_path), "one")
    assert "models pull one" in told.value.hint


def test_images_for_another_architecture_are_refused_in_words(tmp_path: Path) -> None:
    image = BundledImage(name="endpoint", tag="zluda-stack/endpoint:1", key=None, member="i.tar")
    other = structs.replace(
        made.draft(_plan(), ()),
        machine="riscv64",
        images=(image,),
    )
    with pytest.raises(PlanRefused, match=f"riscv64.*{platform.machine()}"):
        require_machine(Bundle(tmp_path / "all.tar", other, {}))


def test_the_rendered_project_travels_with_its_lock(tmp_path: Path) -> None:
    plan = plan_for(host("laptop-without-gpu-or-docker"), engine="docker", gpu="none")
    empty = made.Contents(manifest=made.draft(plan, ()), ingredients=())
    path = written(tmp_path / "all.tar", made.with_project(empty, plan))
    files = write_project(open_bundle(path), tmp_path / "out")
    names = {str(file.relative_to(tmp_path / "out")) for file in files}
    assert {"compose/cpu.yml", "compose/.env", "zluda-stack.lock"} <= names
    assert "images/endpoint/Dockerfile" in names


def manifest_for(python: str | None, *up: str) -> Manifest:
    draft = made.draft(_plan(), up)
    return structs.replace(draft, python=python)


def test_the_readme_quotes_names_and_repeats_what_was_wished() -> None:
    lines = instructions.commands(manifest_for(None, "--model", "one"), "my bundle.tar")
    assert lines == (
        "zluda-stack-venv/bin/zluda-stack bundle load 'my bundle.tar'",
        "zluda-stack-venv/bin/zluda-stack up --offline --model one",
    )


@pytest.mark.parametrize(("python", "code"), [("cpython 2.0 Linux m68k glibc", 4), (None, 1)])
def test_the_installer_says_which_python_it_wants(
    python: str | None, code: int, tmp_path: Path
) -> None:
    script = tmp_path / "install.sh"
    script.write_text(instructions.install_script(python or interpreter(), "pip.whl"))
    done = subprocess.run(
        ["sh", str(script), str(tmp_path / "venv")],
        env={"PYTHON": sys.executable, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code  # 1: for this Python, and then without its wheels
    assert ("m68k" in done.stderr) == (python is not None)
    assert (tmp_path / "venv").exists() == (python is None)


def test_a_manifest_says_how_large_the_bundle_is(bundle: Path) -> None:
    manifest = open_bundle(bundle).manifest
    assert sum(map(len, FILES.values())) < manifest.size < bundle.stat().st_size
    assert encode(manifest).startswith(b"{")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user in an empty project, with the models of FILES in the store."""
    project = settle(tmp_path / "user", monkeypatch)
    monkeypatch.chdir(project)
    store_with(paths.model_store())
    return project


def test_a_user_saves_shows_and_loads(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = CONTENT
    store_with(paths.model_store(), {"mine.gguf": own})
    wished = ("--model", "mine", "--include", "models", "--engine", "embedded")
    saved = run("bundle", "save", "-o", "all.tar", *wished)
    assert saved.code == ExitCode.OK, saved.err
    told = "up --offline --engine embedded --model mine"
    assert told in saved.out
    assert told in run("bundle", "show", "all.tar").out
    assert run("bundle", "show", "all.tar", "--json").json["models"][0]["name"] == "mine"
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "elsewhere"))
    assert run("bundle", "load", "all.tar", "--dry-run").code == ExitCode.OK
    assert Store(paths.model_store()).find("mine") is None
    loaded = run("bundle", "load", "all.tar")
    assert (loaded.code, "model mine: loaded" in loaded.out) == (ExitCode.OK, True), loaded.err
    assert content(Store(paths.model_store()), "mine") == own


def test_a_file_of_the_users_has_to_be_taken_into_the_store(home: Path) -> None:
    (home / "mine.gguf").write_bytes(CONTENT)
    (home / "zluda-stack.yml").write_text("model: ./mine.gguf\n")
    done = run("bundle", "save", "-o", "all.tar", "--engine", "embedded")
    assert (done.code, "models import" in done.err) == (ExitCode.USAGE, True)


class FakeEngineWithoutImages:
    """The part of a Docker client that says which images there are: none."""

    def __init__(self) -> None:
        self.images = self

    def get(self, tag: str) -> None:
        raise ImageNotFound(tag)


def test_images_that_were_not_built_are_named_with_the_command(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "connect", lambda: nullcontext(FakeEngineWithoutImages()))
    wished = ("--engine", "docker", "--gpu", "none")
    done = run("bundle", "save", "-o", "all.tar", "--include", "images", *wished)
    assert done.code == ExitCode.HOST
    assert "llama-cpu" in done.err
    assert "build --engine docker --gpu none" in done.err
    assert not (home / "all.tar").exists()
