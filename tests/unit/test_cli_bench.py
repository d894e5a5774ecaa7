"""`bench` where no model has to run: what it refuses, plans, and says of saved benches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit import bench_runs
from tests.unit.command_line import CASES, NO_GPU, run, settle, write
from tests.unit.fake_streams import FakeStreams, fake_streams
from zluda_stack.bench import saved
from zluda_stack.bench.measure import Asked, Bench
from zluda_stack.bench.prompts import all_prompts
from zluda_stack.bench.targets import RemoteTarget
from zluda_stack.errors import EngineFailure, ExitCode
from zluda_stack.progress import Progress, Silent

QUICK = ("--prompt", "small", "--rounds", "1")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return settle(tmp_path, monkeypatch)


def test_a_server_at_a_url_is_measured_and_saved_without_its_address(project: Path) -> None:
    does = FakeStreams(tokens=8)
    with fake_streams(does) as port:
        url = f"http://127.0.0.1:{port}/v1"
        told = run("bench", f"mine={url}", *QUICK, "--clients", "1,2", "-o", "b.json")
    assert told.code == ExitCode.OK, told.err
    assert "first token" in told.out
    assert "all clients together" in told.out
    raw = (project / "b.json").read_text()
    assert str(port) not in raw
    kept = saved.read(project / "b.json")
    assert kept.names == ("mine",)
    assert kept.targets[0].model == "the-model"
    # Two visits with a wave of one client, and one of two.
    assert [wave.clients for wave in kept.waves] == [1, 2, 1, 2]
    assert sum(len(wave.answers) for wave in kept.waves) == 6
    assert all(body["ignore_eos"] for body in does.asked)


def test_a_server_that_is_not_known_gets_openais_fields_only() -> None:
    does = FakeStreams(owner="somebody")
    with fake_streams(does) as port:
        assert run("bench", f"http://127.0.0.1:{port}", *QUICK).code == ExitCode.OK
    assert not any("ignore_eos" in body or "cache_prompt" in body for body in does.asked)


@pytest.mark.parametrize("way", ["--key-env", "--key-file"])
def test_the_key_comes_from_a_variable_or_a_file(
    way: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", "zs-secret")
    write(project / "key", "zs-secret\n")
    does = FakeStreams()
    with fake_streams(does) as port:
        where = "THE_KEY" if way == "--key-env" else "key"
        told = run("bench", f"http://127.0.0.1:{port}", *QUICK, way, where, "-o", "b.json")
    assert told.code == ExitCode.OK, told.err
    assert set(does.keys) == {"Bearer zs-secret"}
    assert "zs-secret" not in told.out + told.err + (project / "b.json").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gpu",), "gpu is no target"),
        (("http://user:word@host",), "a URL with a password in it"),
        (("http://",), "is no URL of a server"),
        (("cpu", "--prompt", "huge"), "there is no prompt 'huge'"),
        (("cpu", "--clients", "1,x"), "--clients takes whole numbers"),
        (("cpu", "--clients", "0"), "--clients takes whole numbers"),
        (("http://h", "--key-env", "UNSET"), "the variable UNSET is not set"),
        (("http://h", "o=http://i", "--key-file", "k"), "2 servers of URLs could get it"),
        (("cpu", "--key-file", "k"), "0 servers of URLs could get it"),
        (("cpu", "--picture", "x.gif"), "is neither"),
        (("cpu", "--compare", "a", "b"), "--compare measures nothing"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: tuple[str, ...], message: str) -> None:
    told = run("bench", *arguments)
    assert told.code == ExitCode.USAGE
    assert message in told.err


def test_errors_are_counted_and_shown() -> None:
    does = FakeStreams(fails=2)
    with fake_streams(does) as port:
        told = run("bench", f"http://127.0.0.1:{port}", *QUICK)
    assert told.code == ExitCode.OK, told.err
    assert "failed: HTTP 500: not today" in told.out


def test_a_prompt_that_a_server_refuses_is_not_measured_and_said() -> None:
    with fake_streams(FakeStreams(fails=1, status=400)) as port:
        told = run("bench", f"http://127.0.0.1:{port}", "--rounds", "1", "--prompt", "small,file")
    assert told.code == ExitCode.OK, told.err
    assert "remote, small: not measured: HTTP 400: not today" in told.out
    assert "file" in told.out


def test_a_server_that_serves_many_models_wants_one_named() -> None:
    does = FakeStreams(models=("a", "b"))
    with fake_streams(does) as port:
        url = f"http://127.0.0.1:{port}"
        told = run("bench", url, *QUICK)
        assert told.code == ExitCode.ENGINE
        assert "serves 2 models" in told.err
        assert run("bench", url, *QUICK, "--remote-model", "b").code == ExitCode.OK
    assert {body["model"] for body in does.asked} == {"b"}


def test_nobody_at_a_url_is_said() -> None:
    with fake_streams(FakeStreams()) as port:
        pass
    told = run("bench", f"http://127.0.0.1:{port}", *QUICK)
    assert told.code == ExitCode.ENGINE
    assert "nothing can be measured here: remote" in told.err


def test_without_a_card_the_profiles_for_one_are_named_with_the_reason() -> None:
    told = run("--host-facts", str(NO_GPU), "bench", "--dry-run", "--json")
    assert told.code == ExitCode.OK, told.err
    assert set(told.json["commands"]) == {"cpu"}
    lacks = {one["target"]: one["reason"] for one in told.json["not_measured"]}
    assert set(lacks) == {"translated", "native"}
    assert all("no card" in reason for reason in lacks.values())


def test_a_dry_run_says_what_would_be_brought_up_and_how_long_that_takes() -> None:
    told = run("--host-facts", str(NO_GPU), "bench", "cpu", "cpu", "--dry-run")
    assert told.code == ExitCode.OK, told.err
    assert "the stack bench-cpu," in told.out
    assert "the stack bench-cpu-2," in told.out
    assert "zluda_stack.engines.embedded" in told.out
    assert "requests in 24 rounds" in told.out
    assert "minutes for each" in told.out


def test_on_a_card_the_profiles_serve_one_model() -> None:
    case = str(CASES / "radeon-rx-7900-xtx.json")
    told = run("--host-facts", case, "bench", "--dry-run", "--accept-cuda-eula")
    assert told.code == ExitCode.OK, told.err
    planned = [line for line in told.out.splitlines() if ": the stack bench-" in line]
    assert [line.partition(":")[0] for line in planned][:2] == ["translated", "native"]
    models = {line.partition("with ")[2].partition(". ")[0] for line in planned}
    assert len(models) == 1


def test_the_facts_of_another_machine_are_not_measured_here() -> None:
    told = run("--host-facts", str(NO_GPU), "bench", "cpu")
    assert told.code == ExitCode.USAGE


def test_a_stack_that_never_was_cannot_be_measured() -> None:
    told = run("bench", "stack:nobody", *QUICK)
    assert told.code == ExitCode.ENGINE
    assert "no stack nobody was started yet" in told.err


def test_two_saved_benches_are_compared(project: Path) -> None:
    for name, slower in (("before", 1.0), ("after", 1.3)):
        saved.write(project / f"{name}.json", bench_runs.run({"native": slower}, 1))
    told = run("bench", "--compare", "before.json", "after.json")
    assert told.code == ExitCode.OK, told.err
    assert "different times" in told.out
    assert "% faster" in told.out


def test_targets_of_one_file_are_compared_as_measured_in_one_go(project: Path) -> None:
    made = bench_runs.run({"native": 1.0, "cpu": 2.0}, 1)
    saved.write(project / "b.json", made)
    told = run("bench", "--compare", "b.json#native", "b.json#cpu", "--json")
    assert told.code == ExitCode.OK, told.err
    assert told.json["paired"]
    assert {one["verdict"] for one in told.json["metrics"]} == {"slower"}
    several = run("bench", "--compare", "b.json", "b.json")
    assert several.code == ExitCode.USAGE
    assert "b.json#native" in several.err
    assert run("bench", "--compare", "b.json#gpu", "b.json#cpu").code == ExitCode.USAGE


def test_a_file_of_another_kind_is_named(project: Path) -> None:
    write(project / "b.json", "{}")
    told = run("bench", "--compare", "b.json", "b.json")
    assert told.code == ExitCode.USAGE
    assert "b.json holds no bench" in told.err


def test_a_bench_of_two_targets_says_how_they_compare() -> None:
    with fake_streams(FakeStreams(gap=0.001)) as quick, fake_streams(FakeStreams(gap=0.01)) as slow:
        urls = (f"quick=http://127.0.0.1:{quick}", f"slow=http://127.0.0.1:{slow}")
        told = run("bench", *urls, "--prompt", "small", "--rounds", "6", "--json")
    assert told.code == ExitCode.OK, told.err
    (comparison,) = told.json["comparisons"]
    verdicts = {one["what"]["metric"]: one["verdict"] for one in comparison["metrics"]}
    assert verdicts["generation"] == "slower"


class Stubborn(RemoteTarget):
    """A target on a card that cannot be closed."""

    def __init__(self, name: str, port: int, closed: list[str]) -> None:
        super().__init__(name, f"http://127.0.0.1:{port}", None, None, cached=False)
        self.cards = frozenset({name[0]})
        self._closed = closed

    def close(self, progress: Progress) -> None:
        """Raises EngineFailure."""
        progress.step(f"closing {self.name}")
        self._closed.append(self.name)
        raise EngineFailure(f"{self.name} does not stop")


@pytest.mark.parametrize("names", [("a", "b"), ("a1", "a2")], ids=["two cards", "one card"])
def test_what_cannot_be_closed_keeps_nothing_open_and_loses_nothing(names: tuple[str, str]) -> None:
    closed: list[str] = []
    asked = Asked(prompts=(all_prompts()["small"],), clients=(1,), rounds=1, cached=False, order=1)
    with fake_streams(FakeStreams()) as port:
        targets = [Stubborn(name, port, closed) for name in names]
        with Bench(targets, asked, Silent()) as bench:
            measured = bench.run()
    assert set(closed) == set(names)
    assert {wave.target for wave in measured.waves} == set(names)
    assert measured.not_measured == []
    assert {problem.message for problem in measured.still_up} == {
        f"{name} could not be taken down: {name} does not stop" for name in names
    }


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    "place",
    [("-o", "."), ("-o", ""), ("-o", "file/b.json"), ("--picture", "file/p.svg")],
    ids=" ".join,
)
def test_a_place_that_cannot_be_written_is_refused_before_the_first_request(
    project: Path, place: tuple[str, str], dry_run: tuple[str, ...]
) -> None:
    write(project / "file", "")
    does = FakeStreams()
    with fake_streams(does) as port:
        told = run("bench", f"http://127.0.0.1:{port}", *QUICK, *place, *dry_run)
    assert told.code == ExitCode.HOST
    assert f"cannot write {place[1] or '.'}" in told.err
    assert does.asked == []


class Blocking(list[Any]):
    """Requests, of which each puts a folder in the place of a file."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self._place = place

    def append(self, asked: Any) -> None:
        """Keep it, and be in the way."""
        self._place.mkdir(exist_ok=True)
        super().append(asked)


@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_what_was_measured_is_told_where_it_cannot_be_saved(
    project: Path, as_json: tuple[str, ...]
) -> None:
    does = FakeStreams(asked=Blocking(project / "b.json"))
    with fake_streams(does) as port:
        told = run("bench", f"http://127.0.0.1:{port}", *QUICK, "-o", "b.json", *as_json)
    assert told.code == ExitCode.HOST
    problem = f"cannot write {project / 'b.json'}: "
    if as_json:
        assert told.json["run"]["waves"]
        assert told.json["problems"][0]["message"].startswith(problem)
    else:
        assert "first token" in told.out
        assert problem in told.err


def test_a_dry_run_of_what_cannot_be_measured_counts_no_requests() -> None:
    told = run("--host-facts", str(NO_GPU), "bench", "native", "--dry-run")
    assert told.code == ExitCode.ENGINE
    assert "nothing can be measured here: native" in told.err
    assert "requests" not in told.out


def test_a_dry_run_says_what_is_built_and_fetched_before() -> None:
    case = str(CASES / "radeon-rx-7900-xtx.json")
    flags = ("--dry-run", "--accept-cuda-eula", "--model", "qwen3-8b")
    told = run("--host-facts", case, "bench", "translated", *flags)
    assert told.code == ExitCode.OK, told.err
    assert "# Building the images takes" in told.out
    assert "# The model qwen3-8b takes" in told.out
    facts = run("--host-facts", case, "bench", "translated", *flags, "--json").json
    assert facts["builds"]["translated"]["minutes"] > 0
    assert set(facts["downloads"]) == {"translated"}
    assert facts["each"]["more_rounds"] == 72


def test_one_round_is_no_plural() -> None:
    told = run("--host-facts", str(NO_GPU), "bench", "cpu", "--dry-run", *QUICK)
    assert "Each target gets 2 requests in 1 round: " in told.out
    assert "about a minute for each" in told.out


def test_an_empty_target_is_named() -> None:
    assert "an empty word is no target" in run("bench", "").err
