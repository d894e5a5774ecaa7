"""Kernels that rocprofv3 counts: servers planned for it, and its files.

The numbers and names are made up: no card was here.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.unit.command_line import CASES, run, settle, write
from tests.unit.planning import card, machine, plan_for
from zluda_stack.bench import rocprof
from zluda_stack.cli import bench_kernels
from zluda_stack.engines.docker.change import served_images
from zluda_stack.errors import ExitCode, HostProblem, PlanRefused
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.profiles import traits
from zluda_stack.plan.rocprof import servers, with_rocprof
from zluda_stack.render.project import render_project

HEAD = '"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"\n'
ONE = HEAD + (
    '"__amd_rocclr_copyBuffer",100,1000000,10000.0,10.0,600,10000,1241.4\n'
    '"void mul_mat_q<(ggml_type)2, 64, false>(char const*, int)",50,9000000,180000.0,90.0,1,2,3\n'
)
TWO = HEAD + '"__amd_rocclr_copyBuffer",300,10000000,33333.3,100.0,600,10000,1241.4\n'


def test_the_kernels_of_all_processes_are_added_up_and_the_longest_is_first(
    tmp_path: Path,
) -> None:
    write(tmp_path / "host" / "12_kernel_stats.csv", ONE)
    write(tmp_path / "host" / "13_kernel_stats.csv", TWO)
    first, second = rocprof.collect(tmp_path)
    assert (first.name, first.calls, first.total_ns) == ("__amd_rocclr_copyBuffer", 400, 11000000)
    assert first.percent == 55
    assert second.name == "void mul_mat_q<(ggml_type)2, 64, false>(char const*, int)"
    assert rocprof.rows((second,)) == [("45.0 %", "9.0 ms", "50", "180.0 us", second.name)]


def test_columns_of_later_versions_do_no_harm() -> None:
    text = '"Calls","Name","Percentage","TotalDurationNs","New"\n7,"k",100.0,70,"x"\n'
    (kernel,) = rocprof.parse(text)
    assert (kernel.name, kernel.calls, kernel.total_ns) == ("k", 7, 70)


@pytest.mark.parametrize(
    "text", ["", "no csv", '"Name","Calls"\n"k",1\n', HEAD + '"k",many,1,1,1\n', HEAD + '"k",1\n']
)
def test_another_kind_of_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no columns|no numbers"):
        rocprof.parse(text)


def test_the_command_prints_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(tmp_path, monkeypatch)
    write(tmp_path / "profile" / "12_kernel_stats.csv", ONE)
    told = run("bench", "--kernels", str(tmp_path / "profile"))
    assert told.code == 0, told.err
    assert told.out.splitlines()[1].startswith("90.0 %")
    nothing = run("bench", "--kernels", str(tmp_path / "nowhere"))
    assert nothing.code == 5
    assert "needs an AMD card" in nothing.err
    write(tmp_path / "broken" / "1_kernel_stats.csv", "x")
    assert (
        "1_kernel_stats.csv cannot be read"
        in run("bench", "--kernels", str(tmp_path / "broken")).err
    )
    assert run("bench", "cpu", "--kernels", "x").code == 2


@pytest.mark.parametrize(("profile", "target"), [("translated", "gfx1100"), ("native", "gfx90a")])
def test_each_server_of_the_plan_runs_under_it_and_may_end_in_its_own_time(
    profile: str, target: str
) -> None:
    before = plan_for(machine(card(target, 0), card(target, 1)), profile=profile, gpu="all")
    plan = with_rocprof(before)
    assert servers(plan) == ("inference", "inference-2")
    *others, counting = plan.images
    assert others == list(before.images)
    server = next(one for one in others if one.name == traits(plan.profile).image)
    assert counting.contexts == {"server": f"docker-image://{server.tag}"}
    assert counting.tag == f"{server.tag}-rocprof"
    built = [image.name for image in served_images(plan)]
    assert built.index(server.name) < built.index("rocprof")
    made, without = (
        yaml.safe_load(render_project(one)[traits(one.profile).compose]) for one in (plan, before)
    )
    for name in servers(plan):
        service = made["services"][name]
        assert service["image"] == counting.tag
        assert f"rocprof-{name}:/rocprof" in service["volumes"]
        assert service["stop_grace_period"] == "600s"
        assert f"rocprof-{name}" in made["volumes"]
    assert made["services"]["endpoint"] == without["services"]["endpoint"]


@pytest.mark.parametrize(
    ("facts", "flags", "reason"),
    [
        (machine(), {"gpu": "none", "engine": "docker"}, "computes on the CPU"),
        (machine(card("gfx1100")), {"profile": "webui"}, "webui profile is not run"),
        (machine(card("gfx1100")), {"variant": "debian"}, "of debian hold no rocprofv3"),
    ],
    ids=["cpu", "webui", "debian"],
)
def test_what_it_cannot_count_is_refused(
    facts: HostFacts, flags: dict[str, str], reason: str
) -> None:
    with pytest.raises(PlanRefused, match=reason):
        with_rocprof(plan_for(facts, **flags))


def test_a_bench_under_it_plans_what_cards_do_for_one_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(tmp_path, monkeypatch)
    case = ("--host-facts", str(CASES / "radeon-rx-7900-xtx.json"))
    told = run(*case, "bench", "--dry-run", "--accept-cuda-eula", "--rocprof", "new", "--json")
    assert told.code == ExitCode.OK, told.err
    assert told.json["each"]["rounds"] == 1
    assert set(told.json["commands"]) == {"translated", "native"}
    for lines in told.json["commands"].values():
        assert sum("rocprof" in line for line in lines) == 1
    assert not Path("new").exists()
    cpu = run(*case, "bench", "cpu", "--dry-run", "--rocprof", "new")
    assert "cannot be measured here: rocprofv3 counts what a card computes" in cpu.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("stack:one", "--rocprof", "new"), "one runs already"),
        (("http://host", "--rocprof", "new"), "remote runs already"),
        (("native", "--rocprof", "old"), "old is there already"),
        (("native", "--rocprof", "old/file"), "old/file is there already"),
    ],
)
def test_what_it_would_not_count_or_mix_up_is_refused(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(settle(tmp_path, monkeypatch) / "old" / "file", "")
    told = run("bench", *arguments)
    assert told.code == ExitCode.USAGE
    assert message in told.err


def test_a_folder_that_cannot_be_made_is_refused_before_anything_starts(tmp_path: Path) -> None:
    write(tmp_path / "file", "")
    with pytest.raises(HostProblem, match=r"cannot make .*: Not a directory"):
        bench_kernels.make(tmp_path / "file" / "folder")
