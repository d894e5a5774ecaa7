"""What is asked of a hub, beside what huggingface_hub asks of the same one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.fake_hub import COMMIT, FakeHub, fake_hub
from tests.unit.fetched import CONTENT, FILE, REPOSITORY
from zluda_stack.errors import UsageError
from zluda_stack.models.fetching import Fetching
from zluda_stack.models.hub import DEFAULT_ENDPOINT, endpoint, find_token, open_hub
from zluda_stack.progress import Silent

OTHER = "Q8 0/tiny-00001-of-00002.gguf"

# In a process of its own: the package reads its variables when it is imported.
THEIRS = """
import json
from huggingface_hub import HfApi, constants, get_token, hf_hub_url
found = HfApi().model_info({repository!r}, revision={revision!r}, files_metadata=True)
print(json.dumps({{
    "revision": found.sha,
    "files": [[each.rfilename, each.size, each.lfs.sha256] for each in found.siblings],
    "urls": [
        hf_hub_url({repository!r}, each.rfilename, revision=found.sha) for each in found.siblings
    ],
    "token": get_token(),
}}))
"""


def asked_of(served: FakeHub) -> list[tuple[str, str | None]]:
    """What was asked about models, and with which token; that package asks for more besides."""
    return [
        (each.path, each.headers.get("Authorization"))
        for each in served.seen
        if each.path.startswith("/api/models/")
    ]


@pytest.mark.parametrize("revision", [None, COMMIT])
def test_files_urls_and_token_are_those_of_huggingface_hub(
    tmp_path: Path, revision: str | None
) -> None:
    token = tmp_path / ".cache/huggingface/token"
    token.parent.mkdir(parents=True)
    token.write_text("hf_mine\n")
    with fake_hub({f"{REPOSITORY}/{name}": CONTENT for name in (FILE, OTHER)}) as served:
        environ = {"HOME": str(tmp_path), "HF_ENDPOINT": f"{served.url}/", "PATH": "/usr/bin:/bin"}
        theirs = subprocess.run(
            [sys.executable, "-c", THEIRS.format(repository=REPOSITORY, revision=revision)],
            env=environ,
            capture_output=True,
            check=True,
        )
        asked = asked_of(served)
        served.seen.clear()
        hub = open_hub(Fetching(environ=environ))
        found = hub.repository(REPOSITORY, revision, Silent())
        assert asked_of(served) == asked != []
    mine = find_token(environ)
    assert mine is not None
    assert msgspec.json.decode(theirs.stdout) == {
        "revision": found.revision,
        "files": [[each.name, each.size, each.lfs and each.lfs.sha256] for each in found.files],
        "urls": [hub.url(REPOSITORY, found.revision, each.name) for each in found.files],
        "token": mine.value,
    }


def test_where_a_token_is_looked_for(tmp_path: Path) -> None:
    file = tmp_path / "elsewhere"
    file.write_text("hf_file")
    assert find_token({"HOME": str(tmp_path)}) is None
    found = find_token({"HOME": str(tmp_path), "HF_TOKEN_PATH": str(file)})
    assert found is not None
    assert (found.value, found.place) == ("hf_file", str(file))
    first = find_token({"HF_TOKEN": " hf_x ", "HF_TOKEN_PATH": str(file)})
    assert first is not None
    assert (first.value, first.place) == ("hf_x", "HF_TOKEN")


def test_what_is_no_token_is_told_and_not_shown() -> None:
    with pytest.raises(UsageError, match="the token in HF_TOKEN") as caught:
        find_token({"HF_TOKEN": "hf_secret\nhf_secret"})
    assert "hf_secret" not in caught.value.message + caught.value.hint


def test_the_hub_is_the_public_one_unless_a_mirror_is_named() -> None:
    assert endpoint({}) == endpoint({"HF_ENDPOINT": ""}) == DEFAULT_ENDPOINT
    assert endpoint({"HF_ENDPOINT": "https://mirror.example/"}) == "https://mirror.example"


@pytest.mark.parametrize(
    ("url", "carried"),
    [("https://hub.example", True), ("http://127.0.0.1:1", True), ("http://hub.example", False)],
)
def test_a_token_is_not_sent_where_others_can_read_it(url: str, carried: bool) -> None:
    hub = open_hub(Fetching(environ={"HF_ENDPOINT": url, "HF_TOKEN": "hf_x"}))
    assert hub.downloader.sends_token is carried
