"""What users type for a model that is in no catalogue, and which files that means."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zluda_stack.errors import UsageError
from zluda_stack.models.choice import choose, quantisation_of
from zluda_stack.models.reference import HubPlace, WebPlace, all_parts, name_of, parse

REPO = "Qwen/Qwen3-Coder-GGUF"


@pytest.mark.parametrize(
    ("text", "file", "quantisation", "revision"),
    [
        (f"hf:{REPO}/a/x.gguf", "a/x.gguf", None, None),
        (f"hf:{REPO}/x.gguf@abc123", "x.gguf", None, "abc123"),
        (f"hf://{REPO}/x.gguf", "x.gguf", None, None),
        (f"hf:{REPO}", None, None, None),
        (f"hf.co/{REPO}:Q4_K_M", None, "Q4_K_M", None),
        (f"huggingface.co/{REPO}", None, None, None),
        (f"{REPO}:Q8_0", None, "Q8_0", None),
        (f"{REPO}:Q8_0@v1", None, "Q8_0", "v1"),
        (f"https://huggingface.co/{REPO}", None, None, None),
        (f"https://huggingface.co/{REPO}/resolve/main/x.gguf?download=true", "x.gguf", None, None),
        (f"https://huggingface.co/{REPO}/blob/v2/q/x.gguf", "q/x.gguf", None, "v2"),
    ],
)
def test_spellings_of_a_place_at_the_hub(
    text: str, file: str | None, quantisation: str | None, revision: str | None
) -> None:
    assert parse(text) == HubPlace(
        repository=REPO, file=file, quantisation=quantisation, revision=revision
    )


def test_a_url_keeps_its_query_and_its_folder() -> None:
    assert parse("https://models.example:8443/a/b/x.gguf?key=1") == WebPlace(
        folder="https://models.example:8443/a/b", file="x.gguf?key=1"
    )
    assert parse("http://models.example/x.gguf") == WebPlace(
        folder="http://models.example", file="x.gguf"
    )


@pytest.mark.parametrize("text", ["smollm2-135m", "./x.gguf", "dir/x.gguf", "/m/x.gguf", "a/b/c"])
def test_names_and_paths_are_no_places(text: str) -> None:
    assert parse(text) is None


def test_a_folder_that_is_there_is_no_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse("owner/repo") is not None
    (tmp_path / "owner/repo").mkdir(parents=True)
    assert parse("owner/repo") is None


@pytest.mark.parametrize(
    "text",
    [
        "ollama://library/x",
        "s3://bucket/x.gguf",
        "hf:owner",
        "hf:owner/repo/readme.md",
        "hf:owner/repo/../../x.gguf",
        "hf:owner/repo/x.gguf:Q4_K_M",
        "https://models.example/",
        "https://models.example/x.zip",
        "https://user:secret@models.example/x.gguf",
        "https:///x.gguf",
    ],
)
def test_what_looks_like_a_place_and_is_none_is_told(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert caught.value.hint
    assert "secret" not in caught.value.message


@given(
    st.sampled_from(["", "hf:", "hf.co/", "https://", "https://huggingface.co/", "http://"]),
    st.text(alphabet="aQ4_K-.:/@?#[]%~ \n\0ü", max_size=30),
)
def test_anything_typed_is_a_place_a_name_or_a_usage_error(start: str, rest: str) -> None:
    with contextlib.suppress(UsageError):
        place = parse(start + rest)
        if isinstance(place, HubPlace):
            assert ".." not in place.repository
            name_of(place.file or "x.gguf")
        elif isinstance(place, WebPlace):
            name_of(place.file)


def test_the_parts_of_a_split_model_follow_from_one_name() -> None:
    assert all_parts("x.gguf") == ("x.gguf",)
    assert all_parts("q/x-00002-of-00003.gguf") == (
        "q/x-00001-of-00003.gguf",
        "q/x-00002-of-00003.gguf",
        "q/x-00003-of-00003.gguf",
    )
    with pytest.raises(UsageError, match="99999 parts"):
        all_parts("x-00001-of-99999.gguf")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("Qwen2.5-Coder-7B-Instruct-Q4_K_M.gguf", "qwen2.5-coder-7b-instruct-q4_k_m"),
        ("q/Big Model-00001-of-00004.GGUF", "big-model"),
        ("x.gguf?key=a/b.gguf", "x"),
    ],
)
def test_the_name_in_the_store_is_that_of_the_file(file: str, name: str) -> None:
    assert name_of(file) == name


FILES = (
    "README.md",
    "model-Q4_K_M.gguf",
    "model-Q8_0.gguf",
    "model-UD-Q4_K_XL.gguf",
    "model-f16.gguf",
    "mmproj-model-f16.gguf",
    "imatrix.gguf",
    "BF16/model-BF16-00001-of-00002.gguf",
    "BF16/model-BF16-00002-of-00002.gguf",
    "model-Q2_K-00001-of-00002.gguf",
)


@pytest.mark.parametrize(
    ("wish", "files"),
    [
        (None, ("model-Q4_K_M.gguf",)),
        ("q8_0", ("model-Q8_0.gguf",)),
        ("UD-Q4_K_XL", ("model-UD-Q4_K_XL.gguf",)),
        ("F16", ("model-f16.gguf",)),
        (
            "BF16",
            ("BF16/model-BF16-00001-of-00002.gguf", "BF16/model-BF16-00002-of-00002.gguf"),
        ),
    ],
)
def test_a_quantisation_means_its_files(wish: str | None, files: tuple[str, ...]) -> None:
    assert choose(FILES, HubPlace(repository=REPO, quantisation=wish)) == files


def test_what_is_not_there_is_told_with_what_is() -> None:
    with pytest.raises(UsageError, match="does not have Q3_K_S") as caught:
        choose(FILES, HubPlace(repository=REPO, quantisation="Q3_K_S"))
    assert "BF16, F16, Q4_K_M, Q8_0, UD-Q4_K_XL" in caught.value.hint
    with pytest.raises(UsageError, match="does not have Q2_K"):  # its second part is missing
        choose(FILES, HubPlace(repository=REPO, quantisation="Q2_K"))
    with pytest.raises(UsageError, match="holds no GGUF file"):
        choose(["README.md"], HubPlace(repository=REPO))
    with pytest.raises(UsageError, match="in several files"):
        choose(["a-Q4_K_M.gguf", "b-Q4_K_M.gguf"], HubPlace(repository=REPO))
    with pytest.raises(UsageError, match="no quantisation that is usual"):
        choose(["a-Q2_K.gguf", "a-Q6_K.gguf"], HubPlace(repository=REPO))


def test_an_only_model_needs_no_quantisation() -> None:
    assert choose(["ggml-model.gguf"], HubPlace(repository=REPO)) == ("ggml-model.gguf",)
    assert quantisation_of("ggml-model.gguf") is None
    assert quantisation_of("gpt-oss-20b-mxfp4.gguf") == "MXFP4"
    assert quantisation_of("x.i1-IQ4_XS.gguf") == "IQ4_XS"
