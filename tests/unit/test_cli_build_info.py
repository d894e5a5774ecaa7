"""Where a build says it comes from: a recorded file, a git work tree, or nowhere."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from zluda_stack.build_info import BUILD_FILE, BuildInfo, build_info, iso_date


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git work tree with one commit of 2001-09-09 and the folder `zluda_stack` in it."""
    when = "1000000000 +0000"
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_DATE", when)
        monkeypatch.setenv(f"GIT_{role}_NAME", "A")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "a@example.org")
    (tmp_path / "zluda_stack").mkdir()
    (tmp_path / "zluda_stack" / "x.py").write_text("1\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    return tmp_path


def test_a_work_tree_tells_commit_and_its_date(tree: Path) -> None:
    info = build_info(tree / "zluda_stack")

    assert info.commit is not None
    assert len(info.commit) == 40
    assert info.date == "2001-09-09T01:46:40Z"
    assert not info.modified


def test_a_changed_work_tree_says_so(tree: Path) -> None:
    (tree / "zluda_stack" / "x.py").write_text("2\n")

    assert build_info(tree / "zluda_stack").modified


def test_the_record_of_a_build_wins_over_git(tree: Path) -> None:
    record = {"commit": "c" * 40, "date": "2026-01-01T00:00:00Z", "modified": False}
    (tree / "zluda_stack" / BUILD_FILE).write_text(json.dumps(record))

    assert build_info(tree / "zluda_stack").commit == "c" * 40


def test_without_record_and_git_nothing_is_claimed(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "installed" / "zluda_stack").mkdir(parents=True)
    assert build_info(tmp_path / "installed" / "zluda_stack") == BuildInfo()

    monkeypatch.setenv("PATH", "")
    assert build_info(tree / "zluda_stack") == BuildInfo()


def test_dates_are_utc() -> None:
    assert iso_date(0) == "1970-01-01T00:00:00Z"
