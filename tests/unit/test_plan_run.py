"""What `run` gives a program: the card and its groups, the user's folder, and nothing else."""

from __future__ import annotations

import csv
import io
import itertools
from pathlib import Path

import pytest
from msgspec import structs

from tests.unit.command_line import CASES, NO_GPU, run, settle
from tests.unit.planning import card, configured, host, machine, plan_for
from zluda_stack import paths
from zluda_stack.catalog.load import load
from zluda_stack.engines.docker.run import command, exit_code
from zluda_stack.errors import DeviceMissing, HostProblem, PlanRefused, UsageError
from zluda_stack.files import write_atomic
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.resolve import require_runnable
from zluda_stack.plan.run import Mount, RunPlan, Wish, gpu_plan, run_plan
from zluda_stack.plan.types import to_json

WISH = Wish(
    program=("./program", "--quiet"),
    uid=1000,
    gid=1000,
    home="/home/somebody",
    folder="/home/somebody/project",
    cache="/home/somebody/.cache/zluda-stack/run",
)


def planned(facts: HostFacts, wish: Wish = WISH, **flags: object) -> RunPlan:
    """The run of `wish` on that machine."""
    plan = gpu_plan(facts, configured(**flags), load())
    require_runnable(plan)
    return run_plan(plan, wish)


def pairs(line: tuple[str, ...], option: str) -> list[str]:
    """The values of every `option` in a command line."""
    return [value for name, value in itertools.pairwise(line) if name == option]


def test_the_program_gets_the_chosen_card_alone_and_the_groups_of_its_nodes() -> None:
    found = planned(host("igpu-gfx1036-and-dgpu-gfx1201"))
    assert found.image == "zluda-stack/inference:gfx1201"
    assert found.devices == ("/dev/kfd:/dev/kfd", "/dev/dri/renderD129:/dev/dri/renderD129")
    assert planned(host("kfd-gid-148")).groups[0] == "148"


def test_several_cards_that_were_asked_for_come_together() -> None:
    found = planned(machine(card("gfx1100", 0), card("gfx1100", 1)), gpu="all")
    assert [device.partition(":")[0] for device in found.devices] == [
        "/dev/kfd",
        "/dev/dri/renderD128",
        "/dev/dri/renderD129",
    ]
    assert found.groups == ("109",)


def test_what_only_a_stack_needs_is_not_asked_for() -> None:
    # Neither NVIDIA's terms, which are for a build, nor a model, nor the port of an endpoint.
    busy = structs.replace(machine(card("gfx1100", gib=1)), listening_ports=(8080,))
    assert planned(busy).target == "gfx1100"


def test_an_override_reaches_the_entrypoint_and_an_image_without_it() -> None:
    told = planned(machine(card("gfx1031"))).environment
    assert told["HSA_OVERRIDE"] == told["HSA_OVERRIDE_GFX_VERSION"] == "10.3.0"
    assert "HSA_OVERRIDE" not in planned(machine(card("gfx1100"))).environment


def test_amds_runtime_is_told_the_cards_in_one_variable() -> None:
    facts = machine(card("gfx1100", 0), card("gfx1100", 1))
    runtime = structs.replace(facts, docker=structs.replace(facts.docker, runtimes=("amd", "runc")))
    found = planned(runtime, gpu="all", passthrough="runtime")
    assert (found.runtime, found.devices) == ("amd", ())
    assert found.environment["AMD_VISIBLE_DEVICES"] == "0,1"


@pytest.mark.parametrize("folder", ["/", "/home", "/home/somebody", "/usr/lib", "/opt", "/dev"])
def test_a_folder_that_would_give_too_much_or_hide_the_containers_own(folder: str) -> None:
    with pytest.raises(UsageError) as refused:
        planned(machine(card("gfx1100")), structs.replace(WISH, folder=folder))
    assert "--no-cwd" in refused.value.hint


def test_without_the_current_folder_nothing_of_the_machine_but_the_cache_is_there() -> None:
    found = planned(machine(card("gfx1100")), structs.replace(WISH, folder=None))
    assert [mount.target for mount in found.mounts] == ["/cache"]
    assert found.folder is None


def test_the_command_line_of_docker_keeps_odd_paths_and_the_programs_options() -> None:
    odd = Mount(source='/data/a,"b"', target="/b", read_only=True)
    line = command(planned(machine(card("gfx1100")), structs.replace(WISH, mounts=(odd,))))
    assert line[-3:] == ("zluda-stack/inference:gfx1100", "./program", "--quiet")
    last = pairs(line, "--mount")[-1]
    assert next(csv.reader(io.StringIO(last))) == [
        "type=bind",
        'source=/data/a,"b"',
        "target=/b",
        "readonly",
    ]
    assert "--tty" not in line
    assert pairs(line, "--user") == ["1000:1000"]


def test_podman_without_root_keeps_the_users_groups_and_ids() -> None:
    facts = machine(card("gfx1100"))
    docker = structs.replace(facts.docker, emulated_by="podman", rootless=True)
    line = command(planned(structs.replace(facts, docker=docker)))
    assert pairs(line, "--group-add") == ["keep-groups"]
    assert pairs(line, "--userns") == ["keep-id"]


def test_a_variable_that_the_card_decides_is_refused() -> None:
    wish = structs.replace(WISH, environment={"HSA_OVERRIDE_GFX_VERSION": "gfx1103"})
    with pytest.raises(UsageError, match="HSA_OVERRIDE_GFX_VERSION"):
        planned(machine(card("gfx1103")), wish)


def test_no_card_is_never_the_cpu() -> None:
    with pytest.raises(HostProblem, match="on a GPU only"):
        planned(host("laptop-without-gpu-or-docker"))
    with pytest.raises(PlanRefused, match="gpu=none"):
        planned(machine(card("gfx1100")), gpu="none")
    with pytest.raises(DeviceMissing):
        planned(host("kfd-without-dri"))
    with pytest.raises(PlanRefused, match="gfx803"):
        planned(host("rx-580-gfx803"), gpu="gfx803")


def test_docker_that_is_missing_or_elsewhere_is_said() -> None:
    with pytest.raises(HostProblem, match="docker command is not installed"):
        planned(host("radeon-without-docker"))
    with pytest.raises(HostProblem, match="Docker Desktop"):
        planned(host("docker-desktop-on-linux"))


@pytest.mark.parametrize(("status", "code"), [(0, 0), (255, 255), (-15, 143), (-11, 139)])
def test_the_exit_code_of_what_a_signal_ended(status: int, code: int) -> None:
    assert exit_code(status) == code


def test_the_dry_run_prints_one_docker_command() -> None:
    facts = ("--host-facts", str(CASES / "radeon-rx-7900-xtx.json"))
    told = run(*facts, "run", "--no-cwd", "--env", "A=b c", "--dry-run", "--", "prog", "--json")
    assert told.code == 0, told.err
    assert told.out.startswith("docker run --rm --init ")
    assert "--env 'A=b c'" in told.out
    assert told.out.endswith("zluda-stack/inference:gfx1100 prog --json\n")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--", "./nothing-here"), 2, "there is no ./nothing-here"),
        (("--mount", "/nowhere:/x", "--", "p"), 2, "there is no /nowhere"),
        (("--mount", "/etc:x", "--", "p"), 2, "is no place in the container"),
        (("--mount", "a:b:c:d", "--", "p"), 2, "is not SRC[:DST][:ro]"),
        (("--env", "NOBODY_SET_THIS", "--", "p"), 2, "your environment has no NOBODY_SET_THIS"),
        (("-o", "x.tar.gz", "--", "p"), 2, "--output names the bundle of --trace"),
        (("--zluda", "/nowhere/libcuda.so", "--", "p"), 2, "there is no libcuda.so in /nowhere"),
        (("--no-cwd", "--", "p"), 4, "CUDA programs run on a GPU only"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(
    arguments: tuple[str, ...], code: int, told: str
) -> None:
    found = run("--host-facts", str(NO_GPU), "run", *arguments)
    assert found.code == code
    assert told in found.err


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ((), 2, "takes a PATH or --stack"),
        (("here", "--stack"), 2, "takes a PATH or --stack"),
        (("/nowhere",), 2, "there is no /nowhere"),
        (("/etc",), 4, "kernels are compiled on the GPU that they are for"),
        (("--stack", "--name", "never-started"), 5, "no stack never-started was started yet"),
    ],
)
def test_precompile_says_what_it_needs(arguments: tuple[str, ...], code: int, told: str) -> None:
    found = run("--host-facts", str(NO_GPU), "precompile", *arguments)
    assert found.code == code
    assert told in found.err


def test_precompile_sees_the_program_alone() -> None:
    facts = ("--host-facts", str(CASES / "radeon-rx-7900-xtx.json"))
    told = run(*facts, "precompile", "/etc/passwd", "--dry-run")
    assert told.out.count("type=bind") == 2  # the program, and what is kept
    assert told.out.endswith(" /opt/zluda/zluda_precompile /etc/passwd\n")


def test_precompile_for_the_stack_runs_where_its_server_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(tmp_path, monkeypatch)
    plan = plan_for(machine(card("gfx1100", 0), card("gfx1100", 1)), gpu="all")
    write_atomic(paths.stack("default") / "plan.json", to_json(plan))
    told = run("precompile", "--stack", "--dry-run")
    assert told.code == 0, told.err
    first, second = told.out.splitlines()
    tool = "/opt/zluda/zluda_precompile /opt/llama/libggml-cuda.so"
    assert " run --rm --no-deps " in first
    assert first.endswith(f" inference {tool}")
    assert second.endswith(f" inference-2 {tool}")


def test_a_stack_on_the_cpu_has_nothing_to_precompile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(tmp_path, monkeypatch)
    plan = plan_for(host("laptop-without-gpu-or-docker"))
    write_atomic(paths.stack("default") / "plan.json", to_json(plan))
    told = run("precompile", "--stack")
    assert told.code == 2
    assert "computes on the CPU" in told.err
