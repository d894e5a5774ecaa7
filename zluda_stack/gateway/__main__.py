"""`python -m zluda_stack.gateway`: the endpoint as a process of its own."""

from __future__ import annotations

import argparse
import logging
import re
import sys
import time
from pathlib import Path

import uvicorn

from zluda_stack.gateway.app import Gateway
from zluda_stack.gateway.auth import KeyFile, Keys
from zluda_stack.gateway.pool import Pool
from zluda_stack.gateway.server import Server

# A name holds no colon, which every address has before its first equals sign.
_UPSTREAM = re.compile(r"(?:(?P<name>[^=:]+)=)?(?P<address>.+)")
_KEEP_ALIVE_SECONDS = 75


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="zluda_stack.gateway", description=__doc__)
    parser.add_argument("--bind", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, required=True, help="TCP port to listen on")
    parser.add_argument(
        "--upstream",
        action="append",
        required=True,
        metavar="[NAME=]URL",
        help="model server: http://HOST:PORT or unix:PATH; several are replicas of one model, or "
        "serve the models that they are named after",
    )
    parser.add_argument(
        "--upstream-dialect",
        choices=("llama.cpp", "openai"),
        default="llama.cpp",
        help="what the model servers speak: llama.cpp's own, or OpenAI's API only (vLLM, others)",
    )
    parser.add_argument(
        "--slots",
        type=_positive,
        metavar="N",
        help="requests that a model server computes at once; without, it is asked",
    )
    parser.add_argument(
        "--queue", type=_positive, default=64, metavar="N", help="requests that may wait for one"
    )
    parser.add_argument(
        "--key-file", type=Path, metavar="FILE", help="file with accepted keys, one a line"
    )
    parser.add_argument(
        "--key-hashes",
        type=Path,
        metavar="FILE",
        help="file with their SHA-256 digests, one a line, each with its name and limits",
    )
    parser.add_argument(
        "--drain",
        type=int,
        default=30,
        metavar="SECONDS",
        help="how long requests in flight may take to end after SIGTERM",
    )
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _servers(options: argparse.Namespace) -> list[Server]:
    parts = (_UPSTREAM.fullmatch(text) for text in options.upstream)
    return [
        Server(part["address"], model=part["name"], slots=options.slots) for part in parts if part
    ]


def _keys(options: argparse.Namespace) -> Keys:
    files = []
    if options.key_file is not None:
        files.append(KeyFile.of_keys(options.key_file))
    if options.key_hashes is not None:
        files.append(KeyFile.of_digests(options.key_hashes))
    return Keys(*files)


def _log_to_stdout() -> None:
    formatter = logging.Formatter("%(asctime)sZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def main(arguments: list[str] | None = None) -> None:
    """Serve until SIGTERM, then let requests in flight end."""
    parser = _arguments()
    options = parser.parse_args(arguments)
    if options.key_file is None and options.key_hashes is None:
        parser.error("nobody could use it: give --key-file or --key-hashes")
    _log_to_stdout()
    try:
        keys = _keys(options)
    except (OSError, ValueError) as error:
        sys.exit(f"cannot read the keys: {error}")
    uvicorn.run(
        Gateway(
            Pool(_servers(options), queue=options.queue),
            keys,
            openai_only=options.upstream_dialect == "openai",
        ),
        host=options.bind,
        port=options.port,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="on",
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=options.drain,
    )


if __name__ == "__main__":
    main()
