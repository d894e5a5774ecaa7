"""The endpoint's command line."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from zluda_stack.gateway.auth import KeyFile, Keys
from zluda_stack.gateway.server import Server

# A name holds no colon, which every address has before its first equals sign.
_UPSTREAM = re.compile(r"(?:(?P<name>[^=:]+)=)?(?P<address>(?:https?://|unix:).+)")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options. Ends the process with a line on stderr when they make no sense."""
    parser = argparse.ArgumentParser(prog="zluda_stack.gateway", description=__doc__)
    _listening(parser)
    _servers(parser)
    _keys(parser)
    parser.add_argument(
        "--capture",
        type=Path,
        metavar="DIR",
        help="write every prompt and answer into this folder, to find a fault",
    )
    options = parser.parse_args(arguments)
    if options.key_file is None and options.key_hashes is None:
        parser.error("nobody could use it: give --key-file or --key-hashes")
    if (options.tls_cert is None) != (options.tls_key is None):
        parser.error("--tls-cert and --tls-key belong together")
    return options


def servers(options: argparse.Namespace) -> list[Server]:
    """The model servers that are named."""
    return [Server(address, model=name, slots=options.slots) for name, address in options.upstream]


def keys(options: argparse.Namespace) -> Keys:
    """The keys in the files that are named. Raises OSError and ValueError."""
    files = []
    if options.key_file is not None:
        files.append(KeyFile.of_keys(options.key_file))
    if options.key_hashes is not None:
        files.append(KeyFile.of_digests(options.key_hashes))
    return Keys(*files)


def _listening(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("listening")
    group.add_argument("--bind", default="127.0.0.1", help="address to listen on")
    group.add_argument("--port", type=int, required=True, help="TCP port to listen on")
    group.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate chain, as PEM")
    group.add_argument("--tls-key", type=Path, metavar="FILE", help="its private key, as PEM")
    group.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="web pages that may call it, like https://chat.example.org, or * for all; "
        "without, none may",
    )
    group.add_argument(
        "--drain",
        type=int,
        default=30,
        metavar="SECONDS",
        help="how long requests in flight may take to end after SIGTERM",
    )


def _servers(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model servers")
    group.add_argument(
        "--upstream",
        action="append",
        type=_upstream,
        required=True,
        metavar="[NAME=]URL",
        help="http://HOST:PORT or unix:PATH; several are replicas of one model, or serve the "
        "models that they are named after",
    )
    group.add_argument(
        "--upstream-dialect",
        choices=("llama.cpp", "openai"),
        default="llama.cpp",
        help="what the model servers speak: llama.cpp's own, or OpenAI's API only (vLLM, others)",
    )
    group.add_argument(
        "--slots",
        type=_positive,
        metavar="N",
        help="requests that a model server computes at once; without, it is asked",
    )
    group.add_argument(
        "--queue", type=_positive, default=64, metavar="N", help="requests that may wait for one"
    )


def _keys(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("keys", "Changes of these files count at once.")
    group.add_argument(
        "--key-file", type=Path, metavar="FILE", help="file with accepted keys, one a line"
    )
    group.add_argument(
        "--key-hashes",
        type=Path,
        metavar="FILE",
        help="file with their SHA-256 digests, one a line, each with its name and limits",
    )


def _upstream(text: str) -> tuple[str | None, str]:
    """The name, if any, and the address. Raises ArgumentTypeError."""
    parts = _UPSTREAM.fullmatch(text)
    if parts is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no [NAME=]http://HOST:PORT or unix:PATH")
    return parts["name"], parts["address"]


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)
