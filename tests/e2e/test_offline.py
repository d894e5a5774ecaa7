"""A bundle saved here serves a model on a machine without network, by the commands it tells."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from zluda_stack.catalog.load import load

pytestmark = pytest.mark.embedded

# Imported by every Python of the test: writes down whoever is asked for beyond this machine.
_WATCH = """\
import os, sys

def watch(event, arguments):
    if event not in ("socket.connect", "socket.getaddrinfo"):
        return
    address = arguments[1] if event == "socket.connect" else arguments[0]
    host = address[0] if isinstance(address, tuple) else address
    near = isinstance(address, (str, bytes)) and event == "socket.connect"  # a Unix socket
    if not near and host not in ("127.0.0.1", "::1", "localhost", "0.0.0.0", None, ""):
        with open(os.environ["ASKED"], "a") as log:
            log.write(f"{event} {host}: {sys.argv}\\n")

sys.addaudithook(watch)
"""
_ASK = """\
import json, os, urllib.request
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps({"model": "default", "max_tokens": 4,
                "messages": [{"role": "user", "content": "Say hello."}]}).encode(),
    {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
     "Content-Type": "application/json"},
)
print(urllib.request.urlopen(request).read().decode())
"""
_FAR = "import socket; socket.socket().connect_ex(('192.0.2.1', 9))"


def without_network() -> list[str]:
    """A command that runs another where there is no network but the loopback device."""
    for own in (["unshare", "--net"], ["unshare", "--map-root-user", "--net"]):
        up = [*own, "sh", "-c", "ip link set lo up"]
        if subprocess.run(up, capture_output=True, check=False).returncode == 0:
            return own
    pytest.skip("this machine lets nobody make a network namespace (unshare --net)")


def saved(folder: Path, gguf: Path) -> Path:
    """A bundle written by a user whose store has the small model."""
    folder.mkdir()
    environ = {key: os.environ[key] for key in os.environ if not key.startswith("XDG_")}
    program = [sys.executable, "-m", "zluda_stack"]
    name = load().defaults.model
    for arguments in (
        ("models", "pull", name, "--from", str(gguf.parents[1])),
        ("bundle", "save", "--engine", "embedded", "-o", "all.tar"),
    ):
        done = subprocess.run(
            [*program, *arguments],
            cwd=folder,
            env={**environ, "HOME": str(folder), "PYTHONSAFEPATH": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    return folder / "all.tar"


def told_commands(bundle: Path) -> list[str]:
    """The command lines in the README.txt of the bundle, as they stand there."""
    with tarfile.open(bundle) as archive:
        member = archive.extractfile("README.txt")
        assert member is not None
        lines = member.read().decode().splitlines()
    return [line.strip() for line in lines if line.startswith("    ")]


def clean(home: Path) -> dict[str, str]:
    """The environment of a new user, with nothing of this one but the Python to install for."""
    (home / "watch").mkdir()
    (home / "watch/sitecustomize.py").write_text(_WATCH)
    return {
        "HOME": str(home),
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "PYTHON": getattr(sys, "_base_executable", sys.executable),
        "PYTHONPATH": str(home / "watch"),
        "PIP_NO_COMPILE": "1",
        "ASKED": str(home / "asked"),
    }


def test_a_bundle_serves_a_completion_where_there_is_no_network(gguf: Path, tmp_path: Path) -> None:
    own = without_network()
    bundle = saved(tmp_path / "here", gguf)
    home = tmp_path / "there"
    home.mkdir()
    bundle.rename(home / "all.tar")
    program = "zluda-stack-venv/bin/zluda-stack"
    script = [
        "set -e",
        "ip link set lo up",
        f"trap '{program} down >&2' EXIT",
        *(f"{line} >&2" for line in told_commands(home / "all.tar")),
        f'eval "$({program} connect env)"',
        f"zluda-stack-venv/bin/python -c {shlex.quote(_ASK)}",
        f"ASKED={home}/control zluda-stack-venv/bin/python -c {shlex.quote(_FAR)}",
    ]
    done = subprocess.run(
        [*own, "sh", "-c", "\n".join(script)],
        cwd=home,
        env=clean(home),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["choices"][0]["message"]["content"].strip()
    assert "192.0.2.1" in (home / "control").read_text()  # who asks is seen
    assert not (home / "asked").exists(), (home / "asked").read_text()
