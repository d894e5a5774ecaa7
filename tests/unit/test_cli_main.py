"""The frame of the program: help, version, errors, exit codes, what is imported when."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.command_line import CASES, NO_GPU, run, settle, user_file, write
from zluda_stack.cli import main as frame
from zluda_stack.cli import plan as plan_module
from zluda_stack.errors import ExitCode

PROGRAM = [sys.executable, "-m", "zluda_stack"]
HEAVY = ("docker", "httpx", "jinja2", "msgspec", "psutil", "requests", "rich", "ruamel", "yaml")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    settle(tmp_path, monkeypatch)
    return tmp_path


def imported_by(*arguments: str) -> set[str]:
    """The top-level modules that a run of the program has imported."""
    script = (
        "import sys; from zluda_stack.cli.main import main; main(sys.argv[1:]);"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_every_command_by_what_people_want(arguments: list[str]) -> None:
    shown = run(*arguments)

    assert shown.code == ExitCode.OK
    assert [line for line in shown.out.splitlines() if line in ("Run it:", "Look at it:")]
    for entries in frame.SECTIONS.values():
        for name, entry in entries.items():
            assert f"  {name} " in shown.out
            assert entry.help in shown.out


def test_help_imports_no_command_and_nothing_heavy() -> None:
    modules = imported_by("--help")

    assert modules.isdisjoint(HEAVY)
    commands = {
        entry.target.partition(":")[0]
        for entries in frame.SECTIONS.values()
        for entry in entries.values()
    }
    assert modules.isdisjoint(commands)


def test_every_command_of_the_table_is_there_and_has_a_help_page() -> None:
    for entries in frame.SECTIONS.values():
        for name in entries:
            shown = run(name, "--help")
            assert shown.code == ExitCode.OK, shown.err
            assert shown.out.startswith(f"Usage: zluda-stack {name}")


def test_version_names_build_python_and_the_pinned_parts() -> None:
    first, python, *parts = run("--version").out.splitlines()

    assert first.startswith("zluda-stack 0.")
    assert python.startswith(f"Python {sys.version_info.major}.{sys.version_info.minor}.")
    assert {part.split()[0] for part in parts} >= {"rocm/dev-ubuntu-22.04", "zluda", "llama.cpp"}


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["plam"], "there is no command 'plam'", "Did you mean plan?"),
        (["--verbos"], "no such option '--verbos'", "Did you mean --verbose?"),
        (["plan", "--prot", "1"], "no such option '--prot'", "Did you mean --port?"),
        (["up", "--bogus"], "no such option '--bogus'", "`zluda-stack up --help` lists all."),
        (["plan", "--gpu", ""], "--gpu: expected text, found nothing", "`zluda-stack config show`"),
        (["config", "shwo"], "no such command 'shwo'", "Did you mean show?"),
        (["plan", "--port"], "option '--port' requires an argument", "zluda-stack plan --help"),
        (["config", "get"], "missing argument 'KEY'", "zluda-stack config get --help"),
        (["plan", "extra"], "got unexpected extra argument (extra)", "zluda-stack plan --help"),
    ],
)
def test_a_mistyped_command_line_is_answered_in_two_lines(
    arguments: list[str], message: str, hint: str
) -> None:
    told = run(*arguments)

    assert told.code == ExitCode.USAGE
    assert told.out == ""
    first, second = told.err.splitlines()
    assert first == f"error: {message}"
    assert second.startswith("hint: ")
    assert hint in second


def test_under_json_an_error_is_json_on_stdout() -> None:
    told = run("plan", "--json", "--engine", "podman")

    assert told.code == ExitCode.USAGE
    assert told.err == ""
    assert told.json["error"]["exit_code"] == ExitCode.USAGE
    assert told.json["error"]["message"].startswith("--engine: expected one of auto")
    assert told.json["error"]["hint"]


def test_a_refusal_of_the_plan_has_its_own_exit_code() -> None:
    told = run("--host-facts", str(NO_GPU), "plan", "--gpu", "gfx803")

    assert told.code == ExitCode.REFUSED
    assert told.err.startswith("error: ")
    assert "hint: " in told.err


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the command `plan` raise `error`."""

    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(plan_module, "resolve", broken)


def test_an_unforeseen_error_is_kept_in_a_private_file_and_told_in_two_lines(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(ZeroDivisionError("of\ntwo lines"), monkeypatch)

    told = run("plan")

    kept = home / "state" / "zluda-stack" / "last-error.txt"
    assert told.code == ExitCode.INTERNAL
    assert told.err.splitlines() == [
        "error: internal error: ZeroDivisionError: of two lines",
        f"hint: This is a bug; please report it with {kept}.",
    ]
    assert "Traceback" in kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_verbose_shows_where_an_unforeseen_error_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(ZeroDivisionError("zero"), monkeypatch)

    assert "Traceback" in run("-v", "plan").err
    assert "Traceback" in run("plan", "--verbose").err


def test_an_unforeseen_error_is_told_even_where_nothing_can_be_written(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home / "state", "a file where the state folder should be")
    fail_with(ZeroDivisionError("zero"), monkeypatch)

    told = run("plan")

    assert told.code == ExitCode.INTERNAL
    assert told.err.splitlines()[1] == "hint: This is a bug; -v shows where it happened."


def test_ctrl_c_ends_in_one_clean_line_and_130(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(KeyboardInterrupt(), monkeypatch)

    told = run("plan")

    assert told.code == ExitCode.INTERRUPTED
    assert told.err == "error: interrupted\n"
    assert run("plan", "--json").json["error"]["exit_code"] == ExitCode.INTERRUPTED


def test_colours_are_for_terminals_whose_user_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[" in run("plam", terminal=True).err
    assert "\x1b[" in run("config", "show", terminal=True).out

    assert "\x1b[" not in run("plam").err
    assert "\x1b[" not in run("--no-color", "plam", terminal=True).err
    assert "\x1b[" not in run("--no-color", "config", "show", terminal=True).out
    assert "\x1b[" not in run("config", "show", "--no-color", terminal=True).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run("plam", terminal=True).err
    assert "\x1b[" not in run("config", "show", terminal=True).out


def test_a_table_into_a_pipe_is_neither_cut_nor_wrapped() -> None:
    lines = run("config", "show").out.splitlines()

    assert any(line.endswith("several run side by side under different names.") for line in lines)


@pytest.mark.parametrize("place", ["before", "after"])
def test_the_facts_of_another_machine_are_taken_before_or_after_the_command(place: str) -> None:
    given = ["--host-facts", str(NO_GPU)]
    arguments = [*given, "plan"] if place == "before" else ["plan", *given]

    assert run(*arguments, "--json").json["engine"] == "embedded"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not a host capture: Input data was truncated"),
        ("[]", "is not a host capture: Expected `object`, got `array`"),
        ('{"gpus": [{"kfd_node": "x"}]}', "$.gpus[0].kfd_node"),
        (b"\xff", "is not a host capture"),
        ("[" * 5000, "is not a host capture"),
    ],
)
def test_broken_host_facts_are_named_with_file_and_place(
    text: str | bytes, problem: str, home: Path
) -> None:
    file = write(home / "host.json", text)

    told = run("plan", "--host-facts", str(file))

    assert told.code == ExitCode.USAGE
    assert f"error: {file} " in told.err
    assert problem in told.err
    assert "doctor --capture" in told.err


def test_missing_host_facts_are_named(home: Path) -> None:
    told = run("plan", "--host-facts", str(home / "none.json"))

    assert told.code == ExitCode.USAGE
    assert f"cannot read the host facts {home}/none.json" in told.err


def test_a_reader_that_goes_away_is_no_error() -> None:
    line = f"{shlex.join(PROGRAM)} plan --host-facts {shlex.quote(str(NO_GPU))} | true"
    bash = ["bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}"]

    done = subprocess.run(bash, capture_output=True, text=True, check=False)

    assert done.stderr == ""
    assert done.returncode in (ExitCode.OK, ExitCode.READER_GONE)


def test_closed_output_is_no_traceback() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{shlex.join(PROGRAM)} --help >&-"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert "Traceback" not in done.stderr


def test_text_that_the_terminal_cannot_show_is_escaped() -> None:
    done = subprocess.run(
        [*PROGRAM, "config", "get", "model"],
        env={**os.environ, "PYTHONIOENCODING": "latin-1", "ZLUDA_STACK_MODEL": "模型.gguf"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (ExitCode.OK, "\\u6a21\\u578b.gguf\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    script = run("completion", shell)

    assert script.code == ExitCode.OK
    assert frame.COMPLETION_VARIABLE in script.out


def test_the_bash_script_is_valid_bash() -> None:
    script = run("completion", "bash").out

    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def completions(words: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What bash would offer after `words`."""
    monkeypatch.setenv(frame.COMPLETION_VARIABLE, "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    return [line.partition(",")[2] for line in run().out.split()]


def test_commands_options_and_values_are_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert completions("zluda-stack st", monkeypatch) == ["status"]
    assert "--engine" in completions("zluda-stack plan --en", monkeypatch)
    assert completions("zluda-stack plan --engine d", monkeypatch) == ["docker"]


def test_plan_says_what_was_decided_and_why() -> None:
    shown = run("plan", "--host-facts", str(NO_GPU), "--port", "8123", "--threads", "2")

    assert shown.code == ExitCode.OK
    assert shown.out.splitlines()[0].startswith("CPU only, with the embedded engine")
    assert "given (flag --port)" in shown.out
    assert "http://127.0.0.1:8123" in shown.out


@pytest.mark.parametrize(
    "words",
    [
        ("adapt", ""),
        ("adapt", "some/image", "--from", " "),
        ("run", "--image", "", "--", "prog"),
        ("precompile", "--image", "", "x.so"),
        ("verify", "--image", ""),
        ("toolbox", "--image", "", "hipcc"),
    ],
)
def test_an_empty_name_of_an_image_is_refused_before_docker_is_asked(
    words: tuple[str, ...],
) -> None:
    told = run("--host-facts", str(NO_GPU), *words)
    assert told.code == ExitCode.USAGE
    assert "it is empty" in told.err


def test_the_same_inputs_give_the_same_plan_byte_for_byte() -> None:
    arguments = ("plan", "--json", "--host-facts", str(NO_GPU))

    assert run(*arguments).out == run(*arguments).out
    assert json.loads(run(*arguments).out)["schema"] == 1


def test_config_shows_each_value_with_its_origin(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(user_file(home), "port: 8081\nthreads: 2\n")
    monkeypatch.setenv("ZLUDA_STACK_PORT", "8082")

    shown = run("config", "show", "--json").json

    assert shown["port"] == {
        "value": 8082,
        "origin": {"kind": "environment", "where": "ZLUDA_STACK_PORT"},
    }
    assert shown["threads"]["origin"]["where"] == f"{user_file(home)}:2"
    assert shown["gpu"] == {"value": "auto", "origin": {"kind": "default", "where": ""}}
    assert run("config", "get", "port").out == "8082\n"


def test_config_shows_what_is_sound_beside_the_error_of_a_broken_file(home: Path) -> None:
    write(user_file(home), "prot: 1\n")
    write(Path("zluda-stack.yml"), "threads: 2\n")

    shown, as_json = run("config", "show"), run("config", "show", "--json")

    assert (shown.code, as_json.code) == (ExitCode.USAGE, ExitCode.USAGE)
    assert f"error: {user_file(home)}:1: there is no setting 'prot'" in shown.err
    assert any(line.split()[:2] == ["threads", "2"] for line in shown.out.splitlines())
    assert as_json.json["threads"]["value"] == 2
    assert as_json.json["error"]["exit_code"] == ExitCode.USAGE


@pytest.mark.parametrize("target", ["zluda-stack.yml", "another"])
def test_a_settings_file_that_is_a_link_to_nowhere_or_to_itself_is_not_passed_over(
    home: Path, target: str
) -> None:
    Path("zluda-stack.yml").symlink_to(target)
    (home / "work" / "zluda-stack.yml").write_text("port: 4242\n")
    shown = run("config", "get", "port")
    assert "4242" not in shown.out
    if target == "zluda-stack.yml":
        assert shown.code == ExitCode.USAGE
        assert "Too many levels of symbolic links" in shown.err


@pytest.mark.parametrize("case", ["kfd-without-dri", "render-node-missing", "lxc-hidden-node"])
def test_a_device_that_this_machine_lacks_is_the_hosts_fault(case: str) -> None:
    refused = run("--host-facts", str(CASES / f"{case}.json"), "plan")
    assert refused.code == ExitCode.HOST
    assert "`zluda-stack up --engine embedded`" in refused.err


def test_a_dry_run_of_config_set_checks_and_writes_nothing(home: Path) -> None:
    assert run("config", "set", "--dry-run", "port", "8081").code == ExitCode.OK
    assert run("config", "set", "--dry-run", "port", "eighty").code == ExitCode.USAGE

    assert not user_file(home).exists()


def test_config_set_says_when_another_layer_wins(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = run("config", "set", "port", "8081")
    assert (quiet.code, quiet.err) == (ExitCode.OK, "")

    monkeypatch.setenv("ZLUDA_STACK_PORT", "8082")
    told = run("config", "set", "port", "8083")

    assert "environment ZLUDA_STACK_PORT wins over it" in told.err
    assert user_file(home).read_text().endswith("port: 8083\n")


def test_config_set_can_write_the_file_of_the_project(home: Path) -> None:
    assert run("config", "set", "--project", "port", "8081").code == ExitCode.OK

    assert (Path.cwd() / "zluda-stack.yml").read_text().endswith("port: 8081\n")
    assert not user_file(home).exists()
    first, second = run("config", "path").out.splitlines()
    assert first == str(Path.cwd() / "zluda-stack.yml")
    assert second == f"{user_file(home)} (not there yet)"


def test_config_edit_uses_the_editor_of_the_user(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(user_file(home), "port: 8081\n")
    monkeypatch.setenv("EDITOR", "sed -i s/8081/8082/")

    assert run("config", "edit").code == ExitCode.OK

    assert user_file(home).read_text() == "port: 8082\n"


@pytest.mark.parametrize("editor", ["/does/not/exist", "false", "'"])
def test_an_editor_that_fails_is_named(editor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", editor)

    told = run("config", "edit")

    assert told.code == ExitCode.USAGE
    assert f"error: the editor {editor!r}" in told.err


def test_a_current_folder_that_is_gone_is_told(home: Path) -> None:
    gone = home / "gone"
    gone.mkdir()
    os.chdir(gone)
    shutil.rmtree(gone)

    assert "error: the current folder is gone" in run("plan").err
