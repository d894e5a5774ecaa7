"""The key of an image's contents: the same for the same, another for anything else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec import structs

from tests.unit.command_line import CASES, run, settle
from tests.unit.planning import host, plan_for
from tests.unit.plans import image
from zluda_stack.errors import ExitCode
from zluda_stack.plan.types import ImagePlan
from zluda_stack.render import content_key as module
from zluda_stack.render import sources
from zluda_stack.render.content_key import content_key
from zluda_stack.render.dockerfiles import render_dockerfile
from zluda_stack.render.labels import BUILT_FROM, labels

_RADEON = "radeon-rx-7900-xtx"


def _planned(name: str, **flags: str | bool | int) -> ImagePlan:
    return next(one for one in plan_for(host(_RADEON), **flags).images if one.name == name)


def test_it_does_not_depend_on_the_name_the_host_or_the_users_word() -> None:
    first = _planned("inference")
    others = (
        structs.replace(first, tag="another:name"),
        _planned("inference", accept_cuda_eula=True),
        _planned("inference", port=9000),
    )

    assert re.fullmatch(r"[0-9a-f]{64}", str(content_key(first)))
    assert {content_key(other) for other in others} == {content_key(first)}


@pytest.mark.parametrize("flags", [{"gpu": "gfx1030"}, {"zluda": "release"}, {"variant": "debian"}])
def test_another_target_method_or_base_is_another_image(flags: dict[str, str]) -> None:
    assert content_key(_planned("inference", **flags)) != content_key(_planned("inference"))


def test_the_endpoint_is_the_same_for_every_card() -> None:
    assert content_key(_planned("endpoint", gpu="gfx1030")) == content_key(_planned("endpoint"))


def test_a_changed_file_that_is_copied_is_another_image(monkeypatch: pytest.MonkeyPatch) -> None:
    before = content_key(image("zluda"))
    read = sources.read_source
    monkeypatch.setattr(
        module,
        "read_source",
        lambda name: {path: text + "# changed\n" for path, text in read(name).items()},
    )

    assert content_key(image("zluda")) != before


def test_a_folder_of_this_machine_has_no_key_and_an_image_by_digest_has_one() -> None:
    assert content_key(_planned("inference", zluda="path", zluda_path="/opt/zluda")) is None
    pinned = {"stage": "docker-image://example.org/stage@sha256:" + "0" * 64}
    fixed = structs.replace(image("zluda"), contexts=pinned)
    assert content_key(fixed) not in {None, content_key(image("zluda"))}


def test_the_labels_say_what_an_image_was_built_from() -> None:
    told = labels(image("zluda"))

    assert told[BUILT_FROM] == content_key(image("zluda"))
    assert told["org.opencontainers.image.base.digest"] == image("zluda").runtime.digest
    assert told["zluda-stack.components"].startswith("rust 1.")
    assert "zluda v" in told["zluda-stack.components"]
    own = _planned("inference", zluda="path", zluda_path="/opt/zluda")
    assert BUILT_FROM not in labels(own)
    assert "zluda v" not in labels(own)["zluda-stack.components"]


@pytest.mark.parametrize("method", ["wheels", "apt"])
@pytest.mark.parametrize("variant", ["rocm-ubuntu-22.04", "debian"])
def test_of_nvidias_toolkit_an_image_holds_the_run_time_library_alone(
    variant: str, method: str
) -> None:
    text = render_dockerfile(_planned("inference", variant=variant, cuda_toolkit=method))
    _, _, users = text.partition("AS llama-cuda-build")
    taken = set(re.findall(r"(?:cp|install)\b[^&\n]* (/usr/local/cuda/\S+)", users))

    assert {re.sub(r"[0-9]+$", "N", path) for path in taken} == {
        "/usr/local/cuda/lib/libcudart.so.N",
        "/usr/local/cuda/LICENSE-NVIDIA",
    }
    assert "--from=cuda-toolkit" not in text


def test_a_push_without_a_registry_or_of_a_folder_is_refused_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(tmp_path, monkeypatch)
    facts = ("--host-facts", str(CASES / f"{_RADEON}.json"))
    build = ("build", *facts, "--accept-cuda-eula", "--push")

    nowhere = run(*build)
    folder = run(*build, "--registry", "localhost:5000/me", "--zluda=path", "--zluda-path=/z")

    assert nowhere.code == folder.code == ExitCode.USAGE
    assert "--registry HOST/PATH" in nowhere.err
    assert "inference has no name in a registry" in folder.err


@pytest.mark.parametrize("wrong", ["https://ghcr.io/me", "ghcr.io/Me", "ghcr.io/me/", "ghcr.io:x"])
def test_a_registry_is_named_as_docker_names_it(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(tmp_path, monkeypatch)

    assert run("plan", "--registry", wrong).code == ExitCode.USAGE
    good = run("plan", "--engine=docker", "--gpu=none", "--registry=ghcr.io/me/stack", "--json")
    assert good.json["registry"] == "ghcr.io/me/stack"
