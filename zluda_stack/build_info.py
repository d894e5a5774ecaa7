"""What this copy of the program is: version, commit, date, and the parts it pins."""

from __future__ import annotations

import json
import platform
import subprocess
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from zluda_stack import __version__

_PACKAGE = Path(__file__).parent
# Written into wheels and sdists by hatch_build.py.
BUILD_FILE = "_build.json"


@dataclass(frozen=True)
class BuildInfo:
    """Where a build comes from; None is unknown. `date` is the commit's or the build's, ISO 8601.

    `modified` is True when the work tree had changes that the commit has not.
    """

    commit: str | None = None
    date: str | None = None
    modified: bool = False


def build_info(package: Path = _PACKAGE) -> BuildInfo:
    """The facts that the build recorded in `package`, or those of its git work tree."""
    try:
        return BuildInfo(**json.loads((package / BUILD_FILE).read_text()))
    except FileNotFoundError:
        return from_git(package.parent)


def from_git(top: Path) -> BuildInfo:
    """The facts of the git work tree whose top folder is `top`; nothing is known without one."""
    if not (top / ".git").exists():
        return BuildInfo()
    head = _git(top, "log", "-1", "--format=%H %ct")
    if head is None:
        return BuildInfo()
    commit, seconds = head.split()
    modified = bool(_git(top, "status", "--porcelain", "--untracked-files=no"))
    return BuildInfo(commit=commit, date=iso_date(int(seconds)), modified=modified)


def iso_date(seconds: int) -> str:
    """`seconds` since 1970 as an ISO 8601 time in UTC."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def version_text() -> str:
    """What `zluda-stack --version` prints."""
    info = build_info()
    commit = info.commit[:12] if info.commit else "unknown commit"
    changed = ", with local changes" if info.modified else ""
    lines = [
        f"zluda-stack {__version__} ({commit}{changed}, {info.date or 'unknown date'})",
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}",
        *(f"{name} {version}" for name, version in pinned_parts()),
    ]
    return "\n".join(lines)


def pinned_parts() -> list[tuple[str, str]]:
    """The base image and the components of the catalogue's default combination, with versions."""
    from zluda_stack.catalog.load import load

    catalog = load()
    chosen = catalog.combinations[catalog.defaults.combination]
    image, _, tag = catalog.variants[chosen.variant].development.rpartition(":")
    return [(image, tag), *chosen.components.items()]


def _git(top: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(top), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
