"""The inference process: loads one model with llama.cpp's own server and serves it over HTTP."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import xllamacpp

from zluda_stack.engines.embedded.state import InferenceReport, StackFolder, write_report


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="inference", description=__doc__)
    parser.add_argument("--model", required=True, help="GGUF file")
    parser.add_argument("--alias", action="append", required=True, help="name it is served under")
    parser.add_argument("--context", type=int, required=True, help="context length in tokens")
    parser.add_argument("--batch", type=int, help="tokens of a prompt that are computed at a time")
    parser.add_argument("--threads", type=int, help="CPU threads; llama.cpp chooses without")
    return parser


def describe(devices: Iterable[Mapping[str, object]]) -> str:
    """The compute devices that llama.cpp found, as text."""
    return ", ".join(f"{device['name']} ({device['description']})" for device in devices)


def _parameters(options: argparse.Namespace, folder: StackFolder) -> xllamacpp.CommonParams:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = options.model
    parameters.model_alias = set(options.alias)
    parameters.n_ctx = options.context
    parameters.n_gpu_layers = 0  # this engine's plans say CPU, whatever the wheel was built for
    parameters.hostnames = [folder.socket.name]
    parameters.ui = False
    # No web page may read from here. Without, llama.cpp warns that it has no key and lets all
    # pages in; the key is the endpoint's, before a socket that only this user can open.
    parameters.cors_origins = ""
    parameters.endpoint_metrics = True
    if options.batch is not None:
        parameters.n_ubatch = options.batch
    if options.threads is not None:
        parameters.cpuparams.n_threads = options.threads
    return parameters


def main() -> None:
    """Serve in the working directory, which is the stack's folder, until a signal ends it.

    SIGTERM keeps its default action. llama.cpp's own orderly stop takes up to half a minute,
    and nothing here needs it: the endpoint has let the requests end before.
    """
    options = _arguments().parse_args()
    folder = StackFolder(Path())
    folder.socket.unlink(missing_ok=True)
    os.umask(0o177)  # the socket is for this user alone: behind it no key is asked for
    try:
        server = xllamacpp.Server(_parameters(options, folder))
    except RuntimeError as error:
        sys.exit(f"llama.cpp could not serve {options.model}: {error}")
    write_report(folder, InferenceReport(device=describe(xllamacpp.get_device_info())))
    print(f"serving {options.model} on {server.listening_address}", flush=True)  # noqa: T201
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
