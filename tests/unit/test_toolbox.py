"""What the toolbox gives a tool: the user's folder, a card if there is one, and a target."""

from __future__ import annotations

import itertools
import re

import pytest
import yaml
from msgspec import structs

from tests.unit.command_line import CASES, run
from tests.unit.planning import card, configured, host, machine
from zluda_stack import paths
from zluda_stack.catalog.load import load
from zluda_stack.engines.docker.run import command
from zluda_stack.errors import ExitCode, HostProblem, PlanRefused, UsageError
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.run import RunPlan
from zluda_stack.plan.toolbox import (
    TOOLS,
    WITH_CUDA,
    Reach,
    ToolWish,
    for_every_host,
    misses_target,
    reach,
    require_pushable,
    tool_command,
    toolbox_image,
    toolbox_images,
    toolbox_plan,
)
from zluda_stack.render.dockerfiles import render_dockerfile
from zluda_stack.render.labels import BUILT_FROM, labels
from zluda_stack.render.toolbox import COMPOSE, render_toolbox
from zluda_stack.settings import Settings

CATALOG = load()
NOBODYS = "laptop-without-gpu-or-docker"
WISH = ToolWish(
    command=("hipcc", "x.hip"),
    uid=1000,
    gid=1000,
    home="/home/somebody",
    folder="/home/somebody/project",
)


def planned(facts: HostFacts, wish: ToolWish = WISH, **flags: object) -> RunPlan:
    """The container for `wish` on that machine."""
    known = configured(**flags)
    reached = reach(facts, known, CATALOG)
    return tool_command(toolbox_image(CATALOG, known.settings), facts, reached, wish)


def wish(*words: str, **changes: object) -> ToolWish:
    return structs.replace(WISH, command=words, **changes)


def pairs(plan: RunPlan, option: str) -> list[str]:
    """The values of every `option` of the `docker run`."""
    return [value for name, value in itertools.pairwise(command(plan)) if name == option]


def test_the_tool_runs_as_the_user_in_the_current_folder() -> None:
    plan = planned(host(NOBODYS))
    assert pairs(plan, "--user") == ["1000:1000"]
    assert pairs(plan, "--workdir") == ["/home/somebody/project"]
    assert [(one.source, one.target, one.read_only) for one in plan.mounts] == [
        ("/home/somebody/project", "/home/somebody/project", False)
    ]
    assert plan.environment["HOME"] == "/home/user"


def test_a_card_is_passed_with_the_groups_of_its_nodes() -> None:
    plan = planned(host("igpu-gfx1036-and-dgpu-gfx1201"))
    assert pairs(plan, "--device") == [
        "/dev/kfd:/dev/kfd",
        "/dev/dri/renderD129:/dev/dri/renderD129",
    ]
    assert planned(host("kfd-gid-148")).groups[0] == "148"


@pytest.mark.parametrize(
    "case", [NOBODYS, "kfd-without-dri", "rx-580-gfx803", "docker-desktop-on-linux", "wsl2"]
)
def test_compiling_needs_no_card(case: str) -> None:
    plan = planned(host(case))
    assert plan.devices == plan.groups == ()
    assert plan.command[0] == "hipcc"


@pytest.mark.parametrize("case", [NOBODYS, "kfd-without-dri", "docker-desktop-on-linux"])
def test_why_no_card_gets_in_is_known(case: str) -> None:
    found = reach(host(case), configured(), CATALOG)
    assert found.card is None
    assert found.lack is not None
    assert found.lack.message


def test_a_card_that_zluda_does_not_serve_is_passed_too() -> None:
    plan = planned(machine(card("gfx90a")))
    assert plan.devices
    assert "--offload-arch=gfx90a" in plan.command


def test_no_card_is_asked_for_by_gpu_none() -> None:
    assert reach(machine(card("gfx1100")), configured(gpu="none"), CATALOG) == Reach()


def test_hipcc_compiles_for_the_card_that_is_named_or_here() -> None:
    assert planned(machine(card("gfx1100"))).command == ("hipcc", "--offload-arch=gfx1100", "x.hip")
    assert planned(host(NOBODYS), gpu="gfx1201").command[1] == "--offload-arch=gfx1201"
    # An override makes the card pass for another target, and the code must be for that.
    assert planned(machine(card("gfx1031"))).command[1] == "--offload-arch=gfx1030"


@pytest.mark.parametrize(
    "own",
    ["--offload-arch=gfx906", "--offload-arch", "--amdgpu-target=gfx906", "--cuda-gpu-arch=x"],
)
def test_a_target_of_the_users_own_stays_the_only_one(own: str) -> None:
    given = wish("hipcc", own, "x.hip")
    assert planned(machine(card("gfx1100")), given).command == ("hipcc", own, "x.hip")


@pytest.mark.parametrize("tool", ["rocminfo", "bash", "nvcc-like", "make"])
def test_only_hipcc_is_given_a_target(tool: str) -> None:
    assert planned(machine(card("gfx1100")), wish(tool, "x")).command == (tool, "x")


def test_a_default_target_of_hipcc_is_told_only_where_it_compiles() -> None:
    assert misses_target(("hipcc", "x.hip"), Reach())
    assert not misses_target(("hipcc", "--version"), Reach())
    assert not misses_target(("hipcc", "--offload-arch=gfx1100", "x.hip"), Reach())
    assert not misses_target(("hipcc", "x.hip"), Reach(target="gfx1100"))
    assert not misses_target(("make", "x"), Reach())


def test_a_card_that_is_asked_for_and_unknown_is_refused() -> None:
    with pytest.raises(PlanRefused):
        planned(host(NOBODYS), gpu="gfx9999")


@pytest.mark.parametrize("folder", ["/opt/rocm/own", "/usr/src/project", "/cache/own"])
def test_a_folder_that_would_hide_the_tools_is_mounted_elsewhere(folder: str) -> None:
    plan = planned(host(NOBODYS), wish("hipcc", folder=folder))
    assert [(one.source, one.target) for one in plan.mounts] == [(folder, "/work")]
    assert plan.folder == "/work"


@pytest.mark.parametrize("folder", ["/", "/home", "/home/somebody"])
def test_the_whole_home_folder_is_not_given(folder: str) -> None:
    with pytest.raises(UsageError, match="would give"):
        planned(host(NOBODYS), wish("hipcc", folder=folder))


def test_an_engine_elsewhere_does_not_have_the_folder() -> None:
    facts = machine(card("gfx1100"))
    remote = structs.replace(
        facts, docker=structs.replace(facts.docker, remote=True, context="far")
    )
    with pytest.raises(HostProblem, match="context far is on another machine"):
        planned(remote)
    assert planned(remote, wish("to-hip", "perl", folder=None)).mounts == ()


def test_without_root_the_files_are_the_users_all_the_same() -> None:
    facts = host(NOBODYS)
    docker = structs.replace(facts.docker, rootless=True)
    rootless = planned(structs.replace(facts, docker=docker))
    # In such an engine's containers root is the user, and any other id is nobody's.
    assert rootless.user == "0:0"
    podman = structs.replace(docker, emulated_by="podman")
    kept = planned(structs.replace(facts, docker=podman))
    assert (kept.user, kept.keep_id) == ("1000:1000", True)


def test_a_variable_that_the_card_decides_is_refused() -> None:
    with pytest.raises(UsageError, match="HSA_OVERRIDE_GFX_VERSION"):
        planned(host(NOBODYS), wish("rocminfo", environment={"HSA_OVERRIDE_GFX_VERSION": "x"}))


def test_nvcc_is_there_once_the_terms_are_accepted() -> None:
    with pytest.raises(PlanRefused, match="terms were not accepted") as refused:
        planned(host(NOBODYS), wish("nvcc", "x.cu"))
    assert "https://docs.nvidia.com" in refused.value.hint
    accepted = planned(host(NOBODYS), wish("nvcc", "x.cu"), accept_cuda_eula=True)
    assert accepted.image.startswith("zluda-stack/toolbox-cuda:")
    # Where it is not built yet, this is what `zluda-stack build` is to be given.
    assert accepted.build == "--accept-cuda-eula toolbox"
    assert planned(host(NOBODYS)).build == "toolbox"


@pytest.mark.parametrize("variant", CATALOG.variants)
def test_the_image_without_the_terms_holds_nothing_of_nvidias(variant: str) -> None:
    images = toolbox_images(CATALOG, Settings(variant=variant, cuda_toolkit="apt"))
    free, with_cuda = map(render_dockerfile, images)
    assert "cuda-toolkit" not in free
    assert "ACCEPT_CUDA_EULA" not in free
    assert "ACCEPT_CUDA_EULA" in with_cuda
    keys = [labels(image)[BUILT_FROM] for image in images]
    assert keys[0] != keys[1]


def test_nvcc_leaves_no_machine_by_a_registry() -> None:
    free, with_cuda = toolbox_images(CATALOG, Settings())
    require_pushable([free])
    with pytest.raises(PlanRefused, match="forbid"):
        require_pushable([free, with_cuda])


def test_it_is_built_on_any_machine_with_docker() -> None:
    plan = toolbox_plan(machine(), configured(), CATALOG)
    assert [image.name for image in plan.images] == ["toolbox"]
    assert plan.unmet == ()
    lacking = toolbox_plan(host(NOBODYS), configured(accept_cuda_eula=True), CATALOG)
    assert [image.name for image in lacking.images] == [WITH_CUDA]
    assert [need.code for need in lacking.unmet] == ["docker"]


def test_every_variant_has_the_tools_that_the_image_must_have() -> None:
    script = (paths.images() / "toolbox/list-tools").read_text()
    listed = " ".join(re.findall(r'readonly (?:NEEDED|OTHERS)="(.*)"', script)).split()
    assert listed == list(TOOLS)
    for variant in CATALOG.variants.values():
        assert "hipcc" in variant.packages["toolbox"]
        assert {"hipify-perl", "hipify-clang"} & set(variant.packages["toolbox"])


def test_the_compose_file_is_for_every_host() -> None:
    rendered = render_toolbox(for_every_host(CATALOG, Settings()))
    services = yaml.safe_load(rendered[COMPOSE])["services"]
    assert list(services) == ["toolbox", "toolbox-cuda"]
    for service in services.values():
        # Without a card nothing is required; Compose refuses entries that stand twice.
        assert "?" not in str(service["devices"]) + str(service["group_add"])
        assert len(set(service["devices"])) == len(service["devices"])
        assert len(set(service["group_add"])) == len(service["group_add"])
        assert service["volumes"] == ["${PWD:-.}:/work"]
        assert service["cap_drop"] == ["ALL"]


HERE = ("--host-facts", str(CASES / f"{NOBODYS}.json"))


def test_the_arguments_of_a_tool_are_its_own() -> None:
    words = ("rocprofv3", "--help", "-v", "--json", "--", "./app", "--", "x")
    told = run(*HERE, "toolbox", "--dry-run", "--no-cwd", *words)
    assert told.code == 0, told.err
    assert told.out.endswith(f"zluda-stack/toolbox:rocm-ubuntu-22.04 {' '.join(words)}\n")
    assert "no card gets into the toolbox" in told.err


def test_any_command_comes_behind_two_dashes() -> None:
    told = run(*HERE, "toolbox", "--dry-run", "--no-cwd", "--", "make", "-j2", "--", "x")
    assert told.out.endswith(" make -j2 -- x\n")
    assert told.err == ""


def test_a_shell_is_among_the_tools() -> None:
    told = run(*HERE, "toolbox", "--no-cwd", "--dry-run", "shell", "-c", "exit 3")
    assert told.out.endswith(" bash --norc -c 'exit 3'\n")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("rocminf",), "Did you mean rocminfo?"),
        (("make", "all"), "toolbox -- make all"),
        (("--gpuu", "x", "hipcc"), "--gpu"),
    ],
)
def test_what_is_no_tool_is_refused_with_the_way_to_run_it(
    words: tuple[str, ...], hint: str
) -> None:
    told = run(*HERE, "toolbox", *words)
    assert told.code == ExitCode.USAGE
    assert hint in told.err


def test_without_docker_a_tool_is_not_started() -> None:
    told = run(*HERE, "toolbox", "--no-cwd", "hipcc", "--version")
    assert told.code == ExitCode.HOST
    assert "need Docker" in told.err


def test_the_toolbox_is_built_by_its_name_on_any_machine() -> None:
    told = run(*HERE, "build", "--dry-run", "toolbox")
    assert told.code == 0, told.err
    assert "--target toolbox --tag zluda-stack/toolbox:rocm-ubuntu-22.04" in told.out
    with_cuda = run(*HERE, "build", "--dry-run", "--accept-cuda-eula", "toolbox")
    assert "--build-arg ACCEPT_CUDA_EULA=yes" in with_cuda.out
    assert "--target toolbox-cuda" in with_cuda.out


def test_the_toolbox_is_built_by_itself_and_nvcc_is_not_pushed() -> None:
    told = run(*HERE, "build", "--gpu", "gfx1100", "--dry-run", "toolbox", "inference")
    assert told.code == ExitCode.USAGE
    push = ("--push", "--registry", "registry.example/me")
    refused = run(*HERE, "build", "--dry-run", "--accept-cuda-eula", *push, "toolbox")
    assert refused.code == ExitCode.REFUSED
    assert "forbid" in refused.err
    allowed = run(*HERE, "build", "--dry-run", *push, "toolbox")
    assert "registry.example/me/toolbox:" in allowed.out
