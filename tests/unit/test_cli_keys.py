"""`keys`: what a stack's owner sees of the keys of others."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from tests.unit.command_line import run, settle
from zluda_stack import keys
from zluda_stack.errors import ExitCode
from zluda_stack.gateway.auth import KeyFile, Keys


@pytest.fixture(autouse=True)
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(tmp_path, monkeypatch)
    keys.ensure_key("default")


def opens(key: str) -> bool:
    file = KeyFile.of_digests(keys.keyring_file("default"))
    return bool(Keys(file).require([(b"x-api-key", key.encode())]))


def test_a_new_key_opens_and_is_shown_once_and_kept_nowhere(tmp_path: Path) -> None:
    told = run("keys", "add", "laptop")

    key = told.out.strip()
    assert told.code == ExitCode.OK
    assert key.startswith("zs-")
    assert opens(key)
    assert not any(key in file.read_text() for file in tmp_path.rglob("*") if file.is_file())
    assert key not in run("keys", "list").out
    assert keys.keyring_file("default").stat().st_mode & 0o777 == 0o600


def test_limits_are_kept_and_listed() -> None:
    before = datetime.now(timezone.utc)
    limits = ("--expires", "30d", "--per-minute", "20", "--tokens-per-day", "100000")
    assert run("keys", "add", "guest", *limits).code == ExitCode.OK

    (told,) = run("keys", "list", "--json").json
    expires = datetime.fromisoformat(told.pop("expires").replace("Z", "+00:00"))
    assert timedelta(days=30) - timedelta(seconds=1) <= expires - before <= timedelta(days=31)
    assert told == {
        "name": "guest",
        "expired": False,
        "per_minute": 20,
        "tokens_per_day": 100000,
    }
    assert "100000" in run("keys", "list").out


def test_a_key_that_is_over_is_listed_as_such() -> None:
    keys.keyring_file("default").write_text(f"{'ab' * 32} name=old expires=2020-01-31T00:00:00Z\n")

    assert "2020-01-31 00:00 UTC (over)" in run("keys", "list").out
    assert run("keys", "list", "--json").json[0]["expired"] is True


def test_as_json_the_key_stands_beside_its_limits() -> None:
    told = run("keys", "add", "laptop", "--json").json
    assert opens(told["key"])
    assert told["name"] == "laptop"


def test_a_key_that_was_taken_back_opens_no_more() -> None:
    key = run("keys", "add", "guest").out.strip()
    kept = run("keys", "add", "laptop").out.strip()

    assert run("keys", "rm", "guest").code == ExitCode.OK
    assert [one["name"] for one in run("keys", "list", "--json").json] == ["laptop"]
    assert opens(kept)
    with pytest.raises(Exception, match="wrong API key"):
        opens(key)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("laptop", "there is a key laptop already"),
        ("default", "default is what the stack's own key is called"),
        ("none", "none is what the metrics call requests without a key"),
    ],
)
def test_a_name_that_is_taken_is_refused(name: str, reason: str) -> None:
    run("keys", "add", "laptop")
    told = run("keys", "add", name)
    assert told.code == ExitCode.USAGE
    assert reason in told.err
    assert told.out == ""


def test_a_damaged_key_file_is_named_with_the_way_on() -> None:
    keys.key_file("default").write_bytes(b"gar\xffb{")
    for arguments in (("keys", "list"), ("connect", "env"), ("up",)):
        told = run(*arguments)
        assert told.code == ExitCode.HOST
        assert str(keys.key_file("default")) in told.err
        assert "Remove the file" in told.err


@pytest.mark.parametrize(
    "arguments",
    [
        "add Upper",
        "add a/b",
        "add guest --expires soon",
        "add guest --expires 0d",
        "add guest --expires 2020-01-01",
        "add guest --expires 2026-13-01",
        "add guest --per-minute 0",
        "add guest --tokens-per-day -1",
        "rm nobody",
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(arguments: str) -> None:
    told = run("keys", *arguments.split())
    assert told.code == ExitCode.USAGE
    assert "hint: " in told.err
    assert run("keys", "list").out.startswith("There is no key but the stack's own")


def test_a_dry_run_makes_and_removes_nothing() -> None:
    run("keys", "add", "laptop")
    before = keys.keyring_file("default").read_text()

    assert "would be added" in run("keys", "add", "guest", "--dry-run").out
    assert "would be removed" in run("keys", "rm", "laptop", "--dry-run").out
    assert keys.keyring_file("default").read_text() == before


@pytest.mark.parametrize("command", ["add guest", "list", "rm guest"])
def test_a_stack_that_never_was_has_no_keys(command: str) -> None:
    told = run("keys", *command.split(), "--name", "nobody")
    assert told.code == ExitCode.ENGINE
    assert "`zluda-stack up --name nobody` starts it." in told.err


def test_a_file_that_is_no_keyring_is_named_and_left_alone() -> None:
    keys.keyring_file("default").write_text("zs-a-key-in-the-wrong-file\n")
    for command in ("list", "add guest", "rm guest"):
        told = run("keys", *command.split())
        assert told.code == ExitCode.HOST
        assert str(keys.keyring_file("default")) in told.err
        assert "zs-a-key" not in json.dumps(told.err)
    assert keys.keyring_file("default").read_text() == "zs-a-key-in-the-wrong-file\n"
