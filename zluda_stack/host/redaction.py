"""Texts without what names a person, a machine or a card: the same stand-in for the same thing."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, structs

_USER, _HOST = "USER", "HOST"
# A user or a machine of such a name gives nothing away, and the facts need these words.
_COMMON_WORDS = frozenset(
    (
        *("amd", "amdgpu", "default", "desktop", "docker", "gpu", "host", "kfd", "kubernetes"),
        *("linux", "localhost", "lxc", "podman", "render", "root", "rootless", "runc", "ubuntu"),
        *("user", "video", "enforcing", "permissive", "disabled"),
    )
)
_HOME = re.compile(r"(?<![\w.-])/(home|Users)/[^/\s:\"']+")
_RUNTIME_FOLDER = re.compile(r"/run/user/[0-9]+")
_ELSEWHERE = re.compile(
    r"\b(tcp|ssh|https?)://(?!(?:localhost|127\.0\.0\.1|\[::1\])(?![\w.]))[^\s\"']+"
)
_ADDRESS = re.compile(r"(?<![\w.])(?!127\.)[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![\w.])")
_UNIQUE_ID = re.compile(r"GPU-[0-9A-Za-z]{4,}")
_Facts = TypeVar("_Facts", bound=Struct)


def own_names(home: Path) -> dict[str, str]:
    """The words that name the user and the machine of this process, and what to write for each."""
    users = (home.name, os.environ.get("USER", ""), os.environ.get("LOGNAME", ""))
    machine = platform.node()
    hosts = (machine, machine.partition(".")[0])
    return dict.fromkeys(hosts, _HOST) | dict.fromkeys(users, _USER)


class Redaction:
    """Replaces in texts: paths under `home` and other home folders, the words `names`, other
    machines' addresses, and unique ids of cards.
    """

    def __init__(self, home: Path, names: Mapping[str, str]) -> None:
        self._ids: dict[str, int] = {}
        folders = sorted({str(home), os.path.realpath(home)} - {"/", "."}, key=len, reverse=True)
        self._folders = [re.compile(re.escape(folder) + r"(?![\w.-])") for folder in folders]
        words = sorted(set(names) - _COMMON_WORDS - {""}, key=len, reverse=True)
        self._names = [(_word(word), names[word]) for word in words]

    def over(self, value: _Facts) -> _Facts:
        """`value` with every text in it gone over, the keys of dictionaries too."""
        fields = {name: self._each(getattr(value, name)) for name in value.__struct_fields__}
        return structs.replace(value, **fields)

    def _each(self, value: object) -> object:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Struct):
            return self.over(value)
        if isinstance(value, dict):
            return {self._each(key): self._each(each) for key, each in value.items()}
        if isinstance(value, tuple):
            return tuple(self._each(each) for each in value)
        return value

    def _text(self, text: str) -> str:
        for folder in self._folders:
            text = folder.sub("~", text)
        text = _HOME.sub(rf"/\1/{_USER}", text)
        text = _RUNTIME_FOLDER.sub("/run/user/UID", text)
        text = _ELSEWHERE.sub(rf"\1://{_HOST}", text)
        if " " in text:  # in a sentence; alone, it may be the version of a kernel
            text = _ADDRESS.sub(_HOST, text)
        text = _UNIQUE_ID.sub(self._stand_in, text)
        for name, stand_in in self._names:
            text = name.sub(stand_in, text)
        return text

    def _stand_in(self, match: re.Match[str]) -> str:
        number = self._ids.setdefault(match[0], len(self._ids) + 1)
        return f"GPU-{number:016x}"


def _word(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
