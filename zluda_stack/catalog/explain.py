"""What the catalogue knows about a name, fact by fact, and how well each is proven."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec import Struct

from zluda_stack.catalog.nearest import find_gpu, nearest, suggest_gpu
from zluda_stack.catalog.schema import (
    BaseImage,
    Catalog,
    Client,
    ClientMode,
    Combination,
    Component,
    Evidence,
    Gpu,
    Model,
    Provenance,
    Shape,
    Variant,
)
from zluda_stack.errors import UsageError

_Entry = TypeVar("_Entry")
_YES_NO = {True: "yes", False: "no", None: None}


class Fact(Struct, frozen=True, kw_only=True):
    """One thing that is known; `value` is None when nobody has seen it: it is unverified."""

    what: str
    value: str | None
    evidence: Evidence


class Explanation(Struct, frozen=True, kw_only=True):
    """Everything known about one name; `evidence` is for the thing as a whole."""

    kind: str
    name: str
    title: str
    evidence: Evidence
    facts: tuple[Fact, ...]
    sources: tuple[Provenance, ...]

    @property
    def unverified(self) -> tuple[str, ...]:
        """What nobody has seen."""
        return tuple(fact.what for fact in self.facts if fact.value is None)


def names(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """Every name that can be explained, by kind."""
    return {
        "gpu": tuple(catalog.gpus),
        "base": tuple(catalog.bases),
        "variant": tuple(catalog.variants),
        "component": tuple(catalog.components),
        "model": tuple(catalog.models),
        "client": tuple(catalog.clients),
        "combination": tuple(catalog.combinations),
    }


def explain(catalog: Catalog, name: str) -> Explanation:
    """What is known of `name`: a gfx target, a product, or any other name of the catalogue.

    Upper and lower case are the same; a base may be named by its tag alone. Raises UsageError
    with the nearest names for anything else.
    """
    gpu = find_gpu(catalog, name)
    if gpu is not None:
        return _gpu(gpu)
    wanted = name.strip().lower()
    default_base = catalog.bases[catalog.variants[catalog.defaults.variant].development].name
    found = (
        _find(catalog.bases, wanted, _base)
        or _find(catalog.bases, f"{default_base}:{wanted}", _base)
        or _find(catalog.variants, wanted, _variant)
        or _find(catalog.components, wanted, _component)
        or _find(catalog.models, wanted, _model)
        or _find(catalog.clients, wanted, _client)
        or _find(catalog.combinations, wanted, _combination)
    )
    if found is None:
        raise UsageError(f"the catalogue knows nothing named {name!r}", _hint(catalog, name))
    return found


def _find(
    entries: dict[str, _Entry], wanted: str, explained: Callable[[_Entry], Explanation]
) -> Explanation | None:
    for key, entry in entries.items():
        if key.lower() == wanted:
            return explained(entry)
    return None


def _hint(catalog: Catalog, name: str) -> str:
    gpus = [f"{gpu.target} ({gpu.products[0]})" for gpu in suggest_gpu(catalog, name)]
    others = [entry for kind, group in names(catalog).items() if kind != "gpu" for entry in group]
    close = gpus or list(nearest(name, others))
    listing = "`zluda-stack explain` lists all names."
    return f"Nearest: {', '.join(close)}. {listing}" if close else listing


def _facts(evidence: Evidence, rows: Iterable[tuple[str, str | None]]) -> tuple[Fact, ...]:
    return tuple(
        Fact(what=what, value=value, evidence=Evidence.UNPROVEN if value is None else evidence)
        for what, value in rows
        if value != ""
    )


def _gpu(gpu: Gpu) -> Explanation:
    facts = _facts(
        gpu.provenance.evidence,
        [
            ("products", ", ".join(gpu.products)),
            ("architecture", gpu.architecture),
            ("wavefront", f"{gpu.wavefront} lanes"),
            ("integrated", _YES_NO[gpu.integrated]),
            ("in ROCm's official list", gpu.rocm_official),
            ("ZLUDA translates for it", gpu.zluda.value),
            ("rocBLAS kernels", _YES_NO[gpu.rocblas_kernels]),
        ],
    )
    # Which way serves a card best without ZLUDA is our choice; it was tried on none of them.
    facts += _facts(Evidence.UNPROVEN, [("way without translation", gpu.native.value)])
    fallback = gpu.kernel_fallback
    if fallback is not None:
        value = f"those of {fallback.target}, with HSA_OVERRIDE_GFX_VERSION={fallback.hsa_override}"
        facts += _facts(fallback.evidence, [("kernels used instead", value)])
    return Explanation(
        kind="gpu",
        name=gpu.target,
        title=f"gfx target of {gpu.products[0]}",
        facts=facts,
        sources=(gpu.provenance,),
        evidence=gpu.provenance.evidence,
    )


def _base(base: BaseImage) -> Explanation:
    rows = [
        ("ROCm", base.rocm),
        ("distribution", base.distribution),
        ("digest", base.digest),
    ]
    return Explanation(
        kind="base",
        name=f"{base.name}:{base.tag}",
        title="base image",
        facts=_facts(base.provenance.evidence, rows),
        sources=(base.provenance,),
        evidence=base.provenance.evidence,
    )


def _variant(variant: Variant) -> Explanation:
    rows = [
        ("built on", variant.development),
        ("runs on", variant.runtime),
        ("ROCm", variant.rocm),
        *((f"packages ({role})", " ".join(names)) for role, names in variant.packages.items()),
    ]
    return Explanation(
        kind="variant",
        name=variant.name,
        title=variant.title,
        facts=_facts(variant.provenance.evidence, rows),
        sources=(variant.provenance,),
        evidence=variant.provenance.evidence,
    )


def _component(component: Component) -> Explanation:
    rows: list[tuple[str, str | None]] = [
        ("version", component.version),
        ("licence", component.licence),
        ("package", component.pypi or ""),
    ]
    if component.git is not None:
        rows += [
            ("source", component.git.url),
            ("commit", component.git.commit),
            ("submodules", ", ".join(component.git.submodules)),
            ("files in Git LFS", ", ".join(component.git.lfs_files)),
        ]
    rows += [(f"sha256 of {artifact.file}", artifact.sha256) for artifact in component.artifacts]
    if component.server is not None:
        rows += [("models that it loads", ", ".join(component.server.architectures or ()))]
    return Explanation(
        kind="component",
        name=component.name,
        title=component.title,
        facts=_facts(Evidence.DOCUMENTED, rows),
        sources=(component.provenance,),
        evidence=component.provenance.evidence,
    )


def _model(model: Model) -> Explanation:
    rows = [
        ("parameters", model.parameters),
        ("parameters that see one token", model.active or ""),
        ("quantisation", model.quantisation),
        ("context length", f"{model.context_length} tokens"),
        ("chat template", model.template or "none"),
        ("calls tools", _YES_NO[model.tools]),
        ("how that is known", model.tools_source),
        ("licence", model.licence),
        ("terms of the licence", model.restriction),
        ("wheel", "" if model.pypi is None else model.pypi.wheel),
        ("repository", "" if model.hub is None else model.hub.repository),
        ("revision", "" if model.hub is None else model.hub.revision),
        ("folder", model.https or ""),
    ]
    for file in model.files:
        size = None if file.size is None else f"{file.size} bytes"
        rows += [(f"size of {file.name}", size), (f"sha256 of {file.name}", file.sha256)]
    shape = () if model.shape is None else (model.shape.provenance,)
    return Explanation(
        kind="model",
        name=model.name,
        title=model.title,
        facts=_facts(model.provenance.evidence, rows) + _shape(model.shape),
        sources=(model.provenance, *shape),
        evidence=model.provenance.evidence,
    )


def _shape(shape: Shape | None) -> tuple[Fact, ...]:
    """What its tensors and caches follow from, on the word of another source than the file's."""
    if shape is None:
        return _facts(Evidence.UNPROVEN, [("layers and tensors", None)])
    experts, latent, linear = shape.experts, shape.latent, shape.linear
    rows = [
        ("architecture", shape.architecture),
        ("layers", f"{shape.layers}, {shape.embedding} wide"),
        ("heads", f"{shape.heads} of {shape.head}, {shape.kv_heads} of keys and values"),
        ("feed-forward", f"{shape.wide} wide" if shape.wide else ""),
        ("vocabulary", f"{shape.vocabulary} tokens"),
        ("sliding window", f"{shape.window} tokens" if shape.window else ""),
        ("experts", "" if experts is None else f"{experts.used} of {experts.count} for a token"),
        ("latent attention", "" if latent is None else f"rank {latent.rank}"),
        ("full attention", "" if linear is None else f"in every {linear.interval}th layer"),
    ]
    return _facts(shape.provenance.evidence, rows)


def _client(client: Client) -> Explanation:
    facts = tuple(fact for mode in client.modes for fact in _mode(mode))
    return Explanation(
        kind="client",
        name=client.name,
        title=client.title,
        facts=facts,
        sources=tuple(mode.provenance for mode in client.modes),
        evidence=client.modes[0].provenance.evidence,
    )


def _mode(mode: ClientMode) -> tuple[Fact, ...]:
    prompt = f"{mode.prompt_tokens} tokens"
    return (
        *_facts(
            mode.provenance.evidence,
            [(f"mode {mode.name}", mode.title), (f"own prompt ({mode.name})", prompt)],
        ),
        # The floor is our judgement of what the measured prompt leaves room for.
        *_facts(
            Evidence.UNPROVEN, [(f"context needed ({mode.name})", f"{mode.context_floor} tokens")]
        ),
    )


def _combination(combination: Combination) -> Explanation:
    rows = [
        ("variant", combination.variant),
        *combination.components.items(),
        ("targets", ", ".join(combination.targets)),
    ]
    # Told of versions near these; nobody here has seen it.
    reports = [
        (f"told on {report.date}", f"{report.says} {report.source}")
        for report in combination.reports
    ]
    return Explanation(
        kind="combination",
        name=combination.name,
        title=combination.title,
        facts=_facts(combination.provenance.evidence, rows) + _facts(Evidence.REPORTED, reports),
        sources=(combination.provenance,),
        evidence=combination.provenance.evidence,
    )
