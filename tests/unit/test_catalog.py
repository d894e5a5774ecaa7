"""The catalogue holds together, and a broken one is told with file and place."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path

import msgspec
import pytest
import yaml

from zluda_stack.catalog import explain
from zluda_stack.catalog.load import load
from zluda_stack.catalog.schema import Catalog, Client, Gpu, Model, ZludaSupport
from zluda_stack.errors import StackError
from zluda_stack.plan.gpu_target import lacks_kernels

DATA = Path(explain.__file__).parent / "data"
MANUAL = Path(__file__).parents[2] / "docs" / "gpus.md"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the catalogue's files, to break."""
    return Path(shutil.copytree(DATA, tmp_path / "data"))


def edit(folder: Path, kind: str, old: str, new: str) -> None:
    path = folder / f"{kind}.yml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_name_means_one_thing_only(catalog: Catalog) -> None:
    every = [name for names in explain.names(catalog).values() for name in names]
    assert [name for name, count in Counter(every).items() if count > 1] == []


def test_a_product_belongs_to_one_target_only(catalog: Catalog) -> None:
    products = Counter(name.lower() for gpu in catalog.gpus.values() for name in gpu.products)
    assert [name for name, count in products.items() if count > 1] == []


def test_zluda_is_said_to_work_on_wave32_only(catalog: Catalog) -> None:
    for gpu in catalog.gpus.values():
        assert (gpu.zluda is ZludaSupport.YES) == (gpu.wavefront == 32), gpu.target


def test_the_default_combination_is_for_every_target_that_an_image_can_be_built_for(
    catalog: Catalog,
) -> None:
    targets = catalog.combinations[catalog.defaults.combination].targets
    served = [gpu for gpu in catalog.gpus.values() if gpu.zluda is ZludaSupport.YES]
    with_kernels = [gpu.target for gpu in served if not lacks_kernels(gpu)]
    assert list(targets) == with_kernels
    assert not {"gfx1011", "gfx1036", "gfx1152", "gfx1153"} & set(targets)


def test_the_manual_names_the_targets_that_are_passed_over_for_want_of_kernels(
    catalog: Catalog,
) -> None:
    (row,) = [line for line in MANUAL.read_text().splitlines() if "nobody has reported" in line]
    bare = [gpu.target for gpu in catalog.gpus.values() if lacks_kernels(gpu)]
    served = [target for target in bare if catalog.gpus[target].zluda is ZludaSupport.YES]
    assert re.findall(r"gfx[0-9a-f]+", row) == served


def test_kernels_are_borrowed_only_where_there_are_none_and_from_a_target_that_has_some(
    catalog: Catalog,
) -> None:
    borrowers = [gpu for gpu in catalog.gpus.values() if gpu.kernel_fallback]
    assert [gpu.target for gpu in borrowers] == ["gfx1031", "gfx1032", "gfx1034", "gfx1035"]
    for gpu in borrowers:
        assert gpu.rocblas_kernels is False
        assert gpu.kernel_fallback is not None
        assert catalog.gpus[gpu.kernel_fallback.target].rocblas_kernels is not False


def test_the_default_bases_are_pinned_and_so_is_what_the_zluda_image_downloads(
    catalog: Catalog,
) -> None:
    variant = catalog.variants[catalog.defaults.variant]
    for base in (variant.development, variant.runtime):
        assert catalog.bases[base].digest is not None
    zluda = catalog.components["zluda"].git
    assert zluda is not None
    assert zluda.commit is not None
    assert [artifact.sha256 for artifact in catalog.components["rust"].artifacts] != [None]


def test_the_published_zluda_is_the_pinned_one_which_the_coverage_table_is_about(
    catalog: Catalog,
) -> None:
    built, published = catalog.components["zluda"], catalog.components["zluda-release"]
    assert published.version == built.version
    assert built.git is not None
    assert f"-{str(built.git.commit)[:8]}." in published.artifacts[0].file


def test_every_download_is_over_https(catalog: Catalog) -> None:
    urls = [entry.git.url for entry in catalog.components.values() if entry.git]
    urls += [
        file.url for entry in catalog.components.values() for file in entry.artifacts if file.url
    ]
    assert [url for url in urls if not url.startswith("https://")] == []


def test_a_client_needs_more_context_than_its_own_prompt(catalog: Catalog) -> None:
    for client in catalog.clients.values():
        for mode in client.modes:
            assert mode.context_floor > mode.prompt_tokens


def test_the_default_context_ceiling_lets_every_client_work(catalog: Catalog) -> None:
    floors = [mode.context_floor for client in catalog.clients.values() for mode in client.modes]
    assert catalog.defaults.context_ceiling >= max(floors)


@pytest.mark.parametrize(
    ("kind", "old", "new", "place"),
    [
        ("gpus", "wavefront: 64", "wavefront: many", "gpus.gfx803.wavefront"),
        ("gpus", "    wavefront: 64\n", "", "gpus.gfx803"),
        ("gpus", "wavefront: 64", "wavefront: 64\n    colour: red", "gpus.gfx803"),
        ("gpus", "  gfx900:\n", "  gfx803:\n", "gfx803"),
        ("gpus", "target: gfx803", "target: gfx804", "gpus.gfx803"),
        ("gpus", "{target: gfx1030,", "{target: gfx1999,", "gfx1999"),
        ("bases", "sha256:4", "sha256:", "bases.rocm/dev-ubuntu-22.04:7.2.1.digest"),
        ("bases", 'date: "2026-11-30"', "date: 20261130", "provenance.date"),
        ("components", "evidence: unproven", "evidence: certain", "components.zluda.provenance"),
        ("components", "commit: 8a7931be", "commit: zzz931be", "components.zluda.git.commit"),
        ("combinations", "zluda: v7-preview.9", "zluda: v8", "components.zluda"),
        ("combinations", "rust: 1.97.0", "ferrum: 1.97.0", "ferrum"),
        ("combinations", "- gfx1010", "- gfx1999", "gfx1999"),
        ("combinations", "rocm-ubuntu-22.04", "rocm-9", "combinations.zluda-llama.cpp.variant"),
        ("variants", "ubuntu-22.04:7.2.1", "ubuntu-22.04:9.9", "rocm-ubuntu-22.04.development"),
        (
            "variants",
            "      server: [ca-certificates, libgomp1]\n",
            "",
            "rocm-ubuntu-22.04.packages",
        ),
        ("defaults", "variant: rocm", "variant: roc", "defaults.variant"),
        ("defaults", "model: smollm2-135m", "model: gpt-9", "defaults.model"),
        ("defaults", "port: 8080", "port: '8080'", "defaults.port"),
        ("models", "models:", "modells:", "models"),
    ],
)
def test_a_broken_entry_is_refused_with_its_file_and_place(
    copy: Path, kind: str, old: str, new: str, place: str
) -> None:
    edit(copy, kind, old, new)
    with pytest.raises(StackError) as told:
        load(copy)
    assert f"{kind}.yml" in told.value.message
    assert place in told.value.message
    assert told.value.hint


@pytest.mark.parametrize("text", ["gpus: [", "- gfx803", "", "gpus: gfx803", "gpus: *nowhere"])
def test_a_file_that_is_no_catalogue_is_refused_by_name(copy: Path, text: str) -> None:
    (copy / "gpus.yml").write_text(text)
    with pytest.raises(StackError, match=r"gpus\.yml"):
        load(copy)


def test_a_missing_file_is_refused_by_name(copy: Path) -> None:
    (copy / "models.yml").unlink()
    with pytest.raises(StackError, match=r"models\.yml"):
        load(copy)


def test_another_folder_with_the_same_files_gives_the_same_catalogue(
    copy: Path, catalog: Catalog
) -> None:
    assert load(copy) == catalog


def test_no_file_of_the_catalogue_needs_a_loader_that_builds_objects() -> None:
    for path in DATA.glob("*.yml"):
        assert isinstance(yaml.safe_load(path.read_text()), dict)


@pytest.mark.parametrize(
    ("kind", "entries"),
    [("gpus", dict[str, Gpu]), ("models", dict[str, Model]), ("clients", dict[str, Client])],
)
def test_the_quick_reader_says_what_yaml_says(
    catalog: Catalog, kind: str, entries: type[object]
) -> None:
    document = yaml.safe_load((DATA / f"{kind}.yml").read_bytes())
    assert getattr(catalog, kind) == msgspec.convert(document[kind], entries)
