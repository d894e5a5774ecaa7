"""A real Docker Engine for tests: found or skipped with the reason, and stand-in base images.

The base images of the catalogue come from a registry. Where none can be reached, a debootstrap
stands in: it is handed to the builds as a named build context, so that the Dockerfiles
stay as they are. Stand-ins are tagged zluda-stack-standin/... and kept for the next run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from zluda_stack.catalog.load import load
from zluda_stack.catalog.schema import BaseImage

ROOT = Path(__file__).parents[1]
STANDIN = "zluda-stack-standin/debian"
SUITE = "bookworm"


def docker(*arguments: str, timeout: float = 120) -> str:
    """What `docker ARGUMENTS` prints; AssertionError with its message when it fails."""
    done = subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, check=False, timeout=timeout
    )
    assert done.returncode == 0, f"docker {' '.join(arguments)}:\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


def _why_not(*commands: list[str]) -> str | None:
    """Why `docker COMMAND` does not work for the first of `commands` that does not; else None."""
    if shutil.which("docker") is None:
        return "the docker command is not installed"
    for command in commands:
        done = subprocess.run(
            ["docker", *command], capture_output=True, text=True, check=False, timeout=60
        )
        if done.returncode != 0:
            return f"`docker {' '.join(command)}`: {done.stderr.strip().splitlines()[-1]}"
    return None


@pytest.fixture(scope="session")
def buildx() -> None:
    """The docker command with its buildx plugin, which works without an engine; or skip."""
    reason = _why_not(["buildx", "version"])
    if reason:
        pytest.skip(f"NO BUILDX: {reason}. See .ci/docker.")


@pytest.fixture(scope="session")
def engine() -> Iterator[None]:
    """A Docker Engine with Compose and BuildKit, or the test is skipped."""
    reason = _why_not(["version"], ["compose", "version"], ["buildx", "version"])
    if reason:
        pytest.skip(f"NO DOCKER ENGINE, so no container was tested: {reason}. See .ci/docker.")
    # Tests take HOME and the XDG folders away; where docker keeps its plugins must stay.
    before = os.environ.get("DOCKER_CONFIG")
    os.environ["DOCKER_CONFIG"] = before or str(Path.home() / ".docker")
    yield
    if before is None:
        del os.environ["DOCKER_CONFIG"]


@pytest.fixture(scope="session")
def standin(engine: None, tmp_path_factory: pytest.TempPathFactory) -> str:  # noqa: ARG001
    """The tag of an image with a minimal Debian that trusts what this machine trusts."""
    return debian_image(SUITE, tmp_path_factory.mktemp("debootstrap"))


def debian_image(suite: str, scratch: Path) -> str:
    """The stand-in for `suite`, made in `scratch` when the engine does not have it; or skip."""
    tag = f"{STANDIN}:{suite}"
    if docker("images", "--quiet", tag):
        return tag
    if shutil.which("debootstrap") is None or os.getuid() != 0:
        pytest.skip(f"NO BASE IMAGE: {tag} is made by debootstrap, as root")
    root = scratch / suite
    command = ["debootstrap", "--variant=minbase", "--include=ca-certificates", suite, str(root)]
    subprocess.run([*command, _archive()], check=True, capture_output=True, timeout=600)
    _trust_what_the_host_trusts(root)
    _behave_like_an_official_image(root)
    for cache in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(root / cache)
    with subprocess.Popen(
        ["tar", "--create", "--directory", str(root), "."], stdout=subprocess.PIPE
    ) as tar:
        subprocess.run(
            ["docker", "import", "-", tag], stdin=tar.stdout, check=True, capture_output=True
        )
    return tag


def _archive() -> str:
    """The Debian archive of this machine's own apt."""
    told = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian"],
        capture_output=True,
        text=True,
        check=False,
    )
    if not told.stdout.split():
        pytest.skip("NO BASE IMAGE: this machine's apt knows no Debian archive")
    return told.stdout.split()[0]


def _behave_like_an_official_image(root: Path) -> None:
    """apt without caches of its own; and it takes an expired index, as a mirror that stands still
    has one of sid."""
    (root / "etc/apt/apt.conf.d/standin").write_text(
        'Dir::Cache::pkgcache "";\nDir::Cache::srcpkgcache "";\n'
        'Acquire::Check-Valid-Until "false";\n'
    )


def _trust_what_the_host_trusts(root: Path) -> None:
    """Behind a proxy that opens TLS, builds need the certificate that this machine was given."""
    bundle = os.environ.get("SSL_CERT_FILE")
    if bundle and Path(bundle).is_file():
        shutil.copy(bundle, root / "usr/local/share/ca-certificates/host.crt")
        subprocess.run(
            ["chroot", str(root), "update-ca-certificates"], check=True, capture_output=True
        )


def reference(base: BaseImage) -> str:
    """A base image as the Dockerfiles name it."""
    return f"{base.name}:{base.tag}@{base.digest}"


def standin_contexts(tag: str, variant: str | None = None) -> dict[str, str]:
    """The build contexts that put `tag` in the place of both bases of a variant."""
    catalog = load()
    chosen = catalog.variants[variant or catalog.defaults.variant]
    keys = (chosen.development, chosen.runtime)
    return {reference(catalog.bases[key]): f"docker-image://{tag}" for key in keys}


def build(  # what `docker buildx build` takes, by its own names
    dockerfile: Path,
    *,
    target: str,
    tag: str,
    contexts: Mapping[str, str],
    arguments: Mapping[str, str] | None = None,
    context: Path = ROOT,
) -> str:
    """Build `target` of `dockerfile` as `tag` with BuildKit; returns the tag."""
    options = [
        *(word for item in contexts.items() for word in ("--build-context", "=".join(item))),
        *(word for item in (arguments or {}).items() for word in ("--build-arg", "=".join(item))),
    ]
    command = ("buildx", "build", "--load", "--file", str(dockerfile), "--target", target)
    docker(*command, "--tag", tag, *options, str(context), timeout=3600)
    return tag


def inspect(container: str) -> dict[str, object]:
    """What the engine knows of one container."""
    told: list[dict[str, object]] = json.loads(docker("inspect", container))
    return told[0]
