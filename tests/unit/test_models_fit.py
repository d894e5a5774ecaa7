"""`zluda-stack models fit`: for cards of this machine, and for one that nobody here has."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.unit.command_line import CASES, NO_GPU, run
from tests.unit.gguf_shapes import SHAPES, write_shape
from zluda_stack.errors import ExitCode

GIB = 2**30
ONE_CARD = CASES / "radeon-rx-7900-xtx.json"


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_shape(tmp_path_factory.mktemp("fit") / "gemma.gguf", SHAPES["gemma3"]))


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATA", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))


def test_a_card_that_nobody_here_has(gemma: str) -> None:
    asked = ("--gpu", "gfx1100", "--vram", "24G", "--ctx", "64k", "--json")
    found = run("--host-facts", str(NO_GPU), "models", "fit", gemma, *asked).json
    (card,) = found["cards"]
    assert (card["card"], card["memory"], card["fits"]) == ("gfx1100", 24 * GIB, True)
    assert (found["context"], card["largest_context"], card["gpu_layers"]) == (65536, 131072, 49)
    assert found["compared"] is True
    parts = {part: size for part, size in found["needs"].items() if part != "host"}
    assert found["total"] == sum(parts.values())


def test_the_table_adds_up_to_the_sum_that_it_names(gemma: str) -> None:
    out = run("models", "fit", gemma, "--vram", "8G", "--ctx", "8k", "--slots", "1").out
    sizes = [float(line.split()[-2]) for line in out.splitlines() if line.endswith(" GiB")]
    assert sum(sizes[:-1]) == pytest.approx(sizes[-1], abs=0.03)
    assert "a card" in out


def test_the_cards_of_this_machine_are_asked_without_flags(gemma: str) -> None:
    (card,) = run("--host-facts", str(ONE_CARD), "models", "fit", gemma, "--json").json["cards"]
    assert card["card"].startswith("0: ")
    assert card["memory"] == 24 * GIB


def test_a_model_that_does_not_fit_says_how_many_layers_do(gemma: str) -> None:
    found = run("models", "fit", gemma, "--vram", "6G", "--ctx", "8k", "--json").json
    (card,) = found["cards"]
    assert card["fits"] is False
    assert card["largest_context"] is None
    assert 0 < card["gpu_layers"] < 48


def test_a_model_with_experts_says_of_how_many_layers_they_must_stay_outside() -> None:
    asked = ("models", "fit", "qwen3-coder-30b-a3b", "--ctx", "24k", "--vram")
    (card,) = run(*asked, "12G", "--json").json["cards"]
    outside = card["experts_outside"]
    assert card["fits"] is False
    assert (outside["batch"], 0 < outside["layers"] < 48) == (512, True)
    assert outside["total"] <= 12 * GIB < outside["total"] + outside["host"]
    assert f"with the experts of {outside['layers']} of 48 layers in the" in run(*asked, "12G").out
    (roomy,) = run(*asked, "24G", "--json").json["cards"]
    assert (roomy["fits"], roomy["experts_outside"]) == (True, None)


def test_a_model_without_experts_leaves_none_out(gemma: str) -> None:
    (card,) = run("models", "fit", gemma, "--vram", "6G", "--ctx", "8k", "--json").json["cards"]
    assert card["experts_outside"] is None


def test_a_machine_without_a_card_is_told_to_name_one(gemma: str) -> None:
    done = run("--host-facts", str(NO_GPU), "models", "fit", gemma)
    assert done.code == ExitCode.HOST
    assert "--vram 24G" in done.err


def test_a_model_that_is_not_here_is_computed_from_its_published_shape() -> None:
    asked = ("--gpu", "gfx1100", "--vram", "24G", "--ctx", "32k")
    done = run("models", "fit", "qwen3-coder-30b-a3b", *asked, "--json")
    (card,) = done.json["cards"]
    assert (card["fits"], done.json["layers"], done.json["architecture"]) == (True, 48, "qwen3moe")
    assert "computed from its published shape" in done.err


def test_a_smaller_batch_makes_room_as_it_does_in_a_plan() -> None:
    asked = ("qwen3-coder-30b-a3b", "--vram", "24G", "--json")
    (card,) = run("models", "fit", *asked, "--ctx", "48k").json["cards"]
    assert (card["fits"], card["batch"]) == (True, 128)
    (card,) = run("models", "fit", *asked, "--ctx", "8k").json["cards"]
    assert (card["fits"], card["batch"]) == (True, 512)


def test_the_native_profile_has_room_for_more_where_there_are_flash_kernels() -> None:
    asked = ("models", "fit", "qwen3-4b", "--vram", "16G", "--ctx", "32k")
    translated, native = (
        run(*asked, "--profile", profile, "--json").json for profile in ("translated", "native")
    )
    assert (translated["attention"], native["attention"]) == ("plain", "flash")
    assert native["needs"]["compute"] < translated["needs"]["compute"]
    assert native["cards"][0]["largest_context"] > translated["cards"][0]["largest_context"]
    assert "with FlashAttention" in run(*asked, "--profile", "native").out
    latent = run("models", "fit", "glm-4.7-flash", "--vram", "48G", "--profile", "native", "--json")
    assert latent.json["attention"] == "plain"


def test_the_profile_of_the_settings_counts_without_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZLUDA_STACK_PROFILE", "native")
    assert run("models", "fit", "qwen3-4b", "--vram", "16G", "--json").json["attention"] == "flash"


def test_flash_kernels_work_on_a_quantised_cache_in_a_copy_of_one_layer_of_it() -> None:
    asked = ("models", "fit", "llama-3.1-8b", "--vram", "24G", "--profile", "native", "--json")

    def grown(kind: str) -> dict[str, int]:
        """What 32k tokens more take."""
        short, long = (
            run(*asked, "--kv-type", kind, "--ctx", size).json["needs"] for size in ("64k", "96k")
        )
        return {part: long[part] - short[part] for part in ("cache", "compute")}

    f16, q8 = grown("f16"), grown("q8_0")
    assert q8["cache"] == f16["cache"] * 17 // 32  # 34 bytes for 32 values
    copy = 32768 * 2 * 1024 * 2  # tokens, keys and values, eight heads of 128, half precision
    assert q8["compute"] - f16["compute"] == copy
    assert run(*asked, "--kv-type", "iq4_nl").json["attention"] == "plain"


def test_a_model_without_a_published_shape_must_be_here() -> None:
    done = run("models", "fit", "granite-4.1-30b", "--vram", "24G")
    assert done.code == ExitCode.HOST
    assert "models pull granite-4.1-30b" in done.err


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "page.gguf"
    path.write_text("<!doctype html>")
    done = run("models", "fit", str(path), "--vram", "8G")
    assert done.code == ExitCode.HOST
    assert "it is not a GGUF file" in done.err
    missing = run("models", "fit", str(tmp_path / "none.gguf"), "--vram", "8G")
    assert "No such file" in missing.err


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (("--gpu", "gfx9999"), "no GPU named"),
        (("--vram", "much"), "is not a size"),
        (("--ctx", "0"), "is not a context"),
        (("--ctx", "1M"), "was trained for"),
        (("--kv-type", "q9"), "no type of a KV cache"),
    ],
)
def test_what_cannot_be_asked_is_a_usage_error(
    gemma: str, wrong: tuple[str, ...], word: str
) -> None:
    done = run("models", "fit", gemma, "--vram", "24G", *wrong)
    assert done.code == ExitCode.USAGE
    assert word in done.err


def test_an_architecture_that_was_never_compared_is_an_estimate(tmp_path: Path) -> None:
    shape = msgspec.structs.replace(SHAPES["llama"], architecture="orion")
    path = write_shape(tmp_path / "orion.gguf", shape)
    assert "as an estimate" in run("models", "fit", str(path), "--vram", "24G").err
