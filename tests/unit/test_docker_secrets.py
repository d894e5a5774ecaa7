"""What containers are given to know: hashes of the key, where only the owner's folder holds it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from tests.unit import plans
from zluda_stack import keys, paths
from zluda_stack.engines.docker.secrets import (
    are_written,
    publish_keys,
    with_secret_files,
    write_secrets,
)
from zluda_stack.engines.docker.state import StackFolder
from zluda_stack.gateway.auth import KeyFile, Keys
from zluda_stack.gateway.errors import Fault
from zluda_stack.keyring import Key
from zluda_stack.plan.types import Plan


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StackFolder:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return StackFolder(paths.stack("default"))


def _plan() -> Plan:
    return plans.plan(msgspec.structs.replace(plans.SERVER, secrets=("api_key_hashes",)))


def test_the_endpoint_accepts_the_key_by_the_file_that_it_is_given(folder: StackFolder) -> None:
    write_secrets(_plan(), folder)

    key = keys.read_key("default")
    assert key is not None
    accepted = Keys(KeyFile.of_digests(folder.secrets / "api_key_hashes"))
    assert accepted.require([(b"x-api-key", key.encode())])
    with pytest.raises(Fault):
        accepted.require([(b"x-api-key", b"zs-another")])


def test_the_file_holds_no_key_and_any_user_of_a_container_can_read_it(
    folder: StackFolder,
) -> None:
    write_secrets(_plan(), folder)

    file = folder.secrets / "api_key_hashes"
    assert (keys.read_key("default") or "-") not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o444


def test_only_another_key_counts_as_a_change(folder: StackFolder) -> None:
    assert not are_written(_plan(), folder)
    assert keys.read_key("default") is None  # to ask makes none
    assert write_secrets(_plan(), folder)
    assert are_written(_plan(), folder)
    assert not write_secrets(_plan(), folder)

    keys.key_file("default").unlink()
    assert not are_written(_plan(), folder)
    assert write_secrets(_plan(), folder)
    key = keys.read_key("default") or ""
    told = (folder.secrets / "api_key_hashes").read_text().strip()
    assert told == hashlib.sha256(key.encode()).hexdigest()


def test_a_further_key_reaches_the_containers_that_run(folder: StackFolder) -> None:
    write_secrets(_plan(), folder)
    file = folder.secrets / "api_key_hashes"
    accepted = Keys(KeyFile.of_digests(file))
    mounted = file.stat().st_ino

    key = keys.add_key("default", Key(digest=b"", name="laptop")).encode()
    publish_keys(folder, "default")
    assert accepted.require([(b"x-api-key", key)]).name == "laptop"
    assert are_written(_plan(), folder)  # the next `up` replaces nothing
    keys.remove_key("default", "laptop")
    publish_keys(folder, "default")
    with pytest.raises(Fault):
        accepted.require([(b"x-api-key", key)])
    assert (file.stat().st_ino, file.stat().st_mode & 0o777) == (mounted, 0o444)


def test_where_no_container_was_started_nothing_is_published(folder: StackFolder) -> None:
    publish_keys(folder, "default")
    assert not folder.secrets.exists()


def test_the_rendered_env_says_where_the_file_is(folder: StackFolder) -> None:
    files = with_secret_files({"compose/.env": "A=1\n", "x": "y"}, _plan(), folder)

    assert files["x"] == "y"
    assert files["compose/.env"] == (
        f"A=1\nZLUDA_STACK_API_KEY_HASHES_FILE={folder.secrets / 'api_key_hashes'}\n"
    )
