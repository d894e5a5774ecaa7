"""The command lines of `docker compose` and `docker buildx`, and what goes into them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.unit import plans
from tests.unit.planning import host, plan_for
from zluda_stack.engines.docker import build, compose
from zluda_stack.engines.docker.mirror import holds, mirror, replace
from zluda_stack.engines.docker.state import StackFolder
from zluda_stack.plan.types import to_json
from zluda_stack.render.project import render_project


def test_what_the_plan_decided_is_not_overruled_by_variables_of_the_shell() -> None:
    passed = compose.environment(
        {
            "PATH": "/bin",
            "DOCKER_HOST": "unix:///run/docker.sock",
            "ZLUDA_STACK_PORT": "9999",
            "HOST_RENDER_NODE": "/dev/dri/renderD129",
            "COMPOSE_FILE": "other.yml",
            "COMPOSE_PROJECT_NAME": "other",
        }
    )

    assert passed == {"PATH": "/bin", "DOCKER_HOST": "unix:///run/docker.sock"}


def test_every_stack_is_a_compose_project_of_its_own() -> None:
    one = compose.up("one", Path("/s/compose/cpu.yml"))
    two = compose.up("two", Path("/s/compose/cpu.yml"))

    assert one[:4] == ("docker", "compose", "--project-name", "zluda-stack-one")
    assert two[3] == "zluda-stack-two"
    assert "--no-build" in one


def test_an_image_is_built_from_the_whole_project_by_its_own_stage() -> None:
    image = plans.image("zluda")
    line = build.command(image, Path("/s/context"))

    assert line[-1] == "/s/context"
    assert line[line.index("--file") + 1] == "/s/context/images/zluda/Dockerfile"
    assert line[line.index("--target") + 1] == "zluda"
    assert line[line.index("--tag") + 1] == image.tag


def test_a_mirrored_folder_holds_the_files_and_nothing_of_an_earlier_rendering(
    tmp_path: Path,
) -> None:
    mirror({"compose/old.yml": "old", "images/a/b/script": "#!/bin/sh\n"}, tmp_path)
    mirror({"compose/new.yml": "new", "images/a/Dockerfile": "FROM scratch\n"}, tmp_path)

    files = {
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert {name for name in files if not name.startswith(".")} == {
        "compose/new.yml",
        "images/a/Dockerfile",
    }
    assert not (tmp_path / "images" / "a" / "b").exists()


@pytest.mark.parametrize("profile", ["translated", "native", "webui"])
def test_the_compose_file_of_a_stack_is_not_that_of_its_selftest(
    tmp_path: Path, profile: str
) -> None:
    folder = StackFolder(tmp_path)
    assert compose.compose_file(folder) is None
    plan = plan_for(host("radeon-rx-7900-xtx"), profile=profile)
    mirror(render_project(plan), folder.project)
    folder.plan.write_bytes(to_json(plan))
    file = compose.compose_file(folder)
    assert file is not None
    services = yaml.safe_load(file.read_text())["services"]
    assert {"inference", "endpoint"} <= set(services)


def test_a_file_that_is_the_same_is_not_written_again(tmp_path: Path) -> None:
    mirror({"a/one": "text"}, tmp_path)
    before = (tmp_path / "a/one").stat().st_ino
    mirror({"a/one": "text"}, tmp_path)

    assert (tmp_path / "a/one").stat().st_ino == before


def test_one_changed_or_missing_file_makes_a_folder_another_one(tmp_path: Path) -> None:
    files = {"a/one": "text", "a/two": "more"}
    mirror(files, tmp_path)

    assert holds(files, tmp_path)
    assert not holds({**files, "a/two": "other"}, tmp_path)
    assert not holds({**files, "a/three": "new"}, tmp_path)


def test_a_folder_takes_the_place_of_another(tmp_path: Path) -> None:
    mirror({"x/new": "1"}, tmp_path / "now")
    mirror({"x/old": "2"}, tmp_path / "before")

    replace(tmp_path / "now", by=tmp_path / "before")

    assert (tmp_path / "now/x/old").read_text() == "2"
    assert not (tmp_path / "now/x/new").exists()
    assert not (tmp_path / "before").exists()
