"""Whatever people put into settings files, variables and flags: an answer, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.command_line import CASES, NO_GPU, Outcome, run, settle, user_file, write
from zluda_stack.config.layers import flag_name
from zluda_stack.config.schema import Setting, known_settings
from zluda_stack.errors import ExitCode

RIGHT_KEYS = st.sampled_from(sorted(known_settings()))
WRONG_KEYS = st.one_of(
    st.sampled_from(["prot", "hsa-override", "<<", "", "GPU", "name ", "é", "null", "a.b", "? x"]),
    st.text(max_size=12),
)
PLAUSIBLE = st.sampled_from(
    [
        *("auto", "none", "gfx1100", "gfx803", "gfx90a", "embedded", "docker", "source", "path"),
        *("smollm2-135m", "./a.gguf", "claude", "vscode", "rocm/dev-ubuntu-22.04:7.2.1"),
        *("0", "1", "80", "8080", "4096", "65536", "99999999999999999999", "11.0.0", "gfx1103"),
        *("::1", "::", "127.0.0.1", "localhost", "10.0.0.256", "true", "false", "no"),
    ]
)
HOSTILE = st.sampled_from(
    [
        *("", "!!int x", '!!int ""', '!!float ""', "!!binary x", "!!null x", "!!timestamp x"),
        *("&a [*a]", "*a", "[[[", "{", "'", "|", "@", "2026-13-45", "1:60", "0x_", "0b"),
        *("!!python/name:os.system x", '"\\ud800"', '"\\0"', '"\\x1b[31m"'),
    ]
)
VALUES = st.one_of(
    PLAUSIBLE,
    PLAUSIBLE,
    HOSTILE,
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats()).map(str),
    st.text(max_size=20),
)
LINES = st.builds(lambda key, value: f"{key}: {value}", RIGHT_KEYS, VALUES)
NOISE = st.one_of(
    st.builds(lambda key, value: f"{key}: {value}", WRONG_KEYS, VALUES),
    st.text(max_size=40),
    st.sampled_from(["\t", "---", "...", "- a", "%YAML 9.9", "# comment", "? [a]", "<<: *a", "\0"]),
    st.integers(1, 3000).map(lambda depth: "port: " + "[" * depth),
)
TEXTS = st.one_of(
    st.lists(LINES, max_size=5, unique_by=lambda line: line.partition(":")[0]),
    st.lists(st.one_of(LINES, LINES, NOISE), max_size=6),
).map("\n".join)
FILES = st.one_of(
    *[TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass"))] * 4,
    TEXTS.map(lambda text: text.encode("utf-16", "surrogatepass")),
    st.binary(max_size=80),
)
FLAGS = RIGHT_KEYS.map(flag_name)
WORDS = st.one_of(
    st.tuples(FLAGS, VALUES),
    st.tuples(FLAGS, PLAUSIBLE),
    st.tuples(st.sampled_from(["--json", "--no-color", "-v", "--all", "--user", "--project"])),
    st.tuples(st.sampled_from(["--prot", "--", "-", "--host-facts", "-x", "==", "port", "logs"])),
    st.tuples(VALUES),
)


def _wish(setting: Setting) -> st.SearchStrategy[str]:
    """Command line words for `setting`, mostly with a value of the right kind."""
    flag = flag_name(setting.key)
    if setting.kind == "switch":
        return st.just(flag)
    right = st.sampled_from(setting.choices) if setting.choices else PLAUSIBLE
    if setting.kind == "number":
        right = st.integers(0, 70000).map(str)
    return st.one_of(right, right, right, VALUES).map(lambda value: f"{flag}={value}")


WISHES = st.fixed_dictionaries(
    {}, optional={key: _wish(setting) for key, setting in known_settings().items()}
).map(lambda wishes: list(wishes.values()))
HOSTS = st.sampled_from(sorted(CASES.glob("*.json")))
COMMANDS = st.sampled_from(
    [
        *(["plan"], ["plan"], ["plan", "--json"], ["up", "--dry-run"], ["up"]),
        *(["config", "show"], ["config", "get"], ["config", "set"], ["config", "path"]),
        *(["status"], ["logs"], ["down"], ["restart", "--no-selftest"]),
        *(["completion"], ["plam"], []),
    ]
)
ANSWERS = {ExitCode.OK, ExitCode.USAGE, ExitCode.REFUSED, ExitCode.HOST, ExitCode.ENGINE}

many = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@contextmanager
def new_home() -> Iterator[Path]:
    """A home of its own for one example."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        settle(Path(folder), patch)
        yield Path(folder)
        os.chdir("/")


def assert_answered(told: Outcome, *, arguments: list[str]) -> None:
    """The exit code is a documented one, and what went wrong is told with its next step."""
    assert told.code in ANSWERS, told
    assert "Traceback" not in told.out + told.err
    if told.code == ExitCode.OK or (told.code == ExitCode.ENGINE and "status" in arguments):
        return
    if "error: " in told.err:
        assert "\nhint: " in told.err
    else:
        assert told.json["error"]["message"]
        assert told.json["error"]["hint"]
        assert told.json["error"]["exit_code"] == told.code


@many
@given(contents=FILES, in_project=st.booleans(), command=COMMANDS)
def test_any_settings_file_is_answered(
    contents: bytes, in_project: bool, command: list[str]
) -> None:
    with new_home() as home:
        write(Path("zluda-stack.yml") if in_project else user_file(home), contents)
        arguments = ["--host-facts", str(NO_GPU), *command]

        assert_answered(run(*arguments), arguments=arguments)


@many
@given(command=COMMANDS, words=st.lists(WORDS, max_size=4))
def test_any_command_line_is_answered(command: list[str], words: list[tuple[str, ...]]) -> None:
    with new_home():
        arguments = ["--host-facts", str(NO_GPU), *command, *chain.from_iterable(words)]

        assert_answered(run(*arguments), arguments=arguments)


@many
@given(host=HOSTS, wishes=WISHES, as_json=st.booleans())
def test_any_wish_on_any_machine_is_planned_or_refused(
    host: Path, wishes: list[str], as_json: bool
) -> None:
    with new_home():
        command = ["plan", "--json"] if as_json else ["up", "--dry-run"]
        arguments = ["--host-facts", str(host), *command, *wishes]

        assert_answered(run(*arguments), arguments=arguments)


@many
@given(
    key=st.one_of(RIGHT_KEYS, RIGHT_KEYS, RIGHT_KEYS, WRONG_KEYS),
    value=VALUES,
    as_json=st.booleans(),
)
def test_any_variable_is_answered(key: str, value: str, as_json: bool) -> None:
    with new_home(), pytest.MonkeyPatch.context() as patch:
        name = _without_what_no_variable_has(f"ZLUDA_STACK_{key.upper()}").replace("=", "")
        patch.setenv(name, _without_what_no_variable_has(value))
        arguments = ["plan", "--host-facts", str(NO_GPU), *(["--json"] if as_json else [])]

        assert_answered(run(*arguments), arguments=arguments)


@settings(max_examples=60, deadline=None)
@given(contents=st.one_of(FILES, st.builds(lambda text: f"{{{text}", st.text(max_size=60))))
def test_any_host_capture_is_answered(contents: bytes | str) -> None:
    with new_home() as home:
        raw = contents.encode(errors="ignore") if isinstance(contents, str) else contents
        arguments = ["plan", "--host-facts", str(write(home / "host.json", raw))]

        assert_answered(run(*arguments), arguments=arguments)


@pytest.mark.parametrize(
    ("contents", "arguments"),
    [
        (b"port: [", ["plan"]),
        (b"port: " + b"[" * 5000, ["plan", "--json"]),
        (b"\xff\xfe", ["restart"]),
        (b"k: &k [*k]", ["config", "show"]),
        (b"", ["plan", "--port", b"\xff\xff"]),
        (b"", [b"\xff"]),
        (b"", ["--json", b"\xff"]),
    ],
)
def test_the_installed_program_answers_the_same_way(
    contents: bytes, arguments: list[str | bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(tmp_path, monkeypatch)
    write(user_file(tmp_path), contents)

    done = subprocess.run(
        [sys.executable, "-m", "zluda_stack", *arguments], capture_output=True, check=False
    )

    told = Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())
    assert told.code == ExitCode.USAGE
    assert_answered(told, arguments=[str(word) for word in arguments])


def _without_what_no_variable_has(text: str) -> str:
    return text.replace("\0", "").encode(errors="ignore").decode()
