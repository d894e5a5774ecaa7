"""A model outside the catalogue as people name it: by its place at a hub, or by its URL.

The spellings are those of other programs: `hf:owner/repo/file.gguf` and `hf://` (ramalama,
huggingface_hub), `hf.co/owner/repo:Q4_K_M` (Ollama), `owner/repo:Q4_K_M` (llama.cpp's -hf), and
the address of a file's page at the hub.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from zluda_stack.errors import UsageError

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_REPOSITORY = re.compile(f"{_PART}/{_PART}")
_BARE = re.compile(rf"{_PART}/{_PART}(:[A-Za-z0-9_.-]+)?(@[\w./-]+)?")
_PREFIXES = ("hf://", "hf:", "huggingface://", "hf.co/", "huggingface.co/")
_HUBS = {"huggingface.co", "hf.co", "www.huggingface.co"}
_PAGE = re.compile(rf"/({_PART}/{_PART})/(?:resolve|blob)/([^/]+)/(.+)")
_SPLIT = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.gguf)", re.IGNORECASE)
_MOST_PARTS = 1000
_LONGEST_NAME = 100


class HubPlace(Struct, frozen=True, kw_only=True):
    """A file or a quantisation of a repository; None where the user left it open."""

    repository: str
    file: str | None = None
    quantisation: str | None = None
    revision: str | None = None


class WebPlace(Struct, frozen=True, kw_only=True):
    """A file of a web server: the URL of its folder, and its name with a query behind it."""

    folder: str
    file: str


def parse(text: str) -> HubPlace | WebPlace | None:
    """The place that `text` names; None for the name of a model or the path of a file.

    Raises UsageError for what looks like a place and is none.
    """
    if text.startswith(("https://", "http://")):
        try:
            return _address(text)
        except ValueError as error:
            raise UsageError(f"{text} is no URL: {error}", "Such a URL ends in .gguf.") from error
    for prefix in _PREFIXES:
        if text.startswith(prefix):
            return _hub_place(text.removeprefix(prefix), text)
    if "://" in text:
        raise UsageError(
            f"{text} is no place that models are fetched from",
            "hf:OWNER/REPOSITORY/FILE.gguf and https:// are.",
        )
    bare = _BARE.fullmatch(text) and not text.lower().endswith(".gguf")
    return _hub_place(text, text) if bare and not Path(text).exists() else None


def all_parts(file: str) -> tuple[str, ...]:
    """The names of all files of a model of which `file` is one: itself when it is not split.

    Raises UsageError for a count of parts that no model has.
    """
    match = _SPLIT.fullmatch(file)
    if match is None:
        return (file,)
    count = int(match[3])
    if not 1 <= count <= _MOST_PARTS:
        raise UsageError(f"{file} claims to be one of {count} parts", "Check the name.")
    return tuple(f"{match[1]}-{part:05d}-of-{match[3]}{match[4]}" for part in range(1, count + 1))


def name_of(file: str) -> str:
    """What the store calls the model in `file` unless the user says otherwise.

    Raises UsageError when nothing of the file's name can stand in a model's name.
    """
    base = file.partition("?")[0].rpartition("/")[2]
    match = _SPLIT.fullmatch(base)
    stem = match[1] if match else re.sub(r"\.gguf$", "", base, flags=re.IGNORECASE)
    name = re.sub(r"[^a-z0-9._-]+", "-", stem.lower()).strip("-._")[:_LONGEST_NAME]
    if not name:
        raise UsageError(f"{file!r} gives no name for a model", "Give one with --name.")
    return name


def _hub_place(text: str, typed: str) -> HubPlace:
    text, _, revision = text.partition("@")
    text, _, quantisation = text.partition(":")
    owner, _, rest = text.partition("/")
    repository, _, file = rest.partition("/")
    place = HubPlace(
        repository=f"{owner}/{repository}",
        file=file or None,
        quantisation=quantisation or None,
        revision=_pinned(revision),
    )
    wrong = not _REPOSITORY.fullmatch(place.repository) or ".." in text
    if wrong or (file and (quantisation or not file.lower().endswith(".gguf"))):
        raise UsageError(
            f"{typed} names no model of a hub",
            "hf:OWNER/REPOSITORY/FILE.gguf does, and hf:OWNER/REPOSITORY:Q4_K_M.",
        )
    return place


def _pinned(revision: str) -> str | None:
    """None for the main branch, whose commit is recorded when it is first fetched."""
    return None if revision in {"", "main"} else revision


def _address(text: str) -> HubPlace | WebPlace:
    parts = urlsplit(text)
    page = _PAGE.fullmatch(unquote(parts.path))
    if parts.hostname in _HUBS:
        if page is not None:
            return HubPlace(repository=page[1], revision=_pinned(page[2]), file=page[3])
        return _hub_place(parts.path.strip("/"), text)
    if parts.username or parts.password:
        raise UsageError(
            "a name and password do not belong in a URL, which is recorded", "Put them in ~/.netrc."
        )
    folder, _, file = parts.path.rpartition("/")
    if not parts.hostname or not file.lower().endswith(".gguf"):
        raise UsageError(f"{text} names no GGUF file", "Such a URL ends in .gguf.")
    query = f"?{parts.query}" if parts.query else ""
    return WebPlace(folder=f"{parts.scheme}://{parts.netloc}{folder}", file=file + query)
