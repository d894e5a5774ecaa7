"""The gateways that are compared: how each is come by, set up and started.

Each asks the model server at a port; LiteLLM and claude-code-router in the way that their
documentation gives for such a server (read 2026-11-30), nginx without buffering.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.gateways.load import Target

KEY = "zs-benchmark"
_START_SECONDS = 120

_NGINX = """\
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  client_max_body_size 32m; client_body_buffer_size 1m;
  upstream model {{ server 127.0.0.1:{upstream}; keepalive 64; }}
  server {{
    listen 127.0.0.1:{port} backlog=2048;
    location / {{
      proxy_pass http://model; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_read_timeout 1h;
    }}
  }}
}}
"""


Command = Callable[[Path, Path, int, int], list[str]]


@dataclass(frozen=True)
class Candidate:
    """A gateway: its name, how to fetch it into a folder, and the command that serves a port.

    `command` gets that folder, one for its own files, the port to serve, and the model server's;
    `environment` is what it needs beside a clean one.
    """

    name: str
    fetch: Callable[[Path], None]
    command: Command


@contextmanager
def serving(candidate: Candidate, tools: Path, own: Path, upstream: int) -> Iterator[Running]:
    """The running gateway, in a home of its own."""
    port = free_port()
    own.mkdir(parents=True)
    command = candidate.command(tools, own, port, upstream)
    environment = {"HOME": str(own), "PATH": os.environ["PATH"], "PYTHONPATH": os.getcwd()}  # noqa: PTH109
    with (own / "log").open("wb") as log:
        process = psutil.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait(process, port, own / "log")
        yield Running(Target(port, KEY), process)
    finally:
        for one in (*process.children(recursive=True), process):
            one.terminate()
        process.wait()


@dataclass(frozen=True)
class Running:
    """A gateway that serves; without a process it is the model server itself."""

    target: Target
    process: psutil.Popen | None

    def cpu(self) -> float:
        """Seconds of CPU time of all living threads so far, to the nanosecond."""
        threads = (Path(f"/proc/{one.pid}/task").iterdir() for one in self._tree())
        times = (
            int((one / "schedstat").read_text().split()[0]) for all_ in threads for one in all_
        )
        return sum(times) / 1e9

    def memory(self) -> float:
        """Resident megabytes; pages that processes share count once for each."""
        return sum(one.memory_info().rss for one in self._tree()) / 1e6

    def _tree(self) -> list[psutil.Process]:
        if self.process is None:
            return []
        return [self.process, *self.process.children(recursive=True)]


def free_port() -> int:
    """A TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(process: psutil.Popen, port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    sys.exit(f"it does not serve: {log.read_text()[-2000:]}")


def _endpoint(_: Path, own: Path, port: int, upstream: int) -> list[str]:
    key = own / "key"
    key.write_text(KEY + "\n")
    server = ("--upstream", f"http://127.0.0.1:{upstream}", "--slots", "1024")
    module = (sys.executable, "-m", "zluda_stack.gateway")
    return [*module, "--port", str(port), *server, "--key-file", str(key)]


def _floor(kind: str) -> Command:
    def command(_: Path, __: Path, port: int, upstream: int) -> list[str]:
        module = [sys.executable, "-m", "benchmarks.gateways.floor"]
        return [*module, kind, str(port), str(upstream)]

    return command


def _nginx(tools: Path, own: Path, port: int, upstream: int) -> list[str]:
    config = own / "nginx.conf"
    config.write_text(_NGINX.format(folder=own, port=port, upstream=upstream))
    return [str(tools / "nginx/root/usr/sbin/nginx"), "-c", str(config), "-e", str(own / "log")]


def _litellm(tools: Path, own: Path, port: int, upstream: int) -> list[str]:
    model = {
        "model": "anthropic/default",
        "api_base": f"http://127.0.0.1:{upstream}",
        "api_key": KEY,
    }
    config = own / "config.yaml"  # JSON is YAML
    config.write_text(
        json.dumps(
            {
                "model_list": [{"model_name": "default", "litellm_params": model}],
                "general_settings": {"master_key": KEY},
            }
        )
    )
    program = str(tools / "litellm/bin/litellm")
    return [program, "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]


def _router(tools: Path, own: Path, port: int, upstream: int) -> list[str]:
    provider = {
        "name": "local",
        "api_base_url": f"http://127.0.0.1:{upstream}/v1/chat/completions",
        "api_key": KEY,
        "models": ["default"],
    }
    config = own / ".claude-code-router/config.json"
    config.parent.mkdir()
    config.write_text(
        json.dumps(
            {
                "HOST": "127.0.0.1",
                "PORT": port,
                "APIKEY": KEY,
                "LOG": False,
                "NON_INTERACTIVE_MODE": True,
                "Providers": [provider],
                "Router": {"default": "local,default"},
            }
        )
    )
    return [str(tools / "ccr/node_modules/.bin/ccr"), "start"]


def _fetch_nginx(folder: Path) -> None:
    folder.mkdir(parents=True)
    subprocess.run(["apt-get", "download", "nginx"], cwd=folder, check=True)
    (package,) = folder.glob("nginx_*.deb")
    subprocess.run(["dpkg", "-x", str(package), str(folder / "root")], check=True)


def _fetch_litellm(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "litellm[proxy]"]
    subprocess.run(pip, check=True)


def _fetch_router(folder: Path) -> None:
    folder.mkdir(parents=True)
    npm = ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(folder)]
    subprocess.run([*npm, "@musistudio/claude-code-router"], check=True)


def _is_here(_: Path) -> None:
    """Nothing to fetch."""


CANDIDATES = (
    Candidate("endpoint", _is_here, _endpoint),
    Candidate("nginx", _fetch_nginx, _nginx),
    Candidate("ccr", _fetch_router, _router),
    Candidate("litellm", _fetch_litellm, _litellm),
)
# No gateways, but what each in Python has to do: run when they are named.
FLOORS = (
    Candidate("bare", _is_here, _floor("bare")),
    Candidate("asgi", _is_here, _floor("asgi")),
)


def fetched(tools: Path, names: list[str]) -> Iterator[Candidate]:
    """The candidates of `names` (all gateways without any) that this machine can run.

    What is in `tools` already is not fetched.
    """
    named = [one for one in (*CANDIDATES, *FLOORS) if one.name in names]
    for candidate in named or CANDIDATES:
        folder = tools / candidate.name
        try:
            if not folder.exists():
                candidate.fetch(folder)
        except (OSError, subprocess.CalledProcessError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            print(f"{candidate.name} is left out: {error}", file=sys.stderr)
        else:
            yield candidate
