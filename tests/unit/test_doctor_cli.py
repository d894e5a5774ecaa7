"""`zluda-stack doctor`: what people see, what programs read, what --fix does and does not."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from tests.unit.command_line import CASES, Outcome, run, settle, user_file, write
from tests.unit.planning import host
from zluda_stack.cli import context
from zluda_stack.errors import ExitCode
from zluda_stack.host.facts import HostFacts

SNAPSHOTS = sorted(path.stem for path in CASES.glob("*.json"))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    settle(tmp_path, monkeypatch)
    return tmp_path


def doctor(case: str, *arguments: str, terminal: bool = False) -> Outcome:
    path = str(CASES / f"{case}.json")
    return run("doctor", "--host-facts", path, *arguments, terminal=terminal)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make the machine of a snapshot pass for this one; nothing of it runs or is asked."""

    def become(facts: HostFacts) -> None:
        monkeypatch.setattr(context, "facts", lambda *_: facts)
        monkeypatch.setattr("zluda_stack.doctor.stack.read_stack", lambda *_: facts.stack)

    return become


@pytest.mark.parametrize("case", ["r9700-gfx1201", "two-rx-7900-xtx", "laptop-running-stack"])
def test_a_healthy_machine_fits_on_a_screen_with_a_line_for_each_layer(case: str) -> None:
    told = doctor(case)
    lines = told.out.splitlines()
    assert (told.code, told.err) == (ExitCode.OK, "")
    assert len(lines) < 30
    assert [line.split()[0] for line in lines[2:14]] == [
        *("hardware", "kernel", "driver", "nodes", "permissions", "engine", "access"),
        *("settings", "images", "model", "endpoint", "client"),
    ]
    assert "Nothing fails" in lines[-1]


@pytest.mark.parametrize(
    ("case", "goes_on"),
    [
        ("amdgpu-blacklisted", True),
        ("only-card-held-by-vfio", True),
        ("strix-halo-nomodeset", True),
        ("kfd-for-root-only", False),
        ("nothing-at-all", False),
        ("endpoint-hangs", False),
    ],
)
def test_a_failure_that_up_passes_over_with_the_cpu_says_so(case: str, *, goes_on: bool) -> None:
    told = doctor(case)
    assert told.code != ExitCode.OK
    assert ("computes on the CPU" in told.out.splitlines()[-1]) is goes_on
    snapshot = str(CASES / f"{case}.json")
    if goes_on:
        assert run("up", "--dry-run", "--host-facts", snapshot).code == ExitCode.OK


def test_a_laptop_without_a_gpu_is_no_failure_and_the_first_line_says_what_it_gets() -> None:
    told = doctor("laptop-without-gpu-or-docker")
    assert told.code == ExitCode.OK
    assert told.out.startswith("CPU only, with the embedded engine")
    assert "`zluda-stack up` has all it needs here" in told.out


@pytest.mark.parametrize("case", SNAPSHOTS)
def test_the_first_red_line_is_the_cause(case: str) -> None:
    cause = doctor(case, "--json").json["cause"]
    told = doctor(case, terminal=True)
    red = [line for line in told.out.splitlines() if "\x1b[31m" in line]
    assert "Traceback" not in told.out + told.err
    if cause is None:
        assert (told.code, red) == (ExitCode.OK, [])
        return
    assert cause in red[0]
    assert told.code in (ExitCode.REFUSED, ExitCode.HOST, ExitCode.ENGINE)
    assert cause in told.err.splitlines()[0]
    assert told.err.splitlines()[1].endswith("`")


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("override-names-a-target", ExitCode.REFUSED),
        ("docker-desktop-on-linux", ExitCode.HOST),
        ("server-crashed", ExitCode.ENGINE),
        ("kfd-gid-148", ExitCode.OK),
    ],
)
def test_the_exit_code_is_that_of_the_cause(case: str, code: ExitCode) -> None:
    assert doctor(case).code == code
    assert doctor(case, "--json").code == code


def test_a_capture_that_somebody_sent_cannot_steer_the_terminal(tmp_path: Path) -> None:
    facts = host("docker-not-running")
    docker = structs.replace(facts.docker, problem="\x1b]0;owned\x07 gone\nfix: rm -rf ~")
    path = write(tmp_path / "host.json", msgspec.json.encode(structs.replace(facts, docker=docker)))
    told = run("doctor", "--host-facts", str(path))
    assert "\x1b" not in told.out + told.err
    assert not any(line.startswith("fix:") for line in told.out.splitlines())


def test_programs_read_findings_and_facts() -> None:
    told = doctor("docker-desktop-on-linux", "--json").json
    assert (told["verdict"], told["cause"]) == ("fail", "access.docker-desktop")
    assert told["plan"].startswith("GPU gfx1201")
    assert told["facts"]["docker"]["desktop"] is True
    cause = next(each for each in told["findings"] if each["id"] == told["cause"])
    assert cause["fix"]["command"] == "docker context use default"
    skipped = next(each for each in told["findings"] if each["id"] == "images.missing")
    assert (skipped["status"], skipped["because"]) == ("skipped", "access.docker-desktop")


@pytest.mark.parametrize("case", ["rootless-docker", "docker-context-of-another-machine"])
def test_a_capture_has_the_same_findings_on_another_machine(
    case: str, tmp_path: Path, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(host(case))
    saved = tmp_path / "host.json"
    here = run("doctor", "--capture", str(saved), "--json")
    monkeypatch.undo()
    settle(tmp_path / "elsewhere", monkeypatch)
    monkeypatch.setenv("USER", "someone")
    assert run("doctor", "--host-facts", str(saved), "--json") == Outcome(here.code, here.out, "")


def test_a_card_is_found_by_its_unique_id_which_no_capture_has(
    tmp_path: Path, machine: Any
) -> None:
    facts = host("r9700-gfx1201")
    (gpu,) = facts.gpus
    machine(structs.replace(facts, gpus=(structs.replace(gpu, unique_id="GPU-00000000000000ab"),)))
    saved = tmp_path / "host.json"
    assert run("doctor", "--gpu", "GPU-ab", "--capture", str(saved)).code == ExitCode.OK
    assert "GPU-" not in saved.read_text()


def test_a_capture_takes_along_what_runs_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = host("laptop-without-gpu-or-docker")
    with monkeypatch.context() as patch:
        patch.setattr(context, "facts", lambda *_: facts)
        run("doctor", "--capture", str(tmp_path / "host.json"))
    told = run("doctor", "--host-facts", str(tmp_path / "host.json"), "--json").json
    assert told["facts"]["stack"]["state"] == "stopped"
    assert told["facts"]["stack"]["model_ready"] is False


# --- --fix


FAKE_DOCKER = """#!/bin/sh
printf '%s\\n' "$*" >>"$FAKE_LOG"
exit "${FAKE_EXIT:-0}"
"""


@pytest.fixture
def fake_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A docker command that notes what it is asked; returns the file with its notes."""
    program = write(tmp_path / "bin" / "docker", FAKE_DOCKER)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "notes"))
    return tmp_path / "notes"


def test_a_dry_run_prints_the_exact_commands_and_runs_none(fake_docker: Path) -> None:
    told = doctor("rootless-docker", "--fix", "--dry-run")
    assert (told.code, told.out) == (ExitCode.OK, "docker context use default\n")
    told = doctor("laptop-with-half-a-model", "--fix", "--dry-run")
    assert told.out == f"{sys.executable} -m zluda_stack models pull smollm2-135m\n"
    assert not fake_docker.exists()


def test_the_facts_of_another_machine_mend_nothing_on_this_one() -> None:
    assert doctor("rootless-docker", "--fix", "--yes").code == ExitCode.USAGE


def test_what_is_safe_is_done_and_what_needs_root_is_only_told(
    machine: Any, fake_docker: Path
) -> None:
    facts = host("rootless-docker")
    shut = facts.security.__class__(selinux="enforcing", container_devices=False)
    machine(structs.replace(facts, security=shut))
    told = run("doctor", "--fix", "--yes")
    assert told.code == ExitCode.OK, told
    assert fake_docker.read_text() == "context use default\n"

    machine(structs.replace(host("selinux-enforcing")))
    told = run("doctor", "--fix", "--yes")
    assert "yours to run: sudo setsebool" in told.err
    assert fake_docker.read_text() == "context use default\n"


def test_nobody_to_ask_means_nothing_is_done(machine: Any, fake_docker: Path) -> None:
    machine(host("rootless-docker"))
    told = run("doctor", "--fix")
    assert told.code == ExitCode.USAGE
    assert "--yes" in told.err
    assert not fake_docker.exists()


@pytest.mark.usefixtures("fake_docker")
def test_a_fix_that_fails_is_told(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(host("rootless-docker"))
    monkeypatch.setenv("FAKE_EXIT", "3")
    told = run("doctor", "--fix", "--yes")
    assert told.code == ExitCode.HOST
    assert "ended with exit code 3" in told.err


def test_what_is_left_decides_the_exit_code(machine: Any) -> None:
    machine(host("docker-without-compose"))
    told = run("doctor", "--fix", "--yes")
    assert told.code == ExitCode.HOST
    assert "yours to run: sudo apt-get install" in told.err


def test_a_port_of_the_users_own_file_is_changed_there(tmp_path: Path, machine: Any) -> None:
    path = write(user_file(tmp_path), "port: 8080\n")
    machine(host("port-8080-taken"))
    told = run("doctor", "--fix", "--yes")
    assert told.code == ExitCode.OK, told
    assert path.read_text() == "port: 8081\n"


def test_the_installed_program_examines_this_very_machine() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "zluda_stack", "doctor"], capture_output=True, text=True, check=False
    )
    assert done.returncode in (ExitCode.OK, ExitCode.HOST)
    assert "Traceback" not in done.stdout + done.stderr
    assert "\nclient " in done.stdout
