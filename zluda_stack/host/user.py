"""Who runs this, by number: the groups of the process and those in the system's files.

The files are read rather than asked through NSS, which may wait for a network: groups that only
a directory service knows count when the process has them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from zluda_stack.host import reading
from zluda_stack.host.facts import UserFacts

_GROUPS = ("render", "video", "docker")


def read_user(root: Path) -> UserFacts:
    """The user's numbers; no name of a user is read into the facts."""
    groups = tuple(_entries(root / "etc/group", fields=4))
    gids = {name: gid for name, _, number, _ in groups if (gid := reading.decimal(number))}
    return UserFacts(
        root=os.geteuid() == 0,
        gids=tuple(sorted({*os.getgroups(), os.getegid()})),
        configured_gids=tuple(sorted(_configured(root, groups))),
        groups={name: gids[name] for name in _GROUPS if name in gids},
    )


def _configured(root: Path, groups: tuple[list[str], ...]) -> set[int]:
    """The gids that a new session of this user would have, after passwd(5) and group(5)."""
    found: set[int] = set()
    for name, _, uid, gid, *_ in _entries(root / "etc/passwd", fields=7):
        if reading.decimal(uid) == os.getuid():
            numbers = [gid, *(number for _, _, number, members in groups if _lists(members, name))]
            found.update(value for value in map(reading.decimal, numbers) if value is not None)
            break
    return found


def _lists(members: str, name: str) -> bool:
    return name in members.split(",")


def _entries(path: Path, fields: int) -> Iterator[list[str]]:
    for line in reading.text(path, reading.LARGE).splitlines():
        entry = line.split(":")
        if len(entry) == fields:
            yield entry
