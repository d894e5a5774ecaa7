"""docker-bake.json: every image of every gfx target, as `docker buildx bake` reads it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.command_line import run, settle
from zluda_stack.catalog.load import load
from zluda_stack.catalog.schema import ZludaSupport
from zluda_stack.errors import ExitCode
from zluda_stack.plan.reference import cpu_plan, gpu_plans
from zluda_stack.plan.toolbox import toolbox_image
from zluda_stack.render.bake import render_bake
from zluda_stack.settings import Settings


def bake_for(settings: Settings) -> str:
    """The file for these settings."""
    catalog = load()
    toolbox = toolbox_image(catalog, settings)
    return render_bake(cpu_plan(catalog, settings), gpu_plans(catalog, settings), toolbox)


@pytest.fixture(scope="module")
def text() -> str:
    return bake_for(Settings())


@pytest.fixture(scope="module")
def document(text: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(text)
    return read


def test_there_is_one_inference_image_for_every_target_that_has_kernels(
    document: dict[str, Any],
) -> None:
    catalog = load()
    supported = {gpu.target for gpu in catalog.gpus.values() if gpu.zluda is ZludaSupport.YES}
    baked = {name for name in document["target"] if name.startswith("inference-")}

    assert baked <= {f"inference-{target}" for target in supported}
    assert {"inference-gfx1031", "inference-gfx1100"} <= baked
    for name in baked:
        image = document["target"][name]
        target = name.removeprefix("inference-")
        assert image["args"]["GFX_TARGET"] == target
        assert image["tags"] == [f"zluda-stack/inference:{target}"]
        kernels = image["args"]["KERNEL_TARGET"] or target
        assert catalog.gpus[kernels].rocblas_kernels is not False


def test_an_image_that_is_the_same_for_every_target_stands_once(document: dict[str, Any]) -> None:
    assert [name for name in document["target"] if name.startswith("endpoint")] == ["endpoint"]
    assert [name for name in document["target"] if name.startswith("zluda")] == ["zluda"]


def test_no_two_targets_write_the_same_tag_or_share_a_cache(document: dict[str, Any]) -> None:
    tags = [tag for target in document["target"].values() for tag in target["tags"]]
    caches = [target["cache-to"] for target in document["target"].values()]

    assert len(tags) == len(set(tags))
    assert len(caches) == len(set(caches))


def test_the_default_group_needs_nothing_of_nvidias(document: dict[str, Any]) -> None:
    assert document["group"]["default"] == document["group"]["cpu"]
    for name in document["group"]["default"]["targets"]:
        assert "ACCEPT_CUDA_EULA" not in document["target"][name].get("args", {})


def test_the_toolbox_has_a_group_of_its_own(document: dict[str, Any]) -> None:
    assert document["group"]["toolbox"]["targets"] == ["toolbox"]
    accepted = json.loads(bake_for(Settings(accept_cuda_eula=True)))
    assert accepted["group"]["toolbox"]["targets"] == ["toolbox-cuda"]
    image = accepted["target"]["toolbox-cuda"]
    assert (image["target"], image["args"]) == ("toolbox-cuda", {"ACCEPT_CUDA_EULA": "yes"})


def test_nvidias_terms_are_never_accepted_without_the_user(document: dict[str, Any]) -> None:
    accepted = bake_for(Settings(accept_cuda_eula=True))

    def values(found: dict[str, Any]) -> set[str]:
        targets = found["target"].values()
        return {
            each["args"]["ACCEPT_CUDA_EULA"]
            for each in targets
            if "ACCEPT_CUDA_EULA" in each.get("args", {})
        }

    assert values(document) == {""}
    assert values(json.loads(accepted)) == {"yes"}


def test_the_same_catalogue_gives_the_same_bytes(text: str) -> None:
    assert bake_for(Settings()) == text


def test_the_command_writes_the_file(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = settle(tmp_path, monkeypatch)

    assert run("bake").code == ExitCode.OK
    assert (project / "docker-bake.json").read_text() == text
    assert run("bake", "--out", "-").out == text


@pytest.mark.docker
@pytest.mark.usefixtures("buildx")
def test_buildx_accepts_every_target_and_the_cache_folders(text: str, tmp_path: Path) -> None:
    (tmp_path / "docker-bake.json").write_text(text)

    plain = _printed(tmp_path)
    cached = _printed(tmp_path, CACHE_FROM="/old", CACHE_TO="/new")

    assert plain["target"].keys() == json.loads(text)["target"].keys()
    assert not any("cache-to" in target for target in plain["target"].values())
    assert cached["target"]["endpoint"]["cache-from"] == ["type=local,src=/old/endpoint"]
    assert cached["target"]["endpoint"]["cache-to"] == ["type=local,dest=/new/endpoint,mode=max"]


def _printed(folder: Path, **variables: str) -> dict[str, Any]:
    """What `docker buildx bake --print` makes of the file in `folder`."""
    done = subprocess.run(
        [
            "docker",
            "buildx",
            "bake",
            "--file",
            "docker-bake.json",
            "--print",
            "cpu",
            "gpu",
            "toolbox",
        ],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed
