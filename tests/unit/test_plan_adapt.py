"""What `adapt` changes of an image, and the images it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.command_line import NO_GPU, run
from zluda_stack.errors import PlanRefused
from zluda_stack.plan.adapt import LABEL, Adaptation, Parts, SourceImage, adapt, default_tag
from zluda_stack.render.adapt import quoted, render_adaptation

PARTS = Parts(image="zluda-stack/inference:gfx1031", target="gfx1031", glibc="2.35")


def source(**known: Any) -> SourceImage:
    """An image on Ubuntu 22.04, but for what is known of it."""
    usual = {"name": "me/app:1", "system": "linux", "architecture": "amd64", "libc": "glibc"}
    return SourceImage(**{**usual, "glibc": "2.35", **known})


def adapted(**known: Any) -> Adaptation:
    """That image adapted for gfx1031."""
    return adapt(source(**known), PARTS)


def test_zluda_comes_first_then_rocm_then_what_the_image_had() -> None:
    before = {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64:/app/lib"}
    path = adapted(environment=before).environment["LD_LIBRARY_PATH"]
    assert path == "/opt/zluda:/opt/zluda-stack/lib:/usr/local/nvidia/lib64:/app/lib"
    # An empty entry would be the current folder.
    assert adapted().environment == {"LD_LIBRARY_PATH": "/opt/zluda:/opt/zluda-stack/lib"}


def test_nvidias_runtime_is_told_to_stay_out_where_the_image_asks_for_it() -> None:
    told = adapted(environment={"NVIDIA_VISIBLE_DEVICES": "all"})
    assert told.environment["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "NVIDIA_VISIBLE_DEVICES: all -> void" in told.changes


def test_a_card_that_passes_for_another_does_so_in_the_image_too() -> None:
    parts = Parts(image="i", target="gfx1031", glibc="2.35", override="10.3.0")
    assert adapt(source(), parts).environment["HSA_OVERRIDE_GFX_VERSION"] == "10.3.0"
    assert "HSA_OVERRIDE_GFX_VERSION" not in adapted().environment


def test_what_is_kept_is_said() -> None:
    kept = adapted(user="1000:1000", entrypoint=("/app/start", "--now"), command=()).changes[-1]
    assert kept == "kept: user 1000:1000, entrypoint /app/start --now, command none"


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ({"libc": "musl", "glibc": None}, "has musl"),
        ({"libc": "none", "glibc": None}, "no C library"),
        ({"glibc": "2.31"}, "has glibc 2.31, and ZLUDA's and ROCm's libraries need 2.35"),
        ({"glibc": "2.9"}, "has glibc 2.9"),
        ({"architecture": "arm64"}, "is for linux/arm64"),
        ({"system": "windows"}, "is for windows/amd64"),
        ({"labels": {LABEL: "other:1"}}, "has a ZLUDA already"),
        ({"has_zluda": True}, "has a ZLUDA already"),
        ({"triggers": ("RUN make",)}, "has ONBUILD steps"),
    ],
)
def test_what_cannot_work_is_refused(known: dict[str, Any], told: str) -> None:
    with pytest.raises(PlanRefused, match=told) as refused:
        adapted(**known)
    assert refused.value.hint


def test_libraries_that_only_an_nvidia_gpu_can_use_are_told() -> None:
    there = ("/usr/lib64/libcuda.so.1", "/usr/lib64/libcudnn.so.9")
    codes = {warning.code: warning.message for warning in adapted(nvidia=there).warnings}
    assert set(codes) == {"nvidia-libraries", "nvidia-only"}
    assert "libcuda" not in codes["nvidia-only"]
    assert adapted().warnings == ()


def test_an_entrypoint_that_sets_the_path_itself_is_told() -> None:
    (warning,) = adapted(sets_path="/entry.sh").warnings
    assert "/entry.sh sets LD_LIBRARY_PATH" in warning.message


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("app", "app-zluda:latest-gfx1100"),
        ("registry.example:5000/me/app", "app-zluda:latest-gfx1100"),
        ("registry.example:5000/me/app:2", "app-zluda:2-gfx1100"),
        ("me/app@sha256:" + "ab" * 32, "app-zluda:abababababab-gfx1100"),
    ],
)
def test_the_image_is_named_after_its_source(name: str, tag: str) -> None:
    assert default_tag(name, "gfx1100") == tag


def test_the_dockerfile_runs_nothing_of_the_image_and_keeps_odd_values() -> None:
    odd = {"LD_LIBRARY_PATH": 'a "b" $HOME \\'}
    text = render_adaptation(adapted(environment=odd))
    last = text.rpartition("\nFROM ")[2]
    assert "RUN" not in last
    assert not {"USER", "ENTRYPOINT", "CMD", "WORKDIR"} & set(last.split())
    assert r'/opt/zluda-stack/lib:a \"b\" \$HOME \\"' in last


def test_a_word_of_a_dockerfile_is_quoted() -> None:
    assert quoted('a"$b\\') == r'"a\"\$b\\"'


def test_without_a_card_here_its_target_must_be_named() -> None:
    told = run("--host-facts", str(NO_GPU), "adapt", "some/image")
    assert told.code == 4
    assert "which card the image is for is not known" in told.err
    assert "--gpu gfx1100" in told.err
