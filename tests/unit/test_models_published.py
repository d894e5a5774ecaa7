"""What the catalogue says of models that are not here, beside files of the same shapes."""

from __future__ import annotations

from collections import Counter
from math import prod
from pathlib import Path

import msgspec
import pytest

from tests.unit.gguf_shapes import SHAPES, write_shape
from tests.unit.gguf_shapes import Shape as Written
from zluda_stack.catalog.load import load
from zluda_stack.catalog.schema import (
    Evidence,
    Experts,
    LatentAttention,
    LinearAttention,
    Model,
    ModelFile,
    Provenance,
    Shape,
)
from zluda_stack.models.architecture import read_architecture
from zluda_stack.models.blueprint import known as known_architecture
from zluda_stack.models.fit import Serving, needs
from zluda_stack.models.mixture import known as known_mixture
from zluda_stack.models.published import architecture_of, plain_tensors_of, tensors_of

CATALOG = load()
MODELS = CATALOG.models.values()
TESTED = Provenance(source="a test", date="2026-11-30", evidence=Evidence.UNPROVEN)

# Tensors by type as llama.cpp's own log counts them when it loads the file.
LOGGED = {
    "codellama-7b": {"F32": 65, "Q4_K": 193, "Q6_K": 33},
    "qwen2.5-coder-7b": {"F32": 141, "Q4_K": 169, "Q6_K": 29},
    "qwen3-30b-a3b": {"F32": 241, "Q4_K": 289, "Q6_K": 49},
    "deepseek-coder-v2-lite": {"F32": 108, "Q5_0": 14, "Q8_0": 13, "Q4_K": 229, "Q6_K": 13},
}
# Families of which whoever quantised them gave some tensors more bits than llama.cpp does.
MORE_BITS = ("qwen3.5-", "qwen3.6-", "qwen3-30b-a3b", "glm-4.7-flash")


def published(written: Written) -> Model:
    """A model of the catalogue with the numbers of a file that a test writes."""
    experts = latent = linear = None
    deepseek = written.architecture == "deepseek2"
    if written.experts:
        experts = Experts(
            count=written.experts,
            used=written.experts_used,
            wide=written.expert_feed_forward,
            shared=2 * written.expert_feed_forward if deepseek else 0,
            dense_layers=1 if deepseek else 0,
        )
    if deepseek:
        latent = LatentAttention(rank=512, nope=128, rope=64, value=128)
    if written.architecture == "qwen35":
        linear = LinearAttention(interval=4, state=128, key_heads=16, value_heads=32, kernel=4)
    shape = Shape(
        architecture=written.architecture,
        layers=written.layers,
        embedding=written.embedding,
        vocabulary=written.vocabulary,
        heads=written.heads,
        kv_heads=written.kv_heads,
        head=written.head,
        wide=written.feed_forward,
        window=written.window,
        tied=written.tied,
        biases=written.biases and written.architecture != "qwen2",  # its are not optional
        experts=experts,
        latent=latent,
        linear=linear,
        provenance=TESTED,
    )
    return Model(
        name=written.architecture,
        title="a model",
        parameters="1B",
        quantisation="Q8_0",
        context_length=written.context,
        tools=False,
        licence="MIT",
        shape=shape,
        files=(ModelFile(name="model.gguf", sha256=None, size=None),),
        provenance=TESTED,
    )


@pytest.mark.parametrize("name", SHAPES)
def test_a_published_shape_gives_what_the_file_of_that_shape_gives(
    name: str, tmp_path: Path
) -> None:
    read = read_architecture(write_shape(tmp_path / "model.gguf", SHAPES[name]))
    computed = architecture_of(published(SHAPES[name]))
    assert computed is not None
    for field in set(read.__struct_fields__) - {"title", "tensors", "template"}:
        assert getattr(computed, field) == getattr(read, field), field
    theirs = {tensor.name: tensor.shape for tensor in read.tensors}
    assert {tensor.name: tensor.shape for tensor in computed.tensors} == theirs


@pytest.mark.parametrize(("name", "logged"), LOGGED.items())
def test_the_mixture_is_that_of_llama_cpp(name: str, logged: dict[str, int]) -> None:
    tensors = plain_tensors_of(CATALOG.models[name])
    assert Counter(tensor.type for tensor in tensors or ()) == logged


def sized() -> list[Model]:
    """The models whose shape is known, and the size of whose file somebody has seen."""
    return [model for model in MODELS if model.shape is not None and model.size is not None]


@pytest.mark.parametrize("model", sized(), ids=lambda model: model.name)
def test_computed_weights_are_as_large_as_the_file(model: Model) -> None:
    tensors = tensors_of(model)
    assert tensors is not None
    assert sum(tensor.bytes or 0 for tensor in tensors) == pytest.approx(model.size, rel=0.02)


@pytest.mark.parametrize("model", sized(), ids=lambda model: model.name)
def test_the_mixture_alone_gives_the_file_less_its_vocabulary(model: Model) -> None:
    plain = plain_tensors_of(model)
    assert plain is not None
    assert model.shape is not None
    assert model.size is not None
    data = model.size - 40 * model.shape.vocabulary
    share = sum(tensor.bytes or 0 for tensor in plain) / data
    lowest = 0.95 if model.name.startswith(MORE_BITS) else 0.998
    assert lowest < share < (1.02 if model.name.startswith("gemma-4") else 1.002)


@pytest.mark.parametrize(
    "model", [model for model in MODELS if model.shape is not None], ids=lambda model: model.name
)
def test_a_shape_holds_as_many_parameters_as_the_model_is_said_to_have(model: Model) -> None:
    sizes = {tensor.name: prod(tensor.shape) for tensor in plain_tensors_of(model) or ()}
    stored_twice = model.name.startswith("qwen2.5-coder-") and model.parameter_count < 4e9
    if stored_twice:  # Qwen's own files of the small ones hold the embedding as the output too
        del sizes["output.weight"]
    assert sum(sizes.values()) == pytest.approx(model.parameter_count, rel=0.006)


def test_a_shape_is_one_that_can_be_computed() -> None:
    for model in MODELS:
        if model.shape is not None:
            assert known_architecture(model.shape.architecture), model.name
            assert known_mixture(model.quantisation.removeprefix("UD-")), model.name
            architecture = architecture_of(model)
            assert architecture is not None
            assert needs(architecture, Serving(context=8192)).total > 2**30, model.name


def test_every_model_says_where_its_facts_are_from() -> None:
    for model in MODELS:
        assert model.tools_source, model.name
        assert model.template or not model.tools, model.name
        assert model.provenance.source, model.name
        assert model.hub or model.pypi or model.https, model.name
        assert model.title, model.name
        assert all(file.sha256 is None or len(file.sha256) == 64 for file in model.files)


def test_a_model_may_be_told_by_its_file_alone() -> None:
    model = msgspec.structs.replace(CATALOG.models["qwen3-8b"], shape=None)
    assert architecture_of(model) is None
    unknown = msgspec.structs.replace(CATALOG.models["qwen3-8b"], quantisation="IQ1_S")
    assert architecture_of(unknown) is None
