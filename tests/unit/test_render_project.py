"""`zluda-stack render` writes a whole folder, and never over what someone else wrote."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.unit.command_line import CASES, NO_GPU, Outcome, run, settle
from tests.unit.planning import host, plan_for
from tests.unit.plans import image
from zluda_stack import paths
from zluda_stack.catalog.load import load
from zluda_stack.errors import ExitCode, HostProblem, UsageError
from zluda_stack.render.committed import render_committed
from zluda_stack.render.dockerfiles import render_dockerfile
from zluda_stack.render.project import render_project, write_project

SOURCES = Path(__file__).parents[2]
FILES = {"a/one.txt": "one\n", "two.sh": "#!/bin/sh\n"}


def render(*arguments: str, facts: Path = NO_GPU) -> Outcome:
    return run("render", *arguments, "--host-facts", str(facts))


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return settle(tmp_path, monkeypatch)


def test_files_are_written_and_scripts_can_be_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert write_project(FILES, out) == (out / "a/one.txt", out / "two.sh")
    assert (out / "a/one.txt").read_text() == "one\n"
    assert os.access(out / "two.sh", os.X_OK)
    assert not os.access(out / "a/one.txt", os.X_OK)


def test_what_an_earlier_render_wrote_is_replaced(tmp_path: Path) -> None:
    write_project(FILES, tmp_path)
    write_project(FILES | {"a/one.txt": "changed\n"}, tmp_path)
    assert (tmp_path / "a/one.txt").read_text() == "changed\n"


@pytest.mark.parametrize("rendered_before", [True, False])
def test_a_users_own_text_is_kept_and_nothing_is_written(
    tmp_path: Path, *, rendered_before: bool
) -> None:
    if rendered_before:
        write_project(FILES, tmp_path)
    own = tmp_path / "a/one.txt"
    own.parent.mkdir(exist_ok=True)
    own.write_text("mine\n")
    with pytest.raises(UsageError, match=r"a/one\.txt") as told:
        write_project(FILES | {"two.sh": "#!/bin/sh\nnew\n"}, tmp_path)
    assert "--force" in told.value.hint
    assert own.read_text() == "mine\n"
    assert not (tmp_path / "two.sh").exists() or "new" not in (tmp_path / "two.sh").read_text()


def test_force_overwrites(tmp_path: Path) -> None:
    (tmp_path / "two.sh").write_text("mine\n")
    write_project(FILES, tmp_path, force=True)
    assert (tmp_path / "two.sh").read_text() == FILES["two.sh"]


def test_a_folder_where_a_file_should_be_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "two.sh").mkdir()
    with pytest.raises(UsageError, match=r"two\.sh"):
        write_project(FILES, tmp_path)
    assert not (tmp_path / "a").exists()


def test_a_file_where_the_folder_should_be_is_a_host_problem(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(HostProblem, match="out"):
        write_project(FILES, tmp_path / "out")


def names_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_another_profile_in_the_same_folder_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    without_card = ("--engine", "docker", "--gpu", "none")
    both, alone = tmp_path / "both", tmp_path / "alone"
    assert render("--gpu", "gfx1100", "--out", str(both)).code == ExitCode.OK
    (both / "images/zluda/notes.txt").write_text("mine\n")
    before = names_in(both)
    dry = render(*without_card, "--out", str(both), "--dry-run")
    assert f"would be removed: {both}/compose/inference.yml\n" in dry.out
    assert names_in(both) - before == set()
    told = render(*without_card, "--out", str(both))
    assert f"removed: {both}/compose/inference.yml\n" in told.out
    assert render(*without_card, "--out", str(alone)).code == ExitCode.OK
    mine = {"images/zluda", "images/zluda/notes.txt"}
    assert names_in(both) == names_in(alone) | mine


def test_json_names_what_was_removed_and_what_stays(tmp_path: Path) -> None:
    assert render("--gpu", "gfx1100", "--out", str(tmp_path)).code == ExitCode.OK
    with (tmp_path / "compose/selftest.yml").open("a") as file:
        file.write("# mine\n")
    told = render("--engine", "docker", "--gpu", "none", "--out", str(tmp_path), "--json")
    assert str(tmp_path / "compose/inference.yml") in told.json["removed"]
    assert told.json["left"] == ["compose/selftest.yml"]
    assert (tmp_path / "compose/selftest.yml").exists()
    again = render("--engine", "docker", "--gpu", "none", "--out", str(tmp_path), "--json")
    assert again.json["removed"] == again.json["left"] == []


def test_a_file_that_had_the_text_before_it_was_rendered_is_never_removed(tmp_path: Path) -> None:
    (tmp_path / "two.sh").write_text(FILES["two.sh"])
    write_project(FILES, tmp_path)
    write_project({"three.txt": "three\n"}, tmp_path)
    assert not (tmp_path / "a").exists()
    assert (tmp_path / "two.sh").read_text() == FILES["two.sh"]


def test_a_link_that_a_user_put_in_its_place_is_never_removed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_project(FILES, out)
    (out / "two.sh").rename(tmp_path / "kept.sh")
    (out / "two.sh").symlink_to(tmp_path / "kept.sh")
    write_project({"three.txt": "three\n"}, out)
    assert (out / "two.sh").is_symlink()
    assert (tmp_path / "kept.sh").exists()


def test_a_record_that_names_files_elsewhere_removes_none(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_project(FILES, out)
    victim = tmp_path / "victim"
    victim.write_text("one\n")
    record = out / ".zluda-stack-rendered.json"
    for name in ("../victim", str(victim)):
        record.write_text(record.read_text().replace("a/one.txt", name))
        write_project({"three.txt": "three\n"}, out)
        write_project(FILES, out)
    assert victim.exists()


def test_committed_files_stay_whatever_is_rendered_beside_them(tmp_path: Path) -> None:
    assert render("--committed", "--out", str(tmp_path)).code == ExitCode.OK
    before = names_in(tmp_path)
    told = render("--engine", "docker", "--gpu", "none", "--out", str(tmp_path), "--force")
    assert told.code == ExitCode.OK
    assert before <= names_in(tmp_path)


def test_what_an_older_version_rendered_is_still_known(tmp_path: Path) -> None:
    write_project(FILES, tmp_path)
    record = tmp_path / ".zluda-stack-rendered.json"
    record.write_text(json.dumps(json.loads(record.read_text())["files"]))
    write_project({"a/one.txt": "changed\n"}, tmp_path)
    assert (tmp_path / "a/one.txt").read_text() == "changed\n"
    assert (tmp_path / "two.sh").exists()


def test_render_for_a_card_that_is_not_here_writes_all_its_files(tmp_path: Path) -> None:
    out = tmp_path / "out"
    outcome = render("--gpu", "gfx1100", "--out", str(out), "--json")
    assert outcome.code == ExitCode.OK
    written = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    listed = {str(Path(path).relative_to(out)) for path in outcome.json["files"]}
    assert listed == written - {".zluda-stack-rendered.json"}
    assert {"compose/inference.yml", "compose/.env", "images/zluda/Dockerfile"} <= listed
    assert "ZLUDA_STACK_GPU=gfx1100" in (out / "compose/.env").read_text()


def test_the_gids_of_the_host_go_into_env_and_not_into_the_compose_file(tmp_path: Path) -> None:
    host = CASES / "kfd-gid-148.json"
    assert render("--out", str(tmp_path / "out"), facts=host).code == ExitCode.OK
    env = (tmp_path / "out/compose/.env").read_text()
    assert "HOST_KFD_GID=148\n" in env
    assert "HOST_RENDER_NODE=/dev/dri/renderD" in env
    assert "148" not in (tmp_path / "out/compose/inference.yml").read_text()


def test_what_this_machine_lacks_is_said_and_does_not_stop_the_rendering(tmp_path: Path) -> None:
    outcome = render("--gpu", "gfx1100", "--out", str(tmp_path / "out"))
    assert outcome.code == ExitCode.OK
    assert "gfx1100 was asked for" in outcome.err
    assert "HOST_" not in (tmp_path / "out/compose/.env").read_text()


def test_rendering_twice_changes_nothing(tmp_path: Path) -> None:
    def snapshot() -> dict[Path, tuple[bytes, int]]:
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        return {path: (path.read_bytes(), path.stat().st_ino) for path in files}

    assert render("--gpu", "gfx1201", "--out", "out").code == ExitCode.OK
    first = {path: text for path, text in snapshot().items() if path.name[0] != "."}
    assert render("--gpu", "gfx1201", "--out", "out").code == ExitCode.OK
    assert {path: text for path, text in snapshot().items() if path.name[0] != "."} == first


def test_the_env_that_host_env_and_the_user_wrote_to_is_no_conflict(tmp_path: Path) -> None:
    env = tmp_path / "compose/.env"
    assert render("--gpu", "gfx1031", "--out", str(tmp_path)).code == ExitCode.OK
    script = ["sh", str(tmp_path / "compose/host-env.sh")]
    without_card = {"ZLUDA_STACK_GPU": "none"}
    subprocess.run(script, env=os.environ | without_card, check=True, capture_output=True)
    with env.open("a") as file:
        file.write(
            "# mine\nHTTPS_PROXY='http://proxy:1'\nZLUDA_STACK_PORT=1\nHOST_RENDER_NODE_2=/n\n"
        )
    assert render("--gpu", "gfx1100", "--port", "9000", "--out", str(tmp_path)).code == ExitCode.OK
    lines = env.read_text().splitlines()
    assert {"# mine", "HTTPS_PROXY='http://proxy:1'", "ZLUDA_STACK_PORT=9000"} <= set(lines)
    assert "ZLUDA_STACK_API_KEY_HASHES_FILE=./secrets/api_key_hashes" in lines
    assert "ZLUDA_STACK_GPU=gfx1100" in lines
    text = env.read_text()
    assert "HSA_OVERRIDE" not in text
    assert "HOST_RENDER_NODE_2" not in text
    assert text.count("ZLUDA_STACK_PORT=") == text.count("It holds no secret") == 1
    assert stat.S_IMODE(env.stat().st_mode) == 0o600
    assert render("--gpu", "gfx1100", "--port", "9000", "--out", str(tmp_path)).code == ExitCode.OK
    assert env.read_text() == text


def test_force_replaces_the_env_too(tmp_path: Path) -> None:
    render("--gpu", "gfx1100", "--out", str(tmp_path))
    env = tmp_path / "compose/.env"
    rendered = env.read_text()
    env.write_bytes(rendered.encode() + b"MINE=\xff\n")
    assert render("--gpu", "gfx1100", "--out", str(tmp_path)).code == ExitCode.OK
    assert env.read_bytes() == rendered.encode() + b"MINE=\xff\n"
    assert render("--gpu", "gfx1100", "--out", str(tmp_path), "--force").code == ExitCode.OK
    assert env.read_text() == rendered


def test_a_folder_in_the_place_of_the_env_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "compose/.env").mkdir(parents=True)
    outcome = render("--gpu", "gfx1100", "--out", str(tmp_path))
    assert outcome.code == ExitCode.USAGE
    assert "compose/.env" in outcome.err


def test_a_dry_run_lists_the_files_and_writes_none(tmp_path: Path) -> None:
    outcome = render("--gpu", "gfx1100", "--out", str(tmp_path / "out"), "--dry-run")
    assert outcome.code == ExitCode.OK
    assert "images/zluda/Dockerfile" in outcome.out
    assert not (tmp_path / "out").exists()


def test_containers_without_a_gpu_render_to_their_own_compose_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert render("--engine", "docker", "--gpu", "none", "--out", str(out)).code == ExitCode.OK
    assert (out / "compose/cpu.yml").read_text() == (SOURCES / "compose/cpu.yml").read_text()
    assert not (out / "compose/inference.yml").exists()
    assert "HOST_" not in (out / "compose/.env").read_text()


def test_a_rendered_folder_holds_all_that_its_dockerfiles_copy(tmp_path: Path) -> None:
    assert render("--gpu", "gfx1100", "--out", str(tmp_path)).code == ExitCode.OK
    for path in tmp_path.glob("images/*/Dockerfile"):
        for copied in re.findall(r"^COPY (?!--from)(?:--\S+ )*(.*) \S+$", path.read_text(), re.M):
            for source in copied.split():
                assert (tmp_path / source).exists(), f"{path} copies {source}"
    assert (tmp_path / "zluda_stack/gateway/app.py").is_file()
    assert not list(tmp_path.rglob("__pycache__"))


def test_the_embedded_engine_has_nothing_to_render(tmp_path: Path) -> None:
    outcome = render("--engine", "embedded", "--out", str(tmp_path / "out"))
    assert outcome.code == ExitCode.REFUSED
    assert "--gpu gfx1100" in outcome.err
    assert not (tmp_path / "out").exists()


def test_no_rendered_file_holds_the_api_key(tmp_path: Path) -> None:
    key = paths.stack("default") / "api-key"
    key.parent.mkdir(parents=True)
    key.write_text("zs-this-is-the-key\n")
    render("--gpu", "gfx1100", "--out", str(tmp_path / "out"))
    rendered = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert rendered
    assert [path for path in rendered if "zs-this" in path.read_text()] == []


def test_the_selftest_runs_on_the_same_card_as_the_server_and_is_not_started_again() -> None:
    rendered = render_project(plan_for(host("kfd-gid-148"), accept_cuda_eula=True))
    server = yaml.safe_load(rendered["compose/inference.yml"])["services"]["inference"]
    services = yaml.safe_load(rendered["compose/selftest.yml"])["services"]
    assert list(services) == ["selftest"]
    for key in ("image", "build", "devices", "group_add", "read_only", "cap_drop"):
        assert services["selftest"][key] == server[key]
    assert services["selftest"]["restart"] == "no"
    assert services["selftest"]["environment"].keys() == {"HSA_OVERRIDE"}


def test_the_committed_files_are_what_the_defaults_render_to() -> None:
    files = render_committed(load())
    assert {"compose/inference.yml", "compose/cpu.yml", "compose/host-env.sh"} <= set(files)
    dockerfiles = {str(path.relative_to(SOURCES)) for path in SOURCES.glob("images/*/Dockerfile")}
    assert dockerfiles == {path for path in files if path.endswith("/Dockerfile")}
    for path, text in files.items():
        assert (SOURCES / path).read_text() == text, f"{path}: run `make render`"


def test_the_committed_compose_file_is_for_every_card(tmp_path: Path) -> None:
    committed = render_committed(load())["compose/inference.yml"]
    assert "gfx" not in committed
    for target in ("gfx1030", "gfx1201"):
        out = tmp_path / target
        assert render("--gpu", target, "--out", str(out)).code == ExitCode.OK
        assert (out / "compose/inference.yml").read_text() == committed


@pytest.mark.parametrize("name", ["inference", "cpu"])
def test_a_committed_compose_file_builds_from_the_committed_dockerfiles(name: str) -> None:
    document = yaml.safe_load((SOURCES / f"compose/{name}.yml").read_text())
    builds = [service["build"] for service in document["services"].values() if "build" in service]
    assert builds
    for build in builds:
        assert (SOURCES / "compose" / build["context"] / build["dockerfile"]).is_file()


def test_committed_takes_no_settings() -> None:
    outcome = render("--committed", "--gpu", "gfx1100", "--out", ".")
    assert outcome.code == ExitCode.USAGE
    assert "gpu" in outcome.err


def test_a_hand_made_plan_and_the_resolved_one_give_the_same_dockerfile() -> None:
    assert render_committed(load())["images/zluda/Dockerfile"] == render_dockerfile(image())


def test_an_empty_folder_name_is_not_the_current_folder(tmp_path: Path) -> None:
    told = render("--gpu", "gfx1100", "--out", "")
    assert told.code == ExitCode.USAGE
    assert "it is empty" in told.err
    assert list(tmp_path.rglob("Dockerfile")) == []
