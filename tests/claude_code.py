"""The real Claude Code client, for tests: fetched once, run with a home and environment of its own.

Its licence forbids passing it on, so it comes from where its makers publish it: bundled in the
wheel of their Python package.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

# 178 MB. The client in it is 2.1.332.
_REQUIREMENT = (
    "claude-agent-sdk==0.2.189 "
    "--hash=sha256:b26a6a30a4e2cb025a6f5c95e1ce4469b38fcc51015c392f627bea7c948d67ad"
)
_MEMBER = "claude_agent_sdk/_bundled/claude"


@pytest.fixture(scope="session")
def claude_program(request: pytest.FixtureRequest) -> Path:
    """The client, from TEST_CLAUDE_PROGRAM or the package index; kept in pytest's cache."""
    given = os.environ.get("TEST_CLAUDE_PROGRAM")
    if given:
        return Path(given)
    folder = request.config.cache.mkdir("claude-code")
    program = folder / "claude"
    if not program.exists():
        _fetch(folder, program)
    return program


def _fetch(folder: Path, program: Path) -> None:
    requirements = folder / "requirements.txt"
    requirements.write_text(_REQUIREMENT + "\n")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    fetched = subprocess.run(
        [*pip, "--dest", str(folder), "--requirement", str(requirements)],
        capture_output=True,
        text=True,
        check=False,
    )
    if fetched.returncode != 0:
        pytest.skip(f"Claude Code could not be fetched: {fetched.stderr.strip()[-300:]}")
    (wheel,) = folder.glob("*.whl")
    unpacked = program.with_suffix(".part")
    with zipfile.ZipFile(wheel) as archive:
        unpacked.write_bytes(archive.read(_MEMBER))
    unpacked.chmod(0o755)
    unpacked.replace(program)
    wheel.unlink()


@dataclass
class ClaudeCode:
    """The client in a project of its own, with nothing of the user's."""

    program: Path
    home: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def project(self) -> Path:
        folder = self.home / "project"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def ask(self, prompt: str, *options: str, timeout: float = 120) -> dict[str, Any]:
        """The result of `claude -p PROMPT` as the client tells it. Fails when it does not end."""
        ran = subprocess.run(
            [str(self.program), "-p", prompt, "--output-format", "json", *options],
            env={"HOME": str(self.home), "PATH": "/usr/bin:/bin", **self.environment},
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        try:
            told: dict[str, Any] = json.loads(ran.stdout)
        except ValueError:
            pytest.fail(f"exit status {ran.returncode}: {ran.stdout}\n{ran.stderr}")
        return told
