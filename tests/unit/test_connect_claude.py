"""Claude Code's settings files: written, and put back as they were."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.command_line import run, settle
from tests.unit.connecting import connect, started
from zluda_stack.errors import ExitCode


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a current folder of the test's own."""
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    return settle(tmp_path, monkeypatch)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """The user's own settings file."""
    return tmp_path / ".claude" / "settings.json"


class TestWrite:
    def test_a_private_settings_file_is_made_for_the_user(self, users: Path) -> None:
        key = started()
        outcome = connect("claude", "--write")
        block = json.loads(users.read_text())["env"]
        assert block["ANTHROPIC_AUTH_TOKEN"] == key
        assert block["ANTHROPIC_API_KEY"] == ""
        assert all(isinstance(value, str) for value in block.values())
        assert users.stat().st_mode & 0o777 == 0o600
        assert str(users) in outcome.err
        assert key not in outcome.out + outcome.err

    def test_the_clients_own_variable_for_its_folder_is_followed(
        self, project: Path, users: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started()
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(project / "elsewhere"))
        connect("claude", "--write")
        assert "env" in json.loads((project / "elsewhere" / "settings.json").read_text())
        assert not users.exists()

    def test_everything_else_in_the_file_is_kept(self, project: Path) -> None:
        started()
        file = project / "mine.json"
        before = {
            "permissions": {"allow": ["Bash(ls)"]},
            "env": {"MINE": "ü", "ANTHROPIC_MODEL": "x"},
        }
        file.write_text(json.dumps(before))
        connect("claude", "--write", "mine.json")
        after = json.loads(file.read_text())
        assert after["permissions"] == before["permissions"]
        assert after["env"]["MINE"] == "ü"
        assert after["env"]["ANTHROPIC_MODEL"] == "default"
        again = file.read_bytes()
        connect("claude", "--write", "mine.json")
        assert file.read_bytes() == again

    def test_the_file_behind_a_link_is_replaced_and_not_the_link(self, project: Path) -> None:
        started()
        real = project / "dotfiles.json"
        real.write_text("{}")
        (project / "link.json").symlink_to(real)
        connect("claude", "--write", "link.json")
        assert (project / "link.json").is_symlink()
        assert "env" in json.loads(real.read_text())

    def test_the_short_prompt_is_said_to_be_set_in_the_shell_only(self, users: Path) -> None:
        started()
        outcome = connect("claude", "--write", "--simple")
        assert "CLAUDE_CODE_SIMPLE" not in json.loads(users.read_text())["env"]
        assert "CLAUDE_CODE_SIMPLE=1 claude" in outcome.err

    def test_a_dry_run_shows_the_file_and_writes_nothing(self, users: Path) -> None:
        started()
        shown = connect("claude", "--write", "--dry-run").json
        assert shown["env"]["ANTHROPIC_MODEL"] == "default"
        assert not users.exists()
        assert run("connect", "claude", "--undo").code == ExitCode.USAGE

    @pytest.mark.parametrize(
        "content",
        [
            b"{",
            b"[]",
            b"3",
            b'{"env": []}',
            b"\xff",
            b"// no\n{}",
            b"[" * 100_000,
            b'{"a":"\\ud800"}',
        ],
    )
    @pytest.mark.parametrize("dry", [True, False])
    def test_a_file_that_is_no_settings_file_is_named_and_not_touched(
        self, project: Path, content: bytes, dry: bool
    ) -> None:
        started()
        file = project / "odd.json"
        file.write_bytes(content)
        outcome = run("connect", "claude", "--write", "odd.json", *(["--dry-run"] if dry else []))
        assert outcome.code == ExitCode.USAGE
        assert "odd.json" in outcome.err
        assert file.read_bytes() == content

    def test_a_folder_is_refused(self, project: Path) -> None:
        started()
        (project / "folder").mkdir()
        assert run("connect", "claude", "--write", "folder").code == ExitCode.USAGE

    def test_a_stack_that_is_not_up_is_said_to_be_unchecked(self) -> None:
        started(port=9)
        assert "nothing was checked" in connect("claude", "--write").err


class TestUndo:
    def test_the_file_is_byte_for_byte_what_it_was(self, project: Path) -> None:
        started()
        file = project / "mine.json"
        original = '{ "model":"opus",\n\n  "env": {"ANTHROPIC_MODEL": "x", "B": 1} }'
        file.write_text(original)
        file.chmod(0o640)
        connect("claude", "--write", "mine.json")
        assert file.read_text() != original
        connect("claude", "--undo", "mine.json")
        assert file.read_text() == original
        assert file.stat().st_mode & 0o777 == 0o640

    def test_a_file_that_was_not_there_is_removed(self, users: Path) -> None:
        started()
        connect("claude", "--write")
        connect("claude", "--undo")
        assert not users.exists()

    def test_two_stacks_written_after_each_other_are_both_taken_back(self, project: Path) -> None:
        started()
        started("other", port=9000)
        file = project / "mine.json"
        file.write_text('{"env": {"ANTHROPIC_BASE_URL": "https://mine"}}')
        connect("claude", "--write", "mine.json")
        connect("claude", "--write", "mine.json", "--name", "other")
        connect("claude", "--undo", "mine.json")
        assert json.loads(file.read_text()) == {"env": {"ANTHROPIC_BASE_URL": "https://mine"}}

    def test_what_the_user_changed_since_stays(self, users: Path) -> None:
        started()
        connect("claude", "--write")
        settings = json.loads(users.read_text())
        settings["env"]["ANTHROPIC_MODEL"] = "my-own"
        settings["theme"] = "dark"
        users.write_text(json.dumps(settings))
        connect("claude", "--undo")
        left = json.loads(users.read_text())
        assert left == {"theme": "dark", "env": {"ANTHROPIC_MODEL": "my-own"}}

    def test_a_value_of_the_users_between_two_writings_comes_back(self, users: Path) -> None:
        started()
        connect("claude", "--write")
        settings = json.loads(users.read_text())
        settings["env"]["ANTHROPIC_MODEL"] = "my-own"
        users.write_text(json.dumps(settings))
        connect("claude", "--write")
        assert json.loads(users.read_text())["env"]["ANTHROPIC_MODEL"] == "default"
        connect("claude", "--undo")
        assert json.loads(users.read_text()) == {"env": {"ANTHROPIC_MODEL": "my-own"}}

    def test_a_dry_run_shows_what_would_be_left_and_writes_nothing(self, users: Path) -> None:
        started()
        connect("claude", "--write")
        before = users.read_bytes()
        assert "would be removed" in connect("claude", "--undo", "--dry-run").out
        assert users.read_bytes() == before

    def test_a_file_that_was_never_written_is_left_alone(self, project: Path) -> None:
        file = project / "mine.json"
        file.write_text("{}")
        outcome = run("connect", "claude", "--undo", "mine.json")
        assert outcome.code == ExitCode.USAGE
        assert file.read_text() == "{}"

    def test_a_file_that_was_broken_since_is_named_and_not_touched(self, users: Path) -> None:
        started()
        connect("claude", "--write")
        users.write_text("{")
        outcome = run("connect", "claude", "--undo")
        assert outcome.code == ExitCode.USAGE
        assert users.read_text() == "{"

    def test_what_is_kept_of_a_file_is_private(self, tmp_path: Path, users: Path) -> None:
        started()
        users.parent.mkdir()
        users.write_text('{"env": {"ANTHROPIC_AUTH_TOKEN": "sk-of-the-user"}}')
        connect("claude", "--write")
        kept = [
            path
            for path in tmp_path.rglob("*")
            if path.is_file() and b"sk-of-the-user" in path.read_bytes()
        ]
        assert kept
        assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}
        assert not any(path.is_relative_to(users.parent) for path in kept)

    def test_it_excludes_writing(self) -> None:
        started()
        outcome = run("connect", "claude", "--undo", "a.json", "--write", "b.json")
        assert outcome.code == ExitCode.USAGE
