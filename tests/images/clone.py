"""A fresh clone as a user has it, and Compose run in it on stand-in base images."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import yaml

from tests.docker_engine import ROOT, docker, inspect
from tests.e2e.conftest import free_port

# What a clone holds that builds and Compose read.
_PARTS = (".dockerignore", "compose", "images", "requirements", "zluda_stack")


class Clone:
    """The project's files in `folder`, one of its compose files, and a project name of its own."""

    def __init__(self, folder: Path, stack: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = free_port()
        self.project = f"zluda-stack-test-{secrets.token_hex(4)}"
        self._files = [folder / f"compose/{stack}.yml"]
        for part in _PARTS:
            source = ROOT / part
            if source.is_dir():
                leave = shutil.ignore_patterns("__pycache__", ".env", "secrets")
                shutil.copytree(source, folder / part, ignore=leave)
            else:
                shutil.copy(source, folder / part)

    def host_env(self, **environment: str) -> str:
        """Run compose/host-env.sh as a user does; returns what it says."""
        done = subprocess.run(
            ["sh", "compose/host-env.sh"],
            cwd=self.folder,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=True,
        )
        self.setting("ZLUDA_STACK_PORT", str(self.port))
        return done.stderr

    def setting(self, name: str, value: str) -> None:
        """Add a line to compose/.env, as a user does."""
        with (self.folder / "compose/.env").open("a") as env:
            env.write(f"{name}={value}\n")

    def use(self, stack: str) -> None:
        """Go on with another of the compose files, as the clone has it."""
        self._files = [self.folder / f"compose/{stack}.yml"]

    def change(self, services: Mapping[str, object]) -> None:
        """Lay another compose file over the committed one."""
        path = self.folder / f"compose/over-{len(self._files)}.yml"
        path.write_text(yaml.safe_dump({"services": services}))
        self._files.append(path)

    def compose(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`docker compose ARGUMENTS` in the clone."""
        files = (word for file in self._files for word in ("--file", str(file)))
        return subprocess.run(
            ["docker", "compose", "--project-name", self.project, *files, *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def container(self, service: str) -> str:
        """The id of the container of `service`, running or not."""
        told = self.compose("ps", "--all", "--quiet", service)
        assert told.stdout.strip(), told.stderr
        return told.stdout.strip()

    def state(self, service: str) -> dict[str, object]:
        """The engine's State of that container."""
        state = inspect(self.container(service))["State"]
        assert isinstance(state, dict)
        return state

    def is_healthy(self, service: str) -> bool:
        """True when the last health check of `service` succeeded."""
        health = self.state(service).get("Health")
        return isinstance(health, dict) and health["Status"] == "healthy"

    def key(self) -> str:
        """The API key that host-env.sh made."""
        return (self.folder / "compose/secrets/api_key").read_text().strip()

    def left_behind(self) -> list[str]:
        """The containers, networks and volumes of this project."""
        label = f"label=com.docker.compose.project={self.project}"
        kinds = (("container", "ls", "--all"), ("network", "ls"), ("volume", "ls"))
        return [
            line
            for kind in kinds
            for line in docker(*kind, "--quiet", "--filter", label).splitlines()
        ]


def standin_builds(
    contexts: Mapping[str, str], images: Mapping[str, str], **arguments: str
) -> dict[str, object]:
    """Services that are built with `contexts`; `images` maps each to the tag it gets.

    Tags of their own, so that no test replaces an image that the machine's user has built.
    """
    build = {"additional_contexts": dict(contexts), "args": arguments}
    return {
        service: {"image": f"zluda-stack-test/{image}", "build": build}
        for service, image in images.items()
    }
