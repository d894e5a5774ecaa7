"""Kernels that rocprofv3 counts: servers planned for it, and its files.

The numbers and names are made up: no card was here.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.unit import bench_runs
from tests.unit.command_line import CASES, NO_GPU, run, settle, write
from tests.unit.planning import card, machine, plan_for
from zluda_stack.bench import rocprof
from zluda_stack.bench.targets import RocprofTarget
from zluda_stack.cli import bench_kernels
from zluda_stack.engines.docker import rocprof as counted
from zluda_stack.engines.docker.change import served_images
from zluda_stack.errors import EngineFailure, ExitCode, HostProblem, PlanRefused
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.profiles import traits
from zluda_stack.plan.rocprof import servers, with_rocprof
from zluda_stack.progress import Progress, Silent
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


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("webui",), "webui profile is not run under rocprofv3"),
        (("native", "--variant", "debian"), "the packages of debian hold no rocprofv3"),
    ],
)
def test_what_it_counts_nowhere_is_said_before_what_this_machine_lacks(
    flags: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(tmp_path, monkeypatch)
    told = run("--host-facts", str(NO_GPU), "bench", *flags, "--rocprof", "new", "--dry-run")
    assert message in told.err


class FakeEngine:
    """An engine that is asked to take stacks down, and nothing else."""

    def __init__(self) -> None:
        self.down_were: list[str] = []

    def down(self, name: str, progress: Progress) -> None:
        progress.step(f"stopping {name}")
        self.down_were.append(name)


def target(name: str, folder: Path) -> RocprofTarget:
    plan = with_rocprof(plan_for(machine(card("gfx90a")), profile="native"))
    return RocprofTarget(name, plan, None, folder, cached=False)


def test_the_kernels_of_one_are_told_where_those_of_another_are_lost(tmp_path: Path) -> None:
    write(tmp_path / "native" / "1" / "12_kernel_stats.csv", ONE)
    told = bench_kernels.counted(
        [target(name, tmp_path / name) for name in ("translated", "native")],
        bench_runs.run({"translated": 1.0, "native": 1.0}, 1),
    )
    assert [kernel.calls for kernel in told.kernels["native"]] == [50, 100]
    (lost,) = told.lost
    assert lost.message.startswith("the kernels of translated are lost: ")


@pytest.mark.parametrize("failing", ["take", "forget"])
def test_a_stack_is_taken_down_whatever_becomes_of_what_was_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*_: object) -> None:
        raise EngineFailure("not today")

    for name in ("take", "forget"):
        monkeypatch.setattr(counted, name, fail if name == failing else lambda *_: None)
    one, engine = target("native", tmp_path), FakeEngine()
    monkeypatch.setattr(one, "_engine", engine)
    monkeypatch.setattr(one, "_is_open", True)
    one.close(Silent())
    assert engine.down_were == [one.plan.name]


def test_an_archive_that_ends_early_is_no_traceback() -> None:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        member = tarfile.TarInfo("server_kernel_stats.csv")
        member.size = len(ONE)
        archive.addfile(member, io.BytesIO(ONE.encode()))
    cut = io.BytesIO(whole.getvalue()[:600])
    with (
        pytest.raises(EngineFailure, match="damaged archive"),
        counted._opened(cut) as archive,
    ):
        for each in archive:
            content = archive.extractfile(each)
            assert content is not None
            content.read()
